// wrong: tiles of no columns
// rule: contracts: tile shape
// expect: build E0080 "a tile has at least one row and one column"
#![forbid(unsafe_code)]
use tilewright::prelude::*;

pub fn f(x: &Tensor<f32, 1>) -> Result<(), Error> {
    x.tiles::<1, 0>()?; //~ right: x.tiles::<1, 8>()?;
    Ok(())
}
