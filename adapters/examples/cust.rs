//! RMSNorm on buffers of cust's, on its stream.
//!
//! `CUDA_LIBRARY_PATH=... cargo run --release -p tilewright-adapters --features cust --example cust`

use cust::memory::{CopyDestination, DeviceBuffer};
use cust::stream::{Stream, StreamFlags};
use std::sync::Arc;
use tilewright::ops::rmsnorm::rmsnorm;
use tilewright_adapters::cust::scope;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let context = match cust::quick_init() {
        Ok(context) => context,
        Err(e) => {
            println!("no GPU: {e}");
            return Ok(());
        }
    };
    let stream = Arc::new(Stream::new(StreamFlags::DEFAULT, None)?);
    let (tokens, hidden) = (64, 1024);
    let x = DeviceBuffer::from_slice(&vec![2.0f32; tokens * hidden])?;
    let w = DeviceBuffer::from_slice(&vec![0.5f32; hidden])?;
    let mut y = DeviceBuffer::from_slice(&vec![0.0f32; tokens * hidden])?;
    scope(&context, &stream, |s| {
        let (x, w) = (s.view(&x, [tokens, hidden])?, s.view(&w, [hidden])?);
        rmsnorm(s.stream(), x, w, s.view_mut(&mut y, [tokens, hidden])?, 0.0)
    })?;
    let mut out = vec![0.0; tokens * hidden];
    y.copy_to(&mut out)?;
    println!("y[0] = {} (0.5 is right)", out[0]);
    Ok(())
}
