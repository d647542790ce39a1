// wrong: a tensor of rank 4 is cut into tiles
// rule: contracts, launch boundary: wrong rank
// expect: check E0599 "tiles"
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
    let a = Tensor::<f32, 4>::zeros(stream, [1, 1, 128, 64])?; //~ right: let a = Tensor::<f32, 2>::zeros(stream, [128, 64])?;
    let b = Tensor::<f32, 2>::zeros(stream, [256, 64])?;
    let mut c = Tensor::<f32, 2>::zeros(stream, [128, 256])?;
    product::launch(stream, (a.tiles()?, b.tiles()?, c.tiles_mut()?))?;
    Ok(())
}
