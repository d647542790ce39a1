//! LayerNorm of rows: `y = (x - mean) / sqrt(var + eps) * w + b`. Sums are f32; one rounding at the end.

use super::{row_of, same_shape};
use tilewright_core::element::{Element, bf16, f16};
use tilewright_core::schedule::Strips;
use tilewright_host::{Launch, Named, Result, Stream, TensorView, TensorViewMut};
use tilewright_kernels::__row_tiles;
use tilewright_kernels::layernorm::{rows, wide};

mod sealed {
    pub trait Sealed {}
}

type In<'a, T> = TensorView<'a, T, 2>;
type Out<'a, T> = TensorViewMut<'a, T, 2>;

/// An element type of LayerNorm: f32, f16 or bf16. Sealed.
pub trait Centred: Element<Value = f32> + sealed::Sealed {
    #[doc(hidden)]
    fn launch(
        s: &Stream,
        x: In<'_, Self>,
        wb: [In<'_, Self>; 2],
        y: Out<'_, Self>,
        eps: f32,
        offset: f32,
    ) -> Result<()>;
}

/// `y = (x - mean) / sqrt(var + eps) * w + b`, row by row, with the variance of the whole row (divided by its length). `x`
/// and `y` are of any number of rows and columns, of any row stride and alignment; `w` and `b` have as many elements as a
/// row, and may be left out.
///
/// # Errors
/// [`Error::Shape`] where extents disagree, [`Error::Stride`] where columns are not adjacent, [`Error::Device`] where a
/// tensor lies elsewhere than the stream, and what [`Launch::launch`] says.
///
/// [`Error::Shape`]: tilewright_host::Error::Shape
/// [`Error::Stride`]: tilewright_host::Error::Stride
/// [`Error::Device`]: tilewright_host::Error::Device
///
/// ```
/// use tilewright::ops::layernorm::layernorm;
/// use tilewright::prelude::*;
///
/// let stream = Device::best().stream()?;
/// let x = Tensor::<f32, 2>::from_slice(&stream, [1, 2], &[3.0, 5.0])?;
/// let b = Tensor::<f32, 1>::full(&stream, [2], 10.0)?;
/// let mut y = Tensor::<f32, 2>::zeros(&stream, [1, 2])?;
/// layernorm(&stream, x.view(), None, Some(b.view()), y.view_mut(), 0.0)?;
/// assert_eq!(y.to_vec(&stream)?, [9.0, 11.0]);
/// # Ok::<(), Error>(())
/// ```
pub fn layernorm<T: Centred>(
    stream: &Stream,
    x: TensorView<'_, T, 2>,
    w: Option<TensorView<'_, T, 1>>,
    b: Option<TensorView<'_, T, 1>>,
    y: TensorViewMut<'_, T, 2>,
    eps: f32,
) -> Result<()> {
    let [m, n] = x.extents();
    same_shape("y", [m, n], y.extents())?;
    if let Some(w) = &w {
        same_shape("w", [n], w.extents())?;
    }
    if let Some(b) = &b {
        same_shape("b", [n], b.extents())?;
    }
    if m == 0 || n == 0 {
        return Ok(());
    }
    // weights that are left out are zero, and 1 is added
    let offset = if w.is_none() { 1.0 } else { 0.0 };
    T::launch(stream, x, [row_of("w", w, n, x)?, row_of("b", b, n, x)?], y, eps, offset)
}

macro_rules! centred {
    ($($t:ident $list:ident),*) => {$(
        impl sealed::Sealed for $t {}
        impl Centred for $t {
            #[inline]
            fn launch(
                s: &Stream,
                x: In<'_, $t>,
                [w, b]: [In<'_, $t>; 2],
                y: Out<'_, $t>,
                eps: f32,
                offset: f32,
            ) -> Result<()> {
                __row_tiles!($list! { narrowest! (
                    x.extents()[1],
                    rows<$t>,
                    s,
                    (
                        x.row_tiles().arg("x")?,
                        w.row_tiles().arg("w")?,
                        b.row_tiles().arg("b")?,
                        y.row_tiles_mut().arg("y")?,
                        eps,
                        offset,
                    ),
                    wide::<$t>::launch(s, (
                        x.tiles().arg("x")?,
                        w.tiles().arg("w")?,
                        b.tiles().arg("b")?,
                        y.tiles_mut().arg("y")?.schedule(Strips),
                        eps,
                        offset,
                    ))
                ) })
            }
        }
    )*};
}
centred!(f32 singles, f16 halves, bf16 halves);
