//! Elementary functions on `f32`.

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
