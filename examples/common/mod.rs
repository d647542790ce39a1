//! What the examples share.
#![allow(dead_code, reason = "each example uses a part")]

pub mod check;
pub mod npy;
pub mod smollm2;

use std::error::Error;
use std::fmt::Debug;
use std::process::ExitCode;

use tilewright::Device;
use tilewright::element::Element;

/// What an example ends with.
pub type Outcome = Result<(), Box<dyn Error>>;

/// Exit code 0, or 1 and the message.
pub fn exit(outcome: Outcome) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("error: {e}");
            ExitCode::FAILURE
        }
    }
}

/// That two lists are equal.
pub fn same<T: PartialEq + Debug>(what: &str, found: &[T], expected: &[T]) -> Outcome {
    if found.len() != expected.len() {
        return Err(format!("{what}: expected {} elements, found {}", expected.len(), found.len()).into());
    }
    match found.iter().zip(expected).position(|(f, e)| f != e) {
        None => Ok(()),
        Some(i) => Err(format!("{what}, element {i}: expected {:?}, found {:?}", expected[i], found[i]).into()),
    }
}

/// The device that `--device` on the command line names; the best without it.
pub fn device_argument() -> Result<Device, String> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        [] => device(None),
        ["--device", name] => device(Some(name)),
        _ => Err("usage: [--device D], where D is cpu or a GPU's number; the best by default".into()),
    }
}

/// Elements as f64.
pub fn wide<T: Element<Value = f32>>(x: &[T]) -> Vec<f64> {
    x.iter().map(|v| f64::from(v.to_value())).collect()
}

/// Elements as f32.
pub fn widened<T: Element<Value = f32>>(x: &[T]) -> Vec<f32> {
    x.iter().map(|v| v.to_value()).collect()
}

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
