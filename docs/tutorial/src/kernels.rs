use tilewright::prelude::*;

/// Every row of `y` is the row of `x`, divided by its greatest value.
#[kernel]
pub fn scale(mut cta: Cta<256>, x: Tiles<f32, 1, 1024>, y: TilesMut<f32, 1, 1024>) {
    for ((i, j), y) in y {
        let row = cta.load(x.tile(i, j));
        let greatest = row.row_max(&mut cta);
        y.store(&mut cta, &row.map_rows(&greatest, |x, max| x / max));
    }
}
