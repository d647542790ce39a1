//! Matrix products: `C = A B^T`, A of M x K, B of N x K (as weights are stored), C of M x N. Sums are f32, rounded once.

use std::fmt;

use tilewright_core::backend::MmaElement;
use tilewright_core::element::{DType, Element, bf16, f16};
use tilewright_core::schedule::Grouped;
use tilewright_host::{Device, Error, Launch, Named, Result, Stream, TensorView, TensorViewMut};
use tilewright_kernels::gemm::{ping_pong, portable};

/// Which kernel family multiplies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Path {
    /// Bulk copies and warpgroup products: compute capability 9.0 (and the CPU), f16 and bf16, A and B with base and row
    /// stride of a multiple of 16 bytes.
    Hopper,
    /// `mma.sync` and `cp.async`: compute capability 8.0 and up (and the CPU), any element type, stride and alignment.
    Portable,
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Path::Hopper => "hopper",
            Path::Portable => "portable",
        })
    }
}

mod sealed {
    pub trait Sealed {}
}

/// An element type that matrices are multiplied in: f32, f16 or bf16. Sealed.
pub trait Factor: Element<Value = f32> + sealed::Sealed {
    #[doc(hidden)]
    fn launch(path: Path, stream: &Stream, a: In<'_, Self>, b: In<'_, Self>, c: Out<'_, Self>) -> Result<()>;
}

type In<'a, T> = TensorView<'a, T, 2>;
type Out<'a, T> = TensorViewMut<'a, T, 2>;

/// `C = A B^T` by the kernel that [`choose`] names.
///
/// A is M x K, B is N x K and C is M x N, each with adjacent columns and any row stride. A product with K = 0 is zero;
/// with M = 0 or N = 0 there is nothing to do.
///
/// # Errors
/// [`Error::Shape`] where extents disagree, [`Error::Stride`] where columns are not adjacent, [`Error::Device`] where a
/// tensor lies elsewhere than the stream, and what [`Launch::launch`] says.
///
/// ```
/// use tilewright::ops::gemm::gemm;
/// use tilewright::prelude::*;
///
/// let stream = Device::best().stream()?;
/// let a = Tensor::<f32, 2>::from_slice(&stream, [2, 3], &[1., 2., 3., 4., 5., 6.])?;
/// let b = Tensor::<f32, 2>::from_slice(&stream, [1, 3], &[1., 0., -1.])?;
/// let mut c = Tensor::<f32, 2>::zeros(&stream, [2, 1])?;
/// gemm(&stream, a.view(), b.view(), c.view_mut())?;
/// assert_eq!(c.to_vec(&stream)?, [-2., -2.]);
/// # Ok::<(), Error>(())
/// ```
pub fn gemm<T: Factor>(
    stream: &Stream,
    a: TensorView<'_, T, 2>,
    b: TensorView<'_, T, 2>,
    mut c: TensorViewMut<'_, T, 2>,
) -> Result<()> {
    gemm_by(choose(stream.device(), a, b, c.reborrow()), stream, a, b, c)
}

/// The path that [`gemm`] takes.
pub fn choose<T: Factor>(
    device: Device,
    a: TensorView<'_, T, 2>,
    b: TensorView<'_, T, 2>,
    c: TensorViewMut<'_, T, 2>,
) -> Path {
    let bulk = |v: &TensorView<'_, T, 2>| {
        let row_bytes = v.strides()[0] * size_of::<T>();
        v.as_ptr().addr().is_multiple_of(16) && row_bytes.is_multiple_of(16) && v.strides()[1] == 1
    };
    let [m, n] = c.extents();
    let hopper = device.compute_capability() == Some((9, 0));
    let suits = T::DTYPE != DType::F32 && bulk(&a) && bulk(&b) && a.extents()[1] > 0 && m * n > 0;
    if hopper && suits { Path::Hopper } else { Path::Portable }
}

/// `C = A B^T` by a path of the caller's choice.
///
/// # Errors
/// As for [`gemm`]; and for [`Path::Hopper`] [`Error::Unsupported`] with f32, [`Error::Alignment`] where the copy engine
/// can not read A or B, and [`Error::NoImageFor`] on other devices.
pub fn gemm_by<T: Factor>(
    path: Path,
    stream: &Stream,
    a: TensorView<'_, T, 2>,
    b: TensorView<'_, T, 2>,
    mut c: TensorViewMut<'_, T, 2>,
) -> Result<()> {
    let ([m, k], [n, kb], [cm, cn]) = (a.extents(), b.extents(), c.extents());
    let wrong = |arg, [r, s]: [usize; 2], [fr, fs]: [usize; 2]| Error::Shape {
        arg,
        expected: format!("{r} x {s}"),
        found: format!("{fr} x {fs}"),
    };
    if kb != k {
        return Err(wrong("b", [n, k], [n, kb]));
    }
    if [cm, cn] != [m, n] {
        return Err(wrong("c", [m, n], [cm, cn]));
    }
    if m == 0 || n == 0 {
        return Ok(());
    }
    if k == 0 {
        return c.fill(stream, T::default());
    }
    T::launch(path, stream, a, b, c)
}

