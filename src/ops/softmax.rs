//! Softmax over rows: `y = e^(scale x) / sum e^(scale x)`. Sums are f32; one rounding at the end.

use super::same_shape;
use tilewright_core::element::{Element, bf16, f16};
use tilewright_core::schedule::Strips;
use tilewright_host::{Error, Launch, Named, Result, Stream, TensorView, TensorViewMut};
use tilewright_kernels::__row_tiles;
use tilewright_kernels::softmax::{rows, wide};

mod sealed {
    pub trait Sealed {}
}

type In<'a, T> = TensorView<'a, T, 2>;
type Out<'a, T> = TensorViewMut<'a, T, 2>;

/// An element type of softmax: f32, f16 or bf16. Sealed.
pub trait Weighed: Element<Value = f32> + sealed::Sealed {
    #[doc(hidden)]
    fn launch(s: &Stream, x: In<'_, Self>, y: Out<'_, Self>, scale: f32) -> Result<()>;
}

/// `y = e^(scale x) / sum e^(scale x)`, row by row. `x` and `y` are of any number of rows and columns, of any row stride and
/// alignment. `scale` is positive. A row of minus infinity alone gives NaN.
///
/// # Errors
/// [`Error::Shape`] where extents disagree and for a scale that is not positive, [`Error::Stride`] where columns are not
/// adjacent, [`Error::Device`] where a tensor lies elsewhere than the stream, and what
/// [`Launch::launch`] says.
///
/// ```
/// use tilewright::ops::softmax::softmax;
/// use tilewright::prelude::*;
///
/// let stream = Device::best().stream()?;
/// let x = Tensor::<f32, 2>::from_slice(&stream, [1, 2], &[0.0, 3f32.ln()])?;
/// let mut y = Tensor::<f32, 2>::zeros(&stream, [1, 2])?;
/// softmax(&stream, x.view(), y.view_mut(), 1.0)?;
/// assert!((y.to_vec(&stream)?[1] - 0.75).abs() < 1e-6);
/// # Ok::<(), Error>(())
/// ```
pub fn softmax<T: Weighed>(
    stream: &Stream,
    x: TensorView<'_, T, 2>,
    y: TensorViewMut<'_, T, 2>,
    scale: f32,
) -> Result<()> {
    same_shape("y", x.extents(), y.extents())?;
    if scale.is_nan() || scale <= 0.0 {
        return Err(Error::Shape { arg: "scale", expected: "a positive number".into(), found: scale.to_string() });
    }
    T::launch(stream, x, y, scale)
}

macro_rules! weighed {
    ($($t:ident $list:ident),*) => {$(
        impl sealed::Sealed for $t {}
        impl Weighed for $t {
            #[inline]
            fn launch(s: &Stream, x: In<'_, $t>, y: Out<'_, $t>, scale: f32) -> Result<()> {
                __row_tiles!($list! { narrowest! (
                    x.extents()[1],
                    rows<$t>,
                    s,
                    (x.row_tiles().arg("x")?, y.row_tiles_mut().arg("y")?, scale),
                    wide::<$t>::launch(s, (x.tiles().arg("x")?, y.tiles_mut().arg("y")?.schedule(Strips), scale))
                ) })
            }
        }
    )*};
}
weighed!(f32 singles, f16 halves, bf16 halves);
