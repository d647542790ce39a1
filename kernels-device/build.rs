//! Embeds the kernels' PTX: as shipped while it is what the sources give, else compiled anew.

fn main() -> Result<(), tilewright_build::Error> {
    tilewright_build::Kernels::new("src/lib.rs").arch("sm_80").arch("sm_90a").ship("ptx").build()
}
