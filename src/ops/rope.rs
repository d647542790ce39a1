//! Rotary position embedding of queries and keys, in one launch, and the norm of each head that models of some families have
//! before it. Arithmetic is f32; one rounding at the end.

use tilewright_core::element::{Element, bf16, f16};
use tilewright_host::{Error, Launch, Named, Result, Stream, TensorView, TensorViewMut};
use tilewright_kernels::rope::{halves, pairs};

mod sealed {
    pub trait Sealed {}
}

/// Which elements of a head turn together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rotation {
    /// An element of the first half and its counterpart in the second (as GPT-NeoX and Llama in most engines).
    Halves,
    /// Adjacent elements (as GPT-J, and the rotary part of DeepSeek's heads).
    Pairs,
}

/// By which angles tokens turn.
#[derive(Clone, Copy)]
pub struct Angles<'a> {
    /// The position of each token, on the device: of tokens x 1; or of tokens x 2, which are integers of 64 bits, the low
    /// word first. One that the tables do not have gives zeros, and is reported as [`Error::Kernel`] by the next wait for the
    /// device (on the CPU, by the launch).
    pub positions: TensorView<'a, i32, 2>,
    /// Positions x angles: a column for each two elements of a head that turn.
    pub cos: TensorView<'a, f32, 2>,
    /// As `cos`.
    pub sin: TensorView<'a, f32, 2>,
    /// Which elements turn together.
    pub rotation: Rotation,
}

/// A norm of each head before it turns: `x / sqrt(mean(x^2) + eps) * w`.
#[derive(Clone, Copy)]
pub struct HeadNorm<'a, T: Element> {
    /// For queries: one for each element of a head.
    pub q: TensorView<'a, T, 1>,
    /// For keys.
    pub k: TensorView<'a, T, 1>,
    /// Added to the mean square.
    pub eps: f32,
}

type In<'a, T, const R: usize> = TensorView<'a, T, R>;
type Out<'a, T> = TensorViewMut<'a, T, 3>;

/// Everything a launch takes, checked.
#[doc(hidden)]
pub struct Args<'a, T: Element> {
    at: Angles<'a>,
    q: In<'a, T, 3>,
    k: In<'a, T, 3>,
    wq: In<'a, T, 2>,
    wk: In<'a, T, 2>,
    yq: Out<'a, T>,
    yk: Out<'a, T>,
    eps: f32,
}

