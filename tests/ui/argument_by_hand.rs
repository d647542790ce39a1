// wrong: a type of one's own made a kernel argument
// rule: soundness 1: arguments can not be forged
// expect: check E0200+- "requires an `unsafe impl` declaration"
#![forbid(unsafe_code)]
use tilewright::prelude::*;

tilewright::images!(none);

pub struct Pointer(usize); //~ right:
impl tilewright::kernel::Arg for Pointer { //~ right:
    const SIGNATURE: u64 = 0; //~ right:
    type Meta = u64; //~ right:
    fn lower(&self) -> (u64, u64) { (self.0 as u64, 0) } //~ right:
    fn facts(&self) -> tilewright::__private::Facts<'_> { todo!() } //~ right:
    unsafe fn at(&self, _: tilewright::__private::backend::Place) -> Self { Pointer(self.0) } //~ right:
    fn without_owner(self) -> Self { self } //~ right:
} //~ right:
#[kernel]
pub fn nothing(cta: Cta<128>, x: Tiles<f32, 1, 256>, y: TilesMut<f32, 1, 256>, n: u32) {
    let _ = (cta, x.tile(0, n), y.plan());
}
