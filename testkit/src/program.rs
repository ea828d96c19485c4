//! Our own programs, as processes that tests and scenarios start: those of this very build.
//!
//! A program that ships shows its build id (`russet_build_id`); one that is not of the sources at hand is refused, since it would prove
//! nothing about them. `RUSSET_PROGRAMS` names a folder whose programs go first: those of a changed tree, for `xtask bite`.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

use anyhow::{Context, Result, ensure};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// One of our programs: of `RUSSET_PROGRAMS`, beside the one that runs, or one folder up, where tests have theirs.
pub fn program(name: &str, package: &str) -> Result<PathBuf> {
    let ours = std::env::current_exe().context("failed to find the running program")?;
    let folders = programs().into_iter();
    let folders = folders.chain(ours.ancestors().skip(1).take(2).map(Path::to_path_buf));
    let path = folders
        .map(|folder| folder.join(name))
        .find(|path| path.is_file())
        .with_context(|| {
            format!("there is no {name} beside this program; make it with `cargo build --package {package}`")
        })?;
    current(&path, name, package)?;
    Ok(path)
}

/// The program of the provider.
pub fn provider_program() -> Result<PathBuf> {
    program("capi-provider", "russet-capi-provider")
}

/// The same for tests: a program that was never built, or of older sources, is built now.
pub fn built(name: &str, package: &str) -> Result<PathBuf> {
    program(name, package).or_else(|_| {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let status = Command::new(cargo).args(["build", "--package", package]).status()?;
        ensure!(status.success(), "failed to build {package}");
        program(name, package)
    })
}

/// Fails unless the program that serves probes here is the one that [`program`] gives: another may hold the port.
pub async fn serves_this_build(address: SocketAddr, program: &Path) -> Result<()> {
    let mut stream = TcpStream::connect(address).await?;
    let request = format!("GET /version HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    let shown = shown(program)?;
    let version = shown.rsplit(' ').next().unwrap_or_default();
    ensure!(
        answer.trim_end().ends_with(version),
        "{address} serves another build than {shown}: {answer}"
    );
    Ok(())
}

/// The tree that charts and programs are of: that of `RUSSET_PROGRAMS`, or the one that this was compiled in.
pub fn tree() -> PathBuf {
    let changed = programs().and_then(|folder| above(&folder));
    changed.unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join(".."))
}

fn programs() -> Option<PathBuf> {
    std::env::var_os("RUSSET_PROGRAMS").map(PathBuf::from)
}

/// The nearest folder above that is a workspace.
fn above(path: &Path) -> Option<PathBuf> {
    let mut above = path.ancestors();
    above
        .find(|folder| folder.join("Cargo.lock").is_file())
        .map(Path::to_path_buf)
}

/// Fails if a program that ships is of other sources than those at hand. Looks once at each file.
fn current(program: &Path, name: &str, package: &str) -> Result<()> {
    static LOOKED_AT: Mutex<BTreeSet<(PathBuf, SystemTime)>> = Mutex::new(BTreeSet::new());
    let file = (program.to_owned(), std::fs::metadata(program)?.modified()?);
    let mut looked_at = LOOKED_AT.lock().unwrap_or_else(PoisonError::into_inner);
    if looked_at.contains(&file) {
        return Ok(());
    }
    if let Some(expected) = expected(program, name)? {
        let shown = shown(program)?;
        ensure!(
            shown.ends_with(&format!("+{expected}")),
            "{} is of other sources ({shown}) than those at hand ({expected}); make it with `cargo build --package {package}`",
            program.display()
        );
    }
    looked_at.insert(file);
    Ok(())
}

/// The build id of a program that ships, by the sources it is of; none where there are no sources, or for a program that does not ship.
fn expected(program: &Path, name: &str) -> Result<Option<String>> {
    let root = above(program).unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join(".."));
    let package = root.join("bin").join(name);
    if !package.is_dir() {
        return Ok(None);
    }
    let id = russet_build_id::of(&root, &package);
    Ok(Some(
        id.with_context(|| format!("failed to read the sources of {name}"))?,
    ))
}

/// What a program says to `--version`.
fn shown(program: &Path) -> Result<String> {
    let output = Command::new(program).arg("--version").output();
    let output = output.with_context(|| format!("failed to start {}", program.display()))?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
