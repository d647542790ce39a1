//! From a kernel to a function on a device: which image, loaded how.

use super::context::Module;
use super::cut::one_entry;
use super::fault::FaultRecord;
use super::{Context, check, failed, sys};
use crate::error::{DriverVersion, Error, Result};
use std::any::TypeId;
use std::ffi::{CStr, CString, c_void};
use std::sync::PoisonError;
use tilewright_core::kernel::{Entry, Image, Kernel};

/// A kernel, loaded on one device. Never unloaded.
pub(crate) struct Function {
    pub(crate) raw: sys::CUfunction,
    /// Blocks that run at once on the whole device.
    pub(crate) resident: u64,
    /// Where its first fault is kept, if it declares any.
    pub(crate) faults: Option<&'static FaultRecord>,
}
// SAFETY: a handle; the driver may be called with it from any thread.
unsafe impl Send for Function {}
// SAFETY: as above.
unsafe impl Sync for Function {}

/// Whether code for `arch` (`sm_80`, `sm_90a`) runs on a compute capability. `binary`: compiled code, which runs on its
/// own major version alone; PTX runs on everything newer, except that a name ending in `a` means that version alone.
pub(crate) fn runs_on(arch: &str, capability: (u32, u32), binary: bool) -> bool {
    let Some(number) = arch.strip_prefix("sm_") else { return false };
    let (number, specific) = match number.strip_suffix('a') {
        Some(n) => (n, true),
        None => (number, false),
    };
    let Ok(number) = number.parse::<u32>() else { return false };
    let made_for = (number / 10, number % 10);
    if specific {
        made_for == capability
    } else if binary {
        made_for.0 == capability.0 && made_for.1 <= capability.1
    } else {
        made_for <= capability
    }
}

/// The CUDA version whose drivers first accepted PTX with this text's `.version`.
fn driver_for_ptx(ptx: &str) -> Option<DriverVersion> {
    let version = ptx.lines().find_map(|l| l.trim().strip_prefix(".version "))?.trim();
    let (major, minor) = version.split_once('.')?;
    let (major, minor): (u32, u32) = (major.parse().ok()?, minor.parse().ok()?);
    Some(match (major, minor) {
        (8, 6) => DriverVersion { major: 12, minor: 7 },
        (8, 7) => DriverVersion { major: 12, minor: 8 },
        (8, 8) => DriverVersion { major: 12, minor: 9 },
        (7.., minor) => DriverVersion { major: major + 4, minor },
        _ => DriverVersion { major: 10, minor: 0 },
    })
}

/// The best image for a device among those that have the kernel, and the kernel's entry in it.
pub(crate) fn choose<K: Kernel>(
    images: &'static [Image],
    capability: (u32, u32),
    device: &str,
) -> Result<(&'static Image, &'static Entry)> {
    let with_kernel = || images.iter().filter_map(|i| i.entries.iter().find(|e| e.symbol == K::SYMBOL).map(|e| (i, e)));
    // by name: `sm_90a` comes after `sm_90`, which comes after `sm_80`
    let best = with_kernel().filter(|(i, _)| runs_on(i.arch, capability, false)).max_by_key(|(i, _)| i.arch);
    if let Some((image, entry)) = best {
        agrees::<K>(entry)?;
        return Ok((image, entry));
    }
    let have: Vec<_> = images.iter().map(|i| i.arch).collect();
    if !runs_on(K::ARCH, capability, false) {
        let found = format!("sm_{}{}", capability.0, capability.1);
        return Err(Error::NoImageFor { kernel: K::NAME, need: K::ARCH, device: device.into(), found, have });
    }
    Err(Error::NotBuilt { kernel: K::NAME, symbol: K::SYMBOL, have })
}

/// Whether the image was built from what the host was built from.
fn agrees<K: Kernel>(entry: &Entry) -> Result<()> {
    let facts = [
        ("arguments", K::SIGNATURE, entry.signature),
        ("shared memory", K::SHARED_BYTES.into(), entry.shared_bytes.into()),
        ("threads", K::THREADS.into(), entry.threads.into()),
        ("cluster", K::CLUSTER.into(), entry.cluster.into()),
    ];
    match facts.into_iter().find(|(_, host, image)| host != image) {
        None => Ok(()),
        Some((what, expected, found)) => Err(Error::SignatureMismatch { kernel: K::NAME, what, expected, found }),
    }
}

