//! Products with an epilogue: bias, activation, residual and scaling before the one rounding.

use tilewright_core::element::Element;
use tilewright_core::schedule::Grouped;
use tilewright_core::view::Tiles;
use tilewright_host::{Error, Launch, Named, Result, Stream, Tensor, TensorView, TensorViewMut};
use tilewright_kernels::gemm::{epilogue, ping_pong};

use super::{Factor, In, Out, bulk, bulk_reads, extents};

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

/// An epilogue as the kernels with exchanged operands take it: views are empty where there is nothing.
pub(super) struct Finish<'a, T: Element> {
    pub bias: Tiles<'a, T, 1, 64>,
    pub residual: TensorView<'a, T, 2>,
    /// What C holds takes the residual's place.
    pub own: bool,
    pub alpha: f32,
    pub beta: f32,
    pub activation: u32,
}

impl<'a, T: Element> Finish<'a, T> {
    /// The sums as they are. `any` is a view of the same device.
    pub fn nothing(any: TensorView<'a, T, 2>) -> Result<Self> {
        let residual = any.rows(0..0)?;
        let bias = residual.tiles().arg("bias")?;
        Ok(Finish { bias, residual, own: false, alpha: 1.0, beta: 0.0, activation: epilogue::SUM })
    }
    /// An epilogue that does not have both a residual and a part of what C holds.
    pub fn of(e: &Epilogue<'a, T>, any: TensorView<'a, T, 2>) -> Result<Self> {
        let mut f = Finish { alpha: e.alpha, activation: e.activation.code(), ..Finish::nothing(any)? };
        if let Some(bias) = e.bias {
            f.bias = bias.tiles().arg("bias")?;
        }
        if let Some((beta, residual)) = e.residual {
            (f.beta, f.residual) = (beta, residual);
        }
        if e.keep != 0.0 {
            (f.beta, f.own) = (e.keep, true);
        }
        Ok(f)
    }
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
                let ((nothing, residual, beta), whole) = (parts!(e, a), a);
                let code = e.activation.code();
                let (a, b) = (a.tma_tiles().arg("a")?, b.tma_tiles().arg("b")?);
                let staged = bulk(&mut c);
                if staged && e.keep == 0.0 && e.residual.is_none() {
                    let c = c.tma_tiles_mut().arg("c")?.schedule(Grouped::<8>);
                    return ping_pong::fused_staged::<$t>::launch_on_gpu(
                        s,
                        (a, b, c, bias!(e, nothing), e.alpha, code),
                    );
                }
                // A matrix that C meets comes by the copy engine, if it is one and the copy engine can read it.
                let own = e.keep != 0.0 && e.residual.is_none();
                // what is not read may be any view: A
                let met = if own { Some(whole) } else { e.residual.map(|(_, r)| r).filter(|_| e.keep == 0.0) };
                if let Some(met) = met.filter(|r| staged && bulk_reads(r)) {
                    let c = c.tma_tiles_mut().arg("c")?.schedule(Grouped::<8>);
                    let met = met.tma_tiles().arg("residual")?;
                    let beta = if own { e.keep } else { beta };
                    let args = (a, b, c, bias!(e, nothing), met, own.into(), e.alpha, beta, code);
                    return ping_pong::fused_over::<$t>::launch_on_gpu(s, args);
                }
                let c = c.tiles_mut().arg("c")?.schedule(Grouped::<8>);
                let residual = residual.tiles().arg("residual")?;
                let args = (a, b, c, bias!(e, nothing), residual, e.alpha, beta, e.keep, code);
                ping_pong::fused_direct::<$t>::launch_on_gpu(s, args)
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
