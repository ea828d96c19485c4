//! Whether the crates of a Mac would compile there.
//!
//! Only a Mac can build them, and few who work on this have one at hand. But `cargo check` needs no linker: what it needs is the
//! standard library of that system, as rustup has it, or as source. Debian ships a recent compiler together with its source, so
//! where rustup cannot be asked, those packages are unpacked (not installed: they and rustup exclude each other) and the library is
//! checked first. C code of dependencies is not compiled; a stand-in answers for the compiler. Where nothing of this can be had, it
//! is said and nothing is checked.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::setup::which;

const TARGET: &str = "aarch64-apple-darwin";
/// What runs on a Mac, and what of it is a library with tests of its own.
const PACKAGES: &[&str] = &[
    "russet-tart-kubelet",
    "russet-vm",
    "russet-node",
    "russet-pod",
    "russet-kubelet-api",
];
/// The compiler, what it is linked with, and the source of its library.
const DEBIAN: &[&str] = &["rustc-web", "libstd-rust-web-dev", "rust-web-src"];

/// A compiler that knows the target.
struct Compiler {
    /// Another than rustup's.
    program: Option<PathBuf>,
}

pub(crate) fn check(root: &Path) -> Result<()> {
    let cache = russet_parts::Options::from_env().cache.join("check-mac");
    let compiler = if rustup_knows(root)? {
        Compiler { program: None }
    } else {
        match debian(&cache).and_then(|program| is_recent(root, &program).map(|()| program)) {
            Ok(program) => Compiler { program: Some(program) },
            Err(why) => {
                eprintln!("not checked for {TARGET}: rustup does not have it here, and {why:#}");
                return Ok(());
            }
        }
    };
    let mut command = Command::new("cargo");
    command
        .args(["check", "--quiet", "--locked", "--target", TARGET])
        .current_dir(root)
        // Kept between runs and apart from ours, which another compiler would spoil.
        .env("CARGO_TARGET_DIR", cache.join("target"));
    for package in PACKAGES {
        command.args(["--package", package]);
    }
    if cfg!(not(target_os = "macos")) {
        let stand_in = stand_in(&cache)?;
        command
            .env("CC_aarch64_apple_darwin", &stand_in)
            .env("AR_aarch64_apple_darwin", &stand_in)
            .env("SDKROOT", "/");
    }
    if let Some(program) = &compiler.program {
        command
            .arg("-Zbuild-std")
            .env("RUSTC", program)
            // Its library may be built by that compiler and no other, which is what the flag is kept from everybody else for.
            .env("RUSTC_BOOTSTRAP", "1");
    }
    let status = command.status().context("failed to start cargo")?;
    if !status.success() {
        bail!("the crates of a Mac do not compile for {TARGET}: {status}");
    }
    Ok(())
}

/// Whether the toolchain of this workspace has the target.
fn rustup_knows(root: &Path) -> Result<bool> {
    let output = Command::new("rustc")
        .args(["--print", "target-libdir", "--target", TARGET])
        .current_dir(root)
        .output()
        .context("failed to start rustc")?;
    let dir = String::from_utf8_lossy(&output.stdout);
    let mut files = std::fs::read_dir(dir.trim()).into_iter().flatten().flatten();
    Ok(output.status.success() && files.any(|file| file.file_name().to_string_lossy().starts_with("libstd-")))
}

/// Whether a compiler is no older than that of the workspace, whose code it may not understand otherwise.
fn is_recent(root: &Path, program: &Path) -> Result<()> {
    let (theirs, ours) = (release(root, program)?, release(root, Path::new("rustc"))?);
    if theirs < ours {
        bail!("Debian's compiler ({theirs:?}) is older than ours ({ours:?})");
    }
    Ok(())
}

/// The numbers of a compiler's release.
fn release(root: &Path, program: &Path) -> Result<Vec<u32>> {
    let output = Command::new(program)
        .arg("--version")
        .current_dir(root)
        .output()
        .with_context(|| format!("failed to start {}", program.display()))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let numbers = text.split_whitespace().nth(1).unwrap_or_default().split('.');
    let numbers: Vec<u32> = numbers.map_while(|number| number.parse().ok()).collect();
    if numbers.is_empty() {
        bail!("{} does not say which release it is: {text:?}", program.display());
    }
    Ok(numbers)
}

