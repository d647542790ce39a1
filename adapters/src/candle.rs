//! candle's tensors under tilewright's kernels: custom operations, on candle's CPU device and, with the feature
//! `candle-cuda`, on its CUDA devices.
//!
//! ```
//! use candle_core::{Device, Tensor};
//! use tilewright_adapters::candle::{Linear, RmsNorm};
//!
//! let x = Tensor::new(&[[3f32, 4.], [0., 5.]], &Device::Cpu)?;
//! let weight = Tensor::new(&[1f32, 1.], &Device::Cpu)?;
//! let y = x.apply_op2_no_bwd(&weight, &RmsNorm { eps: 0.0 })?;
//! let rms = 12.5f32.sqrt();
//! assert!((y.to_vec2::<f32>()?[0][0] - 3.0 / rms).abs() < 1e-6);
//!
//! let projection = Tensor::new(&[[1f32, 1.]], &Device::Cpu)?;
//! let z = x.apply_op2_no_bwd(&projection, &Linear)?;
//! assert_eq!(z.to_vec2::<f32>()?, [[7.0], [5.0]]);
//! # Ok::<(), candle_core::Error>(())
//! ```
//!
//! Rows may lie apart and need not be contiguous: a tensor is taken as it is if its last dimension is adjacent and the
//! others make up at most two regular ones (any slice of a contiguous tensor along one dimension, heads and tokens
//! swapped). Others are refused with an error that says so.

use candle_core::{CpuStorage, CustomOp2, InplaceOp2, Layout, Shape, bail};
use tilewright::element::Element;
#[cfg(feature = "candle-cuda")]
use tilewright::element::{bf16, f16};
use tilewright::kernel::Kernel;
use tilewright::kernels::elementwise::axpy;
use tilewright::ops::gemm::{Factor, gemm};
use tilewright::ops::rmsnorm::{Normed, rmsnorm};
use tilewright::{Device, Launch, Result, Stream, TensorView, TensorViewMut, foreign};

type Fallible<T> = candle_core::Result<T>;

/// `y = x / sqrt(mean(x^2) + eps) * w` over the last dimension: of f32, f16 or bf16, with weights of the same type or
/// f32. Not differentiable.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RmsNorm {
    /// Added to the mean of squares.
    pub eps: f32,
}

/// `y = x w^T` over the last dimension, w of out x in features, of one type: f32, f16 or bf16. Not differentiable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Linear;

/// `y = a x + y`, in place, of one type: f32, f16 or bf16.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Axpy {
    /// What `x` is multiplied by.
    pub a: f32,
}

/// What a layout is to kernels: stacks of rows, and where they begin in the storage.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Rows {
    start: usize,
    extents: [usize; 3],
    strides: [usize; 3],
}

impl Rows {
    fn of(layout: &Layout, op: &str, arg: &str) -> Fallible<Rows> {
        let (dims, strides) = (layout.dims(), layout.stride());
        let (Some((&cols, dims)), Some((&step, strides))) = (dims.split_last(), strides.split_last()) else {
            bail!("{op}: {arg}: expected at least one dimension, found a scalar");
        };
        // the outer dimensions that matter, adjacent ones merged
        let mut outer: Vec<(usize, usize)> = Vec::new();
        for (&e, &s) in dims.iter().zip(strides) {
            match outer.last_mut() {
                _ if e == 1 => {}
                Some((pe, ps)) if *ps == s * e => (*pe, *ps) = (*pe * e, s),
                _ => outer.push((e, s)),
            }
        }
        if outer.len() > 2 || (step != 1 && cols > 1) {
            bail!(
                "{op}: {arg}: expected adjacent rows in at most two regular dimensions, found {:?} with strides {:?}: \
                 make it contiguous",
                layout.dims(),
                layout.stride()
            );
        }
        let (row, row_stride) = outer.pop().unwrap_or((1, cols));
        let (stack, stack_stride) = outer.pop().unwrap_or((1, row * row_stride));
        let (extents, strides) = ([stack, row, cols], [stack_stride, row_stride, 1]);
        Ok(Rows { start: layout.start_offset(), extents, strides })
    }

