//! Products with an epilogue: bias, activation, residual and scaling before the one rounding.

use tilewright_core::element::Element;
use tilewright_core::schedule::Grouped;
use tilewright_host::{Error, Launch, Named, Result, Stream, Tensor, TensorView, TensorViewMut};
use tilewright_kernels::gemm::{decode, epilogue, ping_pong};

use super::{Factor, In, Out, bulk, extents};

/// What happens to every element of a sum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Activation {
    /// Nothing.
    #[default]
    Identity,
    /// `max(x, 0)`.
    Relu,
    /// `x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))`.
    Gelu,
    /// `x / (1 + exp(-x))`.
    Silu,
}

impl Activation {
    pub(super) fn code(self) -> u32 {
        match self {
            Activation::Identity => epilogue::IDENTITY,
            Activation::Relu => epilogue::RELU,
            Activation::Gelu => epilogue::GELU,
            Activation::Silu => epilogue::SILU,
        }
    }
}

/// What [`gemm_fused`] does with the sums: `C = activation(alpha A B^T + bias) + beta R + keep C`.
#[derive(Clone, Copy)]
pub struct Epilogue<'a, T: Element> {
    /// Factor of the product.
    pub alpha: f32,
    /// One value for each column of C.
    pub bias: Option<TensorView<'a, T, 1>>,
    /// Applied to the scaled and biased sum.
    pub activation: Activation,
    /// A matrix of C's shape, and its factor `beta`.
    pub residual: Option<(f32, TensorView<'a, T, 2>)>,
    /// Factor of what C holds before. Zero: it is not read.
    pub keep: f32,
}

impl<T: Element> Default for Epilogue<'_, T> {
    fn default() -> Self {
        Epilogue { alpha: 1.0, bias: None, activation: Activation::Identity, residual: None, keep: 0.0 }
    }
}

/// `C = activation(alpha A B^T + bias) + beta R + keep C`, in f32, rounded once. A K of zero makes the product zero.
///
/// Where the copy engine can not read A or B, and on devices that are no Hopper GPU, the product goes through f32 memory
/// of its own and a second kernel.
///
/// # Errors
/// As for [`gemm`](super::gemm); [`Error::Shape`] where bias or residual do not fit C.
///
/// ```
/// use tilewright::ops::gemm::{Activation, Epilogue, gemm_fused};
/// use tilewright::prelude::*;
///
/// let stream = Device::best().stream()?;
/// let a = Tensor::<f32, 2>::from_slice(&stream, [1, 2], &[1., 2.])?;
/// let b = Tensor::<f32, 2>::from_slice(&stream, [2, 2], &[1., 1., -1., -1.])?;
/// let bias = Tensor::<f32, 1>::from_slice(&stream, [2], &[0.5, 1.])?;
/// let mut c = Tensor::<f32, 2>::zeros(&stream, [1, 2])?;
/// let relu = Epilogue { bias: Some(bias.view()), activation: Activation::Relu, ..Default::default() };
/// gemm_fused(&stream, a.view(), b.view(), c.view_mut(), &relu)?;
/// assert_eq!(c.to_vec(&stream)?, [3.5, 0.]);
/// # Ok::<(), Error>(())
/// ```
pub fn gemm_fused<T: Factor>(
    stream: &Stream,
    a: TensorView<'_, T, 2>,
    b: TensorView<'_, T, 2>,
    c: TensorViewMut<'_, T, 2>,
    e: &Epilogue<'_, T>,
) -> Result<()> {
    let Some([m, n, k]) = extents(&a, &b, &c)? else { return Ok(()) };
    if let Some(bias) = &e.bias
        && bias.extents() != [n]
    {
        let found = format!("{}", bias.extents()[0]);
        return Err(Error::Shape { arg: "bias", expected: format!("{n}"), found });
    }
    if let Some((_, r)) = &e.residual
        && r.extents() != [m, n]
    {
        let [fm, fn_] = r.extents();
        return Err(Error::Shape { arg: "residual", expected: format!("{m} x {n}"), found: format!("{fm} x {fn_}") });
    }
    if k == 0 { in_two_steps(stream, a, b, c, e) } else { T::fused(stream, a, b, c, e) }
}

/// Factors, and views that are empty where there is nothing.
macro_rules! parts {
    ($e:ident, $a:ident) => {{
        let nothing = $a.rows(0..0)?;
        let (beta, residual) = match $e.residual {
            Some((beta, r)) => (beta, r),
            None => (0.0, nothing),
        };
        (nothing, residual, beta)
    }};
}

/// By a kernel that does it all.
pub(super) fn by_hopper<T: FusedHopper>(
    s: &Stream,
    a: In<'_, T>,
    b: In<'_, T>,
    c: Out<'_, T>,
    e: &Epilogue<'_, T>,
) -> Result<()> {
    T::launch_fused(s, a, b, c, e)
}