/// Output tiles of `bm` x `bn` that a product has.
fn tiles(m: usize, n: usize, bm: usize, bn: usize) -> usize {
    m.div_ceil(bm) * n.div_ceil(bn)
}

/// Small tiles where large ones would leave most of the device idle.
fn small(stream: &Stream, m: usize, n: usize) -> bool {
    let device = stream.device();
    !device.is_cpu() && tiles(m, n, 128, 128) < device.multiprocessors() as usize
}

/// Whether one block of 128 x 256 on each SM does it in as few turns as two of 128 x 128. Wide tiles read less.
fn wide(stream: &Stream, m: usize, n: usize) -> bool {
    let sms = stream.device().multiprocessors() as usize;
    tiles(m, n, 128, 256).div_ceil(sms) <= tiles(m, n, 128, 128).div_ceil(2 * sms)
}

macro_rules! portable {
    ($t:ty, $m:literal, $n:literal, $k:literal, $stages:literal, $threads:literal, $stream:expr, $a:expr, $b:expr, $c:expr) => {{
        let args = (
            $a.tiles::<$m, $k>().arg("a")?,
            $b.tiles::<$n, $k>().arg("b")?,
            $c.tiles_mut::<$m, $n>().arg("c")?.schedule(Grouped::<16>),
        );
        portable::plain::<$t, $t, $m, $n, $k, $stages, $threads>::launch($stream, args)
    }};
}

impl sealed::Sealed for f32 {}
impl Factor for f32 {
    #[inline] // a program pays for the products it uses alone
    fn launch(path: Path, stream: &Stream, a: In<'_, f32>, b: In<'_, f32>, c: Out<'_, f32>) -> Result<()> {
        let [m, n] = c.extents();
        match path {
            Path::Hopper => {
                Err(Error::Unsupported { what: "a product of f32 by warpgroups", device: stream.device().to_string() })
            }
            Path::Portable if small(stream, m, n) => portable!(f32, 64, 64, 16, 4, 128, stream, a, b, c),
            Path::Portable => portable!(f32, 128, 128, 16, 4, 256, stream, a, b, c),
        }
    }
}

macro_rules! factor16 {
    ($t:ty) => {
        impl sealed::Sealed for $t {}
        impl Factor for $t {
            #[inline]
            fn launch(path: Path, stream: &Stream, a: In<'_, $t>, b: In<'_, $t>, c: Out<'_, $t>) -> Result<()> {
                let [m, n] = c.extents();
                match path {
                    Path::Hopper => by_hopper(stream, a, b, c),
                    Path::Portable if small(stream, m, n) => portable!($t, 64, 64, 32, 4, 128, stream, a, b, c),
                    Path::Portable if wide(stream, m, n) => portable!($t, 128, 256, 32, 4, 256, stream, a, b, c),
                    Path::Portable => portable!($t, 128, 128, 64, 3, 128, stream, a, b, c),
                }
            }
        }
        impl Hopper for $t {
            #[inline]
            fn staged(s: &Stream, a: In<'_, $t>, b: In<'_, $t>, c: Out<'_, $t>) -> Result<()> {
                let (a, b) = (a.tma_tiles().arg("a")?, b.tma_tiles().arg("b")?);
                ping_pong::staged::<$t>::launch(s, (a, b, c.tma_tiles_mut().arg("c")?.schedule(Grouped::<8>)))
            }
            #[inline]
            fn direct(s: &Stream, a: In<'_, $t>, b: In<'_, $t>, c: Out<'_, $t>) -> Result<()> {
                let (a, b) = (a.tma_tiles().arg("a")?, b.tma_tiles().arg("b")?);
                ping_pong::direct::<$t>::launch(s, (a, b, c.tiles_mut().arg("c")?.schedule(Grouped::<8>)))
            }
        }
    };
}
factor16!(f16);
factor16!(bf16);

/// The Hopper kernels of an element type.
trait Hopper: MmaElement {
    fn staged(s: &Stream, a: In<'_, Self>, b: In<'_, Self>, c: Out<'_, Self>) -> Result<()>;
    fn direct(s: &Stream, a: In<'_, Self>, b: In<'_, Self>, c: Out<'_, Self>) -> Result<()>;
}

fn by_hopper<T: Hopper>(stream: &Stream, a: In<'_, T>, b: In<'_, T>, mut c: Out<'_, T>) -> Result<()> {
    let row_bytes = c.strides()[0] * size_of::<T>();
    let bulk = c.as_mut_ptr().addr().is_multiple_of(16) && row_bytes.is_multiple_of(16);
    if bulk { T::staged(stream, a, b, c) } else { T::direct(stream, a, b, c) }
}
