//! The tiles that rows are cut into, of all kernels that work row by row: one list, which kernels, front doors and tests
//! go through.

/// Calls `$then!` with the tiles for elements of 16 bits, and those for elements of 32:
/// `$then! { arguments; halves [<M, N, THREADS, BLOCKS>, ..] singles [..] }`. A tile has `M` rows of at most `N` columns, and
/// `THREADS` threads work on it, in blocks of which an SM holds `BLOCKS`. By width.
///
/// Found by measuring (see docs/kernels/rmsnorm.md): small blocks, which wait for their barriers alone, and as much in
/// flight as the registers hold.
#[doc(hidden)]
#[macro_export]
macro_rules! __row_tiles {
    ($then:ident! { $($arguments:tt)* }) => {
        $then! {
            $($arguments)*;
            halves [
                <8, 128, 128, 16>, <4, 256, 128, 16>, <4, 512, 128, 12>, <2, 1024, 128, 12>, <1, 2048, 128, 12>,
                <1, 4096, 256, 5>, <1, 8192, 256, 4>, <1, 16384, 512, 2>, <1, 32768, 1024, 1>
            ]
            singles [
                <8, 128, 128, 16>, <4, 256, 128, 16>, <2, 512, 128, 12>, <1, 1024, 128, 12>, <1, 2048, 128, 8>,
                <1, 4096, 256, 4>, <1, 8192, 512, 2>, <1, 16384, 1024, 1>
            ]
        }
    };
}

/// As [`__row_tiles`](crate::__row_tiles), for kernels with more to hold for each row: fewer tiles, and fewer blocks an SM.
#[doc(hidden)]
#[macro_export]
macro_rules! __roomy_row_tiles {
    ($then:ident! { $($arguments:tt)* }) => {
        $then! {
            $($arguments)*;
            halves [
                <4, 512, 128, 10>, <1, 2048, 128, 10>, <1, 4096, 256, 4>, <1, 8192, 256, 4>, <1, 16384, 512, 2>
            ]
            singles [
                <2, 512, 128, 10>, <1, 2048, 128, 8>, <1, 4096, 256, 4>, <1, 8192, 512, 2>, <1, 16384, 1024, 1>
            ]
        }
    };
}

/// Whether a thread of a block that shares its SM with `blocks` of `threads` threads has registers for so many elements of
/// so many bytes each, beside what it computes with.
pub(crate) const fn registers_for(threads: usize, blocks: usize, bytes: usize) -> bool {
    bytes / 4 + 24 <= 65_536 / (threads * blocks)
}
