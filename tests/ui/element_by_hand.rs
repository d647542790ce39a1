// wrong: an element type of one's own
// rule: soundness 1: elements are sealed
// expect: check E0277+E0046 "Sealed"
#![forbid(unsafe_code)]
use tilewright::element::Value;

#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd)]
pub struct Mine(u8, u32);
impl Value for Mine { //~ right:
    fn to_bits32(self) -> u32 { self.1 } //~ right:
    fn from_bits32(bits: u32) -> Self { Mine(0, bits) } //~ right:
} //~ right:
fn main() {}
