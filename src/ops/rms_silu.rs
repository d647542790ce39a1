//! RMSNorm, then SiLU, over rows or over the channels of each position.

use super::{row_of, same_shape};
use tilewright_core::element::{Element, bf16, f16};
use tilewright_host::{Error, Launch, Named, Result, Stream, TensorView, TensorViewMut};
use tilewright_kernels::rms_silu::channels::fused as channels_fused;
use tilewright_kernels::rms_silu::rows::{fused, lossless};
use tilewright_kernels::{__lossless_tiles, __rms_silu_channel_tiles, __row_tiles};

mod sealed {
    pub trait Sealed {}
}

/// Which norm.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Norm {
    /// `x / sqrt(mean(x^2) + eps) * w + b`.
    MeanSquare {
        /// Added to the mean square.
        eps: f32,
    },
    /// `x / max(|x|_2, least) * sqrt(C) * w + b`, of C elements: the norm of Wan's autoencoder, with `least` of 1e-12.
    Clamped {
        /// The least norm that is divided by.
        least: f32,
    },
}

impl Norm {
    fn lowered(self) -> (f32, u32) {
        match self {
            Norm::MeanSquare { eps } => (eps, 0),
            Norm::Clamped { least } => (least, 1),
        }
    }
}

/// How results are rounded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Numerics {
    /// f32 inside, one rounding at the end.
    Fused,
    /// Rounded to the element type after every step, as a sequence of tensor operations does. Over rows alone.
    Lossless,
}

/// What is computed, beside the tensors.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RmsSilu {
    /// Which norm.
    pub norm: Norm,
    /// How results are rounded.
    pub numerics: Numerics,
}

type In<'a, T, const R: usize> = TensorView<'a, T, R>;
type Out<'a, T, const R: usize> = TensorViewMut<'a, T, R>;

