//! What can go wrong, as values. Each error says which argument or device, what was expected and what was found.

use std::fmt;

/// The result of everything here that can fail.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The name an argument has in messages until [`Error::arg`] gives it a better one.
pub(crate) const UNNAMED: &str = "tensor";

/// A version of the CUDA driver, as the highest CUDA version that it supports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DriverVersion {
    /// Major.
    pub major: u32,
    /// Minor.
    pub minor: u32,
}

impl fmt::Display for DriverVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// Why something could not be done. Nothing in this crate panics on bad input.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The CUDA driver is not installed, or does not answer.
    #[error("no CUDA driver: {reason}")]
    NoDriver {
        /// What the search found.
        reason: String,
    },
    /// The driver is older than what this crate, or a kernel's PTX, needs.
    #[error("the CUDA driver is too old: it supports CUDA {found}, {what} needs {need}")]
    DriverTooOld {
        /// Who needs it.
        what: String,
        /// The lowest version that would do.
        need: DriverVersion,
        /// The version installed.
        found: DriverVersion,
    },
    /// The driver is there, but no GPU.
    #[error("the CUDA driver sees no GPU")]
    NoDevice,
    /// There are fewer GPUs than that.
    #[error("no CUDA device {ordinal}: the driver sees {have}")]
    NoSuchDevice {
        /// The ordinal asked for.
        ordinal: u32,
        /// How many there are.
        have: u32,
    },
    /// None of a kernel's images runs on the device.
    #[error("kernel `{kernel}` needs {need}; {device} is {found}{}", have_images(have))]
    NoImageFor {
        /// The kernel.
        kernel: &'static str,
        /// The architecture it is written for.
        need: &'static str,
        /// The device.
        device: String,
        /// The device's architecture.
        found: String,
        /// The architectures that the kernel's crate was built for.
        have: Vec<&'static str>,
    },
    /// The crate was built without device code, or its images lack this kernel.
    #[error("kernel `{kernel}` has no device code: its crate's images {}", if have.is_empty() { "are empty".to_string() } else { format!("({}) do not contain `{symbol}`", have.join(", ")) })]
    NotBuilt {
        /// The kernel.
        kernel: &'static str,
        /// Its entry.
        symbol: &'static str,
        /// The architectures that the kernel's crate was built for.
        have: Vec<&'static str>,
    },
    /// Device code and host code of a kernel were built from different sources.
    #[error(
        "kernel `{kernel}`: device code and host code disagree on its {what}: host {expected:#x}, image {found:#x}; rebuild"
    )]
    SignatureMismatch {
        /// The kernel.
        kernel: &'static str,
        /// What they disagree on.
        what: &'static str,
        /// What the host was compiled with.
        expected: u64,
        /// What the image says.
        found: u64,
    },
    /// A kernel is launched during a capture and was not loaded before it.
    #[error("kernel `{kernel}` is not loaded, and loading is not possible during a capture: call `prepare` first")]
    NotLoaded {
        /// The kernel.
        kernel: &'static str,
    },
    /// This cannot be done on a stream that is being captured.
    #[error("{call} is not possible on a stream that is being captured")]
    Capturing {
        /// What was attempted.
        call: &'static str,
    },
    /// A recorded launch, or a scalar argument of it, that is not there.
    #[error("launch {launch} of the graph: expected {expected}, found {found}")]
    Recorded {
        /// The launch's number.
        launch: usize,
        /// What there is.
        expected: String,
        /// What was asked for.
        found: String,
    },
    /// The device cannot do this.
    #[error("{what} is not available on {device}")]
    Unsupported {
        /// What was attempted.
        what: &'static str,
        /// The device.
        device: String,
    },
    /// Extents that do not fit.
    #[error("{arg}: expected {expected}, found {found}")]
    Shape {
        /// The argument.
        arg: &'static str,
        /// The extents, or a condition on them.
        expected: String,
        /// The extents.
        found: String,
    },
    /// Strides that do not fit.
    #[error("{arg}: expected {expected}, found {found}")]
    Stride {
        /// The argument.
        arg: &'static str,
        /// A condition on the strides.
        expected: String,
        /// The strides, counted in elements.
        found: String,
    },
    /// An address or row length that is not a multiple of what is needed.
    #[error("{arg}: {what} must be a multiple of {expected} bytes, found {found}")]
    Alignment {
        /// The argument.
        arg: &'static str,
        /// Its address, or the bytes from row to row.
        what: &'static str,
        /// Bytes.
        expected: u64,
        /// Bytes.
        found: u64,
    },
    /// A slice on the host with another number of elements than the tensor.
    #[error("{arg}: expected {expected} elements, found {found}")]
    Length {
        /// The argument.
        arg: &'static str,
        /// Elements.
        expected: usize,
        /// Elements.
        found: usize,
    },
    /// A tensor that lies on another device than the stream's.
    #[error("{arg}: expected memory of {expected}, found memory of {found}")]
    Device {
        /// The argument.
        arg: &'static str,
        /// The stream's device.
        expected: String,
        /// The memory's device.
        found: String,
    },
    /// A kernel failed while running.
    #[error("kernel `{name}` failed in block {block}: {message}")]
    Kernel {
        /// The kernel.
        name: &'static str,
        /// The block (or cluster).
        block: u32,
        /// What it said.
        message: String,
    },
    /// The device, or the host, has not that much memory.
    #[error("out of memory: {bytes} bytes on {device}")]
    OutOfMemory {
        /// Bytes asked for.
        bytes: u64,
        /// Where.
        device: String,
    },
    /// A driver call failed.
    #[error("{call} failed: {name} ({code}){}", if log.is_empty() { String::new() } else { format!("\n{log}") })]
    Driver {
        /// The driver function.
        call: &'static str,
        /// Its result.
        code: u32,
        /// The result's name.
        name: String,
        /// The PTX compiler's messages, where there are any.
        log: String,
    },
}

