//! The f64 reference of a product, and the comparison with references.

// `!(error <= allowed)` is true of NaN, which is what is meant
#![allow(clippy::neg_cmp_op_on_partial_ord)]

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

impl Worst {
    /// Of `of` elements, none of them seen.
    pub fn none(of: usize) -> Self {
        Worst { error: 0.0, allowed: 0.0, outside: 0, of }
    }

    /// Compares one element of a result that was rounded to `dtype`. NaN and infinities must be where they are in the
    /// reference, or where it is beyond the type's range.
    pub fn see(&mut self, got: f64, want: f64, allowed: f64, dtype: DType) {
        let beyond = want.abs() + allowed >= overflow(dtype) && got.is_infinite() && got.signum() == want.signum();
        if got == want || got.is_nan() && want.is_nan() || beyond {
            return;
        }
        let (error, allowed) = ((got - want).abs(), allowed + smallest(dtype) / 2.0);
        // an element that was not written is NaN, and NaN is outside
        self.outside += usize::from(!(error <= allowed));
        if !(error <= self.error) {
            (self.error, self.allowed) = (error, allowed);
        }
    }

    /// Prints it; any element outside is an error.
    pub fn report(&self, what: &str) -> super::Outcome {
        println!("{what:<7} {self}");
        if self.outside > 0 { Err(format!("{what}: {} elements are wrong", self.outside).into()) } else { Ok(()) }
    }
}

/// f32 results against f64 ones, with an error of `allowed` relative to each.
pub fn elementwise(got: &[f32], want: impl IntoIterator<Item = f64>, allowed: f64) -> Worst {
    let mut worst = Worst::none(got.len());
    let mut seen = 0;
    for (&got, want) in got.iter().zip(want) {
        worst.see(f64::from(got), want, allowed * want.abs(), DType::F32);
        seen += 1;
    }
    worst.outside += got.len() - seen;
    worst
}

/// Half a unit in the last place of 1.0 in an element type.
pub fn relative_rounding(dtype: DType) -> f64 {
    match dtype {
        DType::BF16 => 2f64.powi(-8),
        DType::F16 => 2f64.powi(-11),
        _ => 2f64.powi(-24),
    }
}

/// The smallest positive number of an element type.
fn smallest(dtype: DType) -> f64 {
    match dtype {
        DType::BF16 => 2f64.powi(-133),
        DType::F16 => 2f64.powi(-24),
        _ => 2f64.powi(-149),
    }
}

/// From where on numbers are rounded to infinity.
fn overflow(dtype: DType) -> f64 {
    match dtype {
        DType::F16 => 65520.0,
        _ => 2f64.powi(128) * (1.0 - relative_rounding(dtype) / 2.0),
    }
}

impl Reference {
    /// A B^T of m x k and n x k.
    pub fn product(a: &[f64], b: &[f64], m: usize, n: usize, k: usize) -> Self {
        let abs = |x: &[f64]| x.iter().map(|v| v.abs()).collect::<Vec<_>>();
        Reference { exact: multiply(a, b, m, n, k), absolute: multiply(&abs(a), &abs(b), m, n, k) }
    }

    /// `f` of every element, where the slope of `f` is at most `slope`.
    pub fn map(mut self, f: impl Fn(f64) -> f64, slope: f64) -> Self {
        self.exact.iter_mut().for_each(|x| *x = f(*x));
        self.absolute.iter_mut().for_each(|x| *x *= slope);
        self
    }

    /// `f` of every element and its place: the new one, and the size that rounding errors are relative to, besides that of
    /// the product.
    #[allow(dead_code)]
    pub fn map_at(&self, f: impl Fn(usize, f64) -> (f64, f64)) -> Self {
        let (exact, sizes): (Vec<_>, Vec<_>) = self.exact.iter().enumerate().map(|(i, x)| f(i, *x)).unzip();
        let absolute = self.absolute.iter().zip(sizes).map(|(a, b)| 1.2 * a + b).collect();
        Reference { exact, absolute }
    }

    /// Compares every element. Allowed are one rounding of the result to `dtype`, and those of f32 sums of `k` terms,
    /// which grow with the square root of k for terms of random sign.
    pub fn check(&self, got: &[f32], dtype: DType, k: usize) -> Worst {
        let (rounding, sums) = (relative_rounding(dtype), 2f64.powi(-23) * (1.0 + (k as f64).sqrt()));
        let mut worst = Worst::none(self.exact.len());
        for ((&want, &absolute), &got) in self.exact.iter().zip(&self.absolute).zip(got) {
            worst.see(f64::from(got), want, rounding * want.abs() + sums * absolute, dtype);
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
