// wrong: rows of a tensor that is only lent to read are written
// rule: contracts, launch boundary: an input where an output is wanted
// expect: check E0599 "no method named `scatter_rows` found"
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
    for ticket in y.tickets() {
        let x = cta.fetch(x.tile(ticket, 0));
        y.put(&mut cta, rows, ticket * 8, &x, BAD_ROW);
    }
}

pub fn run(stream: &Stream) -> Result<(), Error> {
    let x = Tensor::<f32, 2>::zeros(stream, [8, 64])?;
    let rows = Tensor::<i64, 2>::zeros(stream, [8, 1])?;
    let mut y = Tensor::<f32, 3>::zeros(stream, [4, 16, 64])?;
    scatter::launch(stream, (y.view().scatter_rows(1)?, x.tiles()?, rows.tiles()?)) //~ right: scatter::launch(stream, (y.view_mut().scatter_rows(1)?, x.tiles()?, rows.tiles()?))
}
