// wrong: a shared tile of 120 bytes a row: the swizzle would not be injective
// rule: contracts: non-injective swizzle; tile not divisible
// expect: check E0080 "a shared tile is a multiple of 128 bytes wide"
#![forbid(unsafe_code)]
use tilewright::prelude::*;
tilewright::images!(none);

#[kernel(arch = "sm_90a")]
pub fn nothing(cta: Cta<128>, #[shared] ring: Pipeline<SharedTile<bf16, 64, 60>, 2>, n: u32) { //~ right: pub fn nothing(cta: Cta<128>, #[shared] ring: Pipeline<SharedTile<bf16, 64, 64>, 2>, n: u32) {
    let _ = (cta, ring, n);
}
