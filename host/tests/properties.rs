//! Random programs, against models: views and copies of any shape on the CPU and on the fake driver; and programs of
//! several streams, graphs and drops on the fake driver, which runs work as late as it may.

#[path = "common/mod.rs"]
mod common;
#[path = "common/on_fake.rs"]
mod on_fake;
#[path = "properties/streams.rs"]
mod streams;

use proptest::prelude::*;
use tilewright_fake_cuda::child;
use tilewright_host::{Device, Error, Stream, Tensor, TensorView, TensorViewMut};

pub fn config(cases: u32) -> ProptestConfig {
    ProptestConfig { cases, failure_persistence: None, max_shrink_iters: 4000, ..ProptestConfig::default() }
}

/// Which indices of each dimension a view has.
#[derive(Clone)]
struct Model {
    outer: Vec<usize>,
    dims: Vec<Vec<usize>>,
}

impl Model {
    fn new(extents: &[usize]) -> Model {
        Model { outer: extents.to_vec(), dims: extents.iter().map(|&e| (0..e).collect()).collect() }
    }

    /// Where the view's elements are in the tensor, the last dimension running fastest.
    fn places(&self) -> Vec<usize> {
        let mut all = vec![0];
        for (dim, outer) in self.dims.iter().zip(&self.outer) {
            all = all.iter().flat_map(|at| dim.iter().map(move |i| at * outer + i)).collect();
        }
        all
    }
}

/// A view cut by steps that may be wrong, in step with its model.
fn cut<'a, const R: usize>(
    mut view: TensorViewMut<'a, f32, R>,
    model: &mut Model,
    steps: &[[u8; 4]],
) -> TensorViewMut<'a, f32, R> {
    for &[what, dim, a, b] in steps {
        let (dim, a, b) = (dim as usize % (R + 1), a as usize % 12, b as usize % 12);
        let extent = model.dims.get(dim).map(Vec::len);
        let address = view.as_mut_ptr();
        if what % 3 == 0 {
            let valid = extent.is_some_and(|e| a <= e);
            // the view is used up by an error: another one of the same stays
            // SAFETY: one of the two is used at a time.
            let again =
                unsafe { TensorViewMut::from_raw(&view.device(), address, view.extents(), view.strides()) }.unwrap();
            match view.split_at(dim, a) {
                Ok((low, high)) => {
                    assert!(valid);
                    let indices = &mut model.dims[dim];
                    if b % 2 == 0 {
                        indices.truncate(a);
                        view = low;
                    } else {
                        indices.drain(..a);
                        view = high;
                    }
                }
                Err(e) => {
                    assert!(!valid && matches!(e, Error::Shape { .. }), "{e}");
                    view = again;
                }
            }
        } else {
            let valid = extent.is_some_and(|e| a <= b && b <= e);
            // SAFETY: as above.
            let again =
                unsafe { TensorViewMut::from_raw(&view.device(), address, view.extents(), view.strides()) }.unwrap();
            match view.slice(dim, a..b) {
                Ok(v) => {
                    assert!(valid);
                    model.dims[dim] = model.dims[dim][a..b].to_vec();
                    view = v;
                }
                Err(e) => {
                    assert!(!valid && matches!(e, Error::Shape { .. }), "{e}");
                    view = again;
                }
            }
        }
        assert_eq!(view.extents().to_vec(), model.dims.iter().map(Vec::len).collect::<Vec<_>>());
        assert_eq!(view.len(), model.places().len());
        assert_eq!(view.is_empty(), model.places().is_empty());
    }
    view
}

fn numbers(n: usize, from: f32) -> Vec<f32> {
    (0..n).map(|i| from + i as f32).collect()
}

