//! The CUDA driver. Everything else in the crate calls it through here.

mod context;
mod cut;
mod fault;
mod module;
mod node;
mod tensor_map;

pub(crate) use context::{Context, contexts};
pub(crate) use cudarc::driver::sys;
pub(crate) use module::Function;
pub(crate) use node::{NodeLaunch, last_node, set_node};
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
    let name = if known { unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned() } else { format!("{code:?}") };
    Error::Driver { call, code: code as u32, name, log }
}

/// Waits on the host until all work of a stream of the current context is done: for those who must not go on before. A
/// failure may be one of this call alone, so the driver is asked a second time. If that fails too, `done` is false: the
/// context is lost, as far as anybody can tell, and nothing runs in it any more.
pub(crate) fn drain(stream: sys::CUstream) -> Drained {
    // SAFETY: a stream of the current context, as the callers say.
    let wait = || check("cuStreamSynchronize", unsafe { sys::cuStreamSynchronize(stream) });
    let result = wait();
    let done = result.is_ok() || wait().is_ok();
    Drained { done, result }
}

/// What came of waiting.
pub(crate) struct Drained {
    pub(crate) done: bool,
    /// The first answer: it also tells of what failed on the device before.
    pub(crate) result: Result<()>,
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

/// Every function that this crate calls without asking first, as the driver exports it. Only these must be there, so
/// that no driver is refused for what nobody calls.
const NEEDED: &[&str] = &[
    "cuCtxGetCurrent",
    "cuCtxSetCurrent",
    "cuDeviceGet",
    "cuDeviceGetAttribute",
    "cuDeviceGetCount",
    "cuDeviceGetName",
    "cuDevicePrimaryCtxRetain",
    "cuDeviceTotalMem_v2",
    "cuEventCreate",
    "cuEventDestroy_v2",
    "cuEventQuery",
    "cuEventRecord",
    "cuEventSynchronize",
    "cuFuncSetAttribute",
    "cuGetErrorName",
    "cuGraphDestroy",
    "cuGraphExecDestroy",
    "cuGraphInstantiateWithFlags",
    "cuGraphLaunch",
    "cuInit",
    "cuLaunchKernel",
    "cuMemAllocAsync",
    "cuMemAlloc_v2",
    "cuMemFreeAsync",
    "cuMemFreeHost",
    "cuMemFree_v2",
    "cuMemHostAlloc",
    "cuMemcpy2DAsync_v2",
    "cuMemcpyDtoDAsync_v2",
    "cuMemcpyDtoHAsync_v2",
    "cuMemcpyHtoDAsync_v2",
    "cuMemcpyPeerAsync",
    "cuMemsetD16Async",
    "cuMemsetD32Async",
    "cuMemsetD8Async",
    "cuModuleGetFunction",
    "cuModuleLoadData",
    "cuModuleLoadDataEx",
    "cuOccupancyMaxActiveBlocksPerMultiprocessor",
    "cuStreamBeginCapture_v2",
    "cuStreamCreate",
    "cuStreamDestroy_v2",
    "cuStreamEndCapture",
    "cuStreamSynchronize",
    "cuStreamWaitEvent",
];

/// Loads and initialises the driver, once. A failure is not remembered: what was missing may be there next time.
pub(crate) fn init() -> Result<DriverVersion> {
    static INIT: OnceLock<DriverVersion> = OnceLock::new();
    if let Some(version) = INIT.get() {
        return Ok(*version);
    }
    let Some(library) = library() else {
        return Err(Error::NoDriver { reason: "libcuda was not found".into() });
    };
    // SAFETY: the functions are looked for, not called.
    let has = |name: &&&str| unsafe { library.get::<*const ()>(name.as_bytes()) }.is_ok();
    // SAFETY: the function's type.
    let version = unsafe { optional::<unsafe extern "C" fn(*mut i32) -> sys::CUresult>("cuDriverGetVersion") };
    let Some(get_version) = version else {
        return Err(Error::NoDriver { reason: "libcuda has no `cuDriverGetVersion`".into() });
    };
    let mut version = 0;
    // SAFETY: writes an integer; needs no initialisation.
    let code = unsafe { get_version(&mut version) };
    let version = version.unsigned_abs();
    let found = DriverVersion { major: version / 1000, minor: version % 1000 / 10 };
    if code == sys::CUresult::CUDA_SUCCESS && found < OLDEST {
        return Err(Error::DriverTooOld { what: "tilewright".into(), need: OLDEST, found });
    }
    // cudarc panics when it is asked for one that is not there.
    if let Some(missing) = NEEDED.iter().find(|name| !has(name)) {
        return Err(Error::NoDriver { reason: format!("libcuda has no `{missing}`") });
    }
    check("cuDriverGetVersion", code)?;
    // SAFETY: no requirements.
    match unsafe { sys::cuInit(0) } {
        sys::CUresult::CUDA_SUCCESS => Ok(*INIT.get_or_init(|| found)),
        sys::CUresult::CUDA_ERROR_NO_DEVICE => Err(Error::NoDevice),
        code => Err(Error::NoDriver { reason: failed("cuInit", code, String::new()).to_string() }),
    }
}

/// How many GPUs there are.
pub(crate) fn device_count() -> Result<u32> {
    init()?;
    let mut n = 0;
    // SAFETY: writes an integer.
    check("cuDeviceGetCount", unsafe { sys::cuDeviceGetCount(&mut n) })?;
    Ok(n.unsigned_abs())
}

#[cfg(test)]
mod tests {
    /// The list above is of this crate's calls, all of them.
    #[test]
    fn what_is_called_is_looked_for() {
        let mut called: Vec<String> = Vec::new();
        let mut folders = vec![std::path::PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/src"))];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    folders.push(path);
                    continue;
                }
                let text = std::fs::read_to_string(path).unwrap();
                let names = text.split("sys::cu").skip(1).map(|rest| {
                    let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len());
                    format!("cu{}", &rest[..end])
                });
                called.extend(names.filter(|n| n.len() > 2));
            }
        }
        called.sort();
        called.dedup();
        assert!(called.len() > 30);
        let mut needed: Vec<_> = super::NEEDED.to_vec();
        needed.sort_unstable();
        assert_eq!(called, needed);
    }
}
