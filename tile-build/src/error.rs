use std::fmt;
use std::path::PathBuf;

/// Why kernels could not be built. Its `Debug` reads like its `Display`, so that a build script whose `main` returns it
/// shows a readable message.
#[non_exhaustive]
pub enum Error {
    /// No compiler that can emit PTX was found. `tried` says where it was looked for.
    NoCompiler {
        /// One line for each place.
        tried: Vec<String>,
    },
    /// A compiler was named or pinned, and what was found is another one.
    WrongCompiler {
        /// What is needed.
        need: String,
        /// What is there.
        found: String,
    },
    /// `ptxas` was needed and not found.
    NoPtxas,
    /// A tool could not be started.
    Spawn {
        /// The program.
        program: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A tool ran and failed.
    Failed {
        /// What it was doing.
        what: String,
        /// What it printed.
        output: String,
    },
    /// A file or folder could not be read or written.
    Io {
        /// Which.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The PTX is not what this crate can read.
    Ptx {
        /// The image's architecture.
        arch: String,
        /// What is wrong.
        message: String,
    },
    /// The PTX was read and breaks a rule.
    Lint {
        /// The image's architecture.
        arch: String,
        /// One line for each finding.
        findings: Vec<String>,
    },
    /// An image is larger than its budget.
    Budget {
        /// The image's architecture.
        arch: String,
        /// Its size in bytes.
        bytes: usize,
        /// What it may have.
        budget: usize,
    },
    /// A manifest cannot be read.
    Manifest {
        /// Which.
        path: PathBuf,
        /// What is wrong.
        message: String,
    },
    /// The builder was given something that cannot be.
    Config(String),
}

/// What to install, in the order in which it is looked for. Shown whenever no device compiler is found.
pub const INSTALL_HELP: &str = "install one of:\n  \
    Debian or Ubuntu:  apt-get install rustc-web rust-web-src cargo-web\n  \
    \x20                  (1.96 or newer: Debian 12 has it in its suite bookworm-security)\n  \
    rustup:            rustup toolchain install nightly -c rust-src\n\
    or set TILEWRIGHT_RUSTC to a rustc that has the NVPTX target and its own `rust-src`";

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::NoCompiler { tried } => {
                writeln!(f, "no compiler for kernels was found; {INSTALL_HELP}")?;
                write!(f, "looked at:")?;
                tried.iter().try_for_each(|t| write!(f, "\n  {t}"))
            }
            Error::WrongCompiler { need, found } => {
                write!(f, "the kernels need {need}, but there is only {found}")
            }
            Error::NoPtxas => {
                write!(f, "ptxas was not found; `cargo xtask setup` fetches it, or set TILEWRIGHT_PTXAS to it")
            }
            Error::Spawn { program, source } => {
                write!(f, "cannot start {}: {source}", program.display())
            }
            Error::Failed { what, output } => write!(f, "{what} failed:\n{output}"),
            Error::Io { path, source } => write!(f, "{}: {source}", path.display()),
            Error::Ptx { arch, message } => write!(f, "unexpected PTX for {arch}: {message}"),
            Error::Lint { arch, findings } => {
                write!(f, "the {arch} image breaks the rules for kernels:")?;
                findings.iter().try_for_each(|l| write!(f, "\n  {l}"))
            }
            Error::Budget { arch, bytes, budget } => {
                write!(f, "the {arch} image has {bytes} bytes, more than its budget of {budget}")
            }
            Error::Manifest { path, message } => write!(f, "{}: {message}", path.display()),
            Error::Config(message) => f.write_str(message),
        }
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Spawn { source, .. } | Error::Io { source, .. } => Some(source),
            _ => None,
        }
    }
}

/// File access whose errors name the file.
pub(crate) mod fs {
    use super::Error;
    use std::path::Path;

    fn at<T>(path: &Path, result: std::io::Result<T>) -> Result<T, Error> {
        result.map_err(|source| Error::Io { path: path.to_path_buf(), source })
    }
    pub(crate) fn read(path: &Path) -> Result<Vec<u8>, Error> {
        at(path, std::fs::read(path))
    }
    pub(crate) fn read_text(path: &Path) -> Result<String, Error> {
        at(path, std::fs::read_to_string(path))
    }
    pub(crate) fn create_dir(path: &Path) -> Result<(), Error> {
        at(path, std::fs::create_dir_all(path))
    }
    pub(crate) fn canonical(path: &Path) -> Result<std::path::PathBuf, Error> {
        at(path, std::fs::canonicalize(path))
    }
    /// Writes only what differs, so that the file's time says when its content last changed.
    pub(crate) fn write(path: &Path, content: &[u8]) -> Result<(), Error> {
        if std::fs::read(path).is_ok_and(|old| old == content) {
            return Ok(());
        }
        at(path, std::fs::write(path, content))
    }
    pub(crate) fn remove(path: &Path) -> Result<(), Error> {
        match std::fs::remove_file(path) {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(()),
            other => at(path, other),
        }
    }
    /// Holds an exclusive lock on `path` until dropped.
    pub(crate) fn lock(path: &Path) -> Result<std::fs::File, Error> {
        let file = at(path, std::fs::OpenOptions::new().create(true).append(true).open(path))?;
        at(path, file.lock())?;
        Ok(file)
    }
}
