//! RMSNorm and a product on memory that cudarc owns, on its stream.
//!
//! `cargo run --release -p tilewright-adapters --features cudarc --example cudarc`

use cudarc::driver::CudaContext;
use tilewright::Device;
use tilewright::ops::{gemm::gemm, rmsnorm::rmsnorm};
use tilewright_adapters::cudarc::scope;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    if Device::best().is_cpu() {
        println!("no GPU: nothing to do"); // cudarc panics where there is no driver
        return Ok(());
    }
    let context = CudaContext::new(0)?;
    let stream = context.new_stream()?;
    let (tokens, hidden, out) = (64, 1024, 256);
    let x = stream.clone_htod(&vec![0.5f32; tokens * hidden])?;
    let weight = stream.clone_htod(&vec![1.0f32; hidden])?;
    let projection = stream.clone_htod(&vec![0.25f32; out * hidden])?;
    let mut normed = stream.alloc_zeros::<f32>(tokens * hidden)?;
    let mut y = stream.alloc_zeros::<f32>(tokens * out)?;
    scope(&stream, |s| {
        let mut n = s.view_mut(&mut normed, [tokens, hidden])?;
        rmsnorm(s.stream(), s.view(&x, [tokens, hidden])?, s.view(&weight, [hidden])?, n.reborrow(), 1e-6)?;
        gemm(s.stream(), n.view(), s.view(&projection, [out, hidden])?, s.view_mut(&mut y, [tokens, out])?)
    })?;
    println!("y[0] = {} (256 is right)", stream.clone_dtoh(&y)?[0]);
    Ok(())
}
