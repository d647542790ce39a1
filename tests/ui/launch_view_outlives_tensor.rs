// wrong: tiles of a tensor that is dropped before them
// rule: contracts, launch boundary: a view that outlives its tensor
// expect: check E0597 "does not live long enough"
#![forbid(unsafe_code)]
use tilewright::prelude::*;

tilewright::images!(none);

#[kernel]
pub fn product(
    mut cta: Cta<128>,
    #[shared] mut stages: Stages<f32, 64, 64, 16, 4>,
    a: Tiles<f32, 64, 16>,
    b: Tiles<f32, 64, 16>,
    c: TilesMut<f32, 64, 64>,
) {
    for ((i, j), out) in c {
        let acc = cta.accumulate(&mut stages, a.across(), |k| (a.tile(i, k), b.tile(j, k)), BlockAcc::zero());
        out.store_acc(&mut cta, acc);
    }
}

pub fn run(stream: &Stream) -> Result<(), Error> {
    let a = Tensor::<f32, 2>::zeros(stream, [128, 64])?;
    let b = Tensor::<f32, 2>::zeros(stream, [256, 64])?;
    let mut c = Tensor::<f32, 2>::zeros(stream, [128, 256])?;
    product::launch(stream, (a.tiles()?, b.tiles()?, c.tiles_mut()?))?;
    let tiles = { //~ right:
        let short = Tensor::<f32, 2>::zeros(stream, [64, 64])?; //~ right:
        short.tiles::<64, 16>()? //~ right:
    }; //~ right:
    drop(tiles); //~ right:
    Ok(())
}