    /// The same extents, but for the columns, without gaps.
    fn packed(&self, cols: usize) -> Rows {
        let [stack, rows, _] = self.extents;
        Rows { start: 0, extents: [stack, rows, cols], strides: [rows * cols, cols, 1] }
    }

    fn elements(&self) -> usize {
        self.extents.iter().product()
    }
}

fn failed(op: &str, e: tilewright::Error) -> candle_core::Error {
    candle_core::Error::Msg(format!("{op}: {e}")).bt()
}

fn norm<T: Normed<W>, W: Element>(
    s: &Stream,
    x: TensorView<'_, T, 3>,
    w: TensorView<'_, W, 1>,
    mut y: TensorViewMut<'_, T, 3>,
    eps: f32,
) -> Result<()> {
    (0..x.extents()[0]).try_for_each(|i| rmsnorm(s, x.slab(i)?, w, y.reborrow().slab(i)?, eps))
}

fn linear<T: Factor>(
    s: &Stream,
    x: TensorView<'_, T, 3>,
    w: TensorView<'_, T, 2>,
    mut y: TensorViewMut<'_, T, 3>,
) -> Result<()> {
    (0..x.extents()[0]).try_for_each(|i| gemm(s, x.slab(i)?, w, y.reborrow().slab(i)?))
}

fn add<T: Element<Value = f32>>(s: &Stream, a: f32, x: TensorView<'_, T, 3>, y: TensorViewMut<'_, T, 3>) -> Result<()>
where
    axpy<T>: for<'k> Kernel<Args<'k> = AxpyArgs<'k, T>>,
{
    axpy::<T>::launch(s, (a, x.tiles()?, y.tiles_mut()?))
}

type AxpyArgs<'k, T> = (f32, tilewright::view::Tiles<'k, T, 1, 2048>, tilewright::view::TilesMut<'k, T, 1, 2048>);

/// What all operations check before any storage is looked at.
struct Problem {
    x: Rows,
    w: Rows,
    y: Rows,
    shape: Shape,
}

impl RmsNorm {
    fn problem(l1: &Layout, l2: &Layout) -> Fallible<Problem> {
        let (x, w) = (Rows::of(l1, "rmsnorm", "x")?, Rows::of(l2, "rmsnorm", "w")?);
        let cols = x.extents[2];
        if l2.dims() != [cols] {
            bail!("rmsnorm: w: expected [{cols}], found {:?}", l2.dims());
        }
        Ok(Problem { x, w, y: x.packed(cols), shape: l1.shape().clone() })
    }
}

impl Linear {
    fn problem(l1: &Layout, l2: &Layout) -> Fallible<Problem> {
        let (x, w) = (Rows::of(l1, "linear", "x")?, Rows::of(l2, "linear", "w")?);
        let k = x.extents[2];
        let &[n, found] = l2.dims() else { bail!("linear: w: expected two dimensions, found {:?}", l2.dims()) };
        if found != k {
            bail!("linear: w: expected [{n}, {k}], found [{n}, {found}]");
        }
        let mut dims = l1.dims().to_vec();
        if let Some(last) = dims.last_mut() {
            *last = n;
        }
        Ok(Problem { x, w, y: x.packed(n), shape: dims.into() })
    }
}

impl Axpy {
    fn problem(l1: &Layout, l2: &Layout) -> Fallible<(Rows, Rows)> {
        if l1.dims() != l2.dims() {
            bail!("axpy: x: expected {:?}, found {:?}", l1.dims(), l2.dims());
        }
        let (y, x) = (Rows::of(l1, "axpy", "y")?, Rows::of(l2, "axpy", "x")?);
        if y.extents != x.extents {
            bail!(
                "axpy: x: expected strides that are regular as those of y, found {:?}: make it contiguous",
                l2.stride()
            );
        }
        Ok((y, x))
    }
}

