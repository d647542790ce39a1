//! From a problem to a configuration: a measured table, and a model for what is not in it.

use tilewright_host::Device;

use super::config::{Config, Decode};
use super::table::SM_90A;

/// Output tiles of `bm` x `bn` that a product has.
fn tiles(m: usize, n: usize, bm: usize, bn: usize) -> usize {
    m.div_ceil(bm) * n.div_ceil(bn)
}

/// Small tiles where large ones would leave most of the device idle; for 16-bit elements (`halves`) wide ones, which read
/// less, where one block of 128 x 256 on each SM does it in as few turns as two of 128 x 128.
pub fn portable(m: usize, n: usize, halves: bool, device: Device) -> Config {
    let sms = device.multiprocessors() as usize;
    if !device.is_cpu() && tiles(m, n, 128, 128) < sms {
        return Config::PortableSmall;
    }
    if !halves || tiles(m, n, 128, 256).div_ceil(sms) > tiles(m, n, 128, 128).div_ceil(2 * sms) {
        return Config::Portable;
    }
    Config::PortableWide
}

/// The most rows of A that tiles of `tokens` are made for: what the table's rows stand for.
fn tokens(m: usize) -> usize {
    match m {
        ..=16 => 16,
        17..=32 => 32,
        33..=64 => 64,
        65..=128 => 128,
        _ => m,
    }
}

/// The configuration for a Hopper GPU of `sms` multiprocessors.
pub fn hopper(m: usize, n: usize, k: usize, sms: usize) -> Config {
    let measured = SM_90A.iter().find(|(tm, tn, tk, _)| (*tm, *tn, *tk) == (tokens(m), n, k));
    if let Some((_, _, _, config)) = measured {
        return *config;
    }
    let all = Decode::ALL.iter().map(|d| Config::Decode(*d)).filter(|_| m <= 512);
    let (mut best, mut least) = (Config::PingPong, cost(Config::PingPong, [m, n, k], sms));
    // the cooperative form has measured no faster than ping-pong anywhere: only the table names it
    for config in all {
        let cost = cost(config, [m, n, k], sms);
        if cost < least {
            (best, least) = (config, cost);
        }
    }
    best
}

/// Microseconds that a product takes, roughly. The figures are an H200's: 7 TB/s from L2 to all multiprocessors, 0.1 TB/s
/// to one, 4.3 TB/s from memory, and 0.4 us for a product of 128 x 128 x 64 on one.
pub fn cost(config: Config, [m, n, k]: [usize; 3], sms: usize) -> f64 {
    let steps = k.div_ceil(64) as f64;
    // tile of a block, blocks that share its depth, blocks at once, and what starting and ending take
    let (bm, bn, split, slots, fixed) = match config {
        Config::Decode(d) => {
            let slots = if d.persistent { sms / d.split() * d.split() } else { 2 * sms };
            let join = if d.split == 1 { 0.0 } else { 0.3 + d.rows() as f64 * d.tokens() as f64 / 12_000.0 };
            (d.tokens(), d.rows(), d.split(), slots, 2.5 + join + d.rows() as f64 * d.tokens() as f64 / 10_000.0)
        }
        Config::Cooperative => (128, 256, 1, sms / 2 * 2, 6.0),
        _ => (128, 128, 1, sms / 2 * 2, 4.0),
    };
    // clusters of two take pairs of tiles, one above the other
    let rows = if matches!(config, Config::Decode(_)) { m.div_ceil(bm) } else { m.div_ceil(2 * bm) * 2 };
    let blocks = rows * n.div_ceil(bn) * split;
    let waves = blocks.div_ceil(slots) as f64;
    let steps = (steps / split as f64).ceil();
    // of the large tiles, two blocks load one half of B's each, for both
    let bytes_a_step = (if matches!(config, Config::Decode(_)) { bm + bn } else { bm + bn / 2 } * 128) as f64;
    let resident = blocks.min(slots).div_ceil(sms) as f64;
    let by_product = steps * (bm.max(64) * bn) as f64 / 16_384.0 * 0.4 * resident;
    let by_sm = steps * bytes_a_step * resident / 0.1e6;
    let by_l2 = blocks as f64 / waves * steps * bytes_a_step / 7e6;
    let by_memory = ((m * k + n * k + m * n) * 2) as f64 / 4.3e6;
    (waves * by_product.max(by_sm).max(by_l2)).max(by_memory) + fixed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shape_has_a_configuration_of_its_size() {
        for (n, k) in [(4096, 4096), (7168, 2048), (2112, 7168), (100, 64), (128_256, 8192), (8, 8)] {
            for m in [1, 16, 17, 64, 128, 129, 512, 4096] {
                match hopper(m, n, k, 132) {
                    // few weights do not fill the device, and may be read twice by smaller tiles
                    Config::Decode(d) => assert!(d.tokens() >= m || m > 64 || n < 2000, "{m}x{n}x{k}: {d:?}"),
                    Config::PingPong | Config::Cooperative => assert!(m > 64, "{m}x{n}x{k}"),
                    other => panic!("{m}x{n}x{k}: {other}"),
                }
            }
        }
        assert_eq!(hopper(8192, 8192, 8192, 132), Config::PingPong);
    }

    #[test]
    fn the_table_names_each_problem_once() {
        for (i, (m, n, k, _)) in SM_90A.iter().enumerate() {
            assert_eq!(tokens(*m), *m);
            assert!(SM_90A[..i].iter().all(|(om, on, ok, _)| (om, on, ok) != (m, n, k)), "{m}x{n}x{k}");
        }
    }
}
