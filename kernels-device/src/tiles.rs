//! The tiles that rows are cut into, of all kernels that work row by row: one list, which kernels, front doors and tests
//! go through.

/// Calls `$then!` with the tiles for elements of 16 bits, and those for elements of 32:
/// `$then! { arguments; halves [<M, N, THREADS, BLOCKS>, ..] singles [..] }`. A tile has `M` rows of at most `N` columns, and
/// `THREADS` threads work on it, in blocks of which an SM holds `BLOCKS`. By width.
///
/// Found by measuring (see docs/kernels/rmsnorm.md and layernorm.md): small blocks, which wait for their barriers alone, of
/// threads with 64 bytes of their row each, in four pieces. What a thread does once (shuffles, the factors of its row) is
/// shared by as many elements as registers allow, and a row that fills three quarters of its tile costs three quarters of it,
/// for the fourth piece is passed over.
#[doc(hidden)]
#[macro_export]
macro_rules! __row_tiles {
    ($then:ident! { $($arguments:tt)* }) => { $crate::__row_tiles! { $then! { $($arguments)* } and } };
    // with more for elements of 16 bits
    ($then:ident! { $($arguments:tt)* } and $($more:tt)*) => {
        $then! {
            $($arguments)*;
            halves [
                <32, 128, 128, 8>, <16, 256, 128, 8>, <8, 512, 128, 8>, <4, 1024, 128, 8>, <2, 2048, 128, 8>,
                <1, 4096, 128, 8>, <1, 8192, 256, 4>, <1, 16384, 512, 2> $($more)*
            ]
            singles [
                <16, 128, 128, 8>, <8, 256, 128, 8>, <4, 512, 128, 8>, <2, 1024, 128, 8>, <1, 2048, 128, 8>,
                <1, 4096, 256, 4>, <1, 8192, 512, 2>, <1, 16384, 1024, 1>
            ]
        }
    };
}

/// Whether a thread of a block that shares its SM with `blocks` of `threads` threads has registers for so many elements of
/// so many bytes each, beside what it computes with.
pub(crate) const fn registers_for(threads: usize, blocks: usize, bytes: usize) -> bool {
    bytes / 4 + 24 <= 65_536 / (threads * blocks)
}
