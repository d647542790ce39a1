//! Where kernels run.

use crate::driver::{self, Context};
use crate::error::{DriverVersion, Error, Result};
use crate::stream::Stream;
use std::fmt;
use tilewright_core::__private::Provenance;

/// A GPU, or the CPU. A small handle: copy it freely.
///
/// ```
/// use tilewright_host::Device;
/// let device = Device::best(); // a GPU if there is one that kernels can run on
/// println!("{device}: {} multiprocessors", device.multiprocessors());
/// ```
#[derive(Clone, Copy)]
pub struct Device {
    pub(crate) cuda: Option<&'static Context>,
}

/// The lowest compute capability that any image is made for.
const LOWEST: (u32, u32) = (8, 0);

impl Device {
    /// The CPU backend: the same kernels, compiled natively, one block after the other on each core.
    #[must_use]
    pub fn cpu() -> Device {
        Device { cuda: None }
    }

    /// The GPU with this CUDA ordinal. Its primary context is used, as CUDA's own runtime does.
    ///
    /// # Errors
    /// [`Error::NoDriver`], [`Error::DriverTooOld`], [`Error::NoDevice`], [`Error::NoSuchDevice`], [`Error::Driver`].
    pub fn cuda(ordinal: u32) -> Result<Device> {
        Ok(Device { cuda: Some(Context::get(ordinal)?) })
    }

    /// The GPU with the highest compute capability (of equals the one with most multiprocessors) among those that
    /// kernels can run on; without any, the CPU. Never fails.
    #[must_use]
    pub fn best() -> Device {
        let usable = driver::contexts().into_iter().filter(|c| c.capability >= LOWEST);
        // `max_by_key` gives the last of equals; the first is wanted
        let cuda = usable.rev().max_by_key(|c| (c.capability, c.multiprocessors));
        Device { cuda }
    }

    /// All devices: the GPUs by ordinal, then the CPU.
    #[must_use]
    pub fn all() -> Vec<Device> {
        let gpus = driver::contexts().into_iter().map(|c| Device { cuda: Some(c) });
        gpus.chain([Device::cpu()]).collect()
    }

    /// Whether this is the CPU backend.
    #[must_use]
    pub fn is_cpu(&self) -> bool {
        self.cuda.is_none()
    }

    /// The CUDA ordinal; None for the CPU.
    #[must_use]
    pub fn ordinal(&self) -> Option<u32> {
        self.cuda.map(|c| c.ordinal)
    }

    /// The product's name, as the driver has it; `CPU` for the CPU.
    #[must_use]
    pub fn name(&self) -> &str {
        self.cuda.map_or("CPU", |c| &c.name)
    }

    /// The compute capability as (major, minor): (9, 0) for Hopper. None for the CPU.
    #[must_use]
    pub fn compute_capability(&self) -> Option<(u32, u32)> {
        self.cuda.map(|c| c.capability)
    }

    /// Streaming multiprocessors; for the CPU, the threads that run at once.
    #[must_use]
    pub fn multiprocessors(&self) -> u32 {
        self.cuda.map_or_else(
            || std::thread::available_parallelism().map_or(1, |n| u32::try_from(n.get()).unwrap_or(u32::MAX)),
            |c| c.multiprocessors,
        )
    }

    /// The CUDA version that the driver supports. None for the CPU.
    #[must_use]
    pub fn driver_version(&self) -> Option<DriverVersion> {
        self.cuda.map(|c| c.driver)
    }

    /// Bytes of memory on the GPU. None for the CPU.
    #[must_use]
    pub fn memory(&self) -> Option<u64> {
        self.cuda.map(|c| c.memory)
    }

    /// The device's default stream: every call gives the same one. It is not CUDA's legacy default stream, and does not
    /// wait for it.
    ///
    /// # Errors
    /// [`Error::Driver`] if it cannot be created.
    pub fn stream(&self) -> Result<Stream> {
        Stream::default_of(*self)
    }

    /// A new stream. Work on different streams may overlap; tensors order what depends on each other.
    ///
    /// # Errors
    /// [`Error::Driver`] if it cannot be created.
    pub fn new_stream(&self) -> Result<Stream> {
        Stream::create(*self)
    }

    /// The number that views carry.
    pub(crate) fn number(&self) -> u32 {
        self.ordinal().unwrap_or(Provenance::CPU)
    }

    /// What a device number in a message is called.
    pub(crate) fn describe(number: u32) -> String {
        match number {
            Provenance::CPU => "the CPU".into(),
            Provenance::SLICE => "a slice, which streams do not keep".into(),
            number => format!("CUDA device {number}"),
        }
    }

    /// That memory with this device number is this device's.
    pub(crate) fn expect(&self, arg: &'static str, number: u32) -> Result<()> {
        if number == self.number() {
            return Ok(());
        }
        Err(Error::Device { arg, expected: Device::describe(self.number()), found: Device::describe(number) })
    }
}

impl PartialEq for Device {
    fn eq(&self, other: &Device) -> bool {
        self.number() == other.number()
    }
}
impl Eq for Device {}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.cuda {
            None => write!(f, "CPU ({} threads)", self.multiprocessors()),
            Some(c) => write!(f, "CUDA {} ({}, sm_{}{})", c.ordinal, c.name, c.capability.0, c.capability.1),
        }
    }
}
