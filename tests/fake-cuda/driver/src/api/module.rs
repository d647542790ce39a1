//! Modules, functions, launches.
#![allow(unsafe_op_in_unsafe_fn)] // every function here is given pointers by the caller's contract

use super::{api, put};
use crate::queue::Op;
use crate::world::{
    Code, Function, INVALID_HANDLE, INVALID_IMAGE, INVALID_PTX, INVALID_VALUE, Module, NO_BINARY_FOR_GPU, NOT_FOUND,
    UNSUPPORTED_PTX_VERSION, World,
};
use std::ffi::{CStr, c_char, c_void};

const MAX_SHARED: i32 = 232_448;
const ERROR_LOG: i32 = 5;
const ERROR_LOG_BYTES: i32 = 6;

/// What the driver's compiler would say of a PTX text, as far as a fake can tell.
fn compile(w: &World, text: &str) -> Result<(), (Code, String)> {
    let word = |name: &str| text.lines().find_map(|l| l.trim().strip_prefix(name)).map(str::trim);
    let version = word(".version ").and_then(|v| v.split_once('.'));
    let Some((major, minor)) = version.and_then(|(a, b)| Some((a.parse::<i32>().ok()?, b.parse::<i32>().ok()?))) else {
        return Err((INVALID_PTX, "ptxas fatal: no .version".into()));
    };
    let cuda = w.settings.version;
    let (have_major, have_minor) = (
        cuda / 1000 - 4,
        match cuda / 10 % 100 {
            n if cuda < 12_000 => n,
            n @ 0..6 => n,
            6 | 7 => 5,
            n => n - 1,
        },
    );
    if (major, minor) > (have_major, have_minor) {
        return Err((UNSUPPORTED_PTX_VERSION, format!("ptxas fatal: Unsupported .version {major}.{minor}")));
    }
    let target = word(".target ").and_then(|t| t.split(',').next()).unwrap_or_default();
    let number = target.trim_start_matches("sm_").trim_end_matches('a').parse::<i32>().unwrap_or(0);
    let have = w.settings.capability.0 * 10 + w.settings.capability.1;
    if number == 0 || number > have || target.ends_with('a') && number != have {
        return Err((NO_BINARY_FOR_GPU, format!("ptxas fatal: SM version {target} is not sm_{have}")));
    }
    let mut depth = 0i32;
    for (i, line) in text.lines().enumerate() {
        let start = line.trim();
        if depth == 0 && !start.is_empty() && !start.starts_with(['.', '{', '}', '(', ')', '/', ',']) {
            let near = start.split(' ').next().unwrap_or_default();
            return Err((
                INVALID_PTX,
                format!("ptxas fatal: line {}: Parsing error near '{near}': syntax error", i + 1),
            ));
        }
        depth += line.matches(['{', '(']).count() as i32 - line.matches(['}', ')']).count() as i32;
    }
    Ok(())
}

/// What a binary's header says of its length.
unsafe fn elf(image: *const u8) -> Option<Vec<u8>> {
    if std::slice::from_raw_parts(image, 4) != b"\x7fELF" {
        return None;
    }
    let word = |at: usize| image.add(at).cast::<u64>().read_unaligned();
    let half = |at: usize| u64::from(image.add(at).cast::<u16>().read_unaligned());
    let sections = word(0x28) + half(0x3a) * half(0x3c);
    let programs = word(0x20) + half(0x36) * half(0x38);
    let end = usize::try_from(sections.max(programs)).ok()?;
    Some(std::slice::from_raw_parts(image, end).to_vec())
}

fn contains(text: &[u8], name: &str) -> bool {
    let ptx = [format!(".entry {name}("), format!(".entry {name}\n"), format!(".entry {name} ")];
    let elf = [format!("\0{name}\0"), format!(".text.{name}\0")];
    ptx.iter().chain(&elf).any(|n| text.windows(n.len()).any(|w| w == n.as_bytes()))
}

unsafe fn load(w: &mut World, module: *mut *mut c_void, image: *const c_void) -> Result<(), (Code, String)> {
    let device = w.current().map_err(|c| (c, String::new()))?;
    if image.is_null() {
        return Err((INVALID_VALUE, String::new()));
    }
    let text = match elf(image.cast()) {
        Some(binary) => binary,
        None => {
            let text = CStr::from_ptr(image.cast());
            let text = text.to_str().map_err(|_| (INVALID_IMAGE, String::new()))?;
            compile(w, text)?;
            text.as_bytes().to_vec()
        }
    };
    let handle = w.handle();
    w.modules.insert(handle, Module { device, text });
    put(module, handle as *mut c_void).map_err(|c| (c, String::new()))
}

