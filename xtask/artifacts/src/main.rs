//! Third-party crates compiled once for all clones on a machine.
//!
//! `restore` links what an earlier run of the gate compiled of other projects' crates into a fresh target folder, `save` keeps it in Russet's
//! cache folder afterwards. Cargo itself decides by its fingerprints what of it is fresh, so an entry that does not fit costs disk and
//! nothing else. Libraries are hard links: cargo replaces such files and never writes into them. Fingerprints and the output of build scripts
//! are written in place, so they are copied.
//!
//! This program has no dependencies: it runs before anything else is compiled.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// Names of our own packages begin so; their artifacts belong to one checkout.
const OURS: [&str; 3] = ["russet", "kura", "xtask"];
/// Entries that are kept: the newest, and one of another branch.
const KEPT: usize = 2;
const FINGERPRINTS: &str = ".fingerprint";
const SCRIPTS: &str = "build";
const LIBRARIES: &str = "deps";

fn main() -> ExitCode {
    let done = match std::env::args().nth(1).as_deref() {
        Some("restore") => key().and_then(|key| restore(&target(), &store(), &key)),
        Some("save") => key().and_then(|key| save(&target(), &store(), &key)),
        _ => Err(io::Error::other("usage: xtask-artifacts restore|save")),
    };
    // Without the cache the gate takes longer, and that is all.
    if let Err(error) = done {
        eprintln!("compiled crates are not shared between clones: {error}");
    }
    ExitCode::SUCCESS
}

/// The folder of debug builds of this checkout: this program lies in it.
fn target() -> PathBuf {
    let ours = std::env::current_exe().unwrap_or_default();
    ours.parent().map(Path::to_path_buf).unwrap_or_default()
}

/// `artifacts` in the folder where `russet_parts::default_cache_dir` has everything.
fn store() -> PathBuf {
    let set = |name: &str| {
        std::env::var_os(name)
            .filter(|value: &OsString| !value.is_empty())
            .map(PathBuf::from)
    };
    let home = |below: &str| set("HOME").map(|home| home.join(below));
    let cache = set("RUSSET_CACHE_DIR")
        .or_else(|| {
            set("XDG_CACHE_HOME")
                .filter(|path| path.is_absolute())
                .map(|path| path.join("russet"))
        })
        .or_else(|| {
            home(if cfg!(target_os = "macos") {
                "Library/Caches/russet"
            } else {
                ".cache/russet"
            })
        })
        .unwrap_or_else(|| std::env::temp_dir().join("russet-cache"));
    cache.join("artifacts")
}

/// The compiler and the versions of all crates: an entry is kept once for these.
fn key() -> io::Result<String> {
    let compiler = Command::new("rustc").arg("-vV").output()?.stdout;
    let mut hasher = DefaultHasher::new();
    (compiler, std::fs::read("Cargo.lock")?, std::fs::read("Cargo.toml")?).hash(&mut hasher);
    Ok(format!("{:016x}", hasher.finish()))
}

/// Entries, newest first.
fn entries(store: &Path) -> Vec<PathBuf> {
    let Ok(listed) = std::fs::read_dir(store) else {
        return Vec::new();
    };
    let mut entries: Vec<_> = listed
        .flatten()
        .filter(|entry| !entry.file_name().to_string_lossy().contains(".partial"))
        .filter_map(|entry| Some((entry.metadata().ok()?.modified().ok()?, entry.path())))
        .collect();
    entries.sort();
    entries.into_iter().rev().map(|(_, path)| path).collect()
}

fn restore(target: &Path, store: &Path, key: &str) -> io::Result<()> {
    // Packages of a target folder that was built in before are as fresh as these or fresher; this program is the only one of a new one.
    let built = std::fs::read_dir(target.join(FINGERPRINTS)).map_or(0, Iterator::count);
    if built > 3 {
        return Ok(());
    }
    // Where these very versions were never compiled, most of the newest entry will do.
    let newest = || entries(store).into_iter().next();
    let entry = Some(store.join(key)).filter(|entry| entry.is_dir()).or_else(newest);
    entry.map_or(Ok(()), |entry| transfer(&entry, target))
}

fn save(target: &Path, store: &Path, key: &str) -> io::Result<()> {
    let entry = store.join(key);
    if entry.exists() {
        return Ok(());
    }
    let partial = store.join(format!("{key}.partial-{}", std::process::id()));
    std::fs::create_dir_all(&partial)?;
    transfer(target, &partial)?;
    std::fs::rename(&partial, &entry)?;
    for old in entries(store).iter().skip(KEPT) {
        std::fs::remove_dir_all(old)?;
    }
    Ok(())
}

