//! Front doors to the shipped kernels: each takes tensors, checks them and picks the kernel for the device and the
//! problem. Nothing is allocated and nothing is waited for.

/// The list for elements of 16 bits, of both that a macro of tiles gives: `list!(halves! { then! (arguments) })`.
macro_rules! halves {
    ($then:ident! ($($arguments:tt)*); halves $list:tt singles $others:tt) => { $then!($($arguments)*; $list) };
}
/// The list for elements of 32 bits.
macro_rules! singles {
    ($then:ident! ($($arguments:tt)*); halves $others:tt singles $list:tt) => { $then!($($arguments)*; $list) };
}
/// Launches the kernel with the narrowest tile that holds a row, of those in the list; else does `$else`.
macro_rules! narrowest {
    ($cols:expr, $kernel:ident<$t:ty>, $s:ident, $args:expr, $else:expr;
        [$(<$m:literal, $n:literal, $threads:literal, $blocks:literal>),*]) => {
        match $cols {
            $(cols if cols <= $n => $kernel::<$t, $m, $n, $threads, $blocks>::launch($s, $args),)*
            _ => $else,
        }
    };
}

pub mod gated;
pub mod gemm;
pub mod layernorm;
pub mod mla;
pub mod quantised;
pub mod rms_silu;
pub mod rmsnorm;
pub mod rope;
pub mod softmax;

use tilewright_core::element::Element;
use tilewright_host::{Error, Result, TensorView};

/// Refuses another shape than `wanted`.
fn same_shape<const R: usize>(arg: &'static str, wanted: [usize; R], found: [usize; R]) -> Result<()> {
    if wanted == found {
        return Ok(());
    }
    let show = |extents: [usize; R]| extents.map(|n| n.to_string()).join(" x ");
    Err(Error::Shape { arg, expected: show(wanted), found: show(found) })
}

/// A vector of one value for each column, as a matrix of one row; without columns if there is none.
fn row_of<'a, T: Element>(
    arg: &'static str,
    vector: Option<TensorView<'a, T, 1>>,
    cols: usize,
    stand_in: TensorView<'a, T, 2>,
) -> Result<TensorView<'a, T, 2>> {
    let Some(vector) = vector else { return stand_in.rows(0..1)?.cols(0..0) };
    same_shape(arg, [cols], vector.extents())?;
    vector.reshape([1, cols])
}
