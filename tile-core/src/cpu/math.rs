//! Elementary functions on `f32`.

/// `e^x`.
pub fn exp(x: f32) -> f32 {
    x.exp()
}
/// `2^x`.
pub fn exp2(x: f32) -> f32 {
    x.exp2()
}
/// `log2(x)`.
pub fn log2(x: f32) -> f32 {
    x.log2()
}
/// `1 / sqrt(x)`.
pub fn rsqrt(x: f32) -> f32 {
    1.0 / x.sqrt()
}
/// `sqrt(x)`, correctly rounded.
pub fn sqrt(x: f32) -> f32 {
    x.sqrt()
}
/// `tanh(x)`.
pub fn tanh(x: f32) -> f32 {
    x.tanh()
}
/// `1 / x`.
pub fn reciprocal(x: f32) -> f32 {
    1.0 / x
}
/// `1 / (1 + e^-x)`.
pub fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + (-x).exp())
}

/// `a b + c`, rounded once where the processor has an instruction for it, else twice.
pub fn fma(a: f32, b: f32, c: f32) -> f32 {
    if cfg!(target_feature = "fma") { a.mul_add(b, c) } else { a * b + c }
}
/// `1 / y`.
pub fn inverse(y: f32) -> f32 {
    1.0 / y
}
/// `x / y`.
pub fn quotient(x: f32, y: f32, _inverse: f32) -> f32 {
    x / y
}

/// The greater; NaN if one is.
pub(crate) fn max_nan(x: f32, y: f32) -> f32 {
    if x.is_nan() || y.is_nan() { f32::NAN } else { x.max(y) }
}
/// The less; NaN if one is.
pub(crate) fn min_nan(x: f32, y: f32) -> f32 {
    if x.is_nan() || y.is_nan() { f32::NAN } else { x.min(y) }
}
