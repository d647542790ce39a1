//! Matrix products: `C = A B^T`, A of M x K, B of N x K (as weights are stored), C of M x N. Sums are f32, rounded once.

use std::fmt;

use tilewright_core::backend::MmaElement;
use tilewright_core::element::{DType, Element, bf16, f16};
use tilewright_core::schedule::Grouped;
use tilewright_host::{Device, Error, Launch, Named, Result, Stream, TensorView, TensorViewMut};
use tilewright_kernels::gemm::decode::{per_tile, persistent, plain};
use tilewright_kernels::gemm::finish::finish;
use tilewright_kernels::gemm::{epilogue, hopper, ping_pong, portable};

mod choose;
mod config;
mod fused;
mod scaled;
mod table;

pub use config::{Config, Decode};
pub use fused::{Activation, Epilogue, gemm_fused};
use fused::{Finish, bias, finish_with, parts};
pub use scaled::{Scaled, Unscaled, gemm_e4m3};

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
    fn launch(config: Config, stream: &Stream, a: In<'_, Self>, b: In<'_, Self>, c: Out<'_, Self>) -> Result<()>;
    #[doc(hidden)]
    fn into_f32(s: &Stream, a: In<'_, Self>, b: In<'_, Self>, c: Out<'_, f32>) -> Result<()>;
    #[doc(hidden)]
    fn finish(s: &Stream, p: In<'_, f32>, a: In<'_, Self>, c: Out<'_, Self>, e: &Epilogue<'_, Self>) -> Result<()>;
    #[doc(hidden)]
    fn fused(s: &Stream, a: In<'_, Self>, b: In<'_, Self>, c: Out<'_, Self>, e: &Epilogue<'_, Self>) -> Result<()>;
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
    gemm_with(choose(stream.device(), a, b, c.reborrow()), stream, a, b, c)
}

/// The configuration that [`gemm`] takes: what was measured fastest for the shape, or what a model makes of its neighbours.
///
/// ```
/// use tilewright::ops::gemm::{Config, choose, gemm_with};
/// use tilewright::prelude::*;
///
/// let stream = Device::cpu().stream()?;
/// let a = Tensor::<bf16, 2>::full(&stream, [3, 16], bf16::ONE)?;
/// let b = Tensor::<bf16, 2>::full(&stream, [5, 16], bf16::ONE)?;
/// let mut c = Tensor::<bf16, 2>::zeros(&stream, [3, 5])?;
/// let config = choose(stream.device(), a.view(), b.view(), c.view_mut());
/// println!("{config}");
/// // or one of one's own choice
/// gemm_with(Config::Portable, &stream, a.view(), b.view(), c.view_mut())?;
/// assert_eq!(c.to_vec(&stream)?, [bf16::from_f32(16.0); 15]);
/// # Ok::<(), Error>(())
/// ```
pub fn choose<T: Factor>(
    device: Device,
    a: TensorView<'_, T, 2>,
    b: TensorView<'_, T, 2>,
    c: TensorViewMut<'_, T, 2>,
) -> Config {
    let ([m, n], k) = (c.extents(), a.extents()[1]);
    if hopper_reads(device, &a, &b) && m * n > 0 {
        choose::hopper(m, n, k, device.multiprocessors() as usize)
    } else {
        choose::portable(m, n, T::DTYPE != DType::F32, device)
    }
}

/// `C = A B^T` by a path of the caller's choice, in the configuration that suits it best.
///
/// # Errors
/// As for [`gemm_with`].
pub fn gemm_by<T: Factor>(
    path: Path,
    stream: &Stream,
    a: TensorView<'_, T, 2>,
    b: TensorView<'_, T, 2>,
    c: TensorViewMut<'_, T, 2>,
) -> Result<()> {
    let ([m, n], k) = (c.extents(), a.extents()[1]);
    let device = stream.device();
    let config = match path {
        Path::Hopper if device.is_cpu() => Config::PingPong,
        Path::Hopper => choose::hopper(m, n, k, device.multiprocessors() as usize),
        Path::Portable => choose::portable(m, n, T::DTYPE != DType::F32, device),
    };
    gemm_with(config, stream, a, b, c)
}

/// `C = A B^T` in a configuration of the caller's choice. Its sums may be rounded in another order than another's.
///
/// # Errors
/// As for [`gemm`]; and for configurations of [`Path::Hopper`] [`Error::Unsupported`] with f32, [`Error::Alignment`] where
/// the copy engine can not read A or B, and [`Error::NoImageFor`] on other devices
/// ([`Config::Decode`] has none for the CPU).
pub fn gemm_with<T: Factor>(
    config: Config,
    stream: &Stream,
    a: TensorView<'_, T, 2>,
    b: TensorView<'_, T, 2>,
    mut c: TensorViewMut<'_, T, 2>,
) -> Result<()> {
    let Some([_, _, k]) = extents(&a, &b, &c)? else { return Ok(()) };
    if k == 0 {
        return c.fill(stream, T::default());
    }
    T::launch(config, stream, a, b, c)
}

/// M, N and K, if they agree; None where there is nothing to do.
fn extents<T: Element, O: Element>(a: &In<'_, T>, b: &In<'_, T>, c: &Out<'_, O>) -> Result<Option<[usize; 3]>> {
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
    Ok((m > 0 && n > 0).then_some([m, n, k]))
}

/// Whether the copy engine can read a view.
fn bulk_reads<T: Element>(v: &In<'_, T>) -> bool {
    let row_bytes = v.strides()[0] * size_of::<T>();
    v.as_ptr().addr().is_multiple_of(16) && row_bytes.is_multiple_of(16) && v.strides()[1] == 1
}

/// Whether the device is a Hopper GPU whose copy engine can read A and B.
fn hopper_reads<T: Factor>(device: Device, a: &In<'_, T>, b: &In<'_, T>) -> bool {
    let hopper = device.compute_capability() == Some((9, 0));
    hopper && T::DTYPE != DType::F32 && bulk_reads(a) && bulk_reads(b) && a.extents()[1] > 0
}

/// `C = A B^T` as [`gemm`], C in f32: the sums as they are.
///
/// # Errors
/// As for [`gemm`].
///
/// ```
/// use tilewright::ops::gemm::gemm_f32;
/// use tilewright::prelude::*;
///
/// let stream = Device::best().stream()?;
/// let a = Tensor::<bf16, 2>::full(&stream, [2, 1000], bf16::ONE)?;
/// let b = Tensor::<bf16, 2>::full(&stream, [1, 1000], bf16::from_f32(1.0078125))?;
/// let mut c = Tensor::<f32, 2>::zeros(&stream, [2, 1])?;
/// gemm_f32(&stream, a.view(), b.view(), c.view_mut())?;
/// assert_eq!(c.to_vec(&stream)?, [1007.8125; 2]);
/// # Ok::<(), Error>(())
/// ```
pub fn gemm_f32<T: Factor>(
    stream: &Stream,
    a: TensorView<'_, T, 2>,
    b: TensorView<'_, T, 2>,
    mut c: TensorViewMut<'_, f32, 2>,
) -> Result<()> {
    let Some([_, _, k]) = extents(&a, &b, &c)? else { return Ok(()) };
    if k == 0 {
        return c.fill(stream, 0.0);
    }
    T::into_f32(stream, a, b, c)
}

fn unsupported<T>(stream: &Stream) -> Result<T> {
    Err(Error::Unsupported { what: "a product of f32 by warpgroups", device: stream.device().to_string() })
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
    fn launch(config: Config, stream: &Stream, a: In<'_, f32>, b: In<'_, f32>, c: Out<'_, f32>) -> Result<()> {
        match config {
            Config::PortableSmall => portable!(f32, 64, 64, 16, 4, 128, stream, a, b, c),
            Config::Portable => portable!(f32, 128, 128, 16, 4, 256, stream, a, b, c),
            Config::PortableWide => {
                Err(Error::Unsupported { what: "a product of f32 in wide tiles", device: stream.device().to_string() })
            }
            _ => unsupported(stream),
        }
    }
    #[inline]
    fn fused(s: &Stream, a: In<'_, f32>, b: In<'_, f32>, c: Out<'_, f32>, e: &Epilogue<'_, f32>) -> Result<()> {
        fused::in_two_steps(s, a, b, c, e)
    }
    #[inline]
    fn into_f32(s: &Stream, a: In<'_, f32>, b: In<'_, f32>, mut c: Out<'_, f32>) -> Result<()> {
        Self::launch(choose(s.device(), a, b, c.reborrow()), s, a, b, c)
    }
    #[inline]
    fn finish(s: &Stream, p: In<'_, f32>, a: In<'_, f32>, c: Out<'_, f32>, e: &Epilogue<'_, f32>) -> Result<()> {
        finish_with!(f32, s, p, a, c, e)
    }
}

macro_rules! decode {
    ($kernel:ident<$t:ty $(, $n:literal)*>, $s:ident, $a:ident, $b:ident, $c:ident, $f:ident) => {{
        let (a, b, c) = ($a.tma_tiles().arg("a")?, $b.tma_tiles().arg("b")?, $c.tiles_mut().arg("c")?);
        let (bias, residual) = ($f.bias, $f.residual.tiles().arg("residual")?);
        let args = (a, b, c, bias, residual, $f.own.into(), $f.alpha, $f.beta, $f.activation);
        $kernel::<$t $(, $n)*>::launch_on_gpu($s, args)
    }};
}

macro_rules! factor16 {
    ($t:ty) => {
        impl sealed::Sealed for $t {}
        impl Factor for $t {
            #[inline]
            fn launch(config: Config, stream: &Stream, a: In<'_, $t>, b: In<'_, $t>, c: Out<'_, $t>) -> Result<()> {
                match config {
                    Config::PingPong => by_ping_pong(stream, a, b, c),
                    Config::Cooperative => by_cooperative(stream, a, b, c),
                    Config::Decode(d) => <$t as Hopper>::decode(d, stream, a, b, c, &Finish::nothing(a)?),
                    Config::PortableSmall => portable!($t, 64, 64, 32, 4, 128, stream, a, b, c),
                    Config::Portable => portable!($t, 128, 128, 64, 3, 128, stream, a, b, c),
                    Config::PortableWide => portable!($t, 128, 256, 32, 4, 256, stream, a, b, c),
                }
            }
            #[inline]
            fn fused(s: &Stream, a: In<'_, $t>, b: In<'_, $t>, mut c: Out<'_, $t>, e: &Epilogue<'_, $t>) -> Result<()> {
                match choose(s.device(), a, b, c.reborrow()) {
                    config if config.path() == Path::Portable => fused::in_two_steps(s, a, b, c, e),
                    // what C holds takes the residual's place in the kernel
                    Config::Decode(d) if e.keep == 0.0 || e.residual.is_none() => {
                        <$t as Hopper>::decode(d, s, a, b, c, &Finish::of(e, a)?)
                    }
                    _ => fused::by_hopper(s, a, b, c, e),
                }
            }
            #[inline]
            fn into_f32(s: &Stream, a: In<'_, $t>, b: In<'_, $t>, c: Out<'_, f32>) -> Result<()> {
                if hopper_reads(s.device(), &a, &b) {
                    let (a, b) = (a.tma_tiles().arg("a")?, b.tma_tiles().arg("b")?);
                    ping_pong::direct::<$t, f32>::launch_on_gpu(s, (a, b, c.tiles_mut().arg("c")?.schedule(Grouped::<8>)))
                } else {
                    let (a, b) = (a.tiles().arg("a")?, b.tiles().arg("b")?);
                    let c = c.tiles_mut().arg("c")?.schedule(Grouped::<16>);
                    portable::plain::<$t, f32, 128, 128, 64, 3, 128>::launch(s, (a, b, c))
                }
            }
            #[inline]
            fn finish(s: &Stream, p: In<'_, f32>, a: In<'_, $t>, c: Out<'_, $t>, e: &Epilogue<'_, $t>) -> Result<()> {
                finish_with!($t, s, p, a, c, e)
            }
        }
        impl Hopper for $t {
            #[inline]
            fn ping_pong(staged: bool, s: &Stream, a: In<'_, $t>, b: In<'_, $t>, c: Out<'_, $t>) -> Result<()> {
                let (a, b) = (a.tma_tiles().arg("a")?, b.tma_tiles().arg("b")?);
                if staged {
                    ping_pong::staged::<$t>::launch(s, (a, b, c.tma_tiles_mut().arg("c")?.schedule(Grouped::<8>)))
                } else {
                    ping_pong::direct::<$t, $t>::launch(s, (a, b, c.tiles_mut().arg("c")?.schedule(Grouped::<8>)))
                }
            }
            #[inline]
            fn cooperative(staged: bool, s: &Stream, a: In<'_, $t>, b: In<'_, $t>, c: Out<'_, $t>) -> Result<()> {
                let (a, b) = (a.tma_tiles().arg("a")?, b.tma_tiles().arg("b")?);
                if staged {
                    let c = c.tma_tiles_mut().arg("c")?.schedule(Grouped::<8>);
                    hopper::staged::<$t, 256, 4>::launch(s, (a, b, c))
                } else {
                    let c = c.tiles_mut().arg("c")?.schedule(Grouped::<8>);
                    hopper::direct::<$t, 256, 4>::launch(s, (a, b, c))
                }
            }
            #[inline]
            fn decode(d: Decode, s: &Stream, a: In<'_, $t>, b: In<'_, $t>, c: Out<'_, $t>, f: &Finish<'_, $t>) -> Result<()> {
                match (d.rows, d.tokens, d.split, d.persistent) {
                    (64, 16, 2, true) => decode!(persistent<$t, 64, 16, 128, 10, 2, 1, 256>, s, a, b, c, f),
                    (128, 16, 1, true) => decode!(persistent<$t, 128, 16, 64, 11, 1, 2, 384>, s, a, b, c, f),
                    (192, 16, 1, true) => decode!(persistent<$t, 192, 16, 64, 8, 1, 3, 512>, s, a, b, c, f),
                    (256, 16, 1, true) => decode!(persistent<$t, 256, 16, 64, 6, 1, 4, 640>, s, a, b, c, f),
                    (128, 32, 1, true) => decode!(persistent<$t, 128, 32, 64, 10, 1, 2, 384>, s, a, b, c, f),
                    (192, 32, 1, true) => decode!(persistent<$t, 192, 32, 64, 7, 1, 3, 512>, s, a, b, c, f),
                    (256, 32, 1, true) => decode!(persistent<$t, 256, 32, 64, 6, 1, 4, 640>, s, a, b, c, f),
                    (128, 64, 1, true) => decode!(persistent<$t, 128, 64, 64, 8, 1, 2, 384>, s, a, b, c, f),
                    (128, 64, 2, true) => decode!(persistent<$t, 128, 64, 64, 8, 2, 2, 384>, s, a, b, c, f),
                    (192, 64, 1, true) => decode!(persistent<$t, 192, 64, 64, 6, 1, 3, 512>, s, a, b, c, f),
                    // this tile leaves no registers for an epilogue
                    (256, 64, 1, true) if f.activation == epilogue::SUM => {
                        let (a, b, c) = (a.tma_tiles().arg("a")?, b.tma_tiles().arg("b")?, c.tiles_mut().arg("c")?);
                        plain::<$t, 256, 64, 64, 5, 1, 4, 640>::launch_on_gpu(s, (a, b, c))
                    }
                    (256, 64, 1, true) => <$t as Hopper>::decode(Decode::new(192, 64, 1, true), s, a, b, c, f),
                    (128, 128, 1, true) => decode!(persistent<$t, 128, 128, 64, 6, 1, 2, 384>, s, a, b, c, f),
                    (128, 128, 2, true) => decode!(persistent<$t, 128, 128, 64, 5, 2, 2, 384>, s, a, b, c, f),
                    (128, 128, 3, true) => decode!(persistent<$t, 128, 128, 64, 5, 3, 2, 384>, s, a, b, c, f),
                    (128, 128, 6, true) => decode!(persistent<$t, 128, 128, 64, 5, 6, 2, 384>, s, a, b, c, f),
                    (192, 128, 1, true) => decode!(persistent<$t, 192, 128, 64, 5, 1, 3, 512>, s, a, b, c, f),
                    (64, 16, 1, false) => decode!(per_tile<$t, 64, 16, 64, 10, 1, 1, 256>, s, a, b, c, f),
                    (64, 16, 2, false) => decode!(per_tile<$t, 64, 16, 128, 5, 2, 1, 256>, s, a, b, c, f),
                    (64, 32, 1, false) => decode!(per_tile<$t, 64, 32, 64, 8, 1, 1, 256>, s, a, b, c, f),
                    (64, 32, 2, false) => decode!(per_tile<$t, 64, 32, 128, 4, 2, 1, 256>, s, a, b, c, f),
                    (64, 64, 1, false) => decode!(per_tile<$t, 64, 64, 64, 7, 1, 1, 256>, s, a, b, c, f),
                    (64, 64, 2, false) => decode!(per_tile<$t, 64, 64, 64, 6, 2, 1, 256>, s, a, b, c, f),
                    (64, 64, 4, false) => decode!(per_tile<$t, 64, 64, 64, 6, 4, 1, 256>, s, a, b, c, f),
                    // there are no others: `Decode` can not be made outside this module
                    _ => unsupported(s),
                }
            }
        }
    };
}
factor16!(f16);
factor16!(bf16);

/// The Hopper kernels of an element type. `staged`: C is stored by the copy engine.
trait Hopper: MmaElement {
    fn ping_pong(staged: bool, s: &Stream, a: In<'_, Self>, b: In<'_, Self>, c: Out<'_, Self>) -> Result<()>;
    fn cooperative(staged: bool, s: &Stream, a: In<'_, Self>, b: In<'_, Self>, c: Out<'_, Self>) -> Result<()>;
    fn decode(
        d: Decode,
        s: &Stream,
        a: In<'_, Self>,
        b: In<'_, Self>,
        c: Out<'_, Self>,
        f: &Finish<'_, Self>,
    ) -> Result<()>;
}

/// Whether the copy engine can write C.
fn bulk<T: Element>(c: &mut Out<'_, T>) -> bool {
    // It writes 16 bytes at a time: a row that ends within 16 bytes would take its neighbours with it (measured on an H200).
    let bytes = [c.strides()[0], c.extents()[1]].map(|n| n * size_of::<T>());
    c.as_mut_ptr().addr().is_multiple_of(16) && bytes.iter().all(|b| b.is_multiple_of(16))
}

fn by_ping_pong<T: Hopper>(stream: &Stream, a: In<'_, T>, b: In<'_, T>, mut c: Out<'_, T>) -> Result<()> {
    T::ping_pong(bulk(&mut c), stream, a, b, c)
}

fn by_cooperative<T: Hopper>(stream: &Stream, a: In<'_, T>, b: In<'_, T>, mut c: Out<'_, T>) -> Result<()> {
    T::cooperative(bulk(&mut c), stream, a, b, c)
}
