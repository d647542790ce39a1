//! The driver without this crate: what typed launches and graphs are compared with.

use std::ffi::{CString, c_int, c_uint, c_void};

use libloading::Library;
use tilewright::__private::Args;
use tilewright::prelude::*;

type Code = c_int;
type Handle = *mut c_void;
type Load = unsafe extern "C" fn(*mut Handle, *const c_void) -> Code;
type Get = unsafe extern "C" fn(*mut Handle, Handle, *const std::ffi::c_char) -> Code;
type Launch = unsafe extern "C" fn(
    Handle,
    c_uint,
    c_uint,
    c_uint,
    c_uint,
    c_uint,
    c_uint,
    c_uint,
    Handle,
    *mut Handle,
    *mut Handle,
) -> Code;
type Create = unsafe extern "C" fn(*mut Handle, c_uint) -> Code;
type AddKernel = unsafe extern "C" fn(*mut Handle, Handle, *const Handle, usize, *const Node) -> Code;
type Instantiate = unsafe extern "C" fn(*mut Handle, Handle, u64) -> Code;
type Replay = unsafe extern "C" fn(Handle, Handle) -> Code;

/// `CUDA_KERNEL_NODE_PARAMS`, first version.
#[repr(C)]
struct Node {
    function: Handle,
    grid: [c_uint; 3],
    block: [c_uint; 3],
    shared: c_uint,
    params: *mut Handle,
    extra: *mut Handle,
}

type Failed = Box<dyn std::error::Error>;

fn check(call: &str, code: Code) -> Result<(), Failed> {
    if code == 0 { Ok(()) } else { Err(format!("{call}: {code}").into()) }
}

/// The driver's functions. A context must be current, as it is after anything was done on a device.
pub struct Driver(Library);

/// A kernel as the driver knows it, with what every launch of it is given.
pub struct Function {
    raw: Handle,
    threads: u32,
    shared: u32,
    launch: Launch,
}

/// A graph made node by node.
pub struct HandMade {
    exec: Handle,
    replay: Replay,
}

/// The PTX of one kernel: its image's head, and its entry alone.
pub fn text_of<K: Kernel>() -> Result<String, Failed> {
    let image = K::images().iter().find(|i| i.entries.iter().any(|e| e.symbol == K::SYMBOL));
    let ptx = image.ok_or("a kernel was not built")?.ptx;
    let head = &ptx[..ptx.find(".visible .entry ").ok_or("an image has no entry")?];
    let start = ptx.find(&format!(".visible .entry {}(", K::SYMBOL)).ok_or("an image lacks a kernel")?;
    let end = ptx[start..].find("\n}").ok_or("an entry has no end")? + start + 2;
    Ok(format!("{head}{}\n", &ptx[start..end]))
}

impl Driver {
    pub fn open() -> Result<Driver, Failed> {
        // SAFETY: the driver, which is loaded already.
        Ok(Driver(unsafe { Library::new("libcuda.so.1") }?))
    }

    /// # Safety
    /// `F` is the function's type, from cuda.h.
    unsafe fn get<F: Copy>(&self, name: &str) -> Result<F, Failed> {
        // SAFETY: the caller's.
        Ok(*unsafe { self.0.get::<F>(name.as_bytes()) }?)
    }

    /// Compiles `text`, which holds `K`'s entry.
    pub fn load<K: Kernel>(&self, text: &str) -> Result<Function, Failed> {
        let (mut module, mut raw) = (std::ptr::null_mut(), std::ptr::null_mut());
        let (text, name) = (CString::new(text)?, CString::new(K::SYMBOL)?);
        // SAFETY: the functions' types; strings with an end.
        unsafe {
            let (load, get): (Load, Get) = (self.get("cuModuleLoadData")?, self.get("cuModuleGetFunction")?);
            check("cuModuleLoadData", load(&mut module, text.as_ptr().cast()))?;
            check("cuModuleGetFunction", get(&mut raw, module, name.as_ptr()))?;
            Ok(Function { raw, threads: K::THREADS, shared: K::SHARED_BYTES, launch: self.get("cuLaunchKernel")? })
        }
    }

    /// `nodes` launches of a kernel, one after the other.
    pub fn chain(&self, f: &Function, nodes: usize, blocks: u32, params: &mut [Handle]) -> Result<HandMade, Failed> {
        let (mut graph, mut exec, mut last) = (std::ptr::null_mut(), std::ptr::null_mut(), std::ptr::null_mut());
        let (grid, block, extra) = ([blocks, 1, 1], [f.threads, 1, 1], std::ptr::null_mut());
        let node = Node { function: f.raw, grid, block, shared: f.shared, params: params.as_mut_ptr(), extra };
        // SAFETY: the functions' types; the parameters are copied.
        unsafe {
            let (create, add): (Create, AddKernel) = (self.get("cuGraphCreate")?, self.get("cuGraphAddKernelNode")?);
            let instantiate: Instantiate = self.get("cuGraphInstantiateWithFlags")?;
            check("cuGraphCreate", create(&mut graph, 0))?;
            for i in 0..nodes {
                let before = last;
                check("cuGraphAddKernelNode", add(&mut last, graph, &before, usize::from(i > 0), &node))?;
            }
            check("cuGraphInstantiate", instantiate(&mut exec, graph, 0))?;
            Ok(HandMade { exec, replay: self.get("cuGraphLaunch")? })
        }
    }
}

impl Function {
    /// # Safety
    /// `params` are the addresses of the kernel's parameters; what they name is used on this stream alone.
    pub unsafe fn launch(&self, stream: &Stream, blocks: u32, params: &mut [Handle]) -> Result<(), Failed> {
        let (stream, params, none) = (stream.as_raw(), params.as_mut_ptr(), std::ptr::null_mut());
        // SAFETY: the caller's.
        let code =
            unsafe { (self.launch)(self.raw, blocks, 1, 1, self.threads, 1, 1, self.shared, stream, params, none) };
        check("cuLaunchKernel", code)
    }
}

impl HandMade {
    /// # Safety
    /// What the nodes' parameters name is used on this stream alone.
    pub unsafe fn replay(&self, stream: &Stream) -> Result<(), Failed> {
        // SAFETY: the caller's.
        check("cuGraphLaunch", unsafe { (self.replay)(self.exec, stream.as_raw()) })
    }
}

/// Where each parameter of a launch is.
pub fn addresses<A: Args>(lowered: &A::Lowered) -> Vec<Handle> {
    let mut all = Vec::new();
    A::params(lowered, &mut |p| all.push(p.cast_mut()));
    all
}
