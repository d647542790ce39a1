// wrong: a tile behind a tensor map of 32 bytes a row
// rule: contracts: tile not divisible
// expect: build E0080 "a tile behind a tensor map is a multiple of 128 bytes wide"
#![forbid(unsafe_code)]
use tilewright::prelude::*;

pub fn f(x: &Tensor<bf16, 2>) -> Result<(), Error> {
    x.tma_tiles::<64, 16>()?; //~ right: x.tma_tiles::<64, 64>()?;
    Ok(())
}
