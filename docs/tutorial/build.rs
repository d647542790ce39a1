fn main() -> Result<(), tilewright_build::Error> {
    tilewright_build::Kernels::new("src/kernels.rs").arch("sm_80").build()
}
