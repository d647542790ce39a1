//! Gated activations: `y = f(gate) up`, element by element. Arithmetic is f32; one rounding at the end.

use super::same_shape;
use tilewright_core::element::{Element, bf16, f16};
use tilewright_host::{Error, Launch, Named, Result, Stream, TensorView, TensorViewMut};
use tilewright_kernels::gated::{gelu_mul as gelu_kernel, silu_mul as silu_kernel};

mod sealed {
    pub trait Sealed {}
}

type In<'a, T> = TensorView<'a, T, 2>;
type Out<'a, T> = TensorViewMut<'a, T, 2>;

/// An element type of gated activations: f32, f16 or bf16. Sealed.
pub trait Gated: Element<Value = f32> + sealed::Sealed {
    #[doc(hidden)]
    fn silu(s: &Stream, gate: In<'_, Self>, up: In<'_, Self>, y: Out<'_, Self>) -> Result<()>;
    #[doc(hidden)]
    fn gelu(s: &Stream, gate: In<'_, Self>, up: In<'_, Self>, y: Out<'_, Self>) -> Result<()>;
}

/// `y = silu(gate) up`, with `silu(x) = x / (1 + e^-x)`. The three are of one shape, of any row stride and alignment.
///
/// # Errors
/// [`Error::Shape`] where extents disagree, [`Error::Stride`] where columns are not adjacent, [`Error::Device`] where a
/// tensor lies elsewhere than the stream, and what [`Launch::launch`] says.
///
/// ```
/// use tilewright::ops::gated::silu_mul;
/// use tilewright::prelude::*;
///
/// let stream = Device::best().stream()?;
/// let gate = Tensor::<f32, 2>::from_slice(&stream, [1, 2], &[0.0, 1.0])?;
/// let up = Tensor::<f32, 2>::full(&stream, [1, 2], 2.0)?;
/// let mut y = Tensor::<f32, 2>::zeros(&stream, [1, 2])?;
/// silu_mul(&stream, gate.view(), up.view(), y.view_mut())?;
/// let y = y.to_vec(&stream)?;
/// assert!(y[0] == 0.0 && (y[1] - 2.0 / (1.0 + (-1f32).exp())).abs() < 1e-5);
/// # Ok::<(), Error>(())
/// ```
pub fn silu_mul<T: Gated>(
    stream: &Stream,
    gate: TensorView<'_, T, 2>,
    up: TensorView<'_, T, 2>,
    y: TensorViewMut<'_, T, 2>,
) -> Result<()> {
    same_shape("up", gate.extents(), up.extents())?;
    same_shape("y", gate.extents(), y.extents())?;
    T::silu(stream, gate, up, y)
}

/// `y = gelu(gate) up`, with the approximation of GELU by tanh. As [`silu_mul`] otherwise.
///
/// # Errors
/// As for [`silu_mul`].
pub fn gelu_mul<T: Gated>(
    stream: &Stream,
    gate: TensorView<'_, T, 2>,
    up: TensorView<'_, T, 2>,
    y: TensorViewMut<'_, T, 2>,
) -> Result<()> {
    same_shape("up", gate.extents(), up.extents())?;
    same_shape("y", gate.extents(), y.extents())?;
    T::gelu(stream, gate, up, y)
}

/// The gate's and the other half of rows that hold both, one after the other, as products with a joined weight give them.
///
/// # Errors
/// [`Error::Shape`] for an odd number of columns.
///
/// ```
/// use tilewright::ops::gated::{halves, silu_mul};
/// use tilewright::prelude::*;
///
/// let stream = Device::best().stream()?;
/// let both = Tensor::<f32, 2>::from_slice(&stream, [1, 4], &[1.0, 2.0, 3.0, 4.0])?;
/// let mut y = Tensor::<f32, 2>::zeros(&stream, [1, 2])?;
/// let (gate, up) = halves(both.view())?;
/// silu_mul(&stream, gate, up, y.view_mut())?;
/// # Ok::<(), Error>(())
/// ```
pub fn halves<T: Element>(both: TensorView<'_, T, 2>) -> Result<(TensorView<'_, T, 2>, TensorView<'_, T, 2>)> {
    let [_, cols] = both.extents();
    if cols % 2 != 0 {
        let (expected, found) = ("an even number of columns".into(), cols.to_string());
        return Err(Error::Shape { arg: "both", expected, found });
    }
    Ok((both.cols(0..cols / 2)?, both.cols(cols / 2..cols)?))
}

macro_rules! gated {
    ($($t:ty, $n:literal;)*) => {$(
        impl sealed::Sealed for $t {}
        impl Gated for $t {
            #[inline]
            fn silu(s: &Stream, gate: In<'_, $t>, up: In<'_, $t>, y: Out<'_, $t>) -> Result<()> {
                let (gate, up) = (gate.tiles().arg("gate")?, up.tiles().arg("up")?);
                silu_kernel::<$t, $n>::launch(s, (gate, up, y.tiles_mut().arg("y")?))
            }
            #[inline]
            fn gelu(s: &Stream, gate: In<'_, $t>, up: In<'_, $t>, y: Out<'_, $t>) -> Result<()> {
                let (gate, up) = (gate.tiles().arg("gate")?, up.tiles().arg("up")?);
                gelu_kernel::<$t, $n>::launch(s, (gate, up, y.tiles_mut().arg("y")?))
            }
        }
    )*};
}
gated!(f32, 1024; f16, 2048; bf16, 2048;);