/// The fused Hopper kernels of an element type.
pub(super) trait FusedHopper: Factor {
    fn launch_fused(
        s: &Stream,
        a: In<'_, Self>,
        b: In<'_, Self>,
        c: Out<'_, Self>,
        e: &Epilogue<'_, Self>,
    ) -> Result<()>;
}

macro_rules! bias {
    ($e:ident, $nothing:ident) => {
        match $e.bias {
            Some(bias) => bias.tiles().arg("bias")?,
            None => $nothing.tiles().arg("bias")?,
        }
    };
}

macro_rules! decode {
    (
        <$t:ty, $rows:literal, $tokens:literal, $stages:literal, $split:literal, $groups:literal, $threads:literal>,
        ($s:ident, $a:ident, $b:ident, $c:ident, $e:ident, $nothing:ident, $residual:ident, $beta:ident, $code:ident)
    ) => {{
        let (a, b, c) = ($a.tma_tiles().arg("a")?, $b.tma_tiles().arg("b")?, $c.tiles_mut().arg("c")?);
        let (bias, residual) = (bias!($e, $nothing), $residual.tiles().arg("residual")?);
        decode::fused::<$t, $rows, $tokens, 64, $stages, $split, $groups, $threads>::launch_on_gpu(
            $s,
            (a, b, c, bias, residual, $e.alpha, $beta, $e.keep, $code),
        )
    }};
}

macro_rules! fused_hopper {
    ($t:ty) => {
        impl FusedHopper for $t {
            #[inline]
            fn launch_fused(
                s: &Stream,
                a: In<'_, $t>,
                b: In<'_, $t>,
                mut c: Out<'_, $t>,
                e: &Epilogue<'_, $t>,
            ) -> Result<()> {
                let (nothing, residual, beta) = parts!(e, a);
                let ([m, n], code) = (c.extents(), e.activation.code());
                // wide enough that one block a tile fills the device
                let wide = n.div_ceil(128) >= 100;
                match m {
                    ..=16 if wide => decode!(<$t, 128, 16, 11, 1, 2, 384>, (s, a, b, c, e, nothing, residual, beta, code)),
                    ..=16 => decode!(<$t, 64, 16, 20, 2, 1, 256>, (s, a, b, c, e, nothing, residual, beta, code)),
                    ..=64 if wide => decode!(<$t, 128, 64, 8, 1, 2, 384>, (s, a, b, c, e, nothing, residual, beta, code)),
                    ..=64 => decode!(<$t, 128, 64, 8, 2, 2, 384>, (s, a, b, c, e, nothing, residual, beta, code)),
                    ..=256 => decode!(<$t, 128, 128, 5, 2, 2, 384>, (s, a, b, c, e, nothing, residual, beta, code)),
                    _ if e.keep == 0.0 && bulk(&mut c) => {
                        let (a, b) = (a.tma_tiles().arg("a")?, b.tma_tiles().arg("b")?);
                        let c = c.tma_tiles_mut().arg("c")?.schedule(Grouped::<8>);
                        let residual = residual.tiles().arg("residual")?;
                        ping_pong::fused_staged::<$t>::launch_on_gpu(s, (a, b, c, bias!(e, nothing), residual, e.alpha, beta, code))
                    }
                    _ => {
                        let (a, b) = (a.tma_tiles().arg("a")?, b.tma_tiles().arg("b")?);
                        let c = c.tiles_mut().arg("c")?.schedule(Grouped::<8>);
                        let residual = residual.tiles().arg("residual")?;
                        let args = (a, b, c, bias!(e, nothing), residual, e.alpha, beta, e.keep, code);
                        ping_pong::fused_direct::<$t>::launch_on_gpu(s, args)
                    }
                }
            }
        }
    };
}
fused_hopper!(tilewright_core::element::f16);
fused_hopper!(tilewright_core::element::bf16);

/// By a product in f32 and a kernel for the rest.
pub(super) fn in_two_steps<T: Factor>(
    s: &Stream,
    a: In<'_, T>,
    b: In<'_, T>,
    c: Out<'_, T>,
    e: &Epilogue<'_, T>,
) -> Result<()> {
    let [m, n] = c.extents();
    let mut product = Tensor::<f32, 2>::zeros(s, [m, n])?;
    if a.extents()[1] > 0 {
        T::into_f32(s, a, b, product.view_mut())?;
    }
    T::finish(s, product.view(), a, c, e)
}

macro_rules! finish_with {
    ($t:ty, $s:ident, $product:ident, $a:ident, $c:ident, $e:ident) => {{
        let (nothing, residual, beta) = parts!($e, $a);
        let (bias, residual) = (bias!($e, nothing), residual.tiles().arg("residual")?);
        let args = (
            $product.tiles()?,
            bias,
            residual,
            $c.tiles_mut().arg("c")?,
            $e.alpha,
            beta,
            $e.keep,
            $e.activation.code(),
        );
        finish::<$t>::launch($s, args)
    }};
}
pub(super) use {bias, finish_with, parts};