/// An element type of queries and keys: f32, f16 or bf16. Sealed.
pub trait Rotated: Element<Value = f32> + sealed::Sealed {
    #[doc(hidden)]
    fn launch(s: &Stream, a: Args<'_, Self>) -> Result<()>;
}

/// Turns the heads of `q` and `k`, in place. Both are of tokens x heads x elements, with adjacent elements and any strides;
/// the first `2 n` elements of a head turn, `n` being the columns of the tables (128 at most), and the rest stays.
///
/// # Errors
/// [`Error::Shape`] where extents disagree and for more angles, [`Error::Stride`] where elements are not adjacent,
/// [`Error::Device`] where a tensor lies elsewhere than the stream, and what [`Launch::launch`] says.
///
/// ```
/// use tilewright::ops::rope::{Angles, Rotation, rope};
/// use tilewright::prelude::*;
///
/// let stream = Device::best().stream()?;
/// let positions = Tensor::<i32, 2>::from_slice(&stream, [1, 1], &[1])?;
/// let cos = Tensor::<f32, 2>::from_slice(&stream, [2, 1], &[1.0, 0.0])?;
/// let sin = Tensor::<f32, 2>::from_slice(&stream, [2, 1], &[0.0, 1.0])?;
/// let at = Angles { positions: positions.view(), cos: cos.view(), sin: sin.view(), rotation: Rotation::Halves };
/// let mut q = Tensor::<f32, 3>::from_slice(&stream, [1, 1, 2], &[3.0, 4.0])?;
/// let mut k = Tensor::<f32, 3>::from_slice(&stream, [1, 1, 2], &[1.0, 0.0])?;
/// rope(&stream, at, q.view_mut(), k.view_mut())?;
/// assert_eq!((q.to_vec(&stream)?, k.to_vec(&stream)?), (vec![-4.0, 3.0], vec![0.0, 1.0]));
/// # Ok::<(), Error>(())
/// ```
pub fn rope<T: Rotated>(
    stream: &Stream,
    at: Angles<'_>,
    q: TensorViewMut<'_, T, 3>,
    k: TensorViewMut<'_, T, 3>,
) -> Result<()> {
    let turned = 2 * at.cos.extents()[1];
    let (q, k) = (first_elements("q", q, turned)?, first_elements("k", k, turned)?);
    in_place(stream, at, None, q, k)
}

/// As [`rope`], from `q` and `k` to `yq` and `yk`. All elements of a head turn.
///
/// # Errors
/// As for [`rope`].
pub fn rope_to<T: Rotated>(
    stream: &Stream,
    at: Angles<'_>,
    q: TensorView<'_, T, 3>,
    k: TensorView<'_, T, 3>,
    yq: TensorViewMut<'_, T, 3>,
    yk: TensorViewMut<'_, T, 3>,
) -> Result<()> {
    launch(stream, at, None, [q, k], [yq, yk])
}

/// As [`rope`], of heads that are normed first: all their elements turn.
///
/// # Errors
/// As for [`rope`].
pub fn norm_rope<T: Rotated>(
    stream: &Stream,
    at: Angles<'_>,
    norm: HeadNorm<'_, T>,
    q: TensorViewMut<'_, T, 3>,
    k: TensorViewMut<'_, T, 3>,
) -> Result<()> {
    in_place(stream, at, Some(norm), q, k)
}

/// Elements of a head at most that turn.
const MOST: usize = 256;

fn shape<const R: usize>(arg: &'static str, wanted: [usize; R], found: [usize; R]) -> Result<()> {
    super::same_shape(arg, wanted, found)
}

fn first_elements<'a, T: Element>(
    arg: &'static str,
    x: TensorViewMut<'a, T, 3>,
    turned: usize,
) -> Result<TensorViewMut<'a, T, 3>> {
    let [_, _, elements] = x.extents();
    if elements < turned {
        let (expected, found) = (format!("heads of at least {turned} elements"), elements.to_string());
        return Err(Error::Shape { arg, expected, found });
    }
    x.slice(2, 0..turned)
}

fn in_place<T: Rotated>(
    stream: &Stream,
    at: Angles<'_>,
    norm: Option<HeadNorm<'_, T>>,
    mut q: TensorViewMut<'_, T, 3>,
    mut k: TensorViewMut<'_, T, 3>,
) -> Result<()> {
    let same = |y: &mut TensorViewMut<'_, T, 3>| {
        let (device, extents, strides) = (y.device(), y.extents(), y.strides());
        // SAFETY: the memory is borrowed exclusively during the call, and in use by what the output notes after it. The
        // kernels read an element, and what it turns with, in the thread that writes both, and before.
        unsafe { TensorView::from_raw(&device, y.as_mut_ptr().cast_const(), extents, strides) }
    };
    let (from_q, from_k) = (same(&mut q)?, same(&mut k)?);
    launch(stream, at, norm, [from_q, from_k], [q, k])
}

