#![forbid(unsafe_code)]
use tilewright::prelude::*;

tilewright::images!(none);

#[kernel]
pub fn double(mut cta: Cta<256>, y: TilesMut<f32, 1, 2048, Strips>) {
    for (_, mut strip) in y.strips() {
        for j in 0..strip.across() {
            let tile = strip.load(&mut cta, j).map(|v| 2.0 * v);
            strip.store(&mut cta, j, &tile);
        }
    }
}