impl World {
    pub(crate) fn function(&mut self, function: *mut c_void) -> Result<String, Code> {
        match self.functions.get(&(function as u64)) {
            Some(f) => {
                let (device, name) = (f.device, f.name.clone());
                self.belongs("a function", device)?;
                Ok(name)
            }
            None => {
                self.violation("a function that is none, or whose module was unloaded");
                Err(INVALID_HANDLE)
            }
        }
    }

    /// Copies a launch's parameters, as the driver does before it returns.
    pub(crate) unsafe fn launch(
        &mut self,
        function: *mut c_void,
        grid: [u32; 3],
        block: [u32; 3],
        shared: u32,
        params: *mut *mut c_void,
    ) -> Result<Op, Code> {
        let name = self.function(function)?;
        let threads = block.iter().map(|&b| u64::from(b)).product::<u64>();
        if grid.contains(&0)
            || !(1..=1024).contains(&threads)
            || shared as i32 > MAX_SHARED
            || grid[0] > i32::MAX as u32
        {
            return Err(INVALID_VALUE);
        }
        let mut copied = Vec::new();
        if let Some((sizes, _)) = self.kernels.get(&name) {
            for (i, &size) in sizes.iter().enumerate() {
                let from = (*params.add(i)).cast::<u8>();
                copied.push(std::slice::from_raw_parts(from, size).to_vec());
            }
        }
        Ok(Op::Launch { name, params: copied, grid })
    }
}

api! {
    fn cuModuleLoadData(module: *mut *mut c_void, image: *const c_void) |w| {
        load(w, module, image).map_err(|(code, _)| code)
    }
    fn cuModuleUnload(module: *mut c_void) |w| {
        match w.modules.remove(&(module as u64)) {
            Some(m) => w.belongs("a module", m.device),
            None => {
                w.violation("a module is unloaded twice");
                Err(INVALID_HANDLE)
            }
        }
    }
    fn cuModuleGetFunction(function: *mut *mut c_void, module: *mut c_void, name: *const c_char) |w| {
        let name = CStr::from_ptr(name).to_str().map_err(|_| INVALID_VALUE)?;
        let Some(m) = w.modules.get(&(module as u64)) else {
            w.violation("a module that is none, or was unloaded");
            return Err(INVALID_HANDLE);
        };
        let (device, found) = (m.device, contains(&m.text, name));
        w.belongs("a module", device)?;
        if !found {
            return Err(NOT_FOUND);
        }
        let handle = w.handle();
        w.functions.insert(handle, Function { name: name.into(), device });
        put(function, handle as *mut c_void)
    }
    fn cuFuncSetAttribute(function: *mut c_void, _attribute: i32, value: i32) |w| {
        w.function(function)?;
        if (0..=MAX_SHARED).contains(&value) { Ok(()) } else { Err(INVALID_VALUE) }
    }
    fn cuFuncGetAttribute(value: *mut i32, _attribute: i32, function: *mut c_void) |w| {
        w.function(function)?;
        put(value, 0)
    }
    fn cuOccupancyMaxActiveBlocksPerMultiprocessor(n: *mut i32, function: *mut c_void, threads: i32, _shared: usize) |w| {
        w.function(function)?;
        put(n, (2048 / threads.max(1)).min(2))
    }
    fn cuLaunchKernel(
        function: *mut c_void, gx: u32, gy: u32, gz: u32, bx: u32, by: u32, bz: u32, shared: u32, stream: *mut c_void,
        params: *mut *mut c_void, _extra: *mut *mut c_void,
    ) |w| {
        let key = w.stream(stream as u64)?;
        let op = w.launch(function, [gx, gy, gz], [bx, by, bz], shared, params)?;
        w.enqueue(key, op)
    }
}

/// # Safety
/// As the driver's.
#[unsafe(no_mangle)]
#[allow(non_snake_case)]
pub unsafe extern "C" fn cuModuleLoadDataEx(
    module: *mut *mut c_void,
    image: *const c_void,
    n: u32,
    options: *const i32,
    values: *const *mut c_void,
) -> Code {
    let mut world = World::get();
    let result = match world.enter("cuModuleLoadDataEx") {
        Err(code) => Err((code, "ptxas fatal: made to fail".to_string())),
        Ok(()) => load(&mut world, module, image),
    };
    let Err((code, log)) = result else { return 0 };
    let value = |option: i32| (0..n as usize).find(|&i| *options.add(i) == option).map(|i| *values.add(i));
    if let (Some(buffer), Some(bytes)) = (value(ERROR_LOG), value(ERROR_LOG_BYTES)) {
        let room = (bytes as usize).min(log.len());
        std::ptr::copy_nonoverlapping(log.as_ptr(), buffer.cast::<u8>(), room);
    }
    code
}