/// An element type of RMSNorm with SiLU: f32, f16 or bf16. Sealed.
pub trait Activated: Element<Value = f32> + sealed::Sealed {
    #[doc(hidden)]
    fn rows(
        s: &Stream,
        x: In<'_, Self, 2>,
        wb: [In<'_, Self, 2>; 2],
        y: Out<'_, Self, 2>,
        how: RmsSilu,
        biased: u32,
    ) -> Result<()>;
    #[doc(hidden)]
    fn channels(
        s: &Stream,
        x: In<'_, Self, 3>,
        wb: [In<'_, Self, 2>; 2],
        y: Out<'_, Self, 3>,
        norm: Norm,
        active: u32,
    ) -> Result<()>;
}

/// `y = silu(norm(x))`, row by row. `x` and `y` have at most 16384 columns ([`Numerics::Lossless`]: 4096), any row stride and alignment; `w` has as many
/// elements as a row, and so has the bias `b`, which may be left out.
///
/// # Errors
/// [`Error::Shape`] where extents disagree and for wider rows, [`Error::Stride`] where columns are not adjacent,
/// [`Error::Device`] where a tensor lies elsewhere than the stream, and what [`Launch::launch`] says.
///
/// ```
/// use tilewright::ops::rms_silu::{Norm, Numerics, RmsSilu, rms_silu};
/// use tilewright::prelude::*;
///
/// let stream = Device::best().stream()?;
/// let x = Tensor::<f32, 2>::from_slice(&stream, [1, 2], &[3.0, 4.0])?;
/// let w = Tensor::<f32, 1>::full(&stream, [2], 1.0)?;
/// let mut y = Tensor::<f32, 2>::zeros(&stream, [1, 2])?;
/// let how = RmsSilu { norm: Norm::Clamped { least: 1e-12 }, numerics: Numerics::Fused };
/// rms_silu(&stream, x.view(), w.view(), None, y.view_mut(), how)?;
/// let normed = 3.0 / 5.0 * 2f32.sqrt();
/// assert!((y.to_vec(&stream)?[0] - normed / (1.0 + (-normed).exp())).abs() < 1e-5);
/// # Ok::<(), Error>(())
/// ```
pub fn rms_silu<T: Activated>(
    stream: &Stream,
    x: TensorView<'_, T, 2>,
    w: TensorView<'_, T, 1>,
    b: Option<TensorView<'_, T, 1>>,
    y: TensorViewMut<'_, T, 2>,
    how: RmsSilu,
) -> Result<()> {
    let [m, n] = x.extents();
    same_shape("y", [m, n], y.extents())?;
    same_shape("w", [n], w.extents())?;
    if let Some(b) = &b {
        same_shape("b", [n], b.extents())?;
    }
    if m == 0 || n == 0 {
        return Ok(());
    }
    let biased = b.is_some().into();
    T::rows(stream, x, [row_of("w", Some(w), n, x)?, row_of("b", b, n, x)?], y, how, biased)
}

/// `y = silu(norm(x))` over the channels of each position: `x` and `y` are of batch x channels x positions, positions
/// adjacent (a tensor of batch x channels x time x height x width is one, reshaped). At most 1024 channels. All in f32,
/// with one rounding. `w` has an element for each channel, and so has the bias `b`, which may be left out.
///
/// # Errors
/// As for [`rms_silu`]; [`Error::Shape`] for more channels.
///
/// ```
/// use tilewright::ops::rms_silu::{Norm, rms_silu_channels};
/// use tilewright::prelude::*;
///
/// let stream = Device::best().stream()?;
/// let x = Tensor::<f32, 3>::from_slice(&stream, [1, 2, 1], &[3.0, 4.0])?;
/// let w = Tensor::<f32, 1>::full(&stream, [2], 1.0)?;
/// let mut y = Tensor::<f32, 3>::zeros(&stream, [1, 2, 1])?;
/// rms_silu_channels(&stream, x.view(), w.view(), None, y.view_mut(), Norm::MeanSquare { eps: 0.0 })?;
/// let normed = 3.0 / 12.5f32.sqrt();
/// assert!((y.to_vec(&stream)?[0] - normed / (1.0 + (-normed).exp())).abs() < 1e-5);
/// # Ok::<(), Error>(())
/// ```
pub fn rms_silu_channels<T: Activated>(
    stream: &Stream,
    x: TensorView<'_, T, 3>,
    w: TensorView<'_, T, 1>,
    b: Option<TensorView<'_, T, 1>>,
    y: TensorViewMut<'_, T, 3>,
    norm: Norm,
) -> Result<()> {
    over_channels(stream, x, w, b, y, norm, 1)
}

/// As [`rms_silu_channels`] without SiLU: `y = norm(x)` over the channels of each position.
///
/// # Errors
/// As for [`rms_silu_channels`].
///
/// ```
/// use tilewright::ops::rms_silu::{Norm, rmsnorm_channels};
/// use tilewright::prelude::*;
///
/// let stream = Device::best().stream()?;
/// let x = Tensor::<f32, 3>::from_slice(&stream, [1, 2, 1], &[3.0, 4.0])?;
/// let w = Tensor::<f32, 1>::full(&stream, [2], 1.0)?;
/// let mut y = Tensor::<f32, 3>::zeros(&stream, [1, 2, 1])?;
/// rmsnorm_channels(&stream, x.view(), w.view(), None, y.view_mut(), Norm::MeanSquare { eps: 0.0 })?;
/// assert!((y.to_vec(&stream)?[0] - 3.0 / 12.5f32.sqrt()).abs() < 1e-5);
/// # Ok::<(), Error>(())
/// ```
pub fn rmsnorm_channels<T: Activated>(
    stream: &Stream,
    x: TensorView<'_, T, 3>,
    w: TensorView<'_, T, 1>,
    b: Option<TensorView<'_, T, 1>>,
    y: TensorViewMut<'_, T, 3>,
    norm: Norm,
) -> Result<()> {
    over_channels(stream, x, w, b, y, norm, 0)
}

fn over_channels<T: Activated>(
    stream: &Stream,
    x: TensorView<'_, T, 3>,
    w: TensorView<'_, T, 1>,
    b: Option<TensorView<'_, T, 1>>,
    y: TensorViewMut<'_, T, 3>,
    norm: Norm,
    active: u32,
) -> Result<()> {
    let [batch, channels, positions] = x.extents();
    same_shape("y", [batch, channels, positions], y.extents())?;
    same_shape("w", [channels], w.extents())?;
    if let Some(b) = &b {
        same_shape("b", [channels], b.extents())?;
    }
    if batch == 0 || channels == 0 || positions == 0 {
        return Ok(());
    }
    let w = w.reshape([channels, 1])?;
    let b = match b {
        Some(b) => b.reshape([channels, 1])?,
        None => w.rows(0..0)?,
    };
    T::channels(stream, x, [w, b], y, norm, active)
}

fn too_wide(what: &str, most: usize, found: usize) -> Error {
    Error::Shape { arg: "x", expected: format!("at most {most} {what}"), found: found.to_string() }
}

macro_rules! most_channels {
    ($channels:expr, $t:ty, $s:ident, $args:expr;
        [$(<$m:literal, $n:literal, $threads:literal, $words:literal, $blocks:literal>),*]) => {
        match $channels {
            $(c if c <= $m => channels_fused::<$t, $m, $n, $threads, $words, $blocks>::launch($s, $args),)*
            c => Err(too_wide("channels", 1024, c)),
        }
    };
}

macro_rules! activated {
    ($($t:ident $list:ident),*) => {$(
        impl sealed::Sealed for $t {}
        impl Activated for $t {
            #[inline]
            fn rows(
                s: &Stream,
                x: In<'_, $t, 2>,
                [w, b]: [In<'_, $t, 2>; 2],
                y: Out<'_, $t, 2>,
                how: RmsSilu,
                biased: u32,
            ) -> Result<()> {
                let (eps, clamped) = how.norm.lowered();
                let cols = x.extents()[1];
                match how.numerics {
                    Numerics::Fused => __row_tiles!($list! { narrowest! (
                        cols,
                        fused<$t>,
                        s,
                        (
                            x.row_tiles().arg("x")?,
                            w.row_tiles().arg("w")?,
                            b.row_tiles().arg("b")?,
                            y.row_tiles_mut().arg("y")?,
                            eps,
                            clamped,
                        ),
                        Err(too_wide("columns", 16384, cols))
                    ) }),
                    Numerics::Lossless => __lossless_tiles!($list! { narrowest! (
                        cols,
                        lossless<$t>,
                        s,
                        (
                            x.row_tiles().arg("x")?,
                            w.row_tiles().arg("w")?,
                            b.row_tiles().arg("b")?,
                            y.row_tiles_mut().arg("y")?,
                            eps,
                            clamped,
                            biased,
                        ),
                        Err(too_wide("columns", 4096, cols))
                    ) }),
                }
            }
            #[inline]
            fn channels(
                s: &Stream,
                x: In<'_, $t, 3>,
                [w, b]: [In<'_, $t, 2>; 2],
                y: Out<'_, $t, 3>,
                norm: Norm,
                active: u32,
            ) -> Result<()> {
                let (eps, clamped) = norm.lowered();
                __rms_silu_channel_tiles!($list! { most_channels! (
                    x.extents()[1],
                    $t,
                    s,
                    (
                        x.tiles().arg("x")?,
                        w.tiles().arg("w")?,
                        b.tiles().arg("b")?,
                        y.tiles_mut().arg("y")?,
                        eps,
                        clamped,
                        active,
                    )
                ) })
            }
        }
    )*};
}
activated!(f32 singles, f16 halves, bf16 halves);
