//! RMSNorm whose result is quantised: elements of 8 bits and the scales that bring them back.

use super::rmsnorm::Scaling;
use super::same_shape;
use tilewright_core::element::{Element, bf16, e4m3, f16};
use tilewright_host::{Error, Launch, Named, Result, Stream, TensorView, TensorViewMut};
use tilewright_kernels::__quantised_tiles;
use tilewright_kernels::rmsnorm::quantised::{GROUP, by_groups, by_rows};

mod sealed {
    pub trait Sealed {}
}

type In<'a, T> = TensorView<'a, T, 2>;
type Out<'a, T> = TensorViewMut<'a, T, 2>;

/// An element type of rows that are normed and quantised: f16 or bf16. Sealed.
pub trait Quantised: Element<Value = f32> + sealed::Sealed {
    #[doc(hidden)]
    fn launch(
        s: &Stream,
        x: In<'_, Self>,
        w: In<'_, Self>,
        y: Out<'_, e4m3>,
        scales: Out<'_, f32>,
        c: Scaling,
    ) -> Result<()>;
}

/// `y scale = x / sqrt(mean(x^2) + eps) * w`, row by row, `y` rounded to [`e4m3`]. `scales` has a column, for one scale a row, or
/// a column for each 128 columns of `x`; a scale is the greatest size that it serves over 448. `x` and `y` have at most
/// 8192 columns, any row stride and alignment; `w` has as many elements as a row. On a GPU, Hopper is needed.
///
/// # Errors
/// [`Error::Shape`] where extents disagree and for wider rows, [`Error::Stride`] where columns are not adjacent,
/// [`Error::Device`] where a tensor lies elsewhere than the stream, and what [`Launch::launch`] says.
///
/// ```
/// use tilewright::ops::quantised::rmsnorm_e4m3;
/// use tilewright::prelude::*;
///
/// let stream = Device::cpu().stream()?;
/// let x = Tensor::<bf16, 2>::from_slice(&stream, [1, 2], &[3.0, 4.0].map(bf16::from_f32))?;
/// let w = Tensor::<bf16, 1>::full(&stream, [2], bf16::from_f32(1.0))?;
/// let mut y = Tensor::<e4m3, 2>::zeros(&stream, [1, 2])?;
/// let mut scales = Tensor::<f32, 2>::zeros(&stream, [1, 1])?;
/// rmsnorm_e4m3(&stream, x.view(), w.view(), y.view_mut(), scales.view_mut(), 0.0)?;
/// let (y, scale) = (y.to_vec(&stream)?, scales.to_vec(&stream)?[0]);
/// assert!(y[1].to_f32() == 448.0 && (448.0 * scale - 4.0 / 12.5f32.sqrt()).abs() < 1e-5);
/// # Ok::<(), Error>(())
/// ```
pub fn rmsnorm_e4m3<T: Quantised>(
    stream: &Stream,
    x: TensorView<'_, T, 2>,
    w: TensorView<'_, T, 1>,
    y: TensorViewMut<'_, e4m3, 2>,
    scales: TensorViewMut<'_, f32, 2>,
    eps: impl Into<Scaling>,
) -> Result<()> {
    let [m, n] = x.extents();
    same_shape("y", [m, n], y.extents())?;
    same_shape("w", [n], w.extents())?;
    let [rows, columns] = scales.extents();
    if rows != m || columns != 1 && columns != n.div_ceil(GROUP) {
        let (expected, found) = (format!("{m} x 1 or {m} x {}", n.div_ceil(GROUP)), format!("{rows} x {columns}"));
        return Err(Error::Shape { arg: "scales", expected, found });
    }
    if m == 0 || n == 0 {
        return Ok(());
    }
    T::launch(stream, x, w.reshape([1, n])?, y, scales, eps.into())
}

macro_rules! by_width {
    ($t:ty, $s:ident, $scales:ident, $cols:expr, $x:ident, $w:ident, $y:ident, $c:ident;
        [$(<$m:literal, $n:literal, $threads:literal, $blocks:literal>),*]
        groups [$(<$gm:literal, $gn:literal, $k:literal, $gthreads:literal, $gblocks:literal>),*]) => {
        match ($scales.extents()[1], $cols) {
            $((1, cols) if cols <= $n => by_rows::<$t, $m, $n, $threads, $blocks>::launch($s, (
                $x.row_tiles().arg("x")?,
                $w.row_tiles().arg("w")?,
                $y.row_tiles_mut().arg("y")?,
                $scales.row_tiles_mut().arg("scales")?,
                $c.eps,
                $c.offset,
            )),)*
            $((_, cols) if cols <= $gn => by_groups::<$t, $gm, $gn, $k, $gthreads, $gblocks>::launch($s, (
                $x.row_tiles().arg("x")?,
                $w.row_tiles().arg("w")?,
                $y.row_tiles_mut().arg("y")?,
                $scales.row_tiles_mut().arg("scales")?,
                $c.eps,
                $c.offset,
            )),)*
            (_, cols) => {
                Err(Error::Shape { arg: "x", expected: "at most 8192 columns".into(), found: cols.to_string() })
            }
        }
    };
}

macro_rules! quantised {
    ($($t:ty),*) => {$(
        impl sealed::Sealed for $t {}
        impl Quantised for $t {
            #[inline]
            fn launch(
                s: &Stream,
                x: In<'_, $t>,
                w: In<'_, $t>,
                y: Out<'_, e4m3>,
                scales: Out<'_, f32>,
                c: Scaling,
            ) -> Result<()> {
                __quantised_tiles!(by_width! { $t, s, scales, x.extents()[1], x, w, y, c })
            }
        }
    )*};
}
quantised!(f16, bf16);
