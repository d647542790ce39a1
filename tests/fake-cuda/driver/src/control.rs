//! What the library exports besides the driver's functions: what `tilewright_fake_cuda::Fake` calls.

use crate::world::{Fault, World};
use std::ffi::{CStr, c_char, c_void};
use tilewright_fake_cuda::{Access, KernelBody};

/// A launch whose turn has come.
pub struct Launched<'w> {
    pub world: &'w mut World,
    pub device: i32,
    pub params: Vec<Vec<u8>>,
    pub grid: [u32; 3],
}

impl Launched<'_> {
    pub fn call(self, body: KernelBody) {
        unsafe extern "C" fn check(access: *const Access, address: u64, bytes: usize) -> bool {
            // SAFETY: `access` is the one below, and nobody else uses the world while the body runs.
            let (world, device) = unsafe { (&mut *(*access).world.cast::<World>(), (*access).device) };
            match world.memory.refuse(address, bytes, Some(device)) {
                None => true,
                Some(why) => {
                    world.violation(format!("a kernel: {why}"));
                    false
                }
            }
        }
        let pointers: Vec<*const c_void> = self.params.iter().map(|p| p.as_ptr().cast()).collect();
        let access = Access { world: (self.world as *mut World).cast(), device: self.device, check };
        // SAFETY: the test that registered the body says that these are its parameters.
        unsafe { body(&access, pointers.as_ptr(), self.grid[0]) };
    }
}

unsafe fn text<'a>(p: *const c_char) -> &'a str {
    // SAFETY: the caller passes a string.
    unsafe { CStr::from_ptr(p) }.to_str().unwrap_or_default()
}

unsafe fn give(text: &str, to: *mut u8, room: usize) -> usize {
    // SAFETY: the caller passes room for so many bytes.
    unsafe { std::ptr::copy_nonoverlapping(text.as_ptr(), to, text.len().min(room)) };
    text.len()
}

/// Calls of one function; of all for `*`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fake_cuda_count(name: *const c_char) -> u64 {
    let world = World::get();
    // SAFETY: the caller's.
    match unsafe { text(name) } {
        "*" => world.total,
        name => world.counts.get(name).copied().unwrap_or(0),
    }
}

/// Sets the faults from now on: as `FAKE_CUDA_FAIL`, with numbers counted from the beginning of the process.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fake_cuda_faults(faults: *const c_char) {
    // SAFETY: the caller's.
    let faults = unsafe { text(faults) };
    let mut world = World::get();
    if world.lost {
        // what a lost context had to do is never done
        world.forget();
    }
    world.lost = false;
    world.faults = faults.split(',').filter_map(Fault::parse).collect();
}

/// How many objects of a kind there are.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fake_cuda_live(kind: *const c_char) -> u64 {
    let world = World::get();
    // SAFETY: the caller's.
    let n = match unsafe { text(kind) } {
        "memory" => world.memory.live(false),
        "host memory" => world.memory.live(true),
        "streams" => world.streams.values().filter(|s| !s.destroyed).count(),
        "events" => world.events.len(),
        "graphs" => world.graphs.len(),
        "execs" => world.execs.len(),
        "modules" => world.modules.len(),
        "contexts" => world.retained.values().map(|n| usize::try_from(*n).unwrap_or(0)).sum(),
        _ => return u64::MAX,
    };
    n as u64
}

/// One text: `violations`, `failed` (which calls were made to fail), or `log` (the calls since the last time it was asked for).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fake_cuda_text(kind: *const c_char, to: *mut u8, room: usize) -> usize {
    let mut world = World::get();
    // SAFETY: the caller's.
    let lines = match unsafe { text(kind) } {
        "violations" => world.violations.join("\n"),
        "failed" => world.failed.join("\n"),
        "log" => world.log.as_ref().map(|l| l.join("\n")).unwrap_or_default(),
        "start log" => {
            world.log = Some(Vec::new());
            String::new()
        }
        _ => "?".into(),
    };
    // SAFETY: the caller's.
    unsafe { give(&lines, to, room) }
}

/// When work runs: 0 as late as may be, otherwise at random moments that follow from the seed.
#[unsafe(no_mangle)]
pub extern "C" fn fake_cuda_seed(seed: u64) {
    World::get().seed = seed;
}

/// Runs all work, as if time had passed.
#[unsafe(no_mangle)]
pub extern "C" fn fake_cuda_run() {
    let mut world = World::get();
    let all: Vec<u64> = world.streams.keys().copied().collect();
    all.into_iter().for_each(|s| world.run_all(s));
}

/// Gives launches of an entry something to do. `sizes` are those of its parameters, in bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fake_cuda_kernel(name: *const c_char, sizes: *const usize, n: usize, body: KernelBody) {
    // SAFETY: the caller's.
    let (name, sizes) = unsafe { (text(name).to_string(), std::slice::from_raw_parts(sizes, n).to_vec()) };
    World::get().kernels.insert(name, (sizes, body));
}
