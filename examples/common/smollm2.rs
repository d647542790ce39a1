//! The first layer's norm and up projection of SmolLM2-135M, and numpy's result; see `data/smollm2/README.md`.

use std::path::Path;

use tilewright::element::DType;
use tilewright::ops::{gemm, rmsnorm};
use tilewright::prelude::*;

use super::check::{Worst, relative_rounding};
use super::npy::{self, Matrix};

/// What [`Layer::run`] allows.
pub const TOLERANCE: &str =
    "u (|z| + 6 sqrt(sum (y w)^2)) + 2^-23 (1 + sqrt k) sum |y w|, where u is half a unit in the last place of 1";

/// What the files hold.
pub struct Layer {
    /// Embeddings, a row a token.
    pub x: Matrix,
    /// Weight of the norm.
    pub norm: Matrix,
    /// Projection, outputs x inputs.
    pub up: Matrix,
    /// By numpy, in f64.
    pub expected: Matrix,
}

/// What came out on a device.
pub struct Outcome {
    pub worst: Worst,
    pub norm_micros: f64,
    pub product_micros: f64,
}

const EPS: f32 = 1e-5;

impl Layer {
    /// Reads the files.
    pub fn read() -> Result<Layer, String> {
        let read =
            |name: &str| npy::read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/data/smollm2").join(name));
        Ok(Layer {
            x: read("embeddings_64x576_f16.npy")?,
            norm: read("ffn_norm_576_f32.npy")?,
            up: read("ffn_up_1536x576_f16.npy")?,
            expected: read("ffn_up_expected_64x1536_f32.npy")?,
        })
    }

    /// Tokens, outputs and inputs.
    pub fn extents(&self) -> [usize; 3] {
        [self.x.rows, self.up.rows, self.x.cols]
    }

    /// Norm and product in `T`, with the norm's weight in f32; every element compared with numpy's.
    pub fn run<T: gemm::Factor + rmsnorm::Normed<f32>>(&self, device: Device) -> Result<Outcome, Error> {
        let [m, n, k] = self.extents();
        let stream = device.stream()?;
        let x = Tensor::<T, 2>::from_slice(&stream, [m, k], &self.x.to::<T>())?;
        let w = Tensor::<f32, 1>::from_slice(&stream, [k], &self.norm.to_f32())?;
        let up = Tensor::<T, 2>::from_slice(&stream, [n, k], &self.up.to::<T>())?;
        let nan = T::from_value(f32::NAN); // what is not written shows
        let mut y = Tensor::<T, 2>::full(&stream, [m, k], nan)?;
        let mut z = Tensor::<T, 2>::full(&stream, [m, n], nan)?;

        let start = Event::record(&stream)?;
        rmsnorm::rmsnorm(&stream, x.view(), w.view(), y.view_mut(), EPS)?;
        let between = Event::record(&stream)?;
        gemm::gemm(&stream, y.view(), up.view(), z.view_mut())?;
        let end = Event::record(&stream)?;
        Ok(Outcome {
            worst: self.compare(&super::wide(&z.to_vec(&stream)?), T::DTYPE),
            norm_micros: between.micros_since(&start)?,
            product_micros: end.micros_since(&between)?,
        })
    }

    /// One rounding of the result; one, or with inputs that `T` rounds too three, of each term, which are independent
    /// of each other; and those of f32 sums.
    fn compare(&self, z: &[f64], dtype: DType) -> Worst {
        let [_, n, k] = self.extents();
        let (rounding, sums) = (relative_rounding(dtype), 2f64.powi(-23) * (1.0 + (k as f64).sqrt()));
        let mut worst = Worst::none(self.expected.data.len());
        for (i, x) in self.x.data.chunks(k).enumerate() {
            let mean = x.iter().map(|x| x * x).sum::<f64>() / k as f64;
            let factor = 1.0 / (mean + f64::from(EPS)).sqrt();
            let y: Vec<f64> = x.iter().zip(&self.norm.data).map(|(x, w)| x * factor * w).collect();
            for (j, up) in self.up.data.chunks(k).enumerate() {
                let (mut squares, mut absolute) = (0.0, 0.0);
                for term in y.iter().zip(up).map(|(y, u)| y * u) {
                    squares += term * term;
                    absolute += term.abs();
                }
                let want = self.expected.data[i * n + j];
                let allowed = rounding * (want.abs() + 6.0 * squares.sqrt()) + sums * absolute;
                worst.see(z.get(i * n + j).copied().unwrap_or(f64::NAN), want, allowed, dtype);
            }
        }
        worst
    }
}
