//! The CPU backend runs no kernel on memory that lies elsewhere.

extern crate tilewright_core as tilewright;

use tilewright::__private::{Provenance, RawView, backend};
use tilewright::prelude::*;

tilewright::images!(none);

#[kernel]
pub fn reads(mut cta: Cta<128>, x: Tiles<f32, 1, 512>) {
    cta.load(x.tile(0, 0));
}

#[test]
fn memory_of_a_gpu_is_refused() {
    let row = RawView::matrix(1, 8, 8);
    // SAFETY: nobody follows the address.
    let elsewhere = unsafe { Tiles::from_raw(8 as *const f32, row, Provenance { owner: None, device: 0 }) };
    let fault = backend::run::<reads>((elsewhere,), 1).expect_err("the CPU can not read a GPU's memory");
    assert!(fault.message.contains("does not lie in the CPU's memory"), "{}", fault.message);
    let data = [0.0; 8];
    let here = Tiles::in_slice(&data, row).expect("the slice holds the row");
    assert_eq!(backend::run::<reads>((here,), 1), Ok(()));
}
