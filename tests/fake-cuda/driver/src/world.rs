//! What the driver knows: one world a process.

use crate::memory::Memory;
use crate::queue::{Op, Point, Stream};
use std::cell::Cell;
use std::collections::{BTreeMap, HashMap};
use std::ffi::{CStr, c_void};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use tilewright_fake_cuda::KernelBody;

pub type Code = i32;
pub const SUCCESS: Code = 0;
pub const INVALID_VALUE: Code = 1;
pub const OUT_OF_MEMORY: Code = 2;
pub const NOT_INITIALIZED: Code = 3;
pub const NO_DEVICE: Code = 100;
pub const INVALID_DEVICE: Code = 101;
pub const INVALID_IMAGE: Code = 200;
pub const INVALID_CONTEXT: Code = 201;
pub const NO_BINARY_FOR_GPU: Code = 209;
pub const INVALID_PTX: Code = 218;
pub const UNSUPPORTED_PTX_VERSION: Code = 222;
pub const INVALID_HANDLE: Code = 400;
pub const NOT_FOUND: Code = 500;
pub const NOT_READY: Code = 600;
pub const LAUNCH_FAILED: Code = 719;
pub const STREAM_CAPTURE_UNSUPPORTED: Code = 900;
pub const STREAM_CAPTURE_INVALIDATED: Code = 901;

/// Every code that may come up, with the driver's name for it.
pub const NAMES: &[(Code, &CStr)] = &[
    (SUCCESS, c"CUDA_SUCCESS"),
    (INVALID_VALUE, c"CUDA_ERROR_INVALID_VALUE"),
    (OUT_OF_MEMORY, c"CUDA_ERROR_OUT_OF_MEMORY"),
    (NOT_INITIALIZED, c"CUDA_ERROR_NOT_INITIALIZED"),
    (NO_DEVICE, c"CUDA_ERROR_NO_DEVICE"),
    (INVALID_DEVICE, c"CUDA_ERROR_INVALID_DEVICE"),
    (INVALID_IMAGE, c"CUDA_ERROR_INVALID_IMAGE"),
    (INVALID_CONTEXT, c"CUDA_ERROR_INVALID_CONTEXT"),
    (NO_BINARY_FOR_GPU, c"CUDA_ERROR_NO_BINARY_FOR_GPU"),
    (INVALID_PTX, c"CUDA_ERROR_INVALID_PTX"),
    (UNSUPPORTED_PTX_VERSION, c"CUDA_ERROR_UNSUPPORTED_PTX_VERSION"),
    (INVALID_HANDLE, c"CUDA_ERROR_INVALID_HANDLE"),
    (NOT_FOUND, c"CUDA_ERROR_NOT_FOUND"),
    (NOT_READY, c"CUDA_ERROR_NOT_READY"),
    (LAUNCH_FAILED, c"CUDA_ERROR_LAUNCH_FAILED"),
    (STREAM_CAPTURE_UNSUPPORTED, c"CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED"),
    (STREAM_CAPTURE_INVALIDATED, c"CUDA_ERROR_STREAM_CAPTURE_INVALIDATED"),
];

/// Which call fails.
#[derive(Clone, Debug, PartialEq)]
pub struct Fault {
    /// A function, or `*` for any.
    pub function: String,
    /// Counted from 1.
    pub nth: u64,
    /// All later ones too.
    pub onwards: bool,
    pub code: Code,
}

impl Fault {
    /// `cuMemAllocAsync:2=2`: its second call fails with 2. `*:7=719`: the seventh call of all. `*:7+=719`: all from then.
    pub fn parse(text: &str) -> Option<Fault> {
        let (function, rest) = text.trim().split_once(':')?;
        let (nth, code) = rest.split_once('=')?;
        let (nth, onwards) = match nth.strip_suffix('+') {
            Some(n) => (n, true),
            None => (nth, false),
        };
        Some(Fault { function: function.into(), nth: nth.parse().ok()?, onwards, code: code.parse().ok()? })
    }
}

/// What the process was started with, from its environment.
pub struct Settings {
    pub version: i32,
    pub capability: (i32, i32),
    pub devices: i32,
    pub pools: bool,
    /// Memory of the host that was not made page-locked is treated as a real driver treats it: copies from it are staged
    /// by the call, copies to it are done when the call returns. Otherwise all of it is taken for page-locked.
    pub pageable: bool,
    /// Bytes of memory that a device has.
    pub memory: u64,
}

impl Settings {
    fn from_environment() -> Settings {
        let number = |name: &str, or: i32| std::env::var(name).ok().and_then(|v| v.parse().ok()).unwrap_or(or);
        let capability = number("FAKE_CUDA_CAPABILITY", 90);
        Settings {
            version: number("FAKE_CUDA_VERSION", 13000),
            capability: (capability / 10, capability % 10),
            devices: number("FAKE_CUDA_DEVICES", 1),
            pools: number("FAKE_CUDA_POOLS", 1) != 0,
            pageable: number("FAKE_CUDA_PAGEABLE", 0) != 0,
            memory: 1 << 30,
        }
    }
}

