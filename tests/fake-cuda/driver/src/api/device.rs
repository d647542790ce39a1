//! The driver, devices, contexts.
#![allow(unsafe_op_in_unsafe_fn)] // every function here is given pointers by the caller's contract

use super::{api, put};
use crate::world::{
    CURRENT, Code, INVALID_CONTEXT, INVALID_DEVICE, INVALID_VALUE, NAMES, NO_DEVICE, NOT_FOUND, NOT_INITIALIZED, World,
    context_device, context_handle,
};
use std::ffi::{CStr, c_char, c_void};

impl World {
    fn device(&self, device: i32) -> Result<i32, Code> {
        if !self.initialized {
            return Err(NOT_INITIALIZED);
        }
        if (0..self.settings.devices).contains(&device) { Ok(device) } else { Err(INVALID_DEVICE) }
    }
}

unsafe fn name_of(code: Code, to: *mut *const c_char) -> Result<(), Code> {
    let (_, name) = NAMES.iter().find(|(c, _)| *c == code).ok_or(INVALID_VALUE)?;
    put(to, name.as_ptr())
}

api! {
    fn cuDriverGetVersion(version: *mut i32) |w| {
        put(version, w.settings.version)
    }
    fn cuInit(flags: u32) |w| {
        if flags != 0 {
            return Err(INVALID_VALUE);
        }
        if w.settings.devices == 0 {
            return Err(NO_DEVICE);
        }
        w.initialized = true;
        Ok(())
    }
    fn cuGetErrorName(code: Code, name: *mut *const c_char) |_w| {
        name_of(code, name)
    }
    fn cuGetErrorString(code: Code, name: *mut *const c_char) |_w| {
        name_of(code, name)
    }
    fn cuDeviceGetCount(n: *mut i32) |w| {
        if !w.initialized {
            return Err(NOT_INITIALIZED);
        }
        put(n, w.settings.devices)
    }
    fn cuDeviceGet(device: *mut i32, ordinal: i32) |w| {
        let found = w.device(ordinal)?;
        put(device, found)
    }
    fn cuDeviceGetName(name: *mut c_char, length: i32, device: i32) |w| {
        w.device(device)?;
        let text = c"Fake GPU";
        let text = text.to_bytes_with_nul();
        let n = text.len().min(usize::try_from(length).unwrap_or(0));
        std::ptr::copy_nonoverlapping(text.as_ptr().cast(), name, n);
        Ok(())
    }
    fn cuDeviceTotalMem_v2(bytes: *mut usize, device: i32) |w| {
        w.device(device)?;
        put(bytes, w.settings.memory as usize)
    }
    fn cuDeviceGetAttribute(value: *mut i32, attribute: i32, device: i32) |w| {
        w.device(device)?;
        let v = match attribute {
            1 => 1024,                    // threads of a block
            10 => 32,                     // threads of a warp
            16 => 132,                    // multiprocessors
            41 => 1,                      // unified addressing
            75 => w.settings.capability.0,
            76 => w.settings.capability.1,
            97 => 232_448,                // shared memory a block may ask for
            115 => i32::from(w.settings.pools),
            _ => 0,
        };
        put(value, v)
    }
    fn cuDevicePrimaryCtxRetain(context: *mut *mut c_void, device: i32) |w| {
        let device = w.device(device)?;
        *w.retained.entry(device).or_default() += 1;
        put(context, context_handle(device))
    }
    fn cuDevicePrimaryCtxRelease_v2(device: i32) |w| {
        let device = w.device(device)?;
        let n = w.retained.entry(device).or_default();
        *n -= 1;
        if *n < 0 {
            w.violation("a primary context is released more often than retained");
            return Err(INVALID_CONTEXT);
        }
        Ok(())
    }
    fn cuDevicePrimaryCtxSetFlags_v2(device: i32, _flags: u32) |w| {
        w.device(device).map(|_| ())
    }
    fn cuCtxGetCurrent(context: *mut *mut c_void) |w| {
        if !w.initialized {
            return Err(NOT_INITIALIZED);
        }
        put(context, CURRENT.get().map_or(std::ptr::null_mut(), context_handle))
    }
    fn cuCtxSetCurrent(context: *mut c_void) |w| {
        if context.is_null() {
            CURRENT.set(None);
            return Ok(());
        }
        match context_device(context) {
            Some(d) if w.retained.get(&d).is_some_and(|n| *n > 0) => {
                CURRENT.set(Some(d));
                Ok(())
            }
            _ => {
                w.violation("a context that nobody holds is made current");
                Err(INVALID_CONTEXT)
            }
        }
    }
    fn cuCtxGetDevice(device: *mut i32) |w| {
        let current = w.current()?;
        put(device, current)
    }
    fn cuCtxSynchronize() |w| {
        let device = w.current()?;
        let streams: Vec<u64> = w.streams.iter().filter(|(_, s)| s.device == device).map(|(k, _)| *k).collect();
        streams.into_iter().for_each(|s| w.run_all(s));
        Ok(())
    }
}

/// The driver's own way to a function by name.
///
/// # Safety
/// As the driver's.
#[unsafe(no_mangle)]
#[allow(non_snake_case)]
pub unsafe extern "C" fn cuGetProcAddress(
    _name: *const c_char,
    to: *mut *mut c_void,
    _version: i32,
    _flags: u64,
) -> Code {
    // Those who need a function that may be missing look for the symbol.
    let _: Option<&CStr> = None;
    if let Err(code) = World::get().enter("cuGetProcAddress") {
        return code;
    }
    let _ = put(to, std::ptr::null_mut());
    NOT_FOUND
}
