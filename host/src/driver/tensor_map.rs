//! Tensor maps: descriptions of a matrix for the bulk copy engine.

use super::{Context, check, optional, sys};
use crate::error::{DriverVersion, Error, Result};
use std::ffi::c_void;
use std::sync::OnceLock;
use tilewright_core::element::DType;
use tilewright_core::tma::{TensorMap, TensorMapRequest};

/// `cuTensorMapEncodeTiled`, with its enumerations as integers: the driver's own types for it are not in every version
/// of the headers that a build may find.
type Encode = unsafe extern "C" fn(
    *mut c_void,
    u32,
    u32,
    *mut c_void,
    *const u64,
    *const u64,
    *const u32,
    *const u32,
    u32,
    u32,
    u32,
    u32,
) -> sys::CUresult;

const NO_INTERLEAVE: u32 = 0;
const SWIZZLE_128B: u32 = 3;
const PROMOTE_L2_256B: u32 = 3;
const FILL_ZERO: u32 = 0;

#[repr(C, align(128))]
struct Aligned(TensorMap);

/// Encodes what `request` says for the matrix at `base`. A computation on the host: the device is not touched.
pub(crate) fn encode(context: &Context, base: u64, request: &TensorMapRequest) -> Result<TensorMap> {
    static ENCODE: OnceLock<Option<Encode>> = OnceLock::new();
    // SAFETY: the function's type.
    let Some(encode) = *ENCODE.get_or_init(|| unsafe { optional("cuTensorMapEncodeTiled") }) else {
        let need = DriverVersion { major: 12, minor: 0 };
        return Err(Error::DriverTooOld { what: "a tensor map".into(), need, found: context.driver });
    };
    let dtype = match request.dtype {
        DType::U8 | DType::I8 | DType::E4M3 => 0,
        DType::U32 => 2,
        DType::I32 => 3,
        DType::I64 => 5,
        DType::F16 => 6,
        DType::F32 => 7,
        DType::BF16 => 9,
    };
    let mut map = Aligned(TensorMap([0; 16]));
    let ([columns, rows], (pages, page_bytes)) = (request.dims, request.pages.unwrap_or((1, 0)));
    // SAFETY: the map is 128 bytes, aligned; the arrays have as many entries as a rank of 3 asks for.
    let code = unsafe {
        encode(
            (&raw mut map).cast(),
            dtype,
            if request.pages.is_some() { 3 } else { 2 },
            base as *mut c_void,
            [columns, rows, pages].as_ptr(),
            [request.row_bytes, page_bytes].as_ptr(),
            [request.block[0], request.block[1], 1].as_ptr(),
            [1u32, 1, 1].as_ptr(),
            NO_INTERLEAVE,
            SWIZZLE_128B,
            PROMOTE_L2_256B,
            FILL_ZERO,
        )
    };
    check("cuTensorMapEncodeTiled", code)?;
    Ok(map.0)
}