pub struct Event {
    pub device: i32,
    pub point: Option<Point>,
}

pub struct Module {
    pub device: i32,
    pub text: Vec<u8>,
}

pub struct Function {
    pub name: String,
    pub device: i32,
}

/// Recorded work.
pub struct Graph {
    pub nodes: Vec<Op>,
    pub device: i32,
    /// The stream: its nodes were named while it recorded.
    pub recorded_on: u64,
}

pub struct Exec {
    pub nodes: Vec<Op>,
    pub device: i32,
    pub recorded_on: u64,
    /// What it was made from.
    pub graph: u64,
    pub launched: Vec<Point>,
}

pub struct World {
    pub settings: Settings,
    pub initialized: bool,
    pub total: u64,
    pub counts: BTreeMap<&'static str, u64>,
    pub log: Option<Vec<&'static str>>,
    pub faults: Vec<Fault>,
    pub failed: Vec<&'static str>,
    /// All calls fail from some point on: nothing runs any more.
    pub lost: bool,
    pub violations: Vec<String>,
    pub retained: BTreeMap<i32, i64>,
    pub memory: Memory,
    pub streams: HashMap<u64, Stream>,
    pub events: HashMap<u64, Event>,
    pub modules: HashMap<u64, Module>,
    pub functions: HashMap<u64, Function>,
    pub graphs: HashMap<u64, Graph>,
    pub execs: HashMap<u64, Exec>,
    pub kernels: HashMap<String, (Vec<usize>, KernelBody)>,
    /// 0: as late as may be; otherwise at moments that follow from it.
    pub seed: u64,
    handles: u64,
}

thread_local! {
    /// The context of this thread: the device's number, or none.
    pub static CURRENT: Cell<Option<i32>> = const { Cell::new(None) };
}

const CONTEXTS: u64 = 0x5EED_0000_0000;

impl World {
    fn new() -> World {
        let faults = std::env::var("FAKE_CUDA_FAIL").unwrap_or_default();
        World {
            settings: Settings::from_environment(),
            initialized: false,
            total: 0,
            counts: BTreeMap::new(),
            log: None,
            faults: faults.split(',').filter_map(Fault::parse).collect(),
            failed: Vec::new(),
            lost: false,
            violations: Vec::new(),
            retained: BTreeMap::new(),
            memory: Memory::default(),
            streams: HashMap::new(),
            events: HashMap::new(),
            modules: HashMap::new(),
            functions: HashMap::new(),
            graphs: HashMap::new(),
            execs: HashMap::new(),
            kernels: HashMap::new(),
            seed: 0,
            handles: 0,
        }
    }

    pub fn get() -> MutexGuard<'static, World> {
        static WORLD: OnceLock<Mutex<World>> = OnceLock::new();
        WORLD.get_or_init(|| Mutex::new(World::new())).lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a call. The code that it must fail with, if it must.
    pub fn enter(&mut self, name: &'static str) -> Result<(), Code> {
        self.total += 1;
        let count = self.counts.entry(name).or_default();
        *count += 1;
        let (total, count) = (self.total, *count);
        if let Some(log) = &mut self.log {
            log.push(name);
        }
        let fault = self.faults.iter().find(|f| {
            let at = if f.function == "*" { total } else { count };
            (f.function == "*" || f.function == name) && (at == f.nth || f.onwards && at > f.nth)
        });
        match fault {
            Some(f) => {
                let code = f.code;
                self.lost |= f.onwards;
                self.failed.push(name);
                Err(code)
            }
            None => Ok(()),
        }
    }

    pub fn violation(&mut self, what: impl Into<String>) {
        self.violations.push(what.into());
    }

    /// A handle that no other object has had.
    pub fn handle(&mut self) -> u64 {
        self.handles += 1;
        0x7A4D_0000_0000 + 16 * self.handles
    }

    /// The current device, of a thread that has one.
    pub fn current(&self) -> Result<i32, Code> {
        if !self.initialized {
            return Err(NOT_INITIALIZED);
        }
        CURRENT.get().ok_or(INVALID_CONTEXT)
    }

    /// That an object of `device` is used in its context.
    pub fn belongs(&mut self, what: &str, device: i32) -> Result<(), Code> {
        let current = self.current()?;
        if current == device {
            return Ok(());
        }
        self.violation(format!("{what} of device {device} used in the context of device {current}"));
        Err(INVALID_CONTEXT)
    }

    pub fn next_random(&mut self) -> u64 {
        self.seed = self.seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407) | 1;
        self.seed >> 33
    }
}

/// The handle of a device's context.
pub fn context_handle(device: i32) -> *mut c_void {
    (CONTEXTS + 16 * device as u64) as *mut c_void
}

/// The device of a context's handle.
pub fn context_device(handle: *mut c_void) -> Option<i32> {
    let offset = (handle as u64).checked_sub(CONTEXTS)?;
    (offset < 16 * 64 && offset % 16 == 0).then_some((offset / 16) as i32)
}
