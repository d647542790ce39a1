//! What ThreadSanitizer runs, and what ends a launch that went wrong. Not under the standard test runner, whose threads
//! the sanitizer would report: every check is a function, run in turn.
//!
//! Built with `--cfg tilewright_fault="..."` the vocabulary has a planted fault, and one of these kernels must show it:
//! the sanitizer reports a race, or the product is wrong, or a slot's generation is.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use tilewright::__private::{RawView, backend};
use tilewright::element::{bf16, f16};
use tilewright::prelude::*;
use tilewright_kernels::gemm::{hopper, ping_pong, portable};

tilewright::images!(none);

fn raw(rows: usize, cols: usize) -> RawView {
    RawView::matrix(rows as u32, cols as u32, cols as u64)
}

fn random<T: Element<Value = f32>>(n: usize, mut seed: u64) -> Vec<T> {
    (0..n)
        .map(|_| {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            T::from_value(((seed >> 40) as f32 / (1u64 << 23) as f32) - 1.0)
        })
        .collect()
}

/// Runs `launch` on random operands and compares some of the elements with f64.
fn product<T: Element<Value = f32>>(m: usize, n: usize, k: usize, launch: impl FnOnce(&[T], &[T], &mut [T])) {
    let (a, b) = (random::<T>(m * k, 1), random::<T>(n * k, 2));
    let mut c = vec![T::from_value(f32::NAN); m * n];
    launch(&a, &b, &mut c);
    let unit = if T::DTYPE == DType::BF16 { 1.0 / 256.0 } else { 1.0 / 2048.0 };
    for i in (0..m).step_by(7) {
        for j in (0..n).step_by(5) {
            let want: f64 = (0..k).map(|x| a[i * k + x].to_value() as f64 * b[j * k + x].to_value() as f64).sum();
            let got = c[i * n + j].to_value() as f64;
            assert!((got - want).abs() <= want.abs() * unit + 1e-3, "{m}x{n}x{k} at {i}, {j}: {got} for {want}");
        }
    }
}

/// A launch of `$kernel` on `a`, `b` and `c` in tiles as it wants them.
macro_rules! launch {
    ($kernel:ty, $in:ident, $out:ident; $m:expr, $n:expr, $k:expr, $workers:expr) => {{
        let (m, n, k) = ($m, $n, $k);
        product(m, n, k, |a, b, c| {
            let args = (
                $in::in_slice(a, raw(m, k)).unwrap(),
                $in::in_slice(b, raw(n, k)).unwrap(),
                $out::in_slice(c, raw(m, n)).unwrap().schedule(Grouped),
            );
            backend::run::<$kernel>(args, $workers).unwrap_or_else(|f| panic!("block {}: {}", f.block, f.message));
        })
    }};
}

/// More k-steps than stages, so that slots are filled again; several tiles, so that phases wrap.
fn hopper_products() {
    launch!(hopper::staged<bf16, 256, 4>, TmaTiles, TmaTilesMut; 300, 300, 64 * 11, 1);
    launch!(hopper::staged<f16, 256, 4>, TmaTiles, TmaTilesMut; 512, 257, 64 * 15 + 1, 2);
}

fn hopper_rows() {
    let (m, n, k) = (512, 512, 64 * 9);
    product::<bf16>(m, n, k, |a, b, c| {
        let args = (
            TmaTiles::in_slice(a, raw(m, k)).unwrap(),
            TmaTiles::in_slice(b, raw(n, k)).unwrap(),
            TilesMut::in_slice(c, raw(m, n)).unwrap().schedule(Grouped),
        );
        backend::run::<hopper::direct<bf16, 256, 4>>(args, 2).unwrap();
    });
}

fn ping_pong_products() {
    launch!(ping_pong::staged<bf16>, TmaTiles, TmaTilesMut; 600, 300, 64 * 13, 2);
}

fn portable_products() {
    launch!(portable::plain<bf16, bf16, 64, 64, 32, 4, 128>, Tiles, TilesMut; 200, 300, 100, 3);
}

/// Two consumers of a block; the roles disagree on the number of slots by `extra`.
#[kernel(arch = "sm_90a")]
pub fn uneven(
    cta: Cta<384>,
    #[shared] ring: Pipeline<SharedTile<bf16, 64, 64>, 2>,
    a: TmaTiles<bf16, 64, 64>,
    c: TilesMut<bf16, 128, 64>,
    extra: u32,
) {
    cta.roles(
        ring,
        c,
        |ring| (0..5).for_each(|k| ring.fill().load(a.tile(0, k))),
        |_, ring, _| (0..5 + extra).for_each(|_| drop(ring.next())),
    );
}

