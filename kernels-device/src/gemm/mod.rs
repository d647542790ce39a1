//! Matrix products, `C = f(A B^T)`.

pub mod decode;
pub mod epilogue;
pub mod finish;
pub mod hopper;
pub mod ping_pong;
pub mod portable;
pub mod scaled;
