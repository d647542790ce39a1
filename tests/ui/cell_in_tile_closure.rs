// wrong: an element closure counts in a Cell
// rule: soundness 5: element closures see nothing of the lanes, and reach no barrier
// expect: check E0277 "`Cell<i32>` cannot be shared between threads safely"
#![forbid(unsafe_code)]
use tilewright::prelude::*;

tilewright::images!(none);

#[kernel]
pub fn norm(mut cta: Cta<256>, x: Tiles<f32, 1, 2048>, w: Tiles<f32, 1, 2048>, y: TilesMut<f32, 1, 2048>) {
    for ((i, j), out) in y {
        let x = cta.load(x.tile(i, j));
        let w = cta.load_row_like(&x, w.tile(0, j));
        let squares = x.map(|v| v * v).row_sum(&mut cta);
        let n = core::cell::Cell::new(0); //~ right:
        let _ = x.map(|v| v + n.replace(1) as f32); //~ right:
        let scaled = x.map_rows(&squares, |v, s| v * rsqrt(s));
        out.store(&mut cta, &scaled.zip(&w, |v, w| v * w));
    }
}
