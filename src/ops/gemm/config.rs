//! The configurations that products are launched in.

use std::fmt;

/// A kernel family and its tile: what [`choose`](super::choose) picks and [`gemm_with`](super::gemm_with) takes.
///
/// ```
/// use tilewright::ops::gemm::Config;
///
/// assert_eq!(Config::PingPong.to_string(), "ping_pong");
/// // every configuration there is, for a search
/// assert!(Config::all().any(|c| c.to_string() == "decode_r64_t16_s2"));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Config {
    /// Hopper: tiles of 256 x 128 by clusters of two blocks; a warpgroup stores while the other multiplies.
    PingPong,
    /// Hopper: tiles of 256 x 256 by clusters of two blocks.
    Cooperative,
    /// Hopper: few rows of A, many of B.
    Decode(Decode),
    /// Any GPU from compute capability 8.0 up, and the CPU: tiles of 128 x 128.
    Portable,
    /// The same, tiles of 64 x 64.
    PortableSmall,
    /// The same, tiles of 128 x 256, for 16-bit elements alone.
    PortableWide,
}

/// A product with exchanged operands: tiles of `tokens` rows of A and `rows` rows of B, the depth shared by the `split`
/// blocks of a cluster. Only what was built exists: see [`Decode::ALL`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Decode {
    pub(super) rows: u16,
    pub(super) tokens: u16,
    pub(super) split: u8,
    pub(super) persistent: bool,
}

impl Decode {
    pub(super) const fn new(rows: u16, tokens: u16, split: u8, persistent: bool) -> Self {
        Decode { rows, tokens, split, persistent }
    }
    /// Every one that was built.
    pub const ALL: &'static [Decode] = &[
        Decode::new(64, 16, 2, true),
        Decode::new(128, 16, 1, true),
        Decode::new(192, 16, 1, true),
        Decode::new(256, 16, 1, true),
        Decode::new(128, 32, 1, true),
        Decode::new(192, 32, 1, true),
        Decode::new(256, 32, 1, true),
        Decode::new(128, 64, 1, true),
        Decode::new(128, 64, 2, true),
        Decode::new(192, 64, 1, true),
        Decode::new(256, 64, 1, true),
        Decode::new(128, 128, 1, true),
        Decode::new(128, 128, 2, true),
        Decode::new(128, 128, 3, true),
        Decode::new(128, 128, 6, true),
        Decode::new(192, 128, 1, true),
        Decode::new(64, 16, 1, false),
        Decode::new(64, 16, 2, false),
        Decode::new(64, 32, 1, false),
        Decode::new(64, 32, 2, false),
        Decode::new(64, 64, 1, false),
        Decode::new(64, 64, 2, false),
        Decode::new(64, 64, 4, false),
    ];
    /// Rows of B of a tile.
    #[must_use]
    pub fn rows(self) -> usize {
        self.rows.into()
    }
    /// Rows of A of a tile.
    #[must_use]
    pub fn tokens(self) -> usize {
        self.tokens.into()
    }
    /// Blocks that share the depth.
    #[must_use]
    pub fn split(self) -> usize {
        self.split.into()
    }
    /// One block an SM, which works through tiles; otherwise two, a tile each.
    #[must_use]
    pub fn persistent(self) -> bool {
        self.persistent
    }
}

impl Config {
    /// Every configuration that was built.
    pub fn all() -> impl Iterator<Item = Config> {
        let decode = Decode::ALL.iter().map(|d| Config::Decode(*d));
        let others =
            [Config::PingPong, Config::Cooperative, Config::Portable, Config::PortableSmall, Config::PortableWide];
        others.into_iter().chain(decode)
    }
    /// Whether it needs what [`Path::Hopper`](super::Path::Hopper) needs.
    #[must_use]
    pub fn path(self) -> super::Path {
        match self {
            Config::Portable | Config::PortableSmall | Config::PortableWide => super::Path::Portable,
            _ => super::Path::Hopper,
        }
    }
}

impl fmt::Display for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Config::PingPong => f.write_str("ping_pong"),
            Config::Cooperative => f.write_str("cooperative"),
            Config::Portable => f.write_str("portable"),
            Config::PortableSmall => f.write_str("portable_small"),
            Config::PortableWide => f.write_str("portable_wide"),
            Config::Decode(d) => {
                let persistent = if d.persistent { "_persistent" } else { "" };
                write!(f, "decode_r{}_t{}_s{}{persistent}", d.rows, d.tokens, d.split)
            }
        }
    }
}
