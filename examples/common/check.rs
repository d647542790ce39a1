//! The f64 reference of a product, and the comparison with it.

use std::fmt;

use tilewright::element::DType;

/// A product in f64, with the product of the absolute values, which bounds rounding errors.
pub struct Reference {
    exact: Vec<f64>,
    absolute: Vec<f64>,
}

/// How far a result is off, and how much of it too far.
pub struct Worst {
    pub error: f64,
    pub allowed: f64,
    pub outside: usize,
    pub of: usize,
}

impl fmt::Display for Worst {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Worst { error, allowed, outside, of } = self;
        write!(f, "worst {error:.2e} where {allowed:.2e} is allowed; {outside} of {of} elements outside")
    }
}

/// Half a unit in the last place of 1.0 in an element type.
pub fn relative_rounding(dtype: DType) -> f64 {
    match dtype {
        DType::BF16 => 2f64.powi(-8),
        DType::F16 => 2f64.powi(-11),
        _ => 2f64.powi(-24),
    }
}

impl Reference {
    /// A B^T of m x k and n x k.
    pub fn product(a: &[f64], b: &[f64], m: usize, n: usize, k: usize) -> Self {
        let abs = |x: &[f64]| x.iter().map(|v| v.abs()).collect::<Vec<_>>();
        Reference { exact: multiply(a, b, m, n, k), absolute: multiply(&abs(a), &abs(b), m, n, k) }
    }

    /// Compares every element. Allowed are one rounding of the result, `rounding` relative, and that of f32 sums of `k`
    /// terms, which grows with the square root of k for terms of random sign.
    pub fn check(&self, got: &[f32], rounding: f64, k: usize) -> Worst {
        let sums = 2f64.powi(-23) * (1.0 + (k as f64).sqrt());
        let mut worst = Worst { error: 0.0, allowed: 0.0, outside: 0, of: self.exact.len() };
        for ((&want, &absolute), &got) in self.exact.iter().zip(&self.absolute).zip(got) {
            let (error, allowed) = ((f64::from(got) - want).abs(), rounding * want.abs() + sums * absolute);
            // an element that was not written is NaN, and NaN is outside
            worst.outside += usize::from(!(error <= allowed));
            if !(error <= worst.error) {
                (worst.error, worst.allowed) = (error, allowed);
            }
        }
        worst.outside += self.exact.len().saturating_sub(got.len());
        worst
    }
}

fn multiply(a: &[f64], b: &[f64], m: usize, n: usize, k: usize) -> Vec<f64> {
    let mut c = vec![0.0; m * n];
    if m * n * k == 0 {
        return c;
    }
    let (ni, ki) = (n as isize, k as isize);
    assert!(a.len() >= m * k && b.len() >= n * k);
    // SAFETY: the slices hold the matrices that the strides describe.
    unsafe {
        let (a, b) = (a.as_ptr(), b.as_ptr());
        let threads = gemm::Parallelism::Rayon(0);
        gemm::gemm(m, n, k, c.as_mut_ptr(), 1, ni, false, a, 1, ki, b, ki, 1, 0.0, 1.0, false, false, false, threads);
    }
    c
}
