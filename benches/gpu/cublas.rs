//! cuBLAS as a peer, if its library can be loaded. `TILEWRIGHT_CUBLAS` names the file; else the loader's path is tried.

use std::ffi::{c_int, c_void};

use libloading::Library;
use tilewright::prelude::*;

type Handle = *mut c_void;
type GemmEx = unsafe extern "C" fn(
    Handle,
    c_int,
    c_int,
    c_int,
    c_int,
    c_int,
    *const c_void,
    *const c_void,
    c_int,
    c_int,
    *const c_void,
    c_int,
    c_int,
    *const c_void,
    *mut c_void,
    c_int,
    c_int,
    c_int,
    c_int,
) -> c_int;

pub struct Cublas {
    library: Library,
    handle: Handle,
    /// The handle's workspace: cuBLAS may not allocate during a capture.
    _workspace: Tensor<u8, 1>,
}

impl Cublas {
    pub fn load(stream: &Stream) -> Result<Self, String> {
        let named = std::env::var("TILEWRIGHT_CUBLAS").ok();
        let names: Vec<String> = match named {
            Some(n) => vec![n],
            None => ["13", "12", "11"].iter().map(|v| format!("libcublas.so.{v}")).collect(),
        };
        let mut why = String::new();
        for name in names {
            // SAFETY: cuBLAS's initialisers do nothing that this program depends on.
            match unsafe { Library::new(&name) } {
                Ok(library) => return Self::open(stream, library),
                Err(e) => why = e.to_string(),
            }
        }
        Err(why)
    }

    fn open(stream: &Stream, library: Library) -> Result<Self, String> {
        let mut handle = std::ptr::null_mut();
        let mut workspace = Tensor::<u8, 1>::zeros(stream, [64 << 20]).map_err(|e| e.to_string())?;
        // SAFETY: the functions' types, from cublas_v2.h.
        unsafe {
            let create = library.get::<unsafe extern "C" fn(*mut Handle) -> c_int>(b"cublasCreate_v2\0");
            let set =
                library.get::<unsafe extern "C" fn(Handle, *mut c_void, usize) -> c_int>(b"cublasSetWorkspace_v2\0");
            let (create, set) = (create.map_err(|e| e.to_string())?, set.map_err(|e| e.to_string())?);
            if create(&mut handle) != 0 || set(handle, workspace.as_mut_ptr().cast(), 64 << 20) != 0 {
                return Err("cuBLAS does not start".into());
            }
        }
        Ok(Cublas { library, handle, _workspace: workspace })
    }

    /// `C = A B^T`, rounded to the element type, f32 sums; enqueued on `stream`.
    pub fn gemm<T: Element>(
        &self,
        s: &Stream,
        a: &Tensor<T, 2>,
        b: &Tensor<T, 2>,
        c: &mut Tensor<T, 2>,
    ) -> Result<(), String> {
        let ([m, k], [n, _]) = (a.extents(), b.extents());
        let kind = match T::DTYPE {
            DType::F16 => 2,
            DType::BF16 => 14,
            _ => 0,
        };
        let (one, zero) = (1.0f32, 0.0f32);
        let (m, n, k) = (m as c_int, n as c_int, k as c_int);
        // Column by column, C^T = B A^T: the first operand is transposed.
        // SAFETY: the functions' types; the tensors have these extents and live while the work runs, which the caller
        // waits for.
        let code = unsafe {
            let set = self.library.get::<unsafe extern "C" fn(Handle, *mut c_void) -> c_int>(b"cublasSetStream_v2\0");
            let set = set.map_err(|e| e.to_string())?;
            let gemm = self.library.get::<GemmEx>(b"cublasGemmEx\0").map_err(|e| e.to_string())?;
            let workspace = self
                .library
                .get::<unsafe extern "C" fn(Handle, *mut c_void, usize) -> c_int>(b"cublasSetWorkspace_v2\0");
            let workspace = workspace.map_err(|e| e.to_string())?;
            // setting the stream forgets the workspace
            set(self.handle, s.as_raw());
            workspace(self.handle, self._workspace.as_ptr().cast_mut().cast(), 64 << 20);
            gemm(
                self.handle,
                1,
                0,
                n,
                m,
                k,
                (&raw const one).cast(),
                b.as_ptr().cast(),
                kind,
                k,
                a.as_ptr().cast(),
                kind,
                k,
                (&raw const zero).cast(),
                c.as_mut_ptr().cast(),
                kind,
                n,
                68, // CUBLAS_COMPUTE_32F
                -1, // the default algorithm
            )
        };
        if code == 0 { Ok(()) } else { Err(format!("cublasGemmEx: {code}")) }
    }
}
