//! What the gate needs besides the toolchains, obtained without a hand.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

/// Programs that a real Linux node calls, and the Debian packages that hold them.
const NODE_PROGRAMS: &[(&str, &str)] = &[
    ("ip", "iproute2"),
    ("iptables", "iptables"),
    ("nft", "nftables"),
    ("nsenter", "util-linux"),
    ("unshare", "util-linux"),
    ("setpriv", "util-linux"),
];

/// Installs missing system packages when this is a Debian machine and we are root; otherwise says what is missing and goes on, since only the
/// tests of a real Linux node need them, and those say so too.
pub(crate) fn system_packages() -> Result<()> {
    let mut missing: Vec<&str> = NODE_PROGRAMS
        .iter()
        .filter(|(program, _)| which(program).is_none())
        .map(|(_, package)| *package)
        .collect();
    missing.dedup();
    if missing.is_empty() {
        return Ok(());
    }
    if !is_root() || which("apt-get").is_none() {
        eprintln!(
            "the Linux node tests need {}: install them, or run as root on Debian",
            missing.join(", ")
        );
        return Ok(());
    }
    let install = || {
        Command::new("apt-get")
            .args(["install", "--yes", "--quiet", "--no-install-recommends"])
            .args(&missing)
            .env("DEBIAN_FRONTEND", "noninteractive")
            .stdout(Stdio::null())
            .status()
    };
    if install().context("failed to start apt-get")?.success() {
        return Ok(());
    }
    // A fresh machine has no package lists yet.
    let updated = Command::new("apt-get")
        .args(["update", "--quiet"])
        .stdout(Stdio::null())
        .status()?;
    if !updated.success() || !install()?.success() {
        bail!("apt-get could not install {}", missing.join(", "));
    }
    Ok(())
}

pub(crate) fn which(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let system = ["/usr/sbin", "/sbin"].map(PathBuf::from);
    std::env::split_paths(&path)
        .chain(system)
        .map(|dir| dir.join(program))
        .find(|candidate| candidate.is_file())
}

fn is_root() -> bool {
    Command::new("id")
        .arg("-u")
        .output()
        .is_ok_and(|output| output.stdout.trim_ascii() == b"0")
}