/// Runs a closure on the CPU, with memory lent to it.
fn on_cpu(op: &str, body: impl for<'s> FnOnce(&'s foreign::Scope<'s, '_>) -> Result<()>) -> Fallible<()> {
    let stream = Device::cpu().stream().map_err(|e| failed(op, e))?;
    foreign::scope(&stream, foreign::Ending::OnStream, body).map_err(|e| failed(op, e))
}

fn view<'s, T: Element>(s: &'s foreign::Scope<'s, '_>, data: &[T], r: &Rows) -> Result<TensorView<'s, T, 3>> {
    let part = data.get(r.start..).unwrap_or_default();
    // SAFETY: candle holds the storage while the operation runs, and the scope ends with it; CPU work is done by then.
    unsafe { s.view(part.as_ptr(), part.len(), r.extents, r.strides) }
}

fn view_mut<'s, T: Element>(
    s: &'s foreign::Scope<'s, '_>,
    data: &mut [T],
    r: &Rows,
) -> Result<TensorViewMut<'s, T, 3>> {
    let part = data.get_mut(r.start..).unwrap_or_default();
    // SAFETY: as above, and held exclusively.
    unsafe { s.view_mut(part.as_mut_ptr(), part.len(), r.extents, r.strides) }
}

fn norm_on_cpu<T: Normed<W>, W: Element>(x: &[T], w: &[W], p: &Problem, eps: f32) -> Fallible<Vec<T>> {
    let mut y = vec![T::default(); p.y.elements()];
    on_cpu("rmsnorm", |s| {
        let weights = view(s, w, &p.w)?.slab(0)?.reshape([p.w.extents[2]])?;
        norm(s.stream(), view(s, x, &p.x)?, weights, view_mut(s, &mut y, &p.y)?, eps)
    })?;
    Ok(y)
}

fn linear_on_cpu<T: Factor>(x: &[T], w: &[T], p: &Problem) -> Fallible<Vec<T>> {
    let mut y = vec![T::default(); p.y.elements()];
    on_cpu("linear", |s| {
        linear(s.stream(), view(s, x, &p.x)?, view(s, w, &p.w)?.slab(0)?, view_mut(s, &mut y, &p.y)?)
    })?;
    Ok(y)
}

impl CustomOp2 for RmsNorm {
    fn name(&self) -> &'static str {
        "tilewright-rmsnorm"
    }

    fn cpu_fwd(&self, s1: &CpuStorage, l1: &Layout, s2: &CpuStorage, l2: &Layout) -> Fallible<(CpuStorage, Shape)> {
        use CpuStorage::{BF16, F16, F32};
        let p = RmsNorm::problem(l1, l2)?;
        let y = match (s1, s2) {
            (F32(x), F32(w)) => F32(norm_on_cpu(x, w, &p, self.eps)?),
            (F16(x), F16(w)) => F16(norm_on_cpu(x, w, &p, self.eps)?),
            (F16(x), F32(w)) => F16(norm_on_cpu(x, w, &p, self.eps)?),
            (BF16(x), BF16(w)) => BF16(norm_on_cpu(x, w, &p, self.eps)?),
            (BF16(x), F32(w)) => BF16(norm_on_cpu(x, w, &p, self.eps)?),
            _ => bail!(
                "rmsnorm: w: expected f32, f16 or bf16, and weights of that type or f32, found x of {:?} and w of {:?}",
                candle_core::backend::BackendStorage::dtype(s1),
                candle_core::backend::BackendStorage::dtype(s2)
            ),
        };
        Ok((y, p.shape))
    }

    #[cfg(feature = "candle-cuda")]
    fn cuda_fwd(
        &self,
        s1: &candle_core::CudaStorage,
        l1: &Layout,
        s2: &candle_core::CudaStorage,
        l2: &Layout,
    ) -> Fallible<(candle_core::CudaStorage, Shape)> {
        use candle_core::DType::{BF16, F16, F32};
        use candle_core::backend::BackendStorage;
        let p = RmsNorm::problem(l1, l2)?;
        let y = match (s1.dtype(), s2.dtype()) {
            (F32, F32) => gpu::norm::<f32, f32>(s1, s2, &p, self.eps)?,
            (F16, F16) => gpu::norm::<f16, f16>(s1, s2, &p, self.eps)?,
            (F16, F32) => gpu::norm::<f16, f32>(s1, s2, &p, self.eps)?,
            (BF16, BF16) => gpu::norm::<bf16, bf16>(s1, s2, &p, self.eps)?,
            (BF16, F32) => gpu::norm::<bf16, f32>(s1, s2, &p, self.eps)?,
            (x, w) => bail!(
                "rmsnorm: w: expected f32, f16 or bf16, and weights of that type or f32, found x of {x:?} and w of {w:?}"
            ),
        };
        Ok((y, p.shape))
    }
}

