//! Products of 8-bit factors with scales.

use tilewright_core::element::{Element, bf16, e4m3, f16};
use tilewright_core::schedule::Grouped;
use tilewright_host::{Error, Launch, Named, Result, Stream, TensorView, TensorViewMut};
use tilewright_kernels::gemm::scaled::{GROUP, direct, staged};

use super::{Out, bulk, extents};

/// A matrix of 8-bit elements and the scales that bring its values back: `value = element * scale`.
#[derive(Clone, Copy)]
pub struct Scaled<'a> {
    /// The elements, columns adjacent.
    pub elements: TensorView<'a, e4m3, 2>,
    /// Of A (M x K): `1 x 1`, one scale for all; `M x 1`, one a row; or `M x ceil(K / 128)`, one for each 128 of a row, as
    /// [`rmsnorm_e4m3`](crate::ops::quantised::rmsnorm_e4m3) makes them. Of B (N x K): `1 x 1`, or `ceil(N / 128) x ceil(K / 128)`,
    /// one for each square of 128 x 128. Columns adjacent, any row stride.
    pub scales: TensorView<'a, f32, 2>,
}

mod sealed {
    pub trait Sealed {}
}

/// An element type that products of scaled factors are rounded to: bf16, f16 or f32. Sealed.
pub trait Unscaled: Element<Value = f32> + sealed::Sealed {
    #[doc(hidden)]
    fn product(s: &Stream, a: Scaled<'_>, b: Scaled<'_>, c: Out<'_, Self>) -> Result<()>;
}

/// `C = A B^T`, A of M x K and B of N x K in 8 bits with scales, C of M x N. On a GPU, Hopper is needed.
///
/// The products of 128 of depth are added up by the tensor cores, and these sums, with their scales, in f32: so much of a
/// sum as tensor cores keep of 8-bit products would not be enough for longer ones (DeepSeek-V3's report).
///
/// A product with K = 0 is zero; with M = 0 or N = 0 there is nothing to do.
///
/// # Errors
/// [`Error::Shape`] where extents disagree or there are no such scales, [`Error::Stride`] where columns are not adjacent,
/// [`Error::Alignment`] where the copy engine can not read A or B (base and row stride of a multiple of 16 bytes),
/// [`Error::Device`] where a tensor lies elsewhere than the stream, [`Error::NoImageFor`] on a GPU that is not of compute
/// capability 9.0, and what [`Launch::launch`] says.
///
/// ```
/// use tilewright::ops::gemm::{Scaled, gemm_e4m3};
/// use tilewright::prelude::*;
///
/// let stream = Device::cpu().stream()?;
/// let a = Tensor::<e4m3, 2>::full(&stream, [3, 256], e4m3::from_f32(2.0))?;
/// let b = Tensor::<e4m3, 2>::full(&stream, [5, 256], e4m3::from_f32(0.5))?;
/// // of A a scale for each row and 128 of depth, of B one for all
/// let of_a = Tensor::<f32, 2>::from_slice(&stream, [3, 2], &[1., 1., 2., 1., 1., 0.])?;
/// let of_b = Tensor::<f32, 2>::full(&stream, [1, 1], 0.25)?;
/// let mut c = Tensor::<f32, 2>::zeros(&stream, [3, 5])?;
/// let a = Scaled { elements: a.view(), scales: of_a.view() };
/// let b = Scaled { elements: b.view(), scales: of_b.view() };
/// gemm_e4m3(&stream, a, b, c.view_mut())?;
/// assert_eq!(c.to_vec(&stream)?, [[64.0; 5], [96.0; 5], [32.0; 5]].concat());
/// # Ok::<(), Error>(())
/// ```
pub fn gemm_e4m3<T: Unscaled>(
    stream: &Stream,
    a: Scaled<'_>,
    b: Scaled<'_>,
    mut c: TensorViewMut<'_, T, 2>,
) -> Result<()> {
    let Some([m, n, k]) = extents(&a.elements, &b.elements, &c)? else { return Ok(()) };
    if k == 0 {
        return c.fill(stream, T::default());
    }
    let depth = k.div_ceil(GROUP);
    let one_of = |arg, wanted: &[[usize; 2]], found: [usize; 2]| {
        if wanted.contains(&found) {
            return Ok(());
        }
        let named: Vec<String> = wanted.iter().map(|[r, c]| format!("{r} x {c}")).collect();
        let (expected, found) = (named.join(" or "), format!("{} x {}", found[0], found[1]));
        Err(Error::Shape { arg, expected, found })
    };
    one_of("a.scales", &[[1, 1], [m, 1], [m, depth]], a.scales.extents())?;
    one_of("b.scales", &[[1, 1], [n.div_ceil(GROUP), depth]], b.scales.extents())?;
    let [rows, columns] = a.scales.extents();
    let scales = if rows == m {
        a.scales
    } else {
        let [_, step] = a.scales.strides();
        // SAFETY: the one row, named once for each row of A: all of it lies in the view, which lives as long.
        unsafe { TensorView::from_raw(&a.scales.device(), a.scales.as_ptr(), [m, columns], [0, step]) }?
    };
    T::product(stream, Scaled { scales, ..a }, b, c)
}

macro_rules! arguments {
    ($a:ident, $b:ident) => {
        (
            $a.elements.tma_tiles().arg("a.elements")?,
            $a.scales.tiles().arg("a.scales")?,
            $b.elements.tma_tiles().arg("b.elements")?,
            $b.scales.tiles().arg("b.scales")?,
        )
    };
}

macro_rules! unscaled {
    ($t:ty $(, $staged:ident)?) => {
        impl sealed::Sealed for $t {}
        impl Unscaled for $t {
            #[inline]
            #[allow(unused_mut)]
            fn product(s: &Stream, a: Scaled<'_>, b: Scaled<'_>, mut c: Out<'_, $t>) -> Result<()> {
                let (a, a_scales, b, b_scales) = arguments!(a, b);
                $(if bulk(&mut c) {
                    let c = c.tma_tiles_mut().arg("c")?.schedule(Grouped::<8>);
                    return $staged::<$t>::launch(s, (a, a_scales, b, b_scales, c));
                })?
                direct::<$t>::launch(s, (a, a_scales, b, b_scales, c.tiles_mut().arg("c")?.schedule(Grouped::<8>)))
            }
        }
    };
}
unscaled!(bf16, staged);
unscaled!(f16, staged);
unscaled!(f32);
