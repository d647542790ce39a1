//! Safe GPU kernels in ordinary Rust.
//!
//! A kernel is a function over tiles. rustc compiles it to PTX for the GPU and, from the same source, for the CPU; the
//! borrow checker decides who may write which tile, at the launch and inside the kernel. Nothing is needed at run time
//! but the GPU's driver, and without a GPU everything runs on the CPU.
//!
//! ```
//! use tilewright::prelude::*;
//!
//! tilewright::images!(none); // this example runs on the CPU alone; see `tilewright_build` for the GPU
//!
//! /// y = 2 x
//! #[kernel]
//! fn double(mut cta: Cta<128>, x: Tiles<f32, 1, 1024>, y: TilesMut<f32, 1, 1024>) {
//!     for ((i, j), out) in y {
//!         let tile = cta.load(x.tile(i, j)).map(|v| 2.0 * v);
//!         out.store(&mut cta, &tile);
//!     }
//! }
//!
//! fn main() -> Result<(), Error> {
//!     let stream = Device::cpu().stream()?;
//!     let x = Tensor::from_slice(&stream, [3], &[1.0, 2.0, 3.0])?;
//!     let mut y = Tensor::zeros(&stream, [3])?;
//!     double::launch(&stream, (x.tiles()?, y.tiles_mut()?))?;
//!     assert_eq!(y.to_vec(&stream)?, [2.0, 4.0, 6.0]);
//!     Ok(())
//! }
//! ```
#![warn(missing_docs)]

pub use tilewright_core::{element, fault, images, kernel, layout, schedule, view};
pub use tilewright_host::*;
/// The shipped kernels, to launch them by themselves or to use their device functions in kernels of one's own.
pub use tilewright_kernels as kernels;

pub mod ops;

#[doc(hidden)]
pub use tilewright_core::{__kernel, __private};

/// Everything that a kernel file and the program around it need.
pub mod prelude {
    pub use tilewright_core::prelude::*;
    pub use tilewright_host::{Device, Error, Event, Graph, Launch, Named, Stream, Tensor, TensorView, TensorViewMut};
}
