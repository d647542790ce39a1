//! Launches within graphs: which one was recorded last, and other parameters for one.

use super::{optional, sys};
use std::ffi::c_void;
use std::sync::OnceLock;

type Info = unsafe extern "C" fn(
    sys::CUstream,
    *mut i32,
    *mut u64,
    *mut *mut c_void,
    *mut *const sys::CUgraphNode,
    *mut usize,
) -> sys::CUresult;

/// The node that was recorded last on a stream, if the driver says.
pub(crate) fn last_node(stream: sys::CUstream) -> Option<sys::CUgraphNode> {
    static INFO: OnceLock<Option<Info>> = OnceLock::new();
    // SAFETY: the function's type, under the name of its second version, which later drivers have too.
    let info = (*INFO.get_or_init(|| unsafe { optional("cuStreamGetCaptureInfo_v2") }))?;
    let (mut status, mut nodes, mut n) = (0, std::ptr::null(), 0usize);
    let null = std::ptr::null_mut::<c_void>();
    // SAFETY: a stream of the current context; the rest is written, or not wanted.
    let code = unsafe { info(stream, &mut status, null.cast(), null.cast(), &mut nodes, &mut n) };
    // What comes next depends on what came last, and on nothing else: the stream is recorded alone.
    let told = code == sys::CUresult::CUDA_SUCCESS && n == 1 && !nodes.is_null();
    // SAFETY: an array of `n` nodes, until the next call with the stream.
    told.then(|| unsafe { *nodes })
}

/// What a node launches: the first version of the driver's structure, which its function under the plain name takes.
#[repr(C)]
pub(crate) struct NodeLaunch {
    function: sys::CUfunction,
    grid: [u32; 3],
    block: [u32; 3],
    shared: u32,
    params: *mut *mut c_void,
    extra: *mut *mut c_void,
}

impl NodeLaunch {
    pub(crate) fn new(
        function: sys::CUfunction,
        grid: u32,
        threads: u32,
        shared: u32,
        params: &mut [*mut c_void],
    ) -> NodeLaunch {
        let (grid, block) = ([grid, 1, 1], [threads, 1, 1]);
        NodeLaunch { function, grid, block, shared, params: params.as_mut_ptr(), extra: std::ptr::null_mut() }
    }
}

type Set = unsafe extern "C" fn(sys::CUgraphExec, sys::CUgraphNode, *const NodeLaunch) -> sys::CUresult;

/// Gives a node of a graph other parameters, for replays from now on. None if the driver can not.
///
/// # Safety
/// `node` was recorded into what `exec` was made from; `launch` names a function and parameters of its.
pub(crate) unsafe fn set_node(
    exec: sys::CUgraphExec,
    node: sys::CUgraphNode,
    launch: &NodeLaunch,
) -> Option<sys::CUresult> {
    static SET: OnceLock<Option<Set>> = OnceLock::new();
    // SAFETY: the function's type.
    let set = (*SET.get_or_init(|| unsafe { optional("cuGraphExecKernelNodeSetParams") }))?;
    // SAFETY: the caller's.
    Some(unsafe { set(exec, node, launch) })
}