/// Brings the units of other projects from one target folder to another.
fn transfer(from: &Path, to: &Path) -> io::Result<()> {
    let units: BTreeSet<OsString> = std::fs::read_dir(from.join(FINGERPRINTS))?
        .flatten()
        .map(|unit| unit.file_name())
        .filter(|unit| !OURS.iter().any(|ours| unit.to_string_lossy().starts_with(ours)))
        .collect();
    // `serde-0123456789abcdef`, whose library is `libserde-0123456789abcdef.rlib`.
    let hashes: BTreeSet<&str> = units
        .iter()
        .filter_map(|unit| Some(unit.to_str()?.rsplit_once('-')?.1))
        .collect();
    std::fs::create_dir_all(to.join(LIBRARIES))?;
    for file in std::fs::read_dir(from.join(LIBRARIES))?.flatten() {
        let name = file.file_name();
        let stem = Path::new(&name)
            .file_stem()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let theirs = stem.rsplit_once('-').is_some_and(|(_, hash)| hashes.contains(hash));
        if theirs {
            let to = to.join(LIBRARIES).join(&name);
            if !to.exists() && std::fs::hard_link(file.path(), &to).is_err() {
                copy(&file.path(), &to)?;
            }
        }
    }
    for folder in [FINGERPRINTS, SCRIPTS] {
        for unit in &units {
            let from = from.join(folder).join(unit);
            if from.is_dir() {
                copy_all(&from, &to.join(folder).join(unit))?;
            }
        }
    }
    Ok(())
}

fn copy_all(from: &Path, to: &Path) -> io::Result<()> {
    std::fs::create_dir_all(to)?;
    for entry in std::fs::read_dir(from)?.flatten() {
        let to = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy_all(&entry.path(), &to)?;
        } else {
            copy(&entry.path(), &to)?;
        }
    }
    Ok(())
}

/// With the time of the last change, by which cargo knows whether a file is fresh.
fn copy(from: &Path, to: &Path) -> io::Result<()> {
    std::fs::copy(from, to)?;
    let modified = std::fs::metadata(from)?.modified()?;
    std::fs::File::options().write(true).open(to)?.set_modified(modified)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(path: &Path, text: &str) {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    /// A folder of this test's own, with a target folder that holds one unit of serde and one of ours.
    fn built(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("russet-artifacts-{}-{name}", std::process::id()));
        let target = folder.join("target");
        for unit in ["serde-00aa", "russet-vm-00bb"] {
            write(&target.join(FINGERPRINTS).join(unit).join("lib"), "fresh");
        }
        write(&target.join(SCRIPTS).join("serde-00aa/out/code.rs"), "code");
        write(&target.join(LIBRARIES).join("libserde-00aa.rlib"), "library");
        write(&target.join(LIBRARIES).join("librusset_vm-00bb.rlib"), "ours");
        folder
    }

    #[test]
    fn a_fresh_target_folder_gets_what_others_wrote_and_nothing_of_ours() {
        let folder = built("fresh");
        let (store, fresh) = (folder.join("store"), folder.join("fresh"));
        save(&folder.join("target"), &store, "key").unwrap();
        restore(&fresh, &store, "key").unwrap();
        assert_eq!(
            std::fs::read_to_string(fresh.join("deps/libserde-00aa.rlib")).unwrap(),
            "library"
        );
        assert_eq!(
            std::fs::read_to_string(fresh.join("build/serde-00aa/out/code.rs")).unwrap(),
            "code"
        );
        assert!(fresh.join(".fingerprint/serde-00aa/lib").is_file());
        assert!(!fresh.join("deps/librusset_vm-00bb.rlib").exists());
        assert!(!fresh.join(".fingerprint/russet-vm-00bb").exists());
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_copied_fingerprint_keeps_its_time_and_is_a_file_of_its_own() {
        let folder = built("time");
        let (store, fresh) = (folder.join("store"), folder.join("fresh"));
        save(&folder.join("target"), &store, "key").unwrap();
        restore(&fresh, &store, "key").unwrap();
        let [kept, copied] = [&folder.join("target"), &fresh].map(|target| target.join(".fingerprint/serde-00aa/lib"));
        let time = |path: &Path| std::fs::metadata(path).unwrap().modified().unwrap();
        assert_eq!(time(&kept), time(&copied));
        std::fs::write(&copied, "changed").unwrap();
        assert_eq!(std::fs::read_to_string(kept).unwrap(), "fresh");
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_target_folder_that_was_built_in_is_left_alone() {
        let folder = built("old");
        let (store, old) = (folder.join("store"), folder.join("old"));
        save(&folder.join("target"), &store, "key").unwrap();
        for unit in ["a-1", "b-2", "c-3", "d-4"] {
            write(&old.join(FINGERPRINTS).join(unit).join("lib"), "");
        }
        restore(&old, &store, "key").unwrap();
        assert!(!old.join("deps/libserde-00aa.rlib").exists());
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn an_entry_is_kept_once_and_old_ones_go() {
        let folder = built("kept");
        let (store, target) = (folder.join("store"), folder.join("target"));
        for key in ["one", "two", "three", "three"] {
            save(&target, &store, key).unwrap();
        }
        assert_eq!(entries(&store).len(), KEPT);
        std::fs::remove_dir_all(folder).unwrap();
    }
}