impl Context {
    /// A kernel's function if it is loaded: one uncontended read.
    pub(crate) fn loaded<K: Kernel>(&self) -> Option<&'static Function> {
        self.functions.read().unwrap_or_else(PoisonError::into_inner).get(&TypeId::of::<K>()).copied()
    }

    /// Loads a kernel, if it is not loaded.
    pub(crate) fn load<K: Kernel>(&self) -> Result<&'static Function> {
        if let Some(f) = self.loaded::<K>() {
            return Ok(f);
        }
        let device = format!("CUDA device {} ({})", self.ordinal, self.name);
        let (image, entry) = choose::<K>(K::images(), self.capability, &device)?;
        self.bind()?;
        let module = self.module(image, entry, K::NAME)?;
        let symbol = CString::new(entry.symbol).unwrap_or_default();
        let mut raw = std::ptr::null_mut();
        // SAFETY: the module is loaded in the current context; the name ends in a zero.
        match unsafe { sys::cuModuleGetFunction(&mut raw, module.0, symbol.as_ptr()) } {
            sys::CUresult::CUDA_SUCCESS => {}
            sys::CUresult::CUDA_ERROR_NOT_FOUND => {
                let have = K::images().iter().map(|i| i.arch).collect();
                return Err(Error::NotBuilt { kernel: K::NAME, symbol: K::SYMBOL, have });
            }
            code => return Err(failed("cuModuleGetFunction", code, String::new())),
        }
        use sys::CUfunction_attribute_enum::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES as SHARED;
        // SAFETY: `raw` is a function of the current context.
        check("cuFuncSetAttribute", unsafe { sys::cuFuncSetAttribute(raw, SHARED, K::SHARED_BYTES as i32) })?;
        let mut per_sm = 0;
        let (threads, shared) = (K::THREADS as i32, K::SHARED_BYTES as usize);
        // SAFETY: as above; writes an integer.
        check("cuOccupancyMaxActiveBlocksPerMultiprocessor", unsafe {
            sys::cuOccupancyMaxActiveBlocksPerMultiprocessor(&mut per_sm, raw, threads, shared)
        })?;
        let resident = u64::from(per_sm.unsigned_abs().max(1)) * u64::from(self.multiprocessors);
        let faults = if K::FAULTS.is_empty() { None } else { Some(self.fault_record::<K>()?) };
        let mut functions = self.functions.write().unwrap_or_else(PoisonError::into_inner);
        // Two threads may get here at once; the first one's stays.
        Ok(*functions
            .entry(TypeId::of::<K>())
            .or_insert_with(|| Box::leak(Box::new(Function { raw, resident, faults }))))
    }

    /// The module that has an entry: the image's machine code as a whole, where the device takes it; otherwise what the
    /// driver makes of the entry's own PTX.
    fn module(&self, image: &'static Image, entry: &'static Entry, kernel: &'static str) -> Result<Module> {
        let key = image.ptx.as_ptr() as usize;
        let mut modules = self.modules.lock().unwrap_or_else(PoisonError::into_inner);
        let known = modules.get(&(key, None)).or_else(|| modules.get(&(key, Some(entry.symbol))));
        if let Some(m) = known {
            return Ok(*m);
        }
        // A binary that this driver does not take is no failure: there is the PTX.
        if let Some((arch, binary)) = image.cubin
            && !binary.is_empty()
            && runs_on(arch, self.capability, true)
            && let Ok(module) = load_binary(binary)
        {
            modules.insert((key, None), module);
            return Ok(module);
        }
        let module = self.compile(image.ptx, entry.symbol, kernel)?;
        modules.insert((key, Some(entry.symbol)), module);
        Ok(module)
    }

    /// Has the driver compile one entry of a PTX module for the current context.
    fn compile(&self, ptx: &str, symbol: &str, kernel: &'static str) -> Result<Module> {
        use sys::CUjit_option_enum as O;
        // Text that is not understood goes to the driver as it is.
        let text = one_entry(ptx, symbol).unwrap_or_else(|| ptx.trim_end_matches('\0').into());
        let text = CString::new(text).unwrap_or_default();
        let mut log = vec![0u8; 16 * 1024];
        let mut options = [O::CU_JIT_ERROR_LOG_BUFFER, O::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES];
        let mut values = [log.as_mut_ptr().cast::<c_void>(), (log.len() - 1) as *mut c_void];
        let mut module = std::ptr::null_mut();
        // SAFETY: the text ends in a zero; the options' values are of the kinds that they want, and the log outlives
        // the call.
        let code = unsafe {
            sys::cuModuleLoadDataEx(&mut module, text.as_ptr().cast(), 2, options.as_mut_ptr(), values.as_mut_ptr())
        };
        if code == sys::CUresult::CUDA_SUCCESS {
            return Ok(Module(module));
        }
        if code == sys::CUresult::CUDA_ERROR_UNSUPPORTED_PTX_VERSION
            && let Some(need) = driver_for_ptx(ptx)
        {
            return Err(Error::DriverTooOld { what: format!("kernel `{kernel}`"), need, found: self.driver });
        }
        let log = CStr::from_bytes_until_nul(&log).map(|l| l.to_string_lossy().into_owned()).unwrap_or_default();
        Err(failed("cuModuleLoadDataEx", code, log))
    }
}

