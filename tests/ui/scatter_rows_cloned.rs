// wrong: an output that is written through a list is cloned, to be written by another launch
// rule: soundness 12: scatters use relaxed stores, and are never read
// expect: check E0599 "no method named `clone` found"
#![forbid(unsafe_code)]
use tilewright::prelude::*;

tilewright::images!(none);

#[kernel(grid = persistent, faults(BAD_ROW = "the list names a row that does not exist"))]
pub fn scatter(
    mut cta: Cta<128>,
    y: ScatterRows<f32, 64>,
    x: Tiles<f32, 8, 64>,
    rows: Tiles<i64, 1, 1>,
) {
    let _ = y.clone(); //~ right:
    for ticket in y.tickets() {
        let x = cta.fetch(x.tile(ticket, 0));
        y.put(&mut cta, rows, ticket * 8, &x, BAD_ROW);
    }
}
