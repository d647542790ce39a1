// wrong: somebody else's stream, in safe code
// rule: soundness 15
// expect: check E0133 "call to unsafe function"
#![forbid(unsafe_code)]
use tilewright::prelude::*;

pub fn f(device: &Device) -> Result<Stream, Error> {
    Stream::from_raw(device, std::ptr::null_mut()) //~ right: device.stream()
}