fn load_binary(binary: &'static [u8]) -> Result<Module> {
    let mut module = std::ptr::null_mut();
    // SAFETY: a binary carries its own length in its header; a damaged one is refused.
    let code = unsafe { sys::cuModuleLoadData(&mut module, binary.as_ptr().cast()) };
    check("cuModuleLoadData", code).map(|()| Module(module))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_run_where_they_were_made_for() {
        assert!(runs_on("sm_80", (8, 0), false) && runs_on("sm_80", (8, 9), false) && runs_on("sm_80", (12, 0), false));
        assert!(!runs_on("sm_80", (7, 5), false));
        assert!(runs_on("sm_90a", (9, 0), false) && !runs_on("sm_90a", (10, 0), false));
        assert!(!runs_on("sm_90a", (8, 9), false));
        assert!(runs_on("sm_120", (12, 0), false) && !runs_on("sm_120", (10, 0), false));
        assert!(runs_on("sm_80", (8, 6), true) && !runs_on("sm_80", (9, 0), true));
        assert!(runs_on("sm_90a", (9, 0), true));
        for nonsense in ["", "sm_", "90a", "sm_a", "compute_80", "sm_9x"] {
            assert!(!runs_on(nonsense, (9, 0), false));
        }
    }

    struct K;
    // SAFETY: never runs.
    unsafe impl Kernel for K {
        type Args<'a> = (f32,);
        const NAME: &'static str = "t::k";
        const SYMBOL: &'static str = "t__k";
        const ARG_NAMES: &'static [&'static str] = &["x"];
        const ARCH: &'static str = "sm_90a";
        const THREADS: u32 = 128;
        const CLUSTER: u32 = 2;
        const MIN_BLOCKS: u32 = 1;
        const SHARED_BYTES: u32 = 4096;
        const GRID: tilewright_core::kernel::Grid = tilewright_core::kernel::Grid::PerTile;
        const SIGNATURE: u64 = 5;
        fn images() -> &'static [Image] {
            &[]
        }
        fn block(_: &tilewright_core::backend::Block, _: (f32,)) {}
    }
    const GOOD: Entry = Entry { symbol: "t__k", signature: 5, shared_bytes: 4096, threads: 128, cluster: 2 };
    const NONE: Image = Image { arch: "sm_80", ptx: "", cubin: None, entries: &[] };

    fn chosen(images: &'static [Image], capability: (u32, u32)) -> Result<&'static str> {
        choose::<K>(images, capability, "CUDA device 0").map(|(i, _)| i.arch)
    }

    #[test]
    fn the_best_image_is_chosen() {
        static IMAGES: [Image; 3] = [
            Image { entries: &[GOOD], ..NONE },
            Image { arch: "sm_90a", entries: &[GOOD], ..NONE },
            Image { arch: "sm_90", ..NONE },
        ];
        assert_eq!(chosen(&IMAGES, (9, 0)), Ok("sm_90a"));
        assert_eq!(chosen(&IMAGES, (8, 0)), Ok("sm_80"));
        assert_eq!(chosen(&IMAGES, (12, 0)), Ok("sm_80"));
        let e = chosen(&IMAGES, (7, 5)).unwrap_err().to_string();
        assert_eq!(e, "kernel `t::k` needs sm_90a; CUDA device 0 is sm_75; there are images for sm_80, sm_90a, sm_90");
    }

    #[test]
    fn what_was_not_built_is_said() {
        static OTHERS: [Image; 1] = [NONE];
        assert_eq!(
            chosen(&[], (9, 0)).unwrap_err().to_string(),
            "kernel `t::k` has no device code: its crate's images are empty"
        );
        assert_eq!(
            chosen(&OTHERS, (9, 0)).unwrap_err().to_string(),
            "kernel `t::k` has no device code: its crate's images (sm_80) do not contain `t__k`"
        );
        assert!(matches!(chosen(&OTHERS, (10, 0)), Err(Error::NoImageFor { .. })));
    }

    #[test]
    fn host_and_device_code_must_agree() {
        static IMAGES: [[Image; 1]; 4] = [
            [Image { arch: "sm_90a", entries: &[Entry { signature: 6, ..GOOD }], ..NONE }],
            [Image { arch: "sm_90a", entries: &[Entry { shared_bytes: 1, ..GOOD }], ..NONE }],
            [Image { arch: "sm_90a", entries: &[Entry { threads: 1, ..GOOD }], ..NONE }],
            [Image { arch: "sm_90a", entries: &[Entry { cluster: 1, ..GOOD }], ..NONE }],
        ];
        for (images, differs) in IMAGES.iter().zip(["arguments", "shared memory", "threads", "cluster"]) {
            let e = chosen(images, (9, 0)).unwrap_err();
            assert!(matches!(e, Error::SignatureMismatch { what, kernel: "t::k", .. } if what == differs), "{e}");
        }
    }

    #[test]
    fn ptx_versions_name_the_driver_they_need() {
        let need = |v: &str| {
            driver_for_ptx(&format!("//\n// text\n\n.version {v}\n.target sm_90a\n")).map(|d| (d.major, d.minor))
        };
        assert_eq!(need("7.0"), Some((11, 0)));
        assert_eq!(need("7.8"), Some((11, 8)));
        assert_eq!(need("8.0"), Some((12, 0)));
        assert_eq!(need("8.7"), Some((12, 8)));
        assert_eq!(need("9.0"), Some((13, 0)));
        assert_eq!(need("x"), None);
        assert_eq!(driver_for_ptx(""), None);
    }
}
