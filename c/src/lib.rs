//! tilewright's kernels as C functions: the contract is in `include/tilewright.h`. An example is `examples/norm.c`.

use std::cell::RefCell;
use std::ffi::{CString, c_char, c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use tilewright::element::{Element, bf16, f16};
use tilewright::ops::gemm::{Factor, gemm};
use tilewright::ops::rmsnorm::{Normed, rmsnorm, rmsnorm_residual};
use tilewright::{Device, Error, Result, Stream, TensorView, TensorViewMut};

/// Rows of adjacent elements.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Matrix {
    /// On a GPU, a `CUdeviceptr`.
    pub data: *mut c_void,
    /// Rows.
    pub rows: usize,
    /// Columns.
    pub cols: usize,
    /// Elements from row to row.
    pub row_stride: usize,
}

const F32: c_int = 0;
const F16: c_int = 1;
const BF16: c_int = 2;
const INTERNAL: c_int = 5;

thread_local! {
    static MESSAGE: RefCell<CString> = RefCell::default();
}

fn say(text: String) {
    MESSAGE.with_borrow_mut(|m| *m = CString::new(text.replace('\0', " ")).unwrap_or_default());
}

/// Runs what a function does; its result as a code, with a message for those that are not 0.
fn answer(body: impl FnOnce() -> Result<()>) -> c_int {
    // No panic is meant to get here; none may get out.
    let result = catch_unwind(AssertUnwindSafe(body));
    let error = match result {
        Ok(Ok(())) => return 0,
        Ok(Err(e)) => e,
        Err(_) => {
            say("a panic inside the library".into());
            return INTERNAL;
        }
    };
    say(error.to_string());
    match error {
        Error::Shape { .. }
        | Error::Stride { .. }
        | Error::Alignment { .. }
        | Error::Length { .. }
        | Error::Device { .. }
        | Error::Unsupported { .. } => 1,
        Error::NoDriver { .. }
        | Error::DriverTooOld { .. }
        | Error::NoDevice
        | Error::NoSuchDevice { .. }
        | Error::NoImageFor { .. }
        | Error::NotBuilt { .. }
        | Error::SignatureMismatch { .. } => 2,
        Error::Driver { .. } | Error::OutOfMemory { .. } | Error::Kernel { .. } => 3,
        Error::Capturing { .. } | Error::NotLoaded { .. } => 4,
        _ => INTERNAL,
    }
}

/// # Safety
/// As the header says of `stream`.
unsafe fn on(device: c_int, stream: *mut c_void) -> Result<Stream> {
    match u32::try_from(device) {
        // SAFETY: the caller's.
        Ok(ordinal) => unsafe { Stream::from_raw(&Device::cuda(ordinal)?, stream) },
        Err(_) if device == -1 => Device::cpu().stream(),
        Err(_) => Err(wrong("device", "a CUDA ordinal, or -1 for the CPU", device)),
    }
}

fn wrong(arg: &'static str, expected: &str, found: impl ToString) -> Error {
    Error::Shape { arg, expected: expected.into(), found: found.to_string() }
}

impl Matrix {
    fn check(&self, arg: &'static str) -> Result<()> {
        if self.data.is_null() && self.rows > 0 && self.cols > 0 {
            return Err(wrong(arg, "an address", "NULL"));
        }
        Ok(())
    }

    fn address<T>(&self) -> *mut T {
        // a view of nothing needs no memory, but an aligned address
        if self.data.is_null() { std::ptr::dangling_mut() } else { self.data.cast() }
    }

    /// # Safety
    /// As the header says of inputs.
    unsafe fn view<'a, T: Element>(&self, stream: &Stream, arg: &'static str) -> Result<TensorView<'a, T, 2>> {
        self.check(arg)?;
        let (extents, strides) = ([self.rows, self.cols], [self.row_stride, 1]);
        // SAFETY: the caller's.
        unsafe { TensorView::from_raw(&stream.device(), self.address(), extents, strides) }.map_err(|e| e.arg(arg))
    }

    /// # Safety
    /// As the header says of outputs.
    unsafe fn view_mut<'a, T: Element>(&self, stream: &Stream, arg: &'static str) -> Result<TensorViewMut<'a, T, 2>> {
        self.check(arg)?;
        let (extents, strides) = ([self.rows, self.cols], [self.row_stride, 1]);
        // SAFETY: the caller's.
        unsafe { TensorViewMut::from_raw(&stream.device(), self.address(), extents, strides) }.map_err(|e| e.arg(arg))
    }
}

