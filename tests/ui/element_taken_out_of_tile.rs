// wrong: one element of a tile is read as a scalar
// rule: soundness 5: element closures see nothing of the lanes, and reach no barrier
// expect: check E0608 "cannot index into a value of type"
#![forbid(unsafe_code)]
use tilewright::prelude::*;

tilewright::images!(none);

#[kernel]
pub fn norm(mut cta: Cta<256>, x: Tiles<f32, 1, 2048>, w: Tiles<f32, 1, 2048>, y: TilesMut<f32, 1, 2048>) {
    for ((i, j), out) in y {
        let x = cta.load(x.tile(i, j));
        let w = cta.load_row_like(&x, w.tile(0, j));
        let squares = x.map(|v| v * v).row_sum(&mut cta);
        let _ = x[0]; //~ right:
        let scaled = x.map_rows(&squares, |v, s| v * rsqrt(s));
        out.store(&mut cta, &scaled.zip(&w, |v, w| v * w));
    }
}
