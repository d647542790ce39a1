//! Arithmetic on extents and strides, checked.

use crate::error::{Error, Result, UNNAMED};
use tilewright_core::__private::RawView;

/// The strides of a tensor without gaps, in elements.
pub(crate) fn contiguous<const R: usize>(extents: &[usize; R]) -> [usize; R] {
    let mut strides = [1; R];
    let mut step = 1usize;
    for (s, e) in strides.iter_mut().zip(extents).rev() {
        *s = step;
        step = step.saturating_mul(*e);
    }
    strides
}

/// How many elements there are; None if that many bytes can not be.
pub(crate) fn elements(extents: &[usize], size: usize) -> Option<usize> {
    if extents.contains(&0) {
        return Some(0);
    }
    let n = extents.iter().try_fold(1usize, |n, &e| n.checked_mul(e))?;
    n.checked_mul(size).filter(|&bytes| bytes <= isize::MAX as usize).map(|_| n)
}

/// From the first element to just past the last, in elements; None if that many bytes can not be.
pub(crate) fn span(extents: &[usize], strides: &[usize], size: usize) -> Option<usize> {
    if extents.contains(&0) {
        return Some(0);
    }
    let last = extents.iter().zip(strides).try_fold(0usize, |n, (&e, &s)| n.checked_add((e - 1).checked_mul(s)?))?;
    let n = last.checked_add(1)?;
    n.checked_mul(size).filter(|&bytes| bytes <= isize::MAX as usize).map(|_| n)
}

/// Whether elements follow each other without gaps, in order.
pub(crate) fn is_contiguous<const R: usize>(extents: &[usize; R], strides: &[usize; R]) -> bool {
    if extents.contains(&0) {
        return true;
    }
    let wanted = contiguous(extents);
    extents.iter().zip(strides).zip(&wanted).all(|((&e, s), w)| e == 1 || s == w)
}

/// Whether no two indices can mean the same element: each dimension steps over everything that the finer ones span.
pub(crate) fn is_injective<const R: usize>(extents: &[usize; R], strides: &[usize; R]) -> bool {
    if extents.contains(&0) {
        return true;
    }
    let mut dims: [(usize, usize); R] = std::array::from_fn(|i| match (strides.get(i), extents.get(i)) {
        (Some(&s), Some(&e)) => (s, e),
        _ => (0, 1),
    });
    dims.sort_unstable();
    let mut reach = 0usize;
    for (stride, extent) in dims {
        if extent == 1 {
            continue;
        }
        if stride <= reach {
            return false;
        }
        reach = reach.saturating_add((extent - 1).saturating_mul(stride));
    }
    true
}

/// That no two indices can mean the same element.
pub(crate) fn expect_injective<const R: usize>(extents: &[usize; R], strides: &[usize; R]) -> Result<()> {
    if is_injective(extents, strides) {
        return Ok(());
    }
    let expected = "strides under which no two indices mean the same element".into();
    Err(Error::Stride { arg: UNNAMED, expected, found: show(strides) })
}

/// Extents as messages show them.
pub(crate) fn show(extents: &[usize]) -> String {
    format!("{extents:?}")
}

/// Tensors of rank 1, 2 and 3 can be cut into tiles: a row, a matrix, a stack of matrices.
#[diagnostic::on_unimplemented(message = "tensors of this rank can not be cut into tiles: reshape to rank 1, 2 or 3")]
pub trait Tileable {
    #[doc(hidden)]
    const RANK: usize;
}
/// A rank, as a type.
pub struct Rank<const R: usize>;
impl Tileable for Rank<1> {
    const RANK: usize = 1;
}
impl Tileable for Rank<2> {
    const RANK: usize = 2;
}
impl Tileable for Rank<3> {
    const RANK: usize = 3;
}

