// wrong: an instance that the kernel does not list
// rule: contracts, launch boundary: a kernel instance that was not built
// expect: check E0599 "is not a kernel that was built"
#![forbid(unsafe_code)]
use tilewright::prelude::*;

tilewright::images!(none);

#[kernel(instances(small = <f32, 16>, half = <bf16, 32>))]
pub fn product<T: DotElement, const K: usize>(
    mut cta: Cta<128>,
    #[shared] mut stages: Stages<T, 64, 64, K, 4>,
    a: Tiles<T, 64, K>,
    b: Tiles<T, 64, K>,
    c: TilesMut<T, 64, 64>,
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
    product::<f32, 32>::launch(stream, (a.tiles()?, b.tiles()?, c.tiles_mut()?))?; //~ right: product::<f32, 16>::launch(stream, (a.tiles()?, b.tiles()?, c.tiles_mut()?))?;
    Ok(())
}