/// Cuts a tensor, writes the part in one of several ways, and compares everything.
fn writes<const R: usize>(stream: &Stream, extents: [usize; R], steps: &[[u8; 4]], how: u8) {
    let n: usize = extents.iter().product();
    let mut expected = numbers(n, 0.0);
    let mut tensor = Tensor::<f32, R>::from_slice(stream, extents, &expected).unwrap();
    let mut model = Model::new(&extents);
    let mut view = cut(tensor.view_mut(), &mut model, steps);
    let places = model.places();
    let before: Vec<f32> = places.iter().map(|&p| expected[p]).collect();
    assert_eq!(view.view().to_vec(stream).unwrap(), before);
    let new = match how % 4 {
        0 => vec![-1.0; places.len()],
        _ => numbers(places.len(), 1000.0),
    };
    match how % 4 {
        0 => view.fill(stream, -1.0).unwrap(),
        1 => view.copy_from_slice(stream, &new).unwrap(),
        2 => {
            let source = Tensor::<f32, R>::from_slice(stream, view.extents(), &new).unwrap();
            view.copy_from(stream, source.view()).unwrap();
        }
        _ => {
            // from rows that lie apart, and backwards in memory
            let wide = view.extents().map(|e| 2 * e + 1);
            let mut source = Tensor::<f32, R>::full(stream, wide, f32::NAN).unwrap();
            let mut part = source.view_mut();
            for (dim, e) in view.extents().into_iter().enumerate() {
                part = part.slice(dim, 1..1 + e).unwrap();
            }
            part.copy_from_slice(stream, &new).unwrap();
            view.copy_from(stream, part.view()).unwrap();
        }
    }
    for (&p, v) in places.iter().zip(new) {
        expected[p] = v;
    }
    let wrong = vec![0.0; places.len() + 1];
    assert!(matches!(view.copy_from_slice(stream, &wrong), Err(Error::Length { .. })));
    assert_eq!(tensor.to_vec(stream).unwrap(), expected);
    if R == 2 {
        transposed(stream, &tensor, &expected);
    }
    // other extents for the same elements, and for others
    assert_eq!(tensor.view().reshape([n]).unwrap().to_vec(stream).unwrap(), expected);
    let e = tensor.reshape([n + 1]).unwrap_err();
    assert!(matches!(e, Error::Shape { .. }), "{e}");
}

fn transposed<const R: usize>(stream: &Stream, tensor: &Tensor<f32, R>, expected: &[f32]) {
    let [rows, cols] = [tensor.extents()[0], tensor.extents()[1]];
    let view = tensor.view().reshape([rows, cols]).unwrap().transpose();
    let turned: Vec<f32> = (0..cols).flat_map(|c| (0..rows).map(move |r| expected[r * cols + c])).collect();
    assert_eq!(view.to_vec(stream).unwrap(), turned);
}

fn any_rank(stream: &Stream, extents: [usize; 4], rank: u8, steps: &[[u8; 4]], how: u8) {
    let [a, b, c, d] = extents;
    match rank % 4 {
        0 => writes(stream, [a], steps, how),
        1 => writes(stream, [a, b], steps, how),
        2 => writes(stream, [a, b, c], steps, how),
        _ => writes(stream, [a, b, c, d], steps, how),
    }
}

fn program() -> impl Strategy<Value = ([usize; 4], u8, Vec<[u8; 4]>, u8)> {
    (prop::array::uniform4(0usize..7), any::<u8>(), prop::collection::vec(any::<[u8; 4]>(), 0..6), any::<u8>())
}

#[test]
fn views_on_the_cpu() {
    let stream = Device::cpu().stream().unwrap();
    proptest!(config(600), |((extents, rank, steps, how) in program())| {
        any_rank(&stream, extents, rank, &steps, how);
    });
}

#[test]
fn views_on_a_driver() {
    child("views_on_a_driver", |fake| {
        let stream = Device::cuda(0).unwrap().new_stream().unwrap();
        proptest!(config(400), |((extents, rank, steps, how) in program())| {
            any_rank(&stream, extents, rank, &steps, how);
            prop_assert_eq!(fake.violations(), Vec::<String>::new());
        });
        assert_eq!(fake.live().memory, 0);
    });
}

