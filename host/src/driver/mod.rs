//! The CUDA driver. Everything else in the crate calls it through here.

mod context;
mod cut;
mod fault;
mod module;
mod tensor_map;

pub(crate) use context::{Context, contexts};
pub(crate) use cudarc::driver::sys;
pub(crate) use module::Function;
pub(crate) use tensor_map::encode;

use crate::error::{DriverVersion, Error, Result};
use libloading::Library;
use std::ffi::CStr;
use std::sync::OnceLock;

/// Every driver function that this crate calls without asking first is in drivers from this version on.
const OLDEST: DriverVersion = DriverVersion { major: 11, minor: 4 };

/// The result of a driver call, as ours.
pub(crate) fn check(call: &'static str, code: sys::CUresult) -> Result<()> {
    if code == sys::CUresult::CUDA_SUCCESS { Ok(()) } else { Err(failed(call, code, String::new())) }
}

#[cold]
pub(crate) fn failed(call: &'static str, code: sys::CUresult, log: String) -> Error {
    let mut name = std::ptr::null();
    // SAFETY: `name` is written on success, with a pointer to a static string.
    let known = unsafe { sys::cuGetErrorName(code, &mut name) } == sys::CUresult::CUDA_SUCCESS && !name.is_null();
    // SAFETY: as above.
    let name = if known { unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned() } else { "unknown".into() };
    Error::Driver { call, code: code as u32, name, log }
}

/// The driver library, if it is there. Found under names that cudarc looks for as well, so that cudarc, which panics
/// when it finds none, finds it too.
fn library() -> Option<&'static Library> {
    static LIBRARY: OnceLock<Option<Library>> = OnceLock::new();
    let names = [libloading::library_filename("cuda"), libloading::library_filename("nvcuda"), "libcuda.so.1".into()];
    // SAFETY: the driver library has no initialisers that could do harm: every CUDA program loads it.
    LIBRARY.get_or_init(|| names.iter().find_map(|n| unsafe { Library::new(n) }.ok())).as_ref()
}

/// A driver function that not every driver has.
///
/// # Safety
/// `F` is the function's type.
pub(crate) unsafe fn optional<F: Copy>(name: &str) -> Option<F> {
    // SAFETY: the caller's.
    library().and_then(|l| unsafe { l.get::<F>(name.as_bytes()) }.ok().map(|f| *f))
}

/// Loads and initialises the driver, once.
pub(crate) fn init() -> Result<DriverVersion> {
    static INIT: OnceLock<Result<DriverVersion>> = OnceLock::new();
    INIT.get_or_init(|| {
        if library().is_none() {
            return Err(Error::NoDriver { reason: "libcuda was not found".into() });
        }
        let mut version = 0;
        // SAFETY: writes an integer; needs no initialisation.
        check("cuDriverGetVersion", unsafe { sys::cuDriverGetVersion(&mut version) })?;
        let version = version.unsigned_abs();
        let found = DriverVersion { major: version / 1000, minor: version % 1000 / 10 };
        if found < OLDEST {
            return Err(Error::DriverTooOld { what: "tilewright".into(), need: OLDEST, found });
        }
        // SAFETY: no requirements.
        match unsafe { sys::cuInit(0) } {
            sys::CUresult::CUDA_SUCCESS => Ok(found),
            sys::CUresult::CUDA_ERROR_NO_DEVICE => Err(Error::NoDevice),
            code => Err(Error::NoDriver { reason: failed("cuInit", code, String::new()).to_string() }),
        }
    })
    .clone()
}

/// How many GPUs there are.
pub(crate) fn device_count() -> Result<u32> {
    init()?;
    let mut n = 0;
    // SAFETY: writes an integer.
    check("cuDeviceGetCount", unsafe { sys::cuDeviceGetCount(&mut n) })?;
    Ok(n.unsigned_abs())
}
