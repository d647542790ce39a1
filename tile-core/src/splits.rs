//! How a block's warps share a product, one table for both backends: a shape that the device has not, the CPU has not.

/// Calls `$m!(M, N, THREADS, warps from left to right, m16 tiles of a warp, n8 tiles, pairs of n8 tiles, fours)` for each
/// shape.
macro_rules! splits {
    ($m:ident) => {
        $m!(128, 256, 256, 4, [0 1 2 3], [0 1 2 3 4 5 6 7], [0 1 2 3], [0 1]);
        $m!(128, 128, 128, 2, [0 1 2 3], [0 1 2 3 4 5 6 7], [0 1 2 3], [0 1]);
        $m!(128, 128, 256, 4, [0 1 2 3], [0 1 2 3], [0 1], [0]);
        $m!(64, 64, 128, 2, [0 1], [0 1 2 3], [0 1], [0]);
    };
}
pub(crate) use splits;
