//! What a typed launch costs over the bare driver call, in microseconds on the host.
//!
//! `cargo run --release -p tilewright-host --example launch_cost`

#[path = "../tests/common/mod.rs"]
mod common;

use common::add_bias;
use cudarc::driver::sys;
use std::ffi::c_void;
use std::time::Instant;
use tilewright_core::__private::RawView;
use tilewright_host::{Device, Error, Launch, Tensor};

const LAUNCHES: usize = 1000;
const ROUNDS: usize = 21;

fn main() -> Result<(), Error> {
    let device = Device::best();
    println!("{device}");
    if device.is_cpu() {
        println!("no GPU: nothing to measure");
        return Ok(());
    }
    let stream = device.stream()?;
    let n = 128;
    let x = Tensor::<f32, 1>::full(&stream, [n], 1.0)?;
    let mut y = Tensor::<f32, 1>::zeros(&stream, [n])?;
    add_bias::prepare(&device)?;
    let bare = bare_function();
    let raw = RawView::matrix(1, n as u32, n as u64);
    let (mut typed, mut views, mut driver) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let start = Instant::now();
        for _ in 0..LAUNCHES {
            // SAFETY: the parameters are those of the kernel; the tensors are alive and used on this stream alone.
            unsafe { launch_bare(bare, &stream, x.as_ptr() as u64, y.as_mut_ptr() as u64, raw) };
        }
        driver.push(start.elapsed().as_secs_f64() * 1e6 / LAUNCHES as f64);
        stream.synchronize()?;

        let start = Instant::now();
        for _ in 0..LAUNCHES {
            add_bias::launch(&stream, (x.tiles()?, y.tiles_mut()?, 1.0))?;
        }
        typed.push(start.elapsed().as_secs_f64() * 1e6 / LAUNCHES as f64);
        stream.synchronize()?;

        let m = x.view().reshape([4, 32])?;
        let start = Instant::now();
        for _ in 0..LAUNCHES {
            std::hint::black_box(m.tma_tiles::<64, 32>()?);
        }
        views.push(start.elapsed().as_secs_f64() * 1e6 / LAUNCHES as f64);
    }
    let (typed, driver, views) = (median(typed), median(driver), median(views));
    println!("bare cuLaunchKernel {driver:.2} us, typed launch {typed:.2} us: {:+.2} us", typed - driver);
    println!("a view behind a remembered tensor map {views:.2} us");
    Ok(())
}

fn median(mut v: Vec<f64>) -> f64 {
    v.sort_by(f64::total_cmp);
    v[v.len() / 2]
}

fn bare_function() -> sys::CUfunction {
    let text = std::ffi::CString::new(include_str!("../tests/common/add_bias.ptx")).unwrap();
    let (mut module, mut function) = (std::ptr::null_mut(), std::ptr::null_mut());
    // SAFETY: the context is current; the text ends in a zero.
    unsafe {
        sys::cuModuleLoadData(&mut module, text.as_ptr().cast()).result().unwrap();
        sys::cuModuleGetFunction(&mut function, module, c"tests__add_bias".as_ptr()).result().unwrap();
    }
    function
}

/// # Safety
/// `x` and `y` are device memory of the view's extents.
unsafe fn launch_bare(f: sys::CUfunction, stream: &tilewright_host::Stream, x: u64, y: u64, raw: RawView) {
    let (none, bias) = (0u64, 1.0f32);
    let mut params: [*mut c_void; 6] = [
        (&raw const x).cast_mut().cast(),
        (&raw const raw).cast_mut().cast(),
        (&raw const y).cast_mut().cast(),
        (&raw const raw).cast_mut().cast(),
        (&raw const none).cast_mut().cast(),
        (&raw const bias).cast_mut().cast(),
    ];
    let stream = stream.as_raw().cast();
    // SAFETY: the caller's.
    let code =
        unsafe { sys::cuLaunchKernel(f, 16, 1, 1, 128, 1, 1, 1024, stream, params.as_mut_ptr(), std::ptr::null_mut()) };
    assert_eq!(code, sys::CUresult::CUDA_SUCCESS);
}