/// # Safety
/// As the header says.
unsafe fn product<T: Factor>(stream: &Stream, a: Matrix, b: Matrix, c: Matrix) -> Result<()> {
    // SAFETY: the caller's.
    unsafe { gemm::<T>(stream, a.view(stream, "a")?, b.view(stream, "b")?, c.view_mut(stream, "c")?) }
}

/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tilewright_gemm(
    device: c_int,
    stream: *mut c_void,
    dtype: c_int,
    a: Matrix,
    b: Matrix,
    c: Matrix,
) -> c_int {
    // SAFETY: the caller's.
    answer(|| unsafe {
        let stream = on(device, stream)?;
        match dtype {
            F32 => product::<f32>(&stream, a, b, c),
            F16 => product::<f16>(&stream, a, b, c),
            BF16 => product::<bf16>(&stream, a, b, c),
            _ => Err(wrong("dtype", "f32 (0), f16 (1) or bf16 (2)", dtype)),
        }
    })
}

struct Norm {
    x: Matrix,
    r: Option<Matrix>,
    w: *const c_void,
    y: Matrix,
    eps: f32,
}

impl Norm {
    /// # Safety
    /// As the header says.
    unsafe fn run<T: Normed<W>, W: Element>(&self, s: &Stream) -> Result<()> {
        let w = Matrix { data: self.w.cast_mut(), rows: 1, cols: self.x.cols, row_stride: self.x.cols };
        // SAFETY: the caller's.
        unsafe {
            let w = w.view::<W>(s, "w")?.reshape([self.x.cols])?;
            let (x, y) = (self.x.view::<T>(s, "x")?, self.y.view_mut::<T>(s, "y")?);
            match &self.r {
                None => rmsnorm(s, x, w, y, self.eps),
                Some(r) => rmsnorm_residual(s, x, r.view_mut(s, "r")?, w, y, self.eps),
            }
        }
    }

    /// # Safety
    /// As the header says.
    unsafe fn answer(self, device: c_int, stream: *mut c_void, dtype: c_int, w_dtype: c_int) -> c_int {
        // SAFETY: the caller's.
        answer(|| unsafe {
            let stream = &on(device, stream)?;
            match (dtype, w_dtype) {
                (F32, F32) => self.run::<f32, f32>(stream),
                (F16, F16) => self.run::<f16, f16>(stream),
                (F16, F32) => self.run::<f16, f32>(stream),
                (BF16, BF16) => self.run::<bf16, bf16>(stream),
                (BF16, F32) => self.run::<bf16, f32>(stream),
                (F32 | F16 | BF16, _) => Err(wrong("w_dtype", "dtype, or f32 (0)", w_dtype)),
                _ => Err(wrong("dtype", "f32 (0), f16 (1) or bf16 (2)", dtype)),
            }
        })
    }
}

/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tilewright_rmsnorm(
    device: c_int,
    stream: *mut c_void,
    dtype: c_int,
    w_dtype: c_int,
    x: Matrix,
    w: *const c_void,
    y: Matrix,
    eps: f32,
) -> c_int {
    // SAFETY: the caller's.
    unsafe { Norm { x, r: None, w, y, eps }.answer(device, stream, dtype, w_dtype) }
}

/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tilewright_rmsnorm_residual(
    device: c_int,
    stream: *mut c_void,
    dtype: c_int,
    w_dtype: c_int,
    x: Matrix,
    r: Matrix,
    w: *const c_void,
    y: Matrix,
    eps: f32,
) -> c_int {
    // SAFETY: the caller's.
    unsafe { Norm { x, r: Some(r), w, y, eps }.answer(device, stream, dtype, w_dtype) }
}

/// What the last function of this thread that did not return 0 had to say.
#[unsafe(no_mangle)]
pub extern "C" fn tilewright_message() -> *const c_char {
    MESSAGE.with_borrow(|m| m.as_ptr())
}
