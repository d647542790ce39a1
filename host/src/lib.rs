//! The host side of tilewright: devices, streams, tensors and typed launches.
//!
//! One program runs on a GPU if there is one, and on the CPU otherwise. There is nothing to install for either but, for
//! the GPU, its driver: the library is looked for when a device is first asked for.
//!
//! ```
//! use tilewright_host::{Device, Tensor};
//!
//! let stream = Device::best().stream()?;
//! let mut x = Tensor::<f32, 2>::full(&stream, [4, 6], 1.0)?;
//! let (mut left, right) = x.view_mut().split_at(1, 2)?; // two views that do not overlap
//! left.fill(&stream, 2.0)?;
//! assert_eq!(right.view().to_vec(&stream)?, [1.0; 16]);
//! assert_eq!(x.view().rows(0..1)?.to_vec(&stream)?, [2., 2., 1., 1., 1., 1.]);
//! # Ok::<(), tilewright_host::Error>(())
//! ```
//!
//! A kernel takes tensors cut into tiles; see [`Launch`]. What is checked when: element type, rank, tile shape and who
//! may write are types, so that a wrong launch does not compile. Extents, strides, alignment and device are checked when
//! the tiles are made or at the launch, and give an [`Error`] that names argument, expected and found.
//!
//! ```compile_fail,E0502
//! # use tilewright_host::{Device, Tensor};
//! # let stream = Device::cpu().stream()?;
//! let mut x = Tensor::<f32, 1>::zeros(&stream, [8])?;
//! let (input, output) = (x.tiles::<1, 4>()?, x.tiles_mut::<1, 4>()?); // one buffer, read and written at once
//! drop((input, output));
//! # Ok::<(), tilewright_host::Error>(())
//! ```
//!
//! # Asynchrony
//! On a GPU, launches, fills and copies between tensors are enqueued and return at once. Reading back waits for what
//! wrote the tensor. Work on one stream runs in order; across streams, tensors order what depends on each other. Dropping
//! a tensor, a stream or a graph at any time, or forgetting it, never frees memory that a kernel still uses.
//! A failure on the GPU is reported by the next call that waits.
//!
//! Copies to and from the host wait, unless they are given a [`Pinned`] buffer to keep meanwhile: see [`Transfer`].
//!
//! # Memory and streams of others
//! An engine that owns its memory lends it to kernels for the duration of a call ([`foreign`]), on a stream of its own
//! ([`Stream::from_owner`], [`Stream::from_raw`]); or makes views that nothing tracks ([`TensorView::from_raw`]).
#![warn(missing_docs, unsafe_op_in_unsafe_fn, clippy::undocumented_unsafe_blocks)]

mod copy;
mod device;
mod driver;
mod error;
mod event;
pub mod foreign;
mod graph;
mod launch;
mod peer;
mod pinned;
mod recording;
mod shape;
mod storage;
mod stream;
mod tensor;
mod tiles;
mod transfer;
mod view;

pub use device::Device;
pub use error::{DriverVersion, Error, Named, Result};
pub use event::Event;
pub use graph::{Graph, Scalar};
pub use launch::Launch;
pub use pinned::Pinned;
pub use shape::{Rank, Tileable};
pub use stream::Stream;
pub use tensor::Tensor;
pub use transfer::Transfer;
pub use view::{TensorView, TensorViewMut};
