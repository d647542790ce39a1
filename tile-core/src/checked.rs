//! A debug mode of the CPU backend, the feature `checked`: asking a view for a tile or an element that it does not have
//! ends the launch with an error that names the kernel, the block and what was asked for. Without it, as on the GPU
//! always, such a tile is empty and reads as zeros, which hides the mistake.

/// What a view has, and what it was asked for: tile (or element) `i` of `down`, and `j` of `across`.
#[cfg(feature = "checked")]
#[track_caller]
pub(crate) fn inside(what: &str, (i, down): (u32, u32), (j, across): (u32, u32)) {
    if i >= down || j >= across {
        std::panic!("out of range: {what} ({i}, {j}) of {down} x {across}");
    }
}

/// Nothing.
#[cfg(not(feature = "checked"))]
#[inline(always)]
pub(crate) fn inside(_what: &str, _down: (u32, u32), _across: (u32, u32)) {}
