//! Primary contexts, one a GPU, shared with every other user of the driver in the process.

use super::{Function, check, device_count, init, sys};
use crate::error::{DriverVersion, Error, Result};
use crate::stream::StreamInner;
use std::any::TypeId;
use std::collections::HashMap;
use std::ffi::CStr;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};

/// A GPU and its primary context. Lives as long as the process, and so do the modules loaded into it.
pub(crate) struct Context {
    pub(crate) ordinal: u32,
    dev: sys::CUdevice,
    /// The primary context, retained on first use: asking a GPU for its name must not cost its memory.
    ctx: OnceLock<Handle>,
    pub(crate) name: String,
    /// Compute capability.
    pub(crate) capability: (u32, u32),
    pub(crate) multiprocessors: u32,
    pub(crate) memory: u64,
    pub(crate) driver: DriverVersion,
    /// Whether memory can be allocated and freed in stream order.
    pub(crate) pools: bool,
    /// Held shared while work is being enqueued, and exclusively while a graph is launched: see [`crate::stream`].
    pub(crate) order: RwLock<()>,
    pub(crate) default_stream: OnceLock<Arc<StreamInner>>,
    pub(crate) functions: RwLock<HashMap<TypeId, &'static Function, BuildHasherDefault<TypeIdHasher>>>,
    pub(crate) modules: Mutex<HashMap<ModuleKey, Module>>,
    /// What loaded kernels have found wrong.
    pub(crate) faults: RwLock<Vec<&'static super::fault::FaultRecord>>,
}

struct Handle(sys::CUcontext);
// SAFETY: a handle; the driver may be called with it from any thread.
unsafe impl Send for Handle {}
// SAFETY: as above.
unsafe impl Sync for Handle {}

/// What a module was loaded from: an image, by its text's address (`images()` may hand out copies of the struct), and the
/// entry, if the driver compiled that one alone.
pub(crate) type ModuleKey = (usize, Option<&'static str>);

/// A loaded module. Never unloaded.
#[derive(Clone, Copy)]
pub(crate) struct Module(pub(crate) sys::CUmodule);
// SAFETY: a handle; the driver may be called with it from any thread.
unsafe impl Send for Module {}

/// A `TypeId` is a hash already.
#[derive(Default)]
pub(crate) struct TypeIdHasher(u64);
impl Hasher for TypeIdHasher {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            for (to, from) in word.iter_mut().zip(chunk) {
                *to = *from;
            }
            self.write_u64(u64::from_le_bytes(word));
        }
    }
    fn write_u64(&mut self, n: u64) {
        self.0 = self.0.rotate_left(5) ^ n;
    }
}

impl Context {
    /// Makes the context current in this thread. Others use the driver too, so nothing is remembered here.
    pub(crate) fn bind(&self) -> Result<()> {
        let own = match self.ctx.get() {
            Some(ctx) => ctx.0,
            None => {
                let mut ctx = std::ptr::null_mut();
                // SAFETY: writes a handle.
                check("cuDevicePrimaryCtxRetain", unsafe { sys::cuDevicePrimaryCtxRetain(&mut ctx, self.dev) })?;
                self.ctx.get_or_init(|| Handle(ctx)).0
            }
        };
        let mut current = std::ptr::null_mut();
        // SAFETY: writes a handle.
        let asked = unsafe { sys::cuCtxGetCurrent(&mut current) };
        if asked == sys::CUresult::CUDA_SUCCESS && current == own {
            return Ok(());
        }
        // Destructors come through here: if the driver does not say which context is current, it is told.
        // SAFETY: the context is retained for the life of the process.
        check("cuCtxSetCurrent", unsafe { sys::cuCtxSetCurrent(own) })
    }

    /// The primary context, once this thread or another has made it current.
    pub(crate) fn raw(&self) -> Option<sys::CUcontext> {
        self.ctx.get().map(|c| c.0)
    }

    fn open(ordinal: u32) -> Result<Context> {
        let driver = init()?;
        let have = device_count()?;
        if have == 0 {
            return Err(Error::NoDevice);
        }
        if ordinal >= have {
            return Err(Error::NoSuchDevice { ordinal, have });
        }
        let mut dev = 0;
        // SAFETY: each call writes through a pointer to a local of the type it wants.
        unsafe {
            check("cuDeviceGet", sys::cuDeviceGet(&mut dev, ordinal as i32))?;
            let mut name = [0 as std::ffi::c_char; 256];
            check("cuDeviceGetName", sys::cuDeviceGetName(name.as_mut_ptr(), name.len() as i32 - 1, dev))?;
            let name = CStr::from_ptr(name.as_ptr()).to_string_lossy().into_owned();
            let attribute = |a| {
                let mut v = 0;
                check("cuDeviceGetAttribute", sys::cuDeviceGetAttribute(&mut v, a, dev)).map(|()| v.unsigned_abs())
            };
            use sys::CUdevice_attribute_enum as A;
            let capability = (
                attribute(A::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
                attribute(A::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
            );
            let mut memory = 0;
            check("cuDeviceTotalMem", sys::cuDeviceTotalMem_v2(&mut memory, dev))?;
            Ok(Context {
                ordinal,
                dev,
                ctx: OnceLock::new(),
                name,
                capability,
                multiprocessors: attribute(A::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?,
                memory: memory as u64,
                driver,
                pools: attribute(A::CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED)? != 0,
                order: RwLock::new(()),
                default_stream: OnceLock::new(),
                functions: RwLock::default(),
                modules: Mutex::default(),
                faults: RwLock::default(),
            })
        }
    }

    /// The context of a GPU, opened on first use.
    pub(crate) fn get(ordinal: u32) -> Result<&'static Context> {
        static OPEN: Mutex<Vec<&'static Context>> = Mutex::new(Vec::new());
        let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(c) = open.iter().find(|c| c.ordinal == ordinal) {
            return Ok(c);
        }
        let context: &'static Context = Box::leak(Box::new(Context::open(ordinal)?));
        open.push(context);
        Ok(context)
    }
}

/// All GPUs that answer.
pub(crate) fn contexts() -> Vec<&'static Context> {
    (0..device_count().unwrap_or(0)).filter_map(|i| Context::get(i).ok()).collect()
}
