//! Every way to hand out an output: each element is written exactly once, and nothing around it. Kernels add 1 in place,
//! so that an element that two blocks were given, or one twice, shows; what lies around is poisoned.

use tilewright::prelude::*;

tilewright::images!(none);

/// Adds 1 to every element it is given.
#[kernel(instances(tall = <4, 128>, flat = <1, 512>, deep = <16, 32>))]
pub fn each<const M: usize, const N: usize>(mut cta: Cta<128>, y: TilesMut<f32, M, N>) {
    for (_, out) in y {
        let next = cta.load_mut(&out).map(|v| v + 1.0);
        out.store(&mut cta, &next);
    }
}

/// The same, as many blocks as run at once, in groups of three tile rows.
#[kernel(grid = persistent, instances(tall = <4, 128>, flat = <1, 512>, deep = <16, 32>))]
pub fn each_grouped<const M: usize, const N: usize>(mut cta: Cta<128>, y: TilesMut<f32, M, N, Grouped<3>>) {
    for (_, out) in y {
        let next = cta.load_mut(&out).map(|v| v + 1.0);
        out.store(&mut cta, &next);
    }
}

/// The same, by whole rows of tiles.
#[kernel(instances(tall = <4, 128>, flat = <1, 512>, deep = <16, 32>))]
pub fn each_strip<const M: usize, const N: usize>(mut cta: Cta<128>, y: TilesMut<f32, M, N, Strips>) {
    for (_, mut strip) in y.strips() {
        for j in 0..strip.across() {
            let next = strip.load(&mut cta, j).map(|v| v + 1.0);
            strip.store(&mut cta, j, &next);
        }
    }
}

/// Sizes around every multiple of a tile's up to the second, and a few beyond.
fn around(tile: usize) -> Vec<usize> {
    let mut all = vec![0, 1, 2, tile - 1, tile, tile + 1, 2 * tile - 1, 2 * tile, 2 * tile + 1, 5 * tile + 3];
    all.sort_unstable();
    all.dedup();
    all
}

/// Whether every element was given out once: launches all three forms on a part of a poisoned tensor.
fn exact<const M: usize, const N: usize, const R: usize>(
    extents: [usize; R],
    launch: impl Fn(&Stream, TensorViewMut<'_, f32, R>) -> Result<(), Error>,
) {
    let stream = Device::cpu().stream().unwrap();
    // room on all sides, so that rows and slabs have gaps between them
    let outer = extents.map(|e| e + 3);
    let mut memory = Tensor::<f32, R>::full(&stream, outer, f32::NAN).unwrap();
    let part = |mut view: TensorViewMut<'_, f32, R>, then: &dyn Fn(TensorViewMut<'_, f32, R>)| {
        for (dim, e) in extents.iter().enumerate() {
            view = view.slice(dim, 1..1 + e).unwrap();
        }
        then(view);
    };
    part(memory.view_mut(), &|mut v| v.fill(&stream, 0.0).unwrap());
    part(memory.view_mut(), &|v| launch(&stream, v).unwrap());
    for (i, v) in memory.to_vec(&stream).unwrap().into_iter().enumerate() {
        let mut rest = i;
        let mut inside = true;
        for (dim, o) in outer.iter().enumerate().rev() {
            inside &= (1..=extents[dim]).contains(&(rest % o));
            rest /= o;
        }
        if inside {
            assert!(v == 1.0, "{M} x {N}: element {i} of {extents:?} was written {v} times");
        } else {
            assert!(v.is_nan(), "{M} x {N}: element {i} is outside of {extents:?}, and was written");
        }
    }
}

macro_rules! forms {
    ($m:literal, $n:literal, $extents:expr) => {
        exact::<$m, $n, _>($extents, |s, v| each::<$m, $n>::launch(s, (v.tiles_mut()?,)));
        exact::<$m, $n, _>($extents, |s, v| {
            each_grouped::<$m, $n>::launch(s, (v.tiles_mut()?.schedule(Grouped::<3>),))
        });
        exact::<$m, $n, _>($extents, |s, v| each_strip::<$m, $n>::launch(s, (v.tiles_mut()?.schedule(Strips),)));
    };
}

macro_rules! sizes {
    ($m:literal, $n:literal) => {
        for cols in around($n) {
            forms!($m, $n, [cols]);
            for rows in around($m) {
                forms!($m, $n, [rows, cols]);
                for slabs in [0, 1, 2, 5] {
                    forms!($m, $n, [slabs, rows, cols]);
                }
            }
        }
    };
}

#[test]
fn tall_tiles() {
    sizes!(4, 128);
}

#[test]
fn flat_tiles() {
    sizes!(1, 512);
}

#[test]
fn deep_tiles() {
    sizes!(16, 32);
}

/// Four dimensions are handed out as three, the outer ones together.
#[test]
fn stacks_of_stacks() {
    let stream = Device::cpu().stream().unwrap();
    for extents in [[2, 3, 5, 140], [1, 1, 4, 128], [3, 1, 1, 1], [2, 2, 9, 257], [0, 2, 3, 4]] {
        let [a, b, c, d] = extents;
        let mut t = Tensor::<f32, 4>::zeros(&stream, extents).unwrap();
        let stack = t.view_mut().reshape([a * b, c, d]).unwrap();
        each::<4, 128>::launch(&stream, (stack.tiles_mut().unwrap(),)).unwrap();
        assert!(t.to_vec(&stream).unwrap().iter().all(|&v| v == 1.0), "{extents:?}");
    }
}

/// Disjoint parts of one tensor, by several threads at once.
#[test]
fn parts_of_one_tensor() {
    let stream = Device::cpu().stream().unwrap();
    for (rows, cols, at) in [(9, 260, 128), (9, 260, 1), (9, 260, 259), (8, 256, 0), (8, 256, 256)] {
        let mut t = Tensor::<f32, 2>::zeros(&stream, [rows, cols]).unwrap();
        let (left, right) = t.view_mut().split_at(1, at).unwrap();
        let (top, bottom) = left.split_at(0, rows / 2).unwrap();
        std::thread::scope(|scope| {
            for part in [top, bottom, right] {
                let stream = &stream;
                scope.spawn(move || each::<4, 128>::launch(stream, (part.tiles_mut().unwrap(),)).unwrap());
            }
        });
        assert!(t.to_vec(&stream).unwrap().iter().all(|&v| v == 1.0), "{rows} x {cols} at {at}");
    }
}
