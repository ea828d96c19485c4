//! Our own programs, as processes that tests and scenarios start.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, ensure};

/// One of our programs: beside the one that runs, or one folder up, where tests have theirs.
pub fn program(name: &str, package: &str) -> Result<PathBuf> {
    let ours = std::env::current_exe().context("failed to find the running program")?;
    ours.ancestors()
        .skip(1)
        .take(2)
        .map(|folder| folder.join(name))
        .find(|path| path.is_file())
        .with_context(|| {
            format!("there is no {name} beside this program; make it with `cargo build --package {package}`")
        })
}

/// The program of the provider.
pub fn provider_program() -> Result<PathBuf> {
    program("capi-provider", "russet-capi-provider")
}

/// The same for tests: a program that was never built is built now.
pub fn built(name: &str, package: &str) -> Result<PathBuf> {
    program(name, package).or_else(|_| {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let status = Command::new(cargo).args(["build", "--package", package]).status()?;
        ensure!(status.success(), "failed to build {package}");
        program(name, package)
    })
}
