//! Views of slices, made without `unsafe`: for tests of kernels, which [`run`](crate::backend::run) runs on the CPU. It has
//! ended with a slice when it returns. Whoever might keep a view for longer (the host's streams and graphs) refuses these, by
//! the device that they name.

use crate::element::Element;
use crate::row_tiles::{RawRows, RowTiles, RowTilesMut};
use crate::tma::{TensorMap, TmaTiles, TmaTilesMut};
use crate::view::{Provenance, RawView, Tiles, TilesMut};

const HERE: Provenance<'static> = Provenance { owner: None, device: Provenance::SLICE };
/// Nobody reads it on the CPU.
const MAP: TensorMap = TensorMap([0; 16]);

/// Elements from the first of a matrix to the one after its last, if that is a number.
fn extent(raw: &RawView) -> Option<u64> {
    let rows = u64::from(raw.rows.checked_sub(1)?).checked_mul(raw.row_stride)?;
    rows.checked_add(raw.cols.into())
}

/// Whether all of a view lies within `len` elements.
fn fits(raw: &RawView, len: usize) -> bool {
    if raw.rows == 0 || raw.cols == 0 || raw.slabs == 0 {
        return true;
    }
    let slabs = u64::from(raw.slabs - 1).checked_mul(raw.slab_stride);
    let all = slabs.zip(extent(raw)).and_then(|(slabs, last)| slabs.checked_add(last));
    all.is_some_and(|all| all <= len as u64)
}

/// Whether it is plain from the strides that no element has two places in the view.
fn apart(raw: &RawView) -> bool {
    let rows = raw.rows <= 1 || raw.row_stride >= raw.cols.into();
    rows && (raw.slabs <= 1 || extent(raw).is_none_or(|last| raw.slab_stride >= last))
}

macro_rules! in_slice {
    ($view:ident, $data:ty, $ptr:ident $(, $apart:ident)?; $raw:ident => $what:expr $(, $map:ident)?) => {
        impl<'a, T: Element, const M: usize, const N: usize> $view<'a, T, M, N> {
            /// The view at the beginning of a slice, if all of it lies there; to write, if its elements lie apart; behind a tensor map,
            /// or of whole rows, if it is a matrix, of rows that fit.
            #[doc(hidden)]
            pub fn in_slice(data: $data, $raw: RawView) -> Option<Self> {
                if !fits(&$raw, data.len()) $(|| !$apart(&$raw))? {
                    return None;
                }
                let base = data.$ptr();
                let what: Option<_> = $what(&$raw, base as u64);
                // SAFETY: the slice holds the view and is borrowed with it; what is written lies apart.
                what.map(|what| unsafe { Self::from_raw(base, what $(, $map)?, HERE) })
            }
        }
    };
}
in_slice!(Tiles, &'a [T], as_ptr; raw => |raw: &RawView, _| Some(*raw));
in_slice!(TilesMut, &'a mut [T], as_mut_ptr, apart; raw => |raw: &RawView, _| Some(*raw));
in_slice!(TmaTiles, &'a [T], as_ptr; raw => |raw: &RawView, _| (raw.slabs == 1).then_some(*raw), MAP);
in_slice!(TmaTilesMut, &'a mut [T], as_mut_ptr, apart; raw => |raw: &RawView, _| (raw.slabs == 1).then_some(*raw), MAP);
in_slice!(RowTiles, &'a [T], as_ptr; raw => |raw: &RawView, at| rows::<T, N>(raw, at));
in_slice!(RowTilesMut, &'a mut [T], as_mut_ptr, apart; raw => |raw: &RawView, at| rows::<T, N>(raw, at));

fn rows<T, const N: usize>(raw: &RawView, base: u64) -> Option<RawRows> {
    RawRows::of(base, size_of::<T>(), raw).filter(|rows| rows.cols as usize <= N)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stack(rows: u32, cols: u32, slabs: u32, row_stride: u64, slab_stride: u64) -> RawView {
        RawView { rows, cols, slabs, reserved: 0, row_stride, slab_stride }
    }

    #[test]
    fn a_view_lies_in_its_slice_or_is_none() {
        let mut data = [0.0f32; 100];
        let reads = |raw| Tiles::<f32, 8, 8>::in_slice(&data, raw).is_some();
        assert!(reads(RawView::matrix(10, 10, 10)) && reads(RawView::matrix(4, 10, 30)));
        assert!(!reads(RawView::matrix(10, 11, 10)) && !reads(RawView::matrix(4, 11, 30)));
        assert!(reads(stack(2, 10, 5, 10, 20)) && !reads(stack(2, 10, 5, 10, 21)));
        // rows in one place can be read; sums that are no number lie nowhere
        assert!(reads(RawView::matrix(u32::MAX, 100, 0)));
        assert!(!reads(RawView::matrix(3, 1, u64::MAX / 2)) && !reads(RawView::matrix(2, 1, u64::MAX)));
        assert!(!reads(stack(1, 1, 3, 1, u64::MAX / 2)) && reads(RawView::matrix(0, 1000, 1000)));
        let mut writes = |raw| TilesMut::<f32, 8, 8>::in_slice(&mut data, raw).is_some();
        assert!(writes(RawView::matrix(10, 10, 10)) && !writes(RawView::matrix(10, 10, 9)));
        assert!(writes(stack(2, 10, 5, 10, 20)) && !writes(stack(2, 10, 5, 10, 19)));
        assert!(!writes(RawView::matrix(2, 100, 0)) && writes(RawView::matrix(1, 100, 0)));
        assert!(TmaTiles::<f32, 8, 32>::in_slice(&data, stack(2, 10, 5, 10, 20)).is_none());
        assert!(RowTiles::<f32, 1, 9>::in_slice(&data, RawView::matrix(10, 10, 10)).is_none());
    }
}
