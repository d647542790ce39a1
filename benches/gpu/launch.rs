//! What a typed launch costs on the host, beside the bare driver call with the same parameters.

use std::ffi::{CString, c_int, c_void};
use std::time::Instant;

use libloading::Library;
use tilewright::__private::RawView;
use tilewright::Launch as _;
use tilewright::kernels::elementwise::axpy;
use tilewright::prelude::*;

use crate::report::{Report, Row};

type LaunchKernel = unsafe extern "C" fn(
    *mut c_void,
    u32,
    u32,
    u32,
    u32,
    u32,
    u32,
    u32,
    *mut c_void,
    *mut *mut c_void,
    *mut *mut c_void,
) -> c_int;

const LAUNCHES: usize = 500;
const ROUNDS: usize = 15;

pub fn time(stream: &Stream, report: &mut Report) -> Result<(), Box<dyn std::error::Error>> {
    type K = axpy<f32>;
    K::prepare(&stream.device())?;
    // SAFETY: the driver, which is loaded already.
    let driver = unsafe { Library::new("libcuda.so.1") }?;
    let (mut module, mut function) = (std::ptr::null_mut::<c_void>(), std::ptr::null_mut::<c_void>());
    let image = K::images().iter().find(|i| i.entries.iter().any(|e| e.symbol == K::SYMBOL));
    let text = CString::new(image.ok_or("axpy was not built")?.ptx)?;
    let name = CString::new(K::SYMBOL)?;
    // SAFETY: the functions' types, from cuda.h; the context is current since `prepare`.
    let launch: LaunchKernel = unsafe {
        let load =
            driver.get::<unsafe extern "C" fn(*mut *mut c_void, *const c_void) -> c_int>(b"cuModuleLoadData\0")?;
        let get = driver
            .get::<unsafe extern "C" fn(*mut *mut c_void, *mut c_void, *const i8) -> c_int>(b"cuModuleGetFunction\0")?;
        if load(&mut module, text.as_ptr().cast()) != 0 || get(&mut function, module, name.as_ptr()) != 0 {
            return Err("the driver does not load the image".into());
        }
        *driver.get::<LaunchKernel>(b"cuLaunchKernel\0")?
    };
    let n = 2048;
    let x = Tensor::<f32, 1>::full(stream, [n], 1.0)?;
    let mut y = Tensor::<f32, 1>::zeros(stream, [n])?;
    let raw = RawView::matrix(1, n as u32, n as u64);
    let (none, a, from, to) = (0u64, 0.5f32, x.as_ptr() as u64, y.as_mut_ptr() as u64);
    let mut params: [*mut c_void; 6] = [
        (&raw const none).cast_mut().cast(),
        (&raw const a).cast_mut().cast(),
        (&raw const from).cast_mut().cast(),
        (&raw const raw).cast_mut().cast(),
        (&raw const to).cast_mut().cast(),
        (&raw const raw).cast_mut().cast(),
    ];
    let (mut typed, mut cached, mut bare) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let start = Instant::now();
        for _ in 0..LAUNCHES {
            // SAFETY: the parameters are those of the kernel; the tensors are used on this stream alone.
            let code = unsafe {
                let (threads, shared) = (K::THREADS, K::SHARED_BYTES);
                let stream = stream.as_raw();
                launch(function, 1, 1, 1, threads, 1, 1, shared, stream, params.as_mut_ptr(), std::ptr::null_mut())
            };
            if code != 0 {
                return Err(format!("cuLaunchKernel: {code}").into());
            }
        }
        bare.push(start.elapsed().as_secs_f64() * 1e6 / LAUNCHES as f64);
        stream.synchronize()?;

        let start = Instant::now();
        for _ in 0..LAUNCHES {
            K::launch(stream, (a, x.tiles()?, y.tiles_mut()?))?;
        }
        typed.push(start.elapsed().as_secs_f64() * 1e6 / LAUNCHES as f64);
        stream.synchronize()?;

        let view = x.tiles()?;
        let start = Instant::now();
        for _ in 0..LAUNCHES {
            K::launch(stream, (a, view, y.tiles_mut()?))?;
        }
        cached.push(start.elapsed().as_secs_f64() * 1e6 / LAUNCHES as f64);
        stream.synchronize()?;
    }
    let median = |mut v: Vec<f64>| {
        v.sort_by(f64::total_cmp);
        v[v.len() / 2]
    };
    let (typed, cached, peer_us) = (median(typed), median(cached), median(bare));
    for (op, ours_us) in [("launch", typed), ("launch_held_view", cached)] {
        let rate = format!("{:+.2} us", ours_us - peer_us);
        let (shape, peer) = ("host".to_string(), "cuLaunchKernel");
        report.add(Row { op, dtype: DType::F32, shape, ours_us, peer, peer_us, rate });
    }
    Ok(())
}
