//! The front doors as C functions on a caller's CUDA stream and memory, so that a Python harness can time them in the
//! same run as other libraries (see `benches/with_peers.py`). Each returns 0, or prints the error and returns 1.

use std::ffi::c_void;

use tilewright::ops::gemm::{Factor, Path, Scaled, gemm_by, gemm_e4m3};
use tilewright::ops::mla::{self, Args, KEY, Latent, Problem, VALUE};
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

/// `C = A B^T` of dense matrices of e4m3 to bf16 on device 0: `tensors` are A and its scales (m x ceil(k / 128), f32), B and its
/// scales (ceil(n / 128) x ceil(k / 128)), and C.
///
/// # Safety
/// As for [`tilewright_gemm`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tilewright_gemm_e4m3(
    stream: *mut c_void,
    tensors: *const [*mut c_void; 5],
    m: usize,
    n: usize,
    k: usize,
) -> i32 {
    // SAFETY: the caller's.
    code(unsafe {
        let [a, sa, b, sb, c] = *tensors;
        Device::cuda(0).and_then(|device| {
            let (stream, depth) = (Stream::from_raw(&device, stream)?, k.div_ceil(128));
            let a = Scaled {
                elements: TensorView::from_raw(&device, a.cast(), [m, k], [k, 1])?,
                scales: TensorView::from_raw(&device, sa.cast(), [m, depth], [depth, 1])?,
            };
            let b = Scaled {
                elements: TensorView::from_raw(&device, b.cast(), [n, k], [k, 1])?,
                scales: TensorView::from_raw(&device, sb.cast(), [n.div_ceil(128), depth], [depth, 1])?,
            };
            gemm_e4m3(&stream, a, b, TensorViewMut::<bf16, 2>::from_raw(&device, c.cast(), [m, n], [n, 1])?)
        })
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

/// Sizes of a step of MLA decode on device 0: elements of its plan (u32) and of its workspace (f32). Returns 0, or 1.
///
/// # Safety
/// Both pointers are to one element each.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tilewright_mla_sizes(
    requests: usize,
    heads: usize,
    queries: usize,
    plan_words: *mut usize,
    workspace: *mut usize,
) -> i32 {
    code((|| {
        let problem = Problem::on(&Device::cuda(0)?, requests, heads, queries)?;
        // SAFETY: the caller's.
        unsafe {
            plan_words.write(problem.plan_words());
            workspace.write(problem.workspace_len());
        }
        Ok(())
    })())
}

/// Makes the plan of a step of MLA decode on device 0, from `requests` lengths (i32) of at most `capacity` keys.
///
/// # Safety
/// As for [`tilewright_gemm`], with `requests` lengths and a plan of as many elements as [`tilewright_mla_sizes`] says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tilewright_mla_plan(
    stream: *mut c_void,
    requests: usize,
    heads: usize,
    queries: usize,
    lengths: *const c_void,
    capacity: usize,
    plan: *mut c_void,
) -> i32 {
    code((|| {
        let device = Device::cuda(0)?;
        let problem = Problem::on(&device, requests, heads, queries)?;
        // SAFETY: the caller's.
        unsafe {
            let stream = Stream::from_raw(&device, stream)?;
            let lengths = TensorView::<i32, 1>::from_raw(&device, lengths.cast(), [requests], [1])?;
            let words = TensorViewMut::<u32, 1>::from_raw(&device, plan.cast(), [problem.plan_words()], [1])?;
            mla::plan(&stream, &problem, lengths, capacity, words)
        }
    })())
}

/// # Safety
/// As for [`tilewright_mla_decode`].
unsafe fn mla_decode<T: Latent>(
    stream: *mut c_void,
    [q, cache, table, lengths, plan, workspace, out, lse]: [*mut c_void; 8],
    [requests, heads, queries, pages, page_rows, columns]: [usize; 6],
    scale: f32,
) -> Result<(), Error> {
    let device = Device::cuda(0)?;
    let problem = Problem::on(&device, requests, heads, queries)?;
    let ([k, v], d) = ([KEY, VALUE], &device);
    // SAFETY: the caller's.
    unsafe {
        let stream = Stream::from_raw(&device, stream)?;
        let strides = |last: usize| [queries * heads * last, heads * last, last, 1];
        let args = Args {
            q: TensorView::<T, 4>::from_raw(d, q.cast(), [requests, queries, heads, k], strides(k))?.into(),
            cache: TensorView::<T, 3>::from_raw(d, cache.cast(), [pages, page_rows, k], [page_rows * k, k, 1])?.into(),
            table: TensorView::<i32, 2>::from_raw(d, table.cast(), [requests, columns], [columns, 1])?,
            lengths: TensorView::<i32, 1>::from_raw(d, lengths.cast(), [requests], [1])?,
            scale,
            plan: TensorView::<u32, 1>::from_raw(d, plan.cast(), [problem.plan_words()], [1])?,
            workspace: TensorViewMut::<f32, 1>::from_raw(d, workspace.cast(), [problem.workspace_len()], [1])?,
            out: TensorViewMut::<T, 4>::from_raw(d, out.cast(), [requests, queries, heads, v], strides(v))?,
            lse: TensorViewMut::<f32, 3>::from_raw(
                d,
                lse.cast(),
                [requests, queries, heads],
                [queries * heads, heads, 1],
            )?,
        };
        mla::decode(&stream, &problem, args)
    }
}

/// A step of MLA decode on device 0, all tensors dense: `q [requests, queries, heads, 576]`, `cache [pages, page_rows, 576]`,
/// `table [requests, columns]` and `lengths [requests]` (i32), a plan and a workspace as [`tilewright_mla_sizes`] says,
/// `out [requests, queries, heads, 512]`, `lse [requests, queries, heads]` (f32). `dtype` 0 is bf16, 1 f16.
///
/// # Safety
/// As for [`tilewright_gemm`], with tensors of these extents.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tilewright_mla_decode(
    stream: *mut c_void,
    dtype: i32,
    tensors: *const [*mut c_void; 8],
    extents: *const [usize; 6],
    scale: f32,
) -> i32 {
    // SAFETY: the caller's.
    code(unsafe {
        match dtype {
            0 => mla_decode::<bf16>(stream, *tensors, *extents, scale),
            _ => mla_decode::<f16>(stream, *tensors, *extents, scale),
        }
    })
}
