// wrong: a kernel takes an output by strips, which another block could take by tiles
// rule: soundness 3: how an output is cut is the launch's choice
// expect: check E0599 "no method named `strips` found for struct"
#![forbid(unsafe_code)]
use tilewright::prelude::*;

tilewright::images!(none);

#[kernel]
pub fn double(mut cta: Cta<256>, y: TilesMut<f32, 1, 2048>) { //~ right: pub fn double(mut cta: Cta<256>, y: TilesMut<f32, 1, 2048, Strips>) {
    for (_, mut strip) in y.strips() {
        for j in 0..strip.across() {
            let tile = strip.load(&mut cta, j).map(|v| 2.0 * v);
            strip.store(&mut cta, j, &tile);
        }
    }
}
