// wrong: factors of 8 bits are multiplied across the depth, which tensor cores can not
// rule: soundness 4
// expect: build E0080 "factors of 8 bits lie along the depth"
#![forbid(unsafe_code)]
use tilewright::prelude::*;

tilewright::images!(none);

#[kernel(arch = "sm_90a")]
pub fn product(
    cta: Cta<256>,
    #[shared] ring: Pipeline<(SharedTile<e4m3, 64, 128>, SharedTile<e4m3, 128, 128>), 2>,
    a: TmaTiles<e4m3, 64, 128>,
    b: TmaTiles<e4m3, 128, 128>,
    c: TilesMut<f32, 64, 128>,
) {
    cta.roles(
        ring,
        c,
        |ring| ring.fill().load((a.tile(0, 0), b.tile(0, 0))),
        |wg, ring, c| {
            for (_, out) in c {
                let mut mma = wg.mma(Acc::<128>::zero());
                mma.step(ring.next(), |(a, b)| (a.rows_of(wg), b.t())); //~ right: mma.step(ring.next(), |(a, b)| (a.rows_of(wg), b.all()));
                out.store(wg, mma.wait());
            }
        },
    );
}

fn main() {
    let stream = Device::cpu().stream().unwrap();
    let a = Tensor::<e4m3, 2>::zeros(&stream, [64, 128]).unwrap();
    let b = Tensor::<e4m3, 2>::zeros(&stream, [128, 128]).unwrap();
    let mut c = Tensor::<f32, 2>::zeros(&stream, [64, 128]).unwrap();
    product::launch(&stream, (a.tma_tiles().unwrap(), b.tma_tiles().unwrap(), c.tiles_mut().unwrap())).unwrap();
}
