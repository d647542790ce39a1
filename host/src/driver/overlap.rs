//! Launches that overlap with the kernel before them: programmatic dependent launch.

use super::{optional, sys};
use std::ffi::c_void;
use std::sync::OnceLock;

/// `CUlaunchAttribute`, as far as it is used: 4 bytes of id, 4 of padding, and a value of 64.
#[repr(C)]
struct Attribute {
    id: u32,
    padding: u32,
    value: [u64; 8],
}

/// `CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION`: its value is 1.
const OVERLAP: u32 = 6;

/// `CUlaunchConfig`.
#[repr(C)]
struct Config {
    grid: [u32; 3],
    block: [u32; 3],
    shared: u32,
    stream: sys::CUstream,
    attributes: *const Attribute,
    count: u32,
}

/// `cuLaunchKernelEx`, with its structures as they are above: not every version of the headers that a build may find has it.
type LaunchEx =
    unsafe extern "C" fn(*const Config, sys::CUfunction, *mut *mut c_void, *mut *mut c_void) -> sys::CUresult;

/// Launches a kernel whose blocks wait for the kernel before it. None if the driver knows no such launch: an ordinary one
/// does as well.
///
/// # Safety
/// As for `cuLaunchKernel`, and the kernel waits before it touches memory.
pub(crate) unsafe fn launch_overlapping(
    function: sys::CUfunction,
    grid: u32,
    threads: u32,
    shared: u32,
    stream: sys::CUstream,
    params: *mut *mut c_void,
) -> Option<sys::CUresult> {
    static LAUNCH: OnceLock<Option<LaunchEx>> = OnceLock::new();
    // SAFETY: the function's type.
    let launch = (*LAUNCH.get_or_init(|| unsafe { optional("cuLaunchKernelEx") }))?;
    let attribute = Attribute { id: OVERLAP, padding: 0, value: [1, 0, 0, 0, 0, 0, 0, 0] };
    let config =
        Config { grid: [grid, 1, 1], block: [threads, 1, 1], shared, stream, attributes: &attribute, count: 1 };
    // SAFETY: the caller's; the structures live until the call returns.
    Some(unsafe { launch(&config, function, params, std::ptr::null_mut()) })
}
