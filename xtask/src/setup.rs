//! Installs what is missing.

use crate::step::{self, Failure, NEEDS_INSTALLATION, Outcome};
use std::path::Path;
use std::process::Command;
use tilewright_build::{DeviceCompiler, INSTALL_HELP, Ptxas};

const PACKAGES: [&str; 3] = ["rustc-web", "rust-web-src", "cargo-web"];

/// What the wheel calls the program.
const PTXAS_IN_WHEEL: &str = "nvidia/cu13/bin/ptxas";

fn install_compiler() -> Outcome {
    let install = format!("apt-get install -y --no-install-recommends {}", PACKAGES.join(" "));
    if !is_root() {
        return Err(needs(format!(
            "there is no compiler for kernels. Run this, as root, and then the same command again:\n\n  apt-get update && {install}\n\n(or {INSTALL_HELP})"
        )));
    }
    println!("installing the compiler for kernels: {install}");
    let mut apt = Command::new("apt-get");
    step::run(apt.args(["update", "-qq"])).map_err(|f| needs(format!("{}; {INSTALL_HELP}", f.message)))?;
    let mut apt = Command::new("apt-get");
    apt.args(["install", "-y", "-qq", "--no-install-recommends"]).args(PACKAGES);
    apt.env("DEBIAN_FRONTEND", "noninteractive");
    step::run(&mut apt).map_err(|f| needs(format!("{}; {INSTALL_HELP}", f.message)))
}

fn needs(message: String) -> Failure {
    Failure { message, code: NEEDS_INSTALLATION }
}

fn is_root() -> bool {
    let id = Command::new("id").arg("-u").output();
    id.is_ok_and(|o| o.stdout.trim_ascii() == b"0")
}

/// The step: both tools, or an error that says what to do.
pub fn run(root: &Path) -> Outcome {
    let compiler = match DeviceCompiler::find() {
        Ok(c) => c,
        Err(_) => {
            install_compiler()?;
            DeviceCompiler::find()?
        }
    };
    println!("kernels are compiled by {} ({})", compiler.version(), compiler.rustc_path().display());
    let ptxas = match Ptxas::find(root) {
        Some(p) => p,
        None => {
            fetch_ptxas(root)?;
            Ptxas::find(root).ok_or_else(|| Failure::new("the ptxas just fetched does not run on this machine"))?
        }
    };
    println!("and assembled by ptxas {}", ptxas.version());
    Ok(())
}

/// Unpacks ptxas from its package into `.tools`: pip installs nothing, so that it works for any user.
fn fetch_ptxas(root: &Path) -> Outcome {
    let tools = root.join(".tools");
    let download = tools.join("download");
    let io = |e: std::io::Error| Failure::new(format!("{}: {e}", tools.display()));
    std::fs::create_dir_all(&download).map_err(io)?;
    println!("fetching ptxas into {}", tools.display());
    let mut pip = Command::new("python3");
    pip.args(["-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]);
    pip.args(["--only-binary", ":all:", "--require-hashes", "--dest"]).arg(&download);
    pip.arg("-r").arg(root.join("xtask/ptxas.txt"));
    step::run(&mut pip).map_err(|f| {
        needs(format!("{}. Install python3 with pip, or put a ptxas at {}", f.message, tools.join("ptxas").display()))
    })?;
    let wheel = std::fs::read_dir(&download).map_err(io)?.filter_map(Result::ok).map(|e| e.path());
    let wheel = wheel.into_iter().find(|p| p.extension().is_some_and(|e| e == "whl"));
    let wheel = wheel.ok_or_else(|| Failure::new("pip fetched no wheel"))?;
    let unpacked = download.join("unpacked");
    let mut zip = Command::new("python3");
    zip.args(["-m", "zipfile", "-e"]).arg(&wheel).arg(&unpacked);
    step::run(&mut zip)?;
    let program = tools.join("ptxas");
    std::fs::rename(unpacked.join(PTXAS_IN_WHEEL), &program).map_err(io)?;
    executable(&program).map_err(io)?;
    std::fs::remove_dir_all(&download).map_err(io)
}

fn executable(file: &Path) -> std::io::Result<()> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        std::fs::set_permissions(file, std::fs::Permissions::from_mode(0o755))?;
    }
    #[cfg(not(unix))]
    let _ = file;
    Ok(())
}
