//! Matrix products, `C = f(A B^T)`.

pub mod hopper;
pub mod portable;
pub mod ping_pong;