/// What kernels are given for a view of rank 1, 2 or 3, cut into tiles of `tile` rows and columns.
pub(crate) fn raw_view<const R: usize>(
    extents: &[usize; R],
    strides: &[usize; R],
    tile: (usize, usize),
) -> Result<RawView>
where
    Rank<R>: Tileable,
{
    // the last three dimensions; those that are missing have an extent of 1
    let dim = |from_last: usize| match R.checked_sub(from_last + 1) {
        Some(i) => (extents.get(i).copied().unwrap_or(1), strides.get(i).copied().unwrap_or(0)),
        None => (1, 0),
    };
    let ((cols, step), (rows, row_stride), (slabs, slab_stride)) = (dim(0), dim(1), dim(2));
    let empty = extents.contains(&0);
    if step != 1 && cols > 1 && !empty {
        return Err(Error::Stride {
            arg: UNNAMED,
            expected: "adjacent columns (a last stride of 1)".into(),
            found: show(strides),
        });
    }
    let narrow = |n: usize| {
        u32::try_from(n).map_err(|_| Error::Shape {
            arg: UNNAMED,
            expected: "extents below 2^32".into(),
            found: show(extents),
        })
    };
    let tiles = [rows.div_ceil(tile.0.max(1)), slabs, cols.div_ceil(tile.1.max(1))];
    if elements(&tiles, 1).is_none_or(|n| n > u32::MAX as usize) {
        return Err(Error::Shape {
            arg: UNNAMED,
            expected: format!("fewer than 2^32 tiles of {} x {}", tile.0, tile.1),
            found: show(extents),
        });
    }
    let mut raw = RawView::matrix(narrow(rows)?, narrow(cols)?, if R == 1 { cols } else { row_stride } as u64);
    raw.slabs = narrow(slabs)?;
    raw.slab_stride = slab_stride as u64;
    Ok(raw)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strides_and_spans() {
        assert_eq!(contiguous(&[2, 3, 4]), [12, 4, 1]);
        assert_eq!(contiguous(&[0, 3]), [3, 1]);
        assert_eq!(elements(&[2, 3], 4), Some(6));
        assert_eq!(elements(&[usize::MAX, 0], 4), Some(0));
        assert_eq!(elements(&[usize::MAX, 2], 4), None);
        assert_eq!(elements(&[usize::MAX / 2], 4), None);
        assert_eq!(span(&[2, 3], &[10, 1], 4), Some(13));
        assert_eq!(span(&[2, 3], &[usize::MAX, 1], 4), None);
        assert!(
            is_contiguous(&[2, 3], &[3, 1]) && is_contiguous(&[1, 3], &[99, 1]) && !is_contiguous(&[2, 3], &[4, 1])
        );
    }

    /// Against the definition, on all small shapes.
    #[test]
    fn injective_strides_never_alias() {
        let mut proven = 0;
        for e in [[1usize, 2, 3], [2, 2, 2], [3, 1, 4], [4, 3, 2]] {
            for s in (0..512).map(|i| [i % 8, i / 8 % 8, i / 64]) {
                let mut seen = std::collections::HashSet::new();
                let mut distinct = true;
                for i in 0..e[0] {
                    for j in 0..e[1] {
                        for k in 0..e[2] {
                            distinct &= seen.insert(i * s[0] + j * s[1] + k * s[2]);
                        }
                    }
                }
                let claimed = is_injective(&e, &s);
                assert!(distinct || !claimed, "{e:?} {s:?}");
                proven += u32::from(claimed);
            }
            assert!(is_injective(&e, &contiguous(&e)));
        }
        assert!(proven > 100);
    }

    #[test]
    fn views_of_every_rank() {
        let raw = raw_view(&[5], &[1], (1, 2)).unwrap();
        assert_eq!((raw.slabs, raw.rows, raw.cols), (1, 1, 5));
        let raw = raw_view(&[4, 5], &[8, 1], (2, 2)).unwrap();
        assert_eq!((raw.rows, raw.cols, raw.row_stride), (4, 5, 8));
        let raw = raw_view(&[3, 4, 5], &[40, 8, 1], (2, 2)).unwrap();
        assert_eq!((raw.slabs, raw.slab_stride), (3, 40));
        assert!(matches!(raw_view(&[4, 5], &[1, 4], (1, 1)), Err(Error::Stride { .. })));
        assert!(raw_view(&[4, 1], &[1, 4], (1, 1)).is_ok());
        assert!(matches!(raw_view(&[1 << 32], &[1], (1, 1 << 20)), Err(Error::Shape { .. })));
        assert!(matches!(raw_view(&[1 << 17, 1 << 17], &[1 << 17, 1], (1, 1)), Err(Error::Shape { .. })));
        assert!(raw_view(&[1 << 17, 0], &[1, 1], (1, 1)).is_ok());
    }
}