/// Whether the indices of a shape mean different elements, all within `room`.
fn distinct(extents: &[usize], strides: &[usize], room: usize) -> Option<bool> {
    let mut places = vec![0usize];
    for (&e, &s) in extents.iter().zip(strides) {
        places = places.iter().flat_map(|p| (0..e).map(move |i| p + i * s)).collect();
    }
    let n = places.len();
    if places.iter().any(|&p| p >= room) {
        return None;
    }
    places.sort_unstable();
    places.dedup();
    Some(places.len() == n)
}

#[test]
fn foreign_views() {
    let (device, stream) = (Device::cpu(), Device::cpu().stream().unwrap());
    let small = (prop::array::uniform3(0usize..5), prop::array::uniform3(0usize..9));
    proptest!(config(2000), |((extents, strides) in small)| {
        let mut memory = numbers(256, 0.0);
        let address = memory.as_mut_ptr();
        let distinct = distinct(&extents, &strides, memory.len());
        prop_assume!(distinct.is_some());
        // SAFETY: within the vector, which is used through one view at a time.
        let (shared, exclusive) = unsafe {
            (TensorView::<f32, 3>::from_raw(&device, address, extents, strides),
             TensorViewMut::<f32, 3>::from_raw(&device, address, extents, strides))
        };
        let read = shared.unwrap().to_vec(&stream).unwrap();
        let mut wanted = Vec::new();
        for i in 0..extents[0] { for j in 0..extents[1] { for k in 0..extents[2] {
            wanted.push((i * strides[0] + j * strides[1] + k * strides[2]) as f32);
        } } }
        prop_assert_eq!(read, wanted);
        match exclusive {
            Ok(mut view) => {
                // nothing is given out mutably unless all elements are different
                prop_assert_eq!(distinct, Some(true));
                view.fill(&stream, -1.0).unwrap();
                let written = memory.iter().filter(|v| **v == -1.0).count();
                prop_assert_eq!(written, extents.iter().product::<usize>());
            }
            Err(e) => prop_assert!(matches!(e, Error::Stride { .. }), "{}", e),
        }
    });
}

/// Extents, strides and addresses from the whole range: an error or a view, never a panic; what is followed is refused.
#[test]
fn absurd_views() {
    let (device, stream) = (Device::cpu(), Device::cpu().stream().unwrap());
    let edge = prop_oneof![
        0usize..4,
        (0u32..64, 0usize..3).prop_map(|(bit, off)| (1usize << bit).wrapping_add(off).wrapping_sub(1)),
        any::<usize>(),
    ];
    let any3 = || prop::array::uniform3(edge.clone());
    proptest!(config(4000), |(extents in any3(), strides in any3(), address in any::<usize>(), dim in 0usize..5,
                              from in edge.clone(), to in edge.clone())| {
        // SAFETY: never followed: views of something absurd are only cut, below.
        unsafe {
            let _ = TensorViewMut::<f32, 3>::from_raw(&device, address as *mut f32, extents, strides).map(|v| {
                let _ = v.tiles_mut::<2, 8>();
            });
            if let Ok(view) = TensorView::<f32, 3>::from_raw(&device, address as *const f32, extents, strides) {
                let _ = (view.len(), view.is_empty(), view.is_contiguous(), format!("{view:?}"));
                let _ = view.slice(dim, from..to).map(|v| (v.len(), v.tiles::<64, 64>().is_ok()));
                let _ = view.split_at(dim, from).map(|(a, b)| (a.len(), b.len()));
                let _ = view.slab(from).map(|m| (m.transpose().len(), m.tma_tiles::<64, 32>().is_ok()));
                let _ = view.reshape([from, to]).map(|v| v.tiles::<1, 256>().is_ok());
                let _ = view.copy_to_slice(&stream, &mut []).map_err(|e| e.to_string());
            }
        }
        let _ = Tensor::<f32, 3>::from_slice(&stream, extents, &[1.0, 2.0]).map_err(|e| e.to_string());
    });
}
