//! The debug mode `checked`: what lies outside of a view is reported by kernel, block and message.

extern crate tilewright_core as tilewright;

use tilewright_core::prelude::*;
#[cfg(feature = "checked")]
use tilewright_host::Error;
use tilewright_host::{Device, Launch, Result, Tensor};

tilewright::images!(none);

/// Tile `i` of `y` is tile `i + shift` of `x`: a mistake for the last ones.
#[kernel]
fn shifted(mut cta: Cta<128>, x: Tiles<f32, 1, 512>, shift: u32, y: TilesMut<f32, 1, 512>) {
    for ((i, j), y) in y {
        let x = cta.load(x.tile(i + shift, j));
        y.store(&mut cta, &x);
    }
}

/// The same along a row, and element by element.
#[kernel]
fn along(mut cta: Cta<128>, x: Tiles<f32, 1, 512>, list: Tiles<u32, 1, 1>, shift: u32, y: TilesMut<f32, 1, 512>) {
    for ((i, j), y) in y {
        let more = list.element(&mut cta, 0, shift);
        let x = cta.load(x.strip(i).tile(j + more));
        y.store(&mut cta, &x);
    }
}

fn run(shift: u32) -> (Result<()>, Vec<f32>) {
    let s = Device::cpu().stream().unwrap();
    let x = Tensor::<f32, 2>::full(&s, [5, 600], 1.0).unwrap();
    let mut y = Tensor::<f32, 2>::full(&s, [5, 600], -1.0).unwrap();
    let done = shifted::launch(&s, (x.tiles().unwrap(), shift, y.tiles_mut().unwrap()));
    (done, y.to_vec(&s).unwrap())
}

fn run_along(shift: u32, list: u32) -> Result<()> {
    let s = Device::cpu().stream().unwrap();
    let x = Tensor::<f32, 2>::full(&s, [1, 600], 1.0).unwrap();
    let list = Tensor::<u32, 2>::full(&s, [1, 3], list).unwrap();
    let mut y = Tensor::<f32, 2>::zeros(&s, [1, 600]).unwrap();
    along::launch(&s, (x.tiles().unwrap(), list.tiles().unwrap(), shift, y.tiles_mut().unwrap()))
}

#[test]
fn what_is_inside_is_no_error() {
    assert_eq!(run(0), (Ok(()), vec![1.0; 3000]));
    assert_eq!(run_along(2, 0), Ok(()));
}

#[cfg(feature = "checked")]
#[test]
fn a_tile_outside_is_reported() {
    let Err(Error::Kernel { name, block, message }) = run(1).0 else { panic!("not reported") };
    assert_eq!((name, block), ("tilewright_host::checked::shifted", 8));
    assert_eq!(message, "out of range: tile (5, 0) of 5 x 2");
    let said = |r: Result<()>| match r {
        Err(Error::Kernel { name: "tilewright_host::checked::along", message, .. }) => message,
        other => panic!("{other:?}"),
    };
    assert_eq!(said(run_along(0, 2)), "out of range: tile of a strip (0, 2) of 1 x 2");
    assert_eq!(said(run_along(3, 0)), "out of range: element (0, 3) of 1 x 3");
}

#[cfg(not(feature = "checked"))]
#[test]
fn a_tile_outside_reads_as_zeros() {
    let (done, y) = run(1);
    assert_eq!(done, Ok(()));
    assert!(y[..2400].iter().all(|v| *v == 1.0) && y[2400..].iter().all(|v| *v == 0.0));
    assert_eq!((run_along(0, 2), run_along(3, 0)), (Ok(()), Ok(())));
}
