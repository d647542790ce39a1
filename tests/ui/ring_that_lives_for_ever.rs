// wrong: a kernel asks for a ring that lives for ever, and keeps it, for another block or another launch
// rule: soundness 3: rings live no longer than their block
// expect: check E0716 "dropped while borrowed"
#![forbid(unsafe_code)]
use tilewright::prelude::*;

tilewright::images!(none);

type Ring<'b> = Pipeline<'b, SharedTile<bf16, 64, 64>, 2>;

static KEPT: std::sync::Mutex<Option<Ring<'static>>> = std::sync::Mutex::new(None);

#[kernel]
pub fn product(
    mut cta: Cta<128>,
    #[shared] ring: Ring<'static>, //~ right: #[shared] ring: Ring,
    #[shared] mut stages: Stages<f32, 64, 64, 16, 4>,
    a: Tiles<f32, 64, 16>,
    b: Tiles<f32, 64, 16>,
    c: TilesMut<f32, 64, 64>,
) {
    *KEPT.lock().unwrap() = Some(ring); //~ right: let _ = (&KEPT, ring);
    for ((i, j), out) in c {
        let acc = cta.accumulate(&mut stages, a.across(), |k| (a.tile(i, k), b.tile(j, k)), BlockAcc::zero());
        out.store_acc(&mut cta, acc);
    }
}
