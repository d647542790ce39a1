// wrong: a tile of integers is stored to an output of floats
// rule: contracts: wrong element type
// expect: check E0308 "mismatched types"
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
        let n = scaled.map(|v| v as i32); //~ right: out.store(&mut cta, &scaled.zip(&w, |v, w| v * w));
        out.store(&mut cta, &n); //~ right:
    }
}
