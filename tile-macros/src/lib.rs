//! The `#[kernel]` attribute of tilewright. Use it through `tilewright::prelude`, where it is documented.

mod attribute;
mod emit;
mod rewrite;

use proc_macro::TokenStream;

/// Makes a kernel of a safe function: the PTX entry, the CPU entry and the type that launches it.
///
/// The function's first parameter is the block's token, `Cta<THREADS>` or `Cta<THREADS, CLUSTER>`. Parameters marked
/// `#[shared]` (pipelines, staging) live in shared memory and are made by the entry. All others are launch arguments, in
/// order: views and scalars.
///
/// Beside the function `name` the attribute defines a type `name` that implements `Kernel`; for a generic function it
/// has the same parameters, and implements `Kernel` for the listed instances alone.
///
/// | option | meaning | default |
/// |---|---|---|
/// | `arch = "sm_90a"` | the image that the entry is in: `"sm_80"` or `"sm_90a"` | `"sm_80"` |
/// | `grid = persistent` | as many blocks as run at once; `per_tile`: a block for each tile of the first output; `one_tile`: the same, and never fewer, for kernels that take a `single` tile | `per_tile` |
/// | `min_blocks = 2` | blocks that an SM must be able to hold: bounds the registers; may be computed from generic parameters | 1 |
/// | `faults(NAME = "message", ...)` | what the kernel can find wrong in its data: see `tilewright::fault` | - |
/// | `instances(name = <f32, 256>, ...)` | what a generic kernel is compiled for | - |
/// | `instances([<f32>, <f16>] x [<1, 256>, <4, 64>])` | every choice of one from each list, named after its arguments | - |
#[proc_macro_attribute]
pub fn kernel(attr: TokenStream, item: TokenStream) -> TokenStream {
    let function = syn::parse_macro_input!(item as syn::ItemFn);
    let options = syn::parse_macro_input!(attr as attribute::Options);
    emit::kernel(options, function).unwrap_or_else(syn::Error::into_compile_error).into()
}