/// The second consumer fails in its third step.
#[kernel(arch = "sm_90a")]
pub fn failing(
    cta: Cta<384>,
    #[shared] ring: Pipeline<SharedTile<bf16, 64, 64>, 2>,
    a: TmaTiles<bf16, 64, 64>,
    c: TilesMut<bf16, 128, 64>,
) {
    cta.roles(
        ring,
        c,
        |ring| (0..50).for_each(|k| ring.fill().load(a.tile(0, k))),
        |_, ring, c| {
            let mut left = 50;
            for ((i, _), _) in c {
                while left > 0 {
                    drop(ring.next());
                    left -= 1;
                    assert!(i != 2 || left != 47, "a step that fails");
                }
            }
        },
    );
}

/// A launch of one of the above over `rows` rows.
macro_rules! faulty {
    ($kernel:ty, $rows:expr, $workers:expr $(, $more:expr)*) => {{
        let (a, mut c) = (vec![bf16::ONE; 64 * 64], vec![bf16::ZERO; $rows * 64]);
        let args = (
            TmaTiles::in_slice(&a, raw(64, 64)).unwrap(),
            TilesMut::in_slice(&mut c, raw($rows, 64)).unwrap(),
            $($more,)*
        );
        backend::run::<$kernel>(args, $workers)
    }};
}

/// Roles that use different numbers of slots: the launch ends, and says who waits for what.
fn deadlock() {
    assert_eq!(faulty!(uneven, 128, 1, 0), Ok(()));
    backend::set_patience(Duration::from_millis(300));
    let start = Instant::now();
    let fault = faulty!(uneven, 128, 1, 1).expect_err("consumers that take more than there is");
    assert!(start.elapsed() < Duration::from_secs(8), "it took {:?}", start.elapsed());
    for part in ["deadlock", "consumer", "waits for a full slot", "phase 2", "do the roles use as many slots?"] {
        assert!(fault.message.contains(part), "`{part}` is not in: {}", fault.message);
    }
    backend::set_patience(Duration::from_secs(10));
}

/// A role that panics: its peers end, and the launch says which block, and what it said.
fn failure() {
    let start = Instant::now();
    let fault = faulty!(failing, 5 * 128, 5).expect_err("the third block fails");
    assert_eq!((fault.block, fault.message.as_str()), (2, "a step that fails"));
    assert!(start.elapsed() < Duration::from_secs(8), "peers did not end: {:?}", start.elapsed());
}

/// A block that launches its share of an output again would write to the shares of others.
#[kernel]
pub fn again(cta: Cta<128>, y: TilesMut<f32, 1, 8>) {
    let _ = cta;
    if let Err(fault) = backend::run::<nothing>((y,), 3) {
        panic!("{}", fault.message)
    }
}
#[kernel]
pub fn nothing(_cta: Cta<128>, y: TilesMut<f32, 1, 8>) {
    TILES.fetch_add(y.into_iter().count() as u32, Ordering::Relaxed);
}
static TILES: AtomicU32 = AtomicU32::new(0);

/// A block that chooses an order of its own would reach into the shares of others.
#[kernel]
pub fn reordered(_cta: Cta<128>, y: TilesMut<f32, 1, 8>) {
    let own = y.plan().next();
    if own == Some((0, 0)) {
        let _ = y.schedule(Grouped::<1>);
    }
}

fn shares() {
    let mut y = vec![0.0f32; 80];
    let mut run = |f: fn(TilesMut<'_, f32, 1, 8>) -> Result<(), backend::Fault>| {
        f(TilesMut::in_slice(&mut y, raw(1, 80)).unwrap())
    };
    assert_eq!(run(|y| backend::run::<nothing>((y,), 4)), Ok(()));
    assert_eq!(TILES.load(Ordering::Relaxed), 10);
    for fault in [run(|y| backend::run::<again>((y,), 1)), run(|y| backend::run::<reordered>((y,), 4))] {
        let message = fault.expect_err("a share of an output is used as a whole").message;
        assert!(message.contains("a block's share of an output"), "{message}");
    }
    assert_eq!(TILES.load(Ordering::Relaxed), 10);
}

fn main() {
    let all: &[(&str, fn())] = &[
        ("hopper_products", hopper_products),
        ("hopper_rows", hopper_rows),
        ("ping_pong_products", ping_pong_products),
        ("portable_products", portable_products),
        ("deadlock", deadlock),
        ("failure", failure),
        ("shares", shares),
    ];
    // the names of checks, as the standard test runner takes them; its options are not for us
    let only: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with('-')).collect();
    for (name, check) in all {
        if only.is_empty() || only.iter().any(|o| name.contains(o.as_str())) {
            let expected = ["deadlock", "failure", "shares"].contains(name);
            let hook = std::panic::take_hook();
            if !expected {
                std::panic::set_hook(hook);
                check();
            } else {
                // the blocks that are meant to fail do so silently
                let mine = std::thread::current().id();
                std::panic::set_hook(Box::new(move |info| {
                    if std::thread::current().id() == mine && !info.to_string().contains("share of an output") {
                        eprintln!("{info}");
                    }
                }));
                check();
                let _ = std::panic::take_hook();
            }
            println!("{name} ok");
        }
    }
}
