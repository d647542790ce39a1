//! What stands in for kernels.

use std::ffi::c_void;

/// What a kernel's stand-in asks before it touches memory.
#[repr(C)]
pub struct Access {
    #[doc(hidden)]
    pub world: *mut c_void,
    #[doc(hidden)]
    pub device: i32,
    #[doc(hidden)]
    pub check: unsafe extern "C" fn(*const Access, u64, usize) -> bool,
}

impl Access {
    /// Whether these bytes are memory of the device that lives now. If not, that is written down as a violation.
    pub fn check(&self, address: u64, bytes: usize) -> bool {
        // SAFETY: made by the driver, for the call that it is lent to.
        unsafe { (self.check)(self, address, bytes) }
    }
}

/// A kernel's stand-in: what it may touch, where each parameter's bytes are, the grid's extents.
pub type KernelBody = unsafe extern "C" fn(&Access, *const *const c_void, u32);