impl CustomOp2 for Linear {
    fn name(&self) -> &'static str {
        "tilewright-linear"
    }

    fn cpu_fwd(&self, s1: &CpuStorage, l1: &Layout, s2: &CpuStorage, l2: &Layout) -> Fallible<(CpuStorage, Shape)> {
        use CpuStorage::{BF16, F16, F32};
        let p = Linear::problem(l1, l2)?;
        let y = match (s1, s2) {
            (F32(x), F32(w)) => F32(linear_on_cpu(x, w, &p)?),
            (F16(x), F16(w)) => F16(linear_on_cpu(x, w, &p)?),
            (BF16(x), BF16(w)) => BF16(linear_on_cpu(x, w, &p)?),
            _ => bail!(
                "linear: w: expected both of f32, f16 or bf16, found x of {:?} and w of {:?}",
                candle_core::backend::BackendStorage::dtype(s1),
                candle_core::backend::BackendStorage::dtype(s2)
            ),
        };
        Ok((y, p.shape))
    }

    #[cfg(feature = "candle-cuda")]
    fn cuda_fwd(
        &self,
        s1: &candle_core::CudaStorage,
        l1: &Layout,
        s2: &candle_core::CudaStorage,
        l2: &Layout,
    ) -> Fallible<(candle_core::CudaStorage, Shape)> {
        use candle_core::DType::{BF16, F16, F32};
        use candle_core::backend::BackendStorage;
        let p = Linear::problem(l1, l2)?;
        let y = match (s1.dtype(), s2.dtype()) {
            (F32, F32) => gpu::linear::<f32>(s1, s2, &p)?,
            (F16, F16) => gpu::linear::<f16>(s1, s2, &p)?,
            (BF16, BF16) => gpu::linear::<bf16>(s1, s2, &p)?,
            (x, w) => bail!("linear: w: expected both of f32, f16 or bf16, found x of {x:?} and w of {w:?}"),
        };
        Ok((y, p.shape))
    }
}

impl InplaceOp2 for Axpy {
    fn name(&self) -> &'static str {
        "tilewright-axpy"
    }

    fn cpu_fwd(&self, s1: &mut CpuStorage, l1: &Layout, s2: &CpuStorage, l2: &Layout) -> Fallible<()> {
        use CpuStorage::{BF16, F16, F32};
        let (y, x) = Axpy::problem(l1, l2)?;
        match (s1, s2) {
            (F32(t), F32(u)) => on_cpu("axpy", |s| add(s.stream(), self.a, view(s, u, &x)?, view_mut(s, t, &y)?)),
            (F16(t), F16(u)) => on_cpu("axpy", |s| add(s.stream(), self.a, view(s, u, &x)?, view_mut(s, t, &y)?)),
            (BF16(t), BF16(u)) => on_cpu("axpy", |s| add(s.stream(), self.a, view(s, u, &x)?, view_mut(s, t, &y)?)),
            _ => bail!("axpy: x: expected both of f32, f16 or bf16"),
        }
    }

    #[cfg(feature = "candle-cuda")]
    fn cuda_fwd(
        &self,
        s1: &mut candle_core::CudaStorage,
        l1: &Layout,
        s2: &candle_core::CudaStorage,
        l2: &Layout,
    ) -> Fallible<()> {
        use candle_core::DType::{BF16, F16, F32};
        use candle_core::backend::BackendStorage;
        let (y, x) = Axpy::problem(l1, l2)?;
        match (s1.dtype(), s2.dtype()) {
            (F32, F32) => gpu::axpy::<f32>(s1, &y, s2, &x, self.a),
            (F16, F16) => gpu::axpy::<f16>(s1, &y, s2, &x, self.a),
            (BF16, BF16) => gpu::axpy::<bf16>(s1, &y, s2, &x, self.a),
            (y, x) => bail!("axpy: x: expected both of f32, f16 or bf16, found y of {y:?} and x of {x:?}"),
        }
    }
}