fn launch<T: Rotated>(
    stream: &Stream,
    at: Angles<'_>,
    norm: Option<HeadNorm<'_, T>>,
    [q, k]: [TensorView<'_, T, 3>; 2],
    [yq, yk]: [TensorViewMut<'_, T, 3>; 2],
) -> Result<()> {
    let [tokens, q_heads, elements] = q.extents();
    let [_, k_heads, _] = k.extents();
    if q_heads == 0 && k_heads > 0 {
        // the grid is that of the first output
        let norm = norm.map(|n| HeadNorm { q: n.k, k: n.q, ..n });
        return launch(stream, at, norm, [k, q], [yk, yq]);
    }
    shape("k", [tokens, k_heads, elements], k.extents())?;
    shape("yq", q.extents(), yq.extents())?;
    shape("yk", k.extents(), yk.extents())?;
    let [known, angles] = at.cos.extents();
    if 2 * angles != elements || elements > MOST {
        let expected = format!("{} angles, for heads of {elements} elements, {MOST} at most", elements / 2);
        return Err(Error::Shape { arg: "cos", expected, found: format!("{angles}") });
    }
    shape("sin", [known, angles], at.sin.extents())?;
    let [found, words] = at.positions.extents();
    if found != tokens || !(1..=2).contains(&words) {
        let (expected, found) = (format!("{tokens} x 1 or {tokens} x 2"), format!("{found} x {words}"));
        return Err(Error::Shape { arg: "positions", expected, found });
    }
    if tokens == 0 || q_heads + k_heads == 0 || elements == 0 {
        return Ok(());
    }
    // halves of the weights as rows; weights without columns are none
    let rows = |arg: &'static str, w: Option<TensorView<'_, T, 1>>| -> Result<()> {
        w.map_or(Ok(()), |w| shape(arg, [elements], w.extents()))
    };
    let (wq, wk) = (norm.map(|n| n.q), norm.map(|n| n.k));
    rows("norm.q", wq)?;
    rows("norm.k", wk)?;
    let form = match at.rotation {
        Rotation::Halves => [2, elements / 2],
        Rotation::Pairs => [1, elements],
    };
    let none = q.slab(0)?.cols(0..0)?;
    let wq = wq.map_or(Ok(none), |w| w.reshape(form))?;
    let wk = wk.map_or(Ok(none), |w| w.reshape(form))?;
    T::launch(stream, Args { at, q, k, wq, wk, yq, yk, eps: norm.map_or(0.0, |n| n.eps) })
}

macro_rules! rotated {
    ($($t:ident [$(<$m:literal, $half:literal, $whole:literal>),*];)*) => {$(
        impl sealed::Sealed for $t {}
        impl Rotated for $t {
            #[inline]
            fn launch(s: &Stream, a: Args<'_, $t>) -> Result<()> {
                let half = a.at.cos.extents()[1];
                match a.at.rotation {
                    $(Rotation::Halves if half <= $half => {
                        let ((ql, qr), (kl, kr)) = (a.q.split_at(2, half)?, a.k.split_at(2, half)?);
                        let ((yql, yqr), (ykl, ykr)) = (a.yq.split_at(2, half)?, a.yk.split_at(2, half)?);
                        halves::<$t, $m, $half>::launch(s, (
                            a.at.positions.tiles().arg("positions")?,
                            a.at.cos.tiles().arg("cos")?,
                            a.at.sin.tiles().arg("sin")?,
                            ql.tiles().arg("q")?,
                            qr.tiles().arg("q")?,
                            a.wq.tiles().arg("norm.q")?,
                            yql.tiles_mut().arg("yq")?,
                            yqr.tiles_mut().arg("yq")?,
                            kl.tiles().arg("k")?,
                            kr.tiles().arg("k")?,
                            a.wk.tiles().arg("norm.k")?,
                            ykl.tiles_mut().arg("yk")?,
                            ykr.tiles_mut().arg("yk")?,
                            a.eps,
                        ))
                    })*
                    $(Rotation::Pairs if half <= $half => pairs::<$t, $m, $whole, $half>::launch(s, (
                        a.at.positions.tiles().arg("positions")?,
                        a.at.cos.tiles().arg("cos")?,
                        a.at.sin.tiles().arg("sin")?,
                        a.q.tiles().arg("q")?,
                        a.wq.tiles().arg("norm.q")?,
                        a.yq.tiles_mut().arg("yq")?,
                        a.k.tiles().arg("k")?,
                        a.wk.tiles().arg("norm.k")?,
                        a.yk.tiles_mut().arg("yk")?,
                        a.eps,
                    )),)*
                    // refused before
                    _ => Ok(()),
                }
            }
        }
    )*};
}
rotated! {
    f32 [<4, 128, 256>];
    f16 [<16, 64, 128>, <8, 128, 256>];
    bf16 [<16, 64, 128>, <8, 128, 256>];
}
