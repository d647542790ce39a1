//! Compiles the kernels for GPUs where a compiler for them is installed; else they run on the CPU alone.

fn main() -> Result<(), tilewright_build::Error> {
    tilewright_build::Kernels::new("src/kernels.rs").arch("sm_80").build()
}
