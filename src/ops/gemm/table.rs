//! What was measured fastest. Written by `gpu --tune` (see `benches/gpu/tune.rs`): rows of A, rows of B, depth, and the
//! configuration. Up to 128, rows of A stand for all from half of it up (16: from 1).

use super::config::{Config, Decode};

/// On an NVIDIA H200.
pub const SM_90A: &[(usize, usize, usize, Config)] = &[
    (16, 4096, 4096, Config::Decode(Decode::new(64, 16, 2, false))),
    (32, 4096, 4096, Config::Decode(Decode::new(64, 32, 2, false))),
    (64, 4096, 4096, Config::Decode(Decode::new(64, 64, 2, false))),
    (128, 4096, 4096, Config::Decode(Decode::new(128, 128, 3, true))),
    (16, 7168, 2048, Config::Decode(Decode::new(64, 16, 1, false))),
    (32, 7168, 2048, Config::Decode(Decode::new(64, 32, 1, false))),
    (64, 7168, 2048, Config::Decode(Decode::new(64, 64, 1, false))),
    (128, 7168, 2048, Config::Decode(Decode::new(128, 128, 2, true))),
    (16, 2112, 7168, Config::Decode(Decode::new(64, 16, 2, true))),
    (32, 2112, 7168, Config::Decode(Decode::new(64, 32, 2, false))),
    (64, 2112, 7168, Config::Decode(Decode::new(64, 64, 4, false))),
    (128, 2112, 7168, Config::Decode(Decode::new(128, 128, 6, true))),
    (16, 32768, 512, Config::Decode(Decode::new(128, 16, 1, true))),
    (32, 32768, 512, Config::Decode(Decode::new(128, 32, 1, true))),
    (64, 32768, 512, Config::Decode(Decode::new(128, 64, 1, true))),
    (128, 32768, 512, Config::Decode(Decode::new(128, 128, 1, true))),
    (16, 24576, 1536, Config::Decode(Decode::new(192, 16, 1, true))),
    (32, 24576, 1536, Config::Decode(Decode::new(192, 32, 1, true))),
    (64, 24576, 1536, Config::Decode(Decode::new(192, 64, 1, true))),
    (128, 24576, 1536, Config::Decode(Decode::new(192, 128, 1, true))),
    (16, 18432, 7168, Config::Decode(Decode::new(256, 16, 1, true))),
    (32, 18432, 7168, Config::Decode(Decode::new(256, 32, 1, true))),
    (64, 18432, 7168, Config::Decode(Decode::new(256, 64, 1, true))),
    (128, 18432, 7168, Config::Decode(Decode::new(192, 128, 1, true))),
    (16, 7168, 18432, Config::Decode(Decode::new(64, 16, 1, false))),
    (32, 7168, 18432, Config::Decode(Decode::new(64, 32, 1, false))),
    (64, 7168, 18432, Config::Decode(Decode::new(64, 64, 2, false))),
    (128, 7168, 18432, Config::Decode(Decode::new(128, 128, 2, true))),
    (256, 4096, 4096, Config::Decode(Decode::new(128, 128, 2, true))),
    (1024, 1024, 1024, Config::Decode(Decode::new(128, 128, 2, true))),
    (2048, 2048, 2048, Config::PingPong),
    (4096, 4096, 4096, Config::PingPong),
    (4096, 2112, 7168, Config::Decode(Decode::new(192, 128, 1, true))),
    (4096, 7168, 2048, Config::PingPong),
];
