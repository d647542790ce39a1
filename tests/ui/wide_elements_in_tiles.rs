// wrong: a kernel takes tiles of 64-bit elements
// rule: elements: register tiles compute in 32 bits
// expect: check E0080 "elements of 64 bits are read one at a time"
#![forbid(unsafe_code)]
use tilewright::prelude::*;

tilewright::images!(none);

#[kernel(grid = persistent, faults(BAD_ROW = "the list names a row that does not exist"))]
pub fn scatter(
    mut cta: Cta<128>,
    y: ScatterRows<f32, 64>,
    x: Tiles<f32, 8, 64>,
    more: Tiles<i64, 1, 32>, //~ right: more: Tiles<i64, 1, 1>,
    rows: Tiles<i64, 1, 1>,
) {
    let _ = more.rows();
    for ticket in y.tickets() {
        let x = cta.fetch(x.tile(ticket, 0));
        y.put(&mut cta, rows, ticket * 8, &x, BAD_ROW);
    }
}
