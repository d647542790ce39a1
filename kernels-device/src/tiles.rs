//! The tiles that rows are cut into, of all kernels that work row by row: one list, which kernels, front doors and tests
//! go through.

/// Calls `$then!` with the tiles for elements of 16 bits, and those for elements of 32:
/// `$then! { arguments; halves [<M, N, THREADS, BLOCKS>, ..] singles [..] }`. A tile has `M` rows of at most `N` columns, and
/// `THREADS` threads work on it, in blocks of which an SM holds `BLOCKS`. By width.
///
/// Found by measuring (see docs/kernels/layernorm.md): small blocks, which wait for their barriers alone, of threads with
/// 32 to 64 bytes of their row each. What a thread does once (shuffles, the factors of its row) is shared by as many elements
/// as registers allow. Widths that are common have a tile of their own: what is done for columns that are not there counts.
#[doc(hidden)]
#[macro_export]
macro_rules! __row_tiles {
    ($then:ident! { $($arguments:tt)* }) => {
        $then! {
            $($arguments)*;
            halves [
                <32, 64, 128, 12>, <16, 128, 128, 12>, <16, 192, 128, 9>, <8, 256, 128, 12>, <8, 384, 128, 9>,
                <8, 512, 128, 8>, <4, 768, 128, 9>, <4, 1024, 128, 8>, <2, 1536, 128, 9>, <2, 2048, 128, 8>,
                <1, 3072, 128, 10>, <1, 4096, 128, 8>, <1, 6144, 256, 5>, <1, 7168, 224, 4>, <1, 8192, 256, 4>,
                <1, 16384, 512, 2>
            ]
            singles [
                <16, 128, 128, 7>, <8, 256, 128, 7>, <4, 512, 128, 7>, <2, 1024, 128, 7>, <1, 2048, 128, 8>,
                <1, 4096, 256, 4>, <1, 8192, 512, 2>, <1, 16384, 1024, 1>
            ]
        }
    };
}

/// As [`__row_tiles`](crate::__row_tiles), for kernels that do so little for a column that powers of two are enough;
/// and fewer for elements of 16 bits with others of 32.
#[doc(hidden)]
#[macro_export]
macro_rules! __light_row_tiles {
    ($then:ident! { $($arguments:tt)* }) => {
        $then! {
            $($arguments)*;
            halves [
                <32, 128, 128, 8>, <16, 256, 128, 8>, <8, 512, 128, 8>, <4, 1024, 128, 8>, <2, 2048, 128, 8>,
                <1, 4096, 128, 8>, <1, 8192, 256, 4>, <1, 16384, 512, 2>, <1, 32768, 1024, 1>
            ]
            singles [
                <8, 128, 128, 16>, <4, 256, 128, 16>, <2, 512, 128, 12>, <1, 1024, 128, 12>, <1, 2048, 128, 8>,
                <1, 4096, 256, 4>, <1, 8192, 512, 2>, <1, 16384, 1024, 1>
            ]
            mixed [
                <16, 256, 128, 8>, <4, 1024, 128, 8>, <1, 4096, 128, 8>, <1, 16384, 512, 2>, <1, 32768, 1024, 1>
            ]
        }
    };
}

/// Whether a thread of a block that shares its SM with `blocks` of `threads` threads has registers for so many elements of
/// so many bytes each, beside what it computes with.
pub(crate) const fn registers_for(threads: usize, blocks: usize, bytes: usize) -> bool {
    bytes / 4 + 24 <= 65_536 / (threads * blocks)
}