/// Unpacks Debian's compiler, once. Its program.
fn debian(cache: &Path) -> Result<PathBuf> {
    let (program, unpacked) = (cache.join("rustc"), cache.join("debian"));
    if program.exists() {
        return Ok(program);
    }
    if which("apt-get").is_none() || which("dpkg-deb").is_none() {
        bail!("this is no Debian, whose packages could stand in");
    }
    let fresh = cache.join("debian.new");
    if fresh.exists() {
        std::fs::remove_dir_all(&fresh).context("failed to clear the folder of an earlier try")?;
    }
    std::fs::create_dir_all(&fresh).context("failed to make a folder for packages")?;
    let mut wanted: Vec<String> = DEBIAN.iter().map(|name| (*name).to_owned()).collect();
    for name in DEBIAN {
        wanted.extend(libraries(name)?);
    }
    for library in libraries("libstd-rust-web-dev")? {
        wanted.extend(libraries(&library)?);
    }
    wanted.sort();
    wanted.dedup();
    for name in &wanted {
        run(Command::new("apt-get")
            .args(["download", "--quiet", name])
            .current_dir(&fresh))
        .with_context(|| format!("failed to download {name}"))?;
    }
    let packages = std::fs::read_dir(&fresh).context("failed to list packages")?;
    for package in packages.flatten().map(|entry| entry.path()) {
        run(Command::new("dpkg-deb").arg("--extract").arg(&package).arg(&fresh))
            .with_context(|| format!("failed to unpack {}", package.display()))?;
        std::fs::remove_file(&package).context("failed to remove a package")?;
    }
    if unpacked.exists() {
        std::fs::remove_dir_all(&unpacked).context("failed to remove an older compiler")?;
    }
    std::fs::rename(&fresh, &unpacked).context("failed to put the compiler in its place")?;
    let script = format!(
        "#!/bin/sh\nroot='{}'\nexport LD_LIBRARY_PATH=\"$root/usr/lib/$(uname -m)-linux-gnu:$(echo \"$root\"/usr/lib/llvm-*/lib)\"\nexec \"$root/usr/bin/rustc\" \"$@\"\n",
        unpacked.display()
    );
    executable(&cache.join("rustc.new"), &script)?;
    run(Command::new(cache.join("rustc.new")).arg("--version")).context("Debian's compiler does not run here")?;
    std::fs::rename(cache.join("rustc.new"), &program).context("failed to put the compiler in its place")?;
    Ok(program)
}

/// The libraries that a package of the compiler needs and that are not on this machine.
fn libraries(package: &str) -> Result<Vec<String>> {
    let output = Command::new("apt-cache")
        .args(["depends", package])
        .output()
        .context("failed to start apt-cache")?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let names = text.lines().filter_map(|line| line.trim().strip_prefix("Depends: "));
    Ok(names
        .filter(|name| name.starts_with("libstd-rust-web") || name.starts_with("libllvm"))
        .map(str::to_owned)
        .collect())
}

/// A compiler of C and an archiver that do nothing but leave a file where one is expected: nothing is linked here.
fn stand_in(cache: &Path) -> Result<PathBuf> {
    let path = cache.join("cc");
    std::fs::create_dir_all(cache).context("failed to make a folder for the check")?;
    executable(
        &path,
        "#!/bin/sh\nfor word in \"$@\"; do\n  if [ \"$before\" = -o ]; then : >\"$word\"; fi\n  case $word in *.a) : >\"$word\" ;; esac\n  before=$word\ndone\n",
    )?;
    Ok(path)
}

fn executable(path: &Path, text: &str) -> Result<()> {
    std::fs::write(path, text).with_context(|| format!("failed to write {}", path.display()))?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755))
        .with_context(|| format!("failed to make {} a program", path.display()))
}

/// Runs a program whose words matter only when it fails.
fn run(command: &mut Command) -> Result<()> {
    let output = command.stdin(Stdio::null()).output().context("failed to start it")?;
    if !output.status.success() {
        bail!("{}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(())
}
