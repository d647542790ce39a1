// wrong: a shared tile of 60 rows: the swizzle repeats every 8
// rule: contracts: non-injective swizzle; tile not divisible
// expect: check E0080 "a shared tile has a multiple of 8 rows, 256 at most"
#![forbid(unsafe_code)]
use tilewright::prelude::*;
tilewright::images!(none);

#[kernel(arch = "sm_90a")]
pub fn nothing(cta: Cta<128>, #[shared] ring: Pipeline<SharedTile<bf16, 60, 64>, 2>, n: u32) { //~ right: pub fn nothing(cta: Cta<128>, #[shared] ring: Pipeline<SharedTile<bf16, 64, 64>, 2>, n: u32) {
    let _ = (cta, ring, n);
}
