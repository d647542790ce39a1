//! RMSNorm of rows: `y = x / sqrt(mean(x^2) + eps) * (w + offset)`, and of `x + r`. Sums are f32; one rounding at the end.

use tilewright_core::element::{Element, bf16, f16};
use tilewright_core::schedule::Strips;
use tilewright_host::{Error, Launch, Named, Result, Stream, TensorView, TensorViewMut};
use tilewright_kernels::__light_row_tiles;
use tilewright_kernels::rmsnorm::{clusters, long, rows, wide};

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
    fn plain(s: &Stream, x: In<'_, Self>, w: In<'_, W>, y: Out<'_, Self>, c: Scaling) -> Result<()>;
    #[doc(hidden)]
    fn residual(
        s: &Stream,
        x: In<'_, Self>,
        r: Out<'_, Self>,
        w: In<'_, W>,
        y: Out<'_, Self>,
        c: Scaling,
    ) -> Result<()>;
}

/// What rows are scaled by, beside their weights. An `f32` is an `eps` with no offset.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scaling {
    /// Added to the mean square.
    pub eps: f32,
    /// Added to every weight: 1 for weights that are stored as what they differ from 1 by.
    pub offset: f32,
}
impl From<f32> for Scaling {
    fn from(eps: f32) -> Self {
        Scaling { eps, offset: 0.0 }
    }
}

/// `y = x / sqrt(mean(x^2) + eps) * w`, row by row; `eps` is a number, or a [`Scaling`]. `x` and `y` are of any number of rows and columns, of any row stride
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
    eps: impl Into<Scaling>,
) -> Result<()> {
    let [m, n] = x.extents();
    same("y", [m, n], y.extents())?;
    let w = weights(w, n)?;
    if m == 0 || n == 0 {
        return Ok(());
    }
    T::plain(stream, x, w, y, eps.into())
}

