//! Embeds the kernels' PTX: as shipped while it is what the sources give, else compiled anew.

fn main() -> Result<(), tilewright_build::Error> {
    tilewright_build::Kernels::of_tilewright(env!("CARGO_MANIFEST_DIR")).build()
}
