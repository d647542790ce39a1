//! The front doors as C functions on a caller's CUDA stream and memory, so that a Python harness can time them in the
//! same run as other libraries (see `benches/with_peers.py`). Each returns 0, or prints the error and returns 1.

use std::ffi::c_void;

use tilewright::ops::gemm::{Factor, Path, gemm_by};
use tilewright::ops::rmsnorm::{Normed, rmsnorm, rmsnorm_residual};
use tilewright::prelude::*;

fn code(result: Result<(), Error>) -> i32 {
    match result {
        Ok(()) => 0,
        Err(e) => {
            eprintln!("tilewright: {e}");
            1
        }
    }
}

/// # Safety
/// As for [`tilewright_gemm`].
unsafe fn gemm<T: Factor>(
    stream: *mut c_void,
    path: i32,
    [a, b, c]: [*mut c_void; 3],
    [m, n, k]: [usize; 3],
) -> Result<(), Error> {
    let device = Device::cuda(0)?;
    let path = if path == 0 { Path::Hopper } else { Path::Portable };
    // SAFETY: the caller's.
    unsafe {
        let stream = Stream::from_raw(&device, stream)?;
        let a = TensorView::<T, 2>::from_raw(&device, a.cast(), [m, k], [k, 1])?;
        let b = TensorView::<T, 2>::from_raw(&device, b.cast(), [n, k], [k, 1])?;
        let c = TensorViewMut::<T, 2>::from_raw(&device, c.cast(), [m, n], [n, 1])?;
        gemm_by(path, &stream, a, b, c)
    }
}

/// `C = A B^T` of dense matrices on device 0; `dtype` 0 is bf16, 1 f16, 2 f32; `path` 0 is Hopper, 1 portable.
///
/// # Safety
/// `stream` is a stream of device 0's primary context; the pointers are device memory of m x k, n x k and m x n elements
/// that nobody else uses until the stream has got there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tilewright_gemm(
    stream: *mut c_void,
    dtype: i32,
    path: i32,
    a: *mut c_void,
    b: *mut c_void,
    c: *mut c_void,
    m: usize,
    n: usize,
    k: usize,
) -> i32 {
    let (pointers, extents) = ([a, b, c], [m, n, k]);
    // SAFETY: the caller's.
    code(unsafe {
        match dtype {
            0 => gemm::<bf16>(stream, path, pointers, extents),
            1 => gemm::<f16>(stream, path, pointers, extents),
            _ => gemm::<f32>(stream, path, pointers, extents),
        }
    })
}

/// # Safety
/// As for [`tilewright_rmsnorm`].
unsafe fn norm<T: Normed<T>>(
    stream: *mut c_void,
    [x, r, w, y]: [*mut c_void; 4],
    [m, n]: [usize; 2],
    eps: f32,
) -> Result<(), Error> {
    let device = Device::cuda(0)?;
    // SAFETY: the caller's.
    unsafe {
        let stream = Stream::from_raw(&device, stream)?;
        let x = TensorView::<T, 2>::from_raw(&device, x.cast(), [m, n], [n, 1])?;
        let w = TensorView::<T, 1>::from_raw(&device, w.cast(), [n], [1])?;
        let y = TensorViewMut::<T, 2>::from_raw(&device, y.cast(), [m, n], [n, 1])?;
        if r.is_null() {
            return rmsnorm(&stream, x, w, y, eps);
        }
        let r = TensorViewMut::<T, 2>::from_raw(&device, r.cast(), [m, n], [n, 1])?;
        rmsnorm_residual(&stream, x, r, w, y, eps)
    }
}

/// RMSNorm of dense rows on device 0; `r` is null, or the residual, replaced by `x + r`. `dtype` as above.
///
/// # Safety
/// As for [`tilewright_gemm`], with m x n elements in `x`, `r` and `y` and n in `w`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tilewright_rmsnorm(
    stream: *mut c_void,
    dtype: i32,
    x: *mut c_void,
    r: *mut c_void,
    w: *mut c_void,
    y: *mut c_void,
    m: usize,
    n: usize,
    eps: f32,
) -> i32 {
    let (pointers, extents) = ([x, r, w, y], [m, n]);
    // SAFETY: the caller's.
    code(unsafe {
        match dtype {
            0 => norm::<bf16>(stream, pointers, extents, eps),
            1 => norm::<f16>(stream, pointers, extents, eps),
            _ => norm::<f32>(stream, pointers, extents, eps),
        }
    })
}
