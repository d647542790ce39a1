//! Launches that are kept, to be run again: what graphs are made of.

use crate::device::Device;
use crate::driver::{self, Function, check, sys};
use crate::error::{Error, Result};
use crate::launch::{addresses, run_on_cpu};
use std::any::Any;
use std::mem::ManuallyDrop;
use tilewright_core::kernel::{Args, Kernel};

/// A piece of a graph on the CPU.
pub(crate) enum Step {
    /// A copy or a fill.
    Work(Box<dyn Fn() -> Result<()>>),
    /// The launch with this number.
    Launch(usize),
}
// SAFETY: the closures own plain values: addresses, extents, elements.
unsafe impl Send for Step {}

/// A launch with its arguments.
pub(crate) struct Recording(Box<dyn Recorded>);
// SAFETY: arguments are views, which are Send, and scalars.
unsafe impl Send for Recording {}

/// Where a launch is in a graph of the driver's.
#[derive(Clone, Copy)]
pub(crate) struct InGraph {
    pub(crate) function: &'static Function,
    pub(crate) grid: u32,
    /// The driver's name for it; none if the driver does not say.
    pub(crate) node: Option<sys::CUgraphNode>,
}

trait Recorded {
    fn run(&self) -> Result<()>;
    fn set(
        &mut self,
        launch: usize,
        arg: &str,
        value: &dyn Any,
        kind: &str,
        exec: Option<sys::CUgraphExec>,
    ) -> Result<()>;
}

struct Launched<K: Kernel> {
    args: K::Args<'static>,
    device: Device,
    tiles: u64,
    at: Option<InGraph>,
}

impl Recording {
    /// Keeps a launch.
    ///
    /// # Safety
    /// While this is used, the storages that the arguments name are kept.
    pub(crate) unsafe fn new<K: Kernel>(
        device: Device,
        args: K::Args<'_>,
        tiles: u64,
        at: Option<InGraph>,
    ) -> Recording {
        let args = ManuallyDrop::new(args.without_owners());
        // SAFETY: the types differ in a lifetime alone. The memory is kept, as the caller says; the reference to its owner
        // is gone.
        let args = unsafe { std::ptr::from_ref(&*args).cast::<K::Args<'static>>().read() };
        Recording(Box::new(Launched::<K> { args, device, tiles, at }))
    }

    /// Runs it on the CPU.
    pub(crate) fn run(&self) -> Result<()> {
        self.0.run()
    }

    /// Gives a scalar argument another value.
    pub(crate) fn set<V: Any>(
        &mut self,
        launch: usize,
        arg: &str,
        value: V,
        exec: Option<sys::CUgraphExec>,
    ) -> Result<()> {
        let kind = std::any::type_name::<V>(); // f32, i32, u32 or u64
        self.0.set(launch, arg, &value, kind, exec)
    }
}

impl<K: Kernel> Launched<K> {
    fn args(&self) -> K::Args<'static> {
        const { assert!(!std::mem::needs_drop::<K::Args<'static>>(), "arguments are plain") };
        // SAFETY: plain values. Claims on outputs are used one at a time: a recording runs or is copied, not both at once.
        unsafe { std::ptr::from_ref(&self.args).read() }
    }
}

impl<K: Kernel> Recorded for Launched<K> {
    fn run(&self) -> Result<()> {
        run_on_cpu::<K>(self.device, self.args(), self.tiles)
    }

    fn set(
        &mut self,
        launch: usize,
        arg: &str,
        value: &dyn Any,
        kind: &str,
        exec: Option<sys::CUgraphExec>,
    ) -> Result<()> {
        let wrong = |expected: String| {
            let found = format!("`{arg}` of type {kind}");
            Err(Error::Recorded { launch, expected, found })
        };
        let Some(index) = K::ARG_NAMES.iter().position(|name| *name == arg) else {
            return wrong(format!("an argument of `{}`: {}", K::NAME, K::ARG_NAMES.join(", ")));
        };
        let mut changed = self.args();
        if !changed.assign(index, value) {
            return wrong(format!("a scalar argument of `{}`, by its type", K::NAME));
        }
        if let (Some(at), Some(exec)) = (&self.at, exec) {
            let Some(node) = at.node else {
                return Err(Error::Unsupported { what: "changing a recorded launch", device: self.device.to_string() });
            };
            let lowered = changed.lower();
            let faults = at.function.faults.map(|f| f.address());
            let mut params = addresses::<K::Args<'static>>(&lowered, faults.as_ref());
            let launch = driver::NodeLaunch::new(at.function.raw, at.grid, K::THREADS, K::SHARED_BYTES, &mut params);
            // SAFETY: the graph and its node are alive; the parameters are those of the function, and their memory is kept.
            let code = unsafe { driver::set_node(exec, node, &launch) }
                .ok_or(Error::Unsupported { what: "changing a recorded launch", device: self.device.to_string() })?;
            check("cuGraphExecKernelNodeSetParams", code)?;
        }
        self.args = changed;
        Ok(())
    }
}
