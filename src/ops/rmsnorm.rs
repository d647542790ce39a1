//! RMSNorm of rows: `y = x / sqrt(mean(x^2) + eps) * w`, and of `x + r`. Sums are f32; one rounding at the end.

use tilewright_core::element::{Element, bf16, f16};
use tilewright_core::schedule::Strips;
use tilewright_host::{Error, Launch, Named, Result, Stream, TensorView, TensorViewMut};
use tilewright_kernels::rmsnorm::{
    long_rows, long_rows_residual, longest_rows, longest_rows_residual, rows, rows_residual, wide, wide_residual,
};

mod sealed {
    pub trait Sealed<W> {}
}

type In<'a, T> = TensorView<'a, T, 2>;
type Out<'a, T> = TensorViewMut<'a, T, 2>;

/// An element type whose rows are normed with weights of type `W`: f32, f16 or bf16 with weights of the same type, or bf16 with
/// weights of f32. Sealed.
#[diagnostic::on_unimplemented(
    message = "rows of `{Self}` are not normed with weights of `{W}`",
    note = "rows are f32, f16 or bf16; weights are of the same type, or f32"
)]
pub trait Normed<W: Element>: Element<Value = f32> + sealed::Sealed<W> {
    #[doc(hidden)]
    fn plain(s: &Stream, x: In<'_, Self>, w: In<'_, W>, y: Out<'_, Self>, eps: f32) -> Result<()>;
    #[doc(hidden)]
    fn residual(s: &Stream, x: In<'_, Self>, r: Out<'_, Self>, w: In<'_, W>, y: Out<'_, Self>, eps: f32) -> Result<()>;
}

/// `y = x / sqrt(mean(x^2) + eps) * w`, row by row. `x` and `y` are of any number of rows and columns, of any row stride
/// and alignment; `w` has as many elements as a row.
///
/// # Errors
/// [`Error::Shape`] where extents disagree, [`Error::Stride`] where columns are not adjacent, [`Error::Device`] where a
/// tensor lies elsewhere than the stream, and what [`Launch::launch`] says.
///
/// ```
/// use tilewright::ops::rmsnorm::rmsnorm;
/// use tilewright::prelude::*;
///
/// let stream = Device::best().stream()?;
/// let x = Tensor::<f32, 2>::from_slice(&stream, [1, 2], &[3.0, 4.0])?;
/// let w = Tensor::<f32, 1>::full(&stream, [2], 1.0)?;
/// let mut y = Tensor::<f32, 2>::zeros(&stream, [1, 2])?;
/// rmsnorm(&stream, x.view(), w.view(), y.view_mut(), 0.0)?;
/// let y = y.to_vec(&stream)?;
/// assert!((y[0] - 3.0 / 12.5f32.sqrt()).abs() < 1e-6);
/// # Ok::<(), Error>(())
/// ```
pub fn rmsnorm<T: Normed<W>, W: Element>(
    stream: &Stream,
    x: TensorView<'_, T, 2>,
    w: TensorView<'_, W, 1>,
    y: TensorViewMut<'_, T, 2>,
    eps: f32,
) -> Result<()> {
    let [m, n] = x.extents();
    same("y", [m, n], y.extents())?;
    let w = weights(w, n)?;
    if m == 0 || n == 0 {
        return Ok(());
    }
    T::plain(stream, x, w, y, eps)
}

/// As [`rmsnorm`], of `x + r`: the sum is rounded to the element type, takes the place of `residual`, and is normed.
///
/// # Errors
/// As for [`rmsnorm`].
pub fn rmsnorm_residual<T: Normed<W>, W: Element>(
    stream: &Stream,
    x: TensorView<'_, T, 2>,
    residual: TensorViewMut<'_, T, 2>,
    w: TensorView<'_, W, 1>,
    y: TensorViewMut<'_, T, 2>,
    eps: f32,
) -> Result<()> {
    let [m, n] = x.extents();
    same("residual", [m, n], residual.extents())?;
    same("y", [m, n], y.extents())?;
    let w = weights(w, n)?;
    if m == 0 || n == 0 {
        return Ok(());
    }
    T::residual(stream, x, residual, w, y, eps)
}

fn same(arg: &'static str, [m, n]: [usize; 2], [fm, fnd]: [usize; 2]) -> Result<()> {
    if [m, n] == [fm, fnd] {
        return Ok(());
    }
    Err(Error::Shape { arg, expected: format!("{m} x {n}"), found: format!("{fm} x {fnd}") })
}

/// The weights as a matrix of one row.
fn weights<W: Element>(w: TensorView<'_, W, 1>, n: usize) -> Result<TensorView<'_, W, 2>> {
    let [found] = w.extents();
    if found != n {
        return Err(Error::Shape { arg: "w", expected: format!("{n}"), found: format!("{found}") });
    }
    w.reshape([1, n]).arg("w")
}

/// Picks the kernel whose tile holds a row with the least to spare, of those for its form.
macro_rules! by_width {
    ((plain) $($rest:tt)*) => {
        by_width!(@pick $($rest)*; wide;
            128 rows 32 256, 256 rows 16 256, 512 rows 8 256, 1024 rows 4 256, 2048 rows 2 256, 4096 rows 1 256,
            7168 long_rows 1 448, 8192 long_rows 1 512, 16384 longest_rows 1 1024)
    };
    ((residual) $($rest:tt)*) => {
        by_width!(@pick $($rest)*; wide_residual;
            128 rows_residual 32 256, 256 rows_residual 16 256, 512 rows_residual 8 256, 1024 rows_residual 4 256,
            2048 rows_residual 2 256, 4096 rows_residual 1 256, 7168 long_rows_residual 1 448,
            8192 long_rows_residual 1 512, 16384 longest_rows_residual 1 1024)
    };
    (@pick $s:expr, $n:expr, $t:tt, $w:tt, $order:tt, $eps:expr; $wide:ident;
        $($width:literal $k:ident $m:literal $threads:literal),*) => {
        match $n {
            $(n if n <= $width => by_width!(@launch $s, $k<$t, $w, $m, $width, $threads>, $order, $eps),)*
            _ => by_width!(@launch $s, $wide<$t, $w>, $order, $eps, schedule Strips),
        }
    };
    (@launch $s:expr, $k:ident<$($p:tt),*>, ($x:ident, $weight:ident, $y:ident), $eps:expr $(, $cut:ident $how:ident)?) => {
        $k::<$($p),*>::launch($s, (
            $x.tiles().arg("x")?,
            $weight.tiles().arg("w")?,
            $y.tiles_mut().arg("y")?$(.$cut($how))?,
            $eps,
        ))
    };
    (@launch $s:expr, $k:ident<$($p:tt),*>, ($x:ident, $r:ident, $weight:ident, $y:ident), $eps:expr $(, $cut:ident $how:ident)?) => {
        $k::<$($p),*>::launch($s, (
            $x.tiles().arg("x")?,
            $r.tiles_mut().arg("residual")?$(.$cut($how))?,
            $weight.tiles().arg("w")?,
            $y.tiles_mut().arg("y")?$(.$cut($how))?,
            $eps,
        ))
    };
}

macro_rules! normed {
    ($($t:tt $w:tt),*) => {$(
        impl sealed::Sealed<$w> for $t {}
        impl Normed<$w> for $t {
            #[inline] // a program pays for the norms it uses alone
            fn plain(s: &Stream, x: In<'_, $t>, w: In<'_, $w>, y: Out<'_, $t>, eps: f32) -> Result<()> {
                by_width!((plain) s, x.extents()[1], $t, $w, (x, w, y), eps)
            }
            #[inline]
            fn residual(
                s: &Stream,
                x: In<'_, $t>,
                r: Out<'_, $t>,
                w: In<'_, $w>,
                y: Out<'_, $t>,
                eps: f32,
            ) -> Result<()> {
                by_width!((residual) s, x.extents()[1], $t, $w, (x, r, w, y), eps)
            }
        }
    )*};
}
normed!(f32 f32, f16 f16, f16 f32, bf16 bf16, bf16 f32);
