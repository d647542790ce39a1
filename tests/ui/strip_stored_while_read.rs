// wrong: a strip is written while it is lent
// rule: soundness 3: each tile once
// expect: check E0502 "cannot borrow `strip` as mutable"
#![forbid(unsafe_code)]
use tilewright::prelude::*;

tilewright::images!(none);

#[kernel]
pub fn double(mut cta: Cta<256>, y: TilesMut<f32, 1, 2048, Strips>) {
    for (_, mut strip) in y.strips() {
        for j in 0..strip.across() {
            let tile = strip.load(&mut cta, j).map(|v| 2.0 * v);
            let lent = &strip; //~ right: strip.store(&mut cta, j, &tile);
            strip.store(&mut cta, j, &tile); //~ right:
            let _ = lent.across(); //~ right:
        }
    }
}
