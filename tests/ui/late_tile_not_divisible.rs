// wrong: a tile of 1000 columns over 256 threads
// rule: contracts: tile not divisible
// expect: build E0080 "a tile's width is a multiple of what the threads of a row hold at once"
#![forbid(unsafe_code)]
use tilewright::prelude::*;

tilewright::images!(none);

#[kernel]
pub fn norm(mut cta: Cta<256>, x: Tiles<f32, 1, 1000>, w: Tiles<f32, 1, 1000>, y: TilesMut<f32, 1, 1000>) { //~ right: pub fn norm(mut cta: Cta<256>, x: Tiles<f32, 1, 2048>, w: Tiles<f32, 1, 2048>, y: TilesMut<f32, 1, 2048>) {
    for ((i, j), out) in y {
        let x = cta.load(x.tile(i, j));
        let w = cta.load_row_like(&x, w.tile(0, j));
        let squares = x.map(|v| v * v).row_sum(&mut cta);
        let scaled = x.map_rows(&squares, |v, s| v * rsqrt(s));
        out.store(&mut cta, &scaled.zip(&w, |v, w| v * w));
    }
}
