//! Faults that a kernel finds in its data, such as an index that a table in memory should not hold.
//!
//! A kernel declares what can be wrong, reports it where it finds it, and goes on with something harmless in its place;
//! nothing traps, and the device lives on. The first fault of a kernel is kept, with the block that found it, and the
//! host returns it as an error from the next call that waits for the device: on the CPU backend, from the launch itself.

/// One of the faults that a kernel declares. In `#[kernel(faults(BAD_INDEX = "the list names a row that does not exist"))]`
/// it is the constant `BAD_INDEX`, in scope of the kernel's body.
///
/// ```
/// # extern crate tilewright_core as tilewright;
/// use tilewright_core::prelude::*;
/// tilewright::images!(none);
///
/// /// Row `k` of `y` is row `rows[k]` of `x`; where there is none, row 0 is taken, and the launch says so.
/// #[kernel(faults(BAD_ROW = "the list names a row that does not exist"))]
/// fn gather(mut cta: Cta<256>, x: Tiles<f32, 1, 1024>, rows: Tiles<u32, 1, 1>, count: u32, y: TilesMut<f32, 1, 1024>) {
///     for ((i, j), y) in y {
///         let row = rows.tile(i, 0).scalar(&mut cta);
///         cta.fault_if(row >= count, BAD_ROW);
///         let row = if row < count { row } else { 0 };
///         let x = cta.load(x.tile(row, j));
///         y.store(&mut cta, &x);
///     }
/// }
/// # fn main() {}
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault(u32);

impl Fault {
    /// Number `index` of those that a kernel declares.
    #[doc(hidden)]
    pub const fn declared(index: u32) -> Self {
        Fault(index)
    }
    /// What is kept of it: not zero.
    #[inline(always)]
    pub(crate) fn code(self) -> u32 {
        self.0 + 1
    }
}
