//! Embeds the PTX of the examples' kernels: as shipped while it is what the sources give, else compiled anew.

fn main() -> Result<(), tilewright_build::Error> {
    tilewright_build::Kernels::new("examples/kernels/mod.rs")
        .with_tilewright_kernels()
        .arch("sm_80")
        .ship("examples/ptx")
        .build()
}
