// wrong: an output tile goes to another thread
// rule: soundness 3: each tile once
// expect: check E0277 "cannot be sent between threads safely"
#![forbid(unsafe_code)]
use tilewright::prelude::*;

tilewright::images!(none);

#[kernel]
pub fn norm(mut cta: Cta<256>, x: Tiles<f32, 1, 2048>, w: Tiles<f32, 1, 2048>, y: TilesMut<f32, 1, 2048>) {
    for ((i, j), out) in y {
        let x = cta.load(x.tile(i, j));
        let w = cta.load_row_like(&x, w.tile(0, j));
        let squares = x.map(|v| v * v).row_sum(&mut cta);
        let scaled = x.map_rows(&squares, |v, s| v * rsqrt(s));
        fn give<T: Send>(_: &T) {} //~ right:
        give(&out); //~ right:
        out.store(&mut cta, &scaled.zip(&w, |v, w| v * w));
    }
}
