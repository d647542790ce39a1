// wrong: an f32 where the kernel takes a u32
// rule: contracts, launch boundary: wrong element type
// expect: check E0308 "expected `u32`, found"
#![forbid(unsafe_code)]
use tilewright::prelude::*;

tilewright::images!(none);

#[kernel]
pub fn nothing(cta: Cta<128>, x: Tiles<f32, 1, 256>, y: TilesMut<f32, 1, 256>, n: u32) {
    let _ = (cta, x.tile(0, n), y.plan());
}

pub fn run(stream: &Stream) -> Result<(), Error> {
    let x = Tensor::<f32, 1>::zeros(stream, [64])?;
    let mut y = Tensor::<f32, 1>::zeros(stream, [64])?;
    nothing::launch(stream, (x.tiles()?, y.tiles_mut()?, 1.0)) //~ right: nothing::launch(stream, (x.tiles()?, y.tiles_mut()?, 1))
}