#[cfg(feature = "candle-cuda")]
mod gpu {
    use super::{AxpyArgs, Factor, Fallible, Kernel, Normed, Problem, Rows, failed};
    use crate::cudarc::scope;
    use candle_core::CudaStorage;
    use candle_core::cuda_backend::CudaDType;
    use cudarc::driver::DeviceRepr;
    use tilewright::element::Element;

    pub(super) trait OnGpu: Element + DeviceRepr + CudaDType {}
    impl<T: Element + DeviceRepr + CudaDType> OnGpu for T {}

    pub(super) fn norm<T: Normed<W> + OnGpu, W: OnGpu>(
        x: &CudaStorage,
        w: &CudaStorage,
        p: &Problem,
        eps: f32,
    ) -> Fallible<CudaStorage> {
        let (device, x, w) = (&x.device, x.as_cuda_slice::<T>()?, w.as_cuda_slice::<W>()?);
        // SAFETY: all of it is written below.
        let mut y = unsafe { device.alloc::<T>(p.y.elements()) }?;
        let (x, w) = (x.slice(p.x.start..), w.slice(p.w.start..));
        scope(&device.cuda_stream(), |s| {
            let x = s.view_strided(&x, p.x.extents, p.x.strides)?;
            super::norm(s.stream(), x, s.view(&w, [p.w.extents[2]])?, s.view_mut(&mut y, p.y.extents)?, eps)
        })
        .map_err(|e| failed("rmsnorm", e))?;
        Ok(CudaStorage::wrap_cuda_slice(y, device.clone()))
    }

    pub(super) fn linear<T: Factor + OnGpu>(x: &CudaStorage, w: &CudaStorage, p: &Problem) -> Fallible<CudaStorage> {
        let (device, x, w) = (&x.device, x.as_cuda_slice::<T>()?, w.as_cuda_slice::<T>()?);
        // SAFETY: all of it is written below.
        let mut y = unsafe { device.alloc::<T>(p.y.elements()) }?;
        let (x, w) = (x.slice(p.x.start..), w.slice(p.w.start..));
        scope(&device.cuda_stream(), |s| {
            let x = s.view_strided(&x, p.x.extents, p.x.strides)?;
            let w = s.view_strided(&w, p.w.extents, p.w.strides)?.slab(0)?;
            super::linear(s.stream(), x, w, s.view_mut(&mut y, p.y.extents)?)
        })
        .map_err(|e| failed("linear", e))?;
        Ok(CudaStorage::wrap_cuda_slice(y, device.clone()))
    }

    pub(super) fn axpy<T: OnGpu + Element<Value = f32>>(
        y: &mut CudaStorage,
        to: &Rows,
        x: &CudaStorage,
        from: &Rows,
        a: f32,
    ) -> Fallible<()>
    where
        tilewright::kernels::elementwise::axpy<T>: for<'k> Kernel<Args<'k> = AxpyArgs<'k, T>>,
    {
        let stream = y.device.cuda_stream();
        let x = x.as_cuda_slice::<T>()?.slice(from.start..);
        let mut y = y.as_cuda_slice_mut::<T>()?.slice_mut(to.start..);
        scope(&stream, |s| {
            let x = s.view_strided(&x, from.extents, from.strides)?;
            super::add(s.stream(), a, x, s.view_mut_strided(&mut y, to.extents, to.strides)?)
        })
        .map_err(|e| failed("axpy", e))
    }
}
