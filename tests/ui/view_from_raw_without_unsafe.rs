// wrong: a claim on any address, in safe code
// rule: soundness 1
// expect: check E0133 "call to unsafe function"
#![forbid(unsafe_code)]
use tilewright::prelude::*;
use tilewright::__private::{Provenance, RawView};

pub fn f(x: &mut Tensor<f32, 1>) -> Result<(), Error> {
    let claim: TilesMut<f32, 1, 8> = TilesMut::from_raw(8 as *mut f32, RawView::matrix(1, 8, 8), Provenance::UNTRACKED_CPU); //~ right: let claim: TilesMut<f32, 1, 8> = x.tiles_mut()?;
    drop(claim);
    Ok(())
}
