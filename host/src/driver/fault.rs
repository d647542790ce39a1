//! Faults that kernels report from a GPU: two words of pinned memory for each kernel that declares any.

use super::{Context, check, sys};
use crate::error::{Error, Result};
use std::sync::PoisonError;
use std::sync::atomic::{AtomicU32, Ordering};
use tilewright_core::backend::declared;
use tilewright_core::kernel::Kernel;

/// What one kernel reports. Never freed, as the kernel is never unloaded.
pub(crate) struct FaultRecord {
    /// The code of the first fault, or 0; then the block's number. Pinned: the device writes it, too.
    words: &'static [AtomicU32; 2],
    kernel: &'static str,
    message: fn(u32) -> &'static str,
}

impl FaultRecord {
    /// As the kernel's last parameter. With unified addresses, pinned memory has one address everywhere.
    pub(crate) fn address(&self) -> u64 {
        self.words.as_ptr() as u64
    }

    fn take(&self) -> Option<Error> {
        let code = self.words[0].load(Ordering::Acquire);
        if code == 0 {
            return None;
        }
        let block = self.words[1].load(Ordering::Relaxed);
        self.words[0].store(0, Ordering::Release);
        Some(Error::Kernel { name: self.kernel, block, message: (self.message)(code).into() })
    }
}

impl Context {
    /// Makes a kernel's record. The context is current.
    pub(super) fn fault_record<K: Kernel>(&self) -> Result<&'static FaultRecord> {
        let mut memory = std::ptr::null_mut();
        let flags = sys::CU_MEMHOSTALLOC_PORTABLE | sys::CU_MEMHOSTALLOC_DEVICEMAP;
        // SAFETY: writes a pointer.
        check("cuMemHostAlloc", unsafe { sys::cuMemHostAlloc(&mut memory, size_of::<[AtomicU32; 2]>(), flags) })?;
        let words: *mut [AtomicU32; 2] = memory.cast();
        // SAFETY: page-aligned memory of that size, ours for ever; nobody else has it yet.
        let words = unsafe {
            words.write([const { AtomicU32::new(0) }; 2]);
            &*words
        };
        let record: &FaultRecord = Box::leak(Box::new(FaultRecord { words, kernel: K::NAME, message: declared::<K> }));
        self.faults.write().unwrap_or_else(PoisonError::into_inner).push(record);
        Ok(record)
    }

    /// The first fault that any kernel has reported since the last call, as an error: after a wait.
    pub(crate) fn reported(&self) -> Result<()> {
        let records = self.faults.read().unwrap_or_else(PoisonError::into_inner);
        records.iter().find_map(|r| r.take()).map_or(Ok(()), Err)
    }
}