fn have_images(have: &[&str]) -> String {
    if have.is_empty() { String::new() } else { format!("; there are images for {}", have.join(", ")) }
}

impl Error {
    /// The same error about a named argument.
    ///
    /// ```
    /// # use tilewright_host::{Device, Error, Tensor};
    /// let stream = Device::cpu().stream()?;
    /// let e = Tensor::<f32, 1>::from_slice(&stream, [3], &[1.0]).map_err(|e| e.arg("weights")).unwrap_err();
    /// assert_eq!(e.to_string(), "weights: expected 3 elements, found 1");
    /// # Ok::<(), Error>(())
    /// ```
    #[must_use]
    pub fn arg(mut self, name: &'static str) -> Self {
        match &mut self {
            Error::Shape { arg, .. }
            | Error::Stride { arg, .. }
            | Error::Alignment { arg, .. }
            | Error::Length { arg, .. }
            | Error::Device { arg, .. } => *arg = name,
            _ => {}
        }
        self
    }
}

/// Names the argument that an error is about: `x.tiles().arg("x")?`.
pub trait Named {
    /// The same result; an error in it is about the argument `name`.
    ///
    /// # Errors
    /// Those of the result itself.
    fn arg(self, name: &'static str) -> Self;
}

impl<T> Named for Result<T> {
    fn arg(self, name: &'static str) -> Self {
        self.map_err(|e| e.arg(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_name_argument_expected_and_found() {
        let e = Error::Alignment { arg: UNNAMED, what: "row length", expected: 16, found: 6 }.arg("a");
        assert_eq!(e.to_string(), "a: row length must be a multiple of 16 bytes, found 6");
        let e = Error::NoImageFor {
            kernel: "k",
            need: "sm_90a",
            device: "CUDA 0".into(),
            found: "sm_80".into(),
            have: vec!["sm_90a"],
        };
        assert_eq!(e.to_string(), "kernel `k` needs sm_90a; CUDA 0 is sm_80; there are images for sm_90a");
        let have = Vec::new();
        let e = Error::NotBuilt { kernel: "k", symbol: "k", have };
        assert_eq!(e.to_string(), "kernel `k` has no device code: its crate's images are empty");
        let e = Error::Driver {
            call: "cuModuleLoadDataEx",
            code: 218,
            name: "CUDA_ERROR_INVALID_PTX".into(),
            log: "line 3".into(),
        };
        assert_eq!(e.to_string(), "cuModuleLoadDataEx failed: CUDA_ERROR_INVALID_PTX (218)\nline 3");
        let (need, found) = (DriverVersion { major: 12, minor: 0 }, DriverVersion { major: 11, minor: 8 });
        let e = Error::DriverTooOld { what: "kernel `k`".into(), need, found };
        assert_eq!(e.to_string(), "the CUDA driver is too old: it supports CUDA 11.8, kernel `k` needs 12.0");
        // a name makes no difference to errors without an argument
        assert_eq!(Error::NoDevice.arg("x"), Error::NoDevice);
    }
}