/// As [`rmsnorm`], in place.
///
/// # Errors
/// As for [`rmsnorm`].
///
/// ```
/// use tilewright::ops::rmsnorm::{Scaling, rmsnorm_in_place};
/// use tilewright::prelude::*;
///
/// let stream = Device::best().stream()?;
/// let mut x = Tensor::<f32, 2>::from_slice(&stream, [1, 2], &[3.0, 4.0])?;
/// let w = Tensor::<f32, 1>::zeros(&stream, [2])?;
/// rmsnorm_in_place(&stream, x.view_mut(), w.view(), Scaling { eps: 0.0, offset: 1.0 })?;
/// assert!((x.to_vec(&stream)?[1] - 4.0 / 12.5f32.sqrt()).abs() < 1e-6);
/// # Ok::<(), Error>(())
/// ```
pub fn rmsnorm_in_place<T: Normed<W>, W: Element>(
    stream: &Stream,
    mut x: TensorViewMut<'_, T, 2>,
    w: TensorView<'_, W, 1>,
    eps: impl Into<Scaling>,
) -> Result<()> {
    let (device, extents, strides) = (x.device(), x.extents(), x.strides());
    // SAFETY: the memory is borrowed exclusively during the call, and in use by what `y` notes after it. A kernel of this
    // module reads an element in the thread that writes it, and before.
    let input = unsafe { TensorView::from_raw(&device, x.as_mut_ptr().cast_const(), extents, strides)? };
    rmsnorm(stream, input, w, x, eps)
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
    eps: impl Into<Scaling>,
) -> Result<()> {
    let [m, n] = x.extents();
    same("residual", [m, n], residual.extents())?;
    same("y", [m, n], y.extents())?;
    let w = weights(w, n)?;
    if m == 0 || n == 0 {
        return Ok(());
    }
    T::residual(stream, x, residual, w, y, eps.into())
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

/// Picks the kernel whose tile holds a row with the least to spare, of those in the list for its elements.
macro_rules! by_width {
    (plain $s:ident $c:ident $t:tt $w:tt ($x:ident, $weight:ident, $y:ident);
        [$(<$m:literal, $n:literal, $threads:literal, $blocks:literal>),*]) => {
        match $x.extents()[1] {
            $(cols if cols <= $n => rows::plain::<$t, $w, $m, $n, $threads, $blocks>::launch($s, (
                $x.row_tiles().arg("x")?,
                $weight.row_tiles().arg("w")?,
                $y.row_tiles_mut().arg("y")?,
                $c.eps,
                $c.offset,
            )),)*
            _ => wide::plain::<$t, $w>::launch($s, (
                $x.tiles().arg("x")?,
                $weight.tiles().arg("w")?,
                $y.tiles_mut().arg("y")?.schedule(Strips),
                $c.eps,
                $c.offset,
            )),
        }
    };
    (residual $s:ident $c:ident $t:tt $w:tt ($x:ident, $r:ident, $weight:ident, $y:ident);
        [$(<$m:literal, $n:literal, $threads:literal, $blocks:literal>),*]) => {
        match $x.extents()[1] {
            $(cols if cols <= $n => rows::residual::<$t, $w, $m, $n, $threads, $blocks>::launch($s, (
                $x.row_tiles().arg("x")?,
                $r.row_tiles_mut().arg("residual")?,
                $weight.row_tiles().arg("w")?,
                $y.row_tiles_mut().arg("y")?,
                $c.eps,
                $c.offset,
            )),)*
            _ => wide::residual::<$t, $w>::launch($s, (
                $x.tiles().arg("x")?,
                $r.tiles_mut().arg("residual")?.schedule(Strips),
                $weight.tiles().arg("w")?,
                $y.tiles_mut().arg("y")?.schedule(Strips),
                $c.eps,
                $c.offset,
            )),
        }
    };
}

/// Whether a row of more than `more` and at most `N` columns can be held by a kernel whose every access is of 16 bytes.
fn fits_whole<T: Element, W: Element, const N: usize>(
    more: usize,
    x: In<'_, T>,
    w: In<'_, W>,
    y: &mut Out<'_, T>,
) -> Result<bool> {
    let cols = x.extents()[1];
    Ok(cols > more
        && cols <= N
        && x.row_tiles::<1, N>().arg("x")?.is_whole()
        && w.row_tiles::<1, N>().arg("w")?.is_whole()
        && y.reborrow().row_tiles_mut::<1, N>().arg("y")?.is_whole())
}

macro_rules! normed {
    (@long mixed $($rest:tt)*) => { normed!(@long halves $($rest)*) };
    (@long halves $t:tt $w:tt $s:ident $x:ident $weight:ident $y:ident $c:ident) => {
        if fits_whole::<$t, $w, 32768>(16384, $x, $weight, &mut $y)? {
            return long::plain::<$t, $w, 32768, 2>::launch($s, normed!(@args $x $weight $y $c));
        }
        if fits_whole::<$t, $w, 65536>(32768, $x, $weight, &mut $y)? {
            return long::plain::<$t, $w, 65536, 1>::launch($s, normed!(@args $x $weight $y $c));
        }
    };
    (@long singles $t:tt $w:tt $s:ident $x:ident $weight:ident $y:ident $c:ident) => {
        if fits_whole::<$t, $w, 32768>(16384, $x, $weight, &mut $y)? {
            return long::plain::<$t, $w, 32768, 1>::launch($s, normed!(@args $x $weight $y $c));
        }
        let clusters = [None, Some((9, 0))].contains(&$s.device().compute_capability());
        if clusters && ($x.extents()[1] > 16384 && $x.extents()[1] <= 65536) {
            return clusters::plain::<$t, $w>::launch($s, normed!(@args $x $weight $y $c));
        }
    };
    (@args $x:ident $weight:ident $y:ident $c:ident) => {
        (
            $x.row_tiles().arg("x")?,
            $weight.row_tiles().arg("w")?,
            $y.row_tiles_mut().arg("y")?,
            $c.eps,
            $c.offset,
        )
    };
    (@pick halves $($call:tt)*) => { __light_row_tiles!(halves! { $($call)* }) };
    (@pick singles $($call:tt)*) => { __light_row_tiles!(singles! { $($call)* }) };
    (@pick mixed $($call:tt)*) => { __light_row_tiles!(mixed! { $($call)* }) };
    ($($t:tt $w:tt $list:ident),*) => {$(
        impl sealed::Sealed<$w> for $t {}
        impl Normed<$w> for $t {
            #[inline] // a program pays for the norms it uses alone
            fn plain(s: &Stream, x: In<'_, $t>, w: In<'_, $w>, mut y: Out<'_, $t>, c: Scaling) -> Result<()> {
                normed!(@long $list $t $w s x w y c);
                normed!(@pick $list plain s c $t $w (x, w, y))
            }
            #[inline]
            fn residual(
                s: &Stream,
                x: In<'_, $t>,
                r: Out<'_, $t>,
                w: In<'_, $w>,
                y: Out<'_, $t>,
                c: Scaling,
            ) -> Result<()> {
                normed!(@pick $list residual s c $t $w (x, r, w, y))
            }
        }
    )*};
}
macro_rules! halves {
    (@ [$($call:tt)*] ; halves $list:tt singles $_others:tt mixed $_mixed:tt) => { by_width!($($call)*; $list) };
    (@ [$($call:tt)*] $next:tt $($rest:tt)*) => { halves!(@ [$($call)* $next] $($rest)*) };
    ($($call:tt)*) => { halves!(@ [] $($call)*) };
}
macro_rules! singles {
    (@ [$($call:tt)*] ; halves $_others:tt singles $list:tt mixed $_mixed:tt) => { by_width!($($call)*; $list) };
    (@ [$($call:tt)*] $next:tt $($rest:tt)*) => { singles!(@ [$($call)* $next] $($rest)*) };
    ($($call:tt)*) => { singles!(@ [] $($call)*) };
}
macro_rules! mixed {
    (@ [$($call:tt)*] ; halves $_others:tt singles $_singles:tt mixed $list:tt) => { by_width!($($call)*; $list) };
    (@ [$($call:tt)*] $next:tt $($rest:tt)*) => { mixed!(@ [$($call)* $next] $($rest)*) };
    ($($call:tt)*) => { mixed!(@ [] $($call)*) };
}
normed!(f32 f32 singles, f16 f16 halves, f16 f32 mixed, bf16 bf16 halves, bf16 f32 mixed);
