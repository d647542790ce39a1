//! What the examples share.
#![allow(dead_code, reason = "each example uses a part")]

pub mod check;
pub mod npy;

use tilewright::Device;

/// The device of a name: `cpu`, a GPU's number, or the best.
pub fn device(name: Option<&str>) -> Result<Device, String> {
    match name {
        None => Ok(Device::best()),
        Some("cpu") => Ok(Device::cpu()),
        Some(n) => {
            let ordinal = n.parse().map_err(|_| format!("--device: expected cpu or a number, found {n}"))?;
            Device::cuda(ordinal).map_err(|e| e.to_string())
        }
    }
}

/// A matrix of uniform values in [-1, 1), the same for the same seed.
pub fn random(rows: usize, cols: usize, seed: u64) -> npy::Matrix {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let data = (0..rows * cols).map(|_| {
        // xorshift* (Vigna, "An experimental exploration of Marsaglia's xorshift generators, scrambled")
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        (state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 40) as f64 / (1u64 << 23) as f64 - 1.0
    });
    npy::Matrix { rows, cols, data: data.collect() }
}
