//! Multi-head latent attention, decoding: `softmax(scale q K^T) V` where V is the first 512 columns of K.

pub mod seesaw;
