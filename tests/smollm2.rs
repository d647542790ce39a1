//! RMSNorm and product of a real model's data against numpy in f64, on every device there is.

#[path = "../examples/common/mod.rs"]
mod common;

use common::smollm2::Layer;
use tilewright::ops::{gemm::Factor, rmsnorm::Normed};
use tilewright::prelude::*;

fn agrees<T: Factor + Normed<f32>>(layer: &Layer, device: Device) {
    match layer.run::<T>(device) {
        Ok(result) => {
            println!("{device}, {}: {}", T::DTYPE, result.worst);
            assert_eq!((result.worst.outside, result.worst.of), (0, 64 * 1536), "{device}, {}", T::DTYPE);
        }
        // a GPU, and kernels built without a compiler for it
        Err(e @ Error::NoImageFor { .. }) if !device.is_cpu() => println!("{device}: {e}"),
        Err(e) => panic!("{device}: {e}"),
    }
}

#[test]
fn smollm2_agrees_with_numpy() {
    let layer = Layer::read().unwrap();
    for device in Device::all() {
        agrees::<f16>(&layer, device);
        agrees::<bf16>(&layer, device);
        agrees::<f32>(&layer, device);
    }
}

/// The comparison is worth something: an element that is off by a little more than allowed, or not written, is found.
#[test]
fn wrong_results_are_found() {
    use common::check::Worst;
    for (got, outside) in [(1.0, 0), (1.01, 0), (1.02, 1), (f64::NAN, 1), (f64::INFINITY, 1)] {
        let mut worst = Worst::none(1);
        worst.see(got, 1.0, 0.011, DType::F16);
        assert_eq!(worst.outside, outside, "{got}");
    }
    for (got, want, outside) in
        [(f64::NAN, f64::NAN, 0), (1.0, f64::NAN, 1), (f64::INFINITY, 7e4, 0), (f64::NEG_INFINITY, 7e4, 1)]
    {
        let mut worst = Worst::none(1);
        worst.see(got, want, 1.0, DType::F16);
        assert_eq!(worst.outside, outside, "{got} for {want}");
    }
}
