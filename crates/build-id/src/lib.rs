//! The build id of a program: a hash of its sources and of those of the workspace's crates that it links.
//!
//! A build script embeds it ([`emit`]), the program shows it in `--version` and `/version`, and a test compares it with the sources at hand
//! ([`of`]), so that a program left over from an earlier edit proves nothing. The hash covers `Cargo.lock`, which names all other crates.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hasher as _};
use std::io;
use std::path::{Path, PathBuf};

use toml::{Table, Value};

/// For `build.rs` of a program: sets `RUSSET_BUILD_ID` and has cargo build again when it changes.
#[expect(clippy::print_stdout, reason = "cargo reads what a build script prints")]
pub fn emit() {
    let package = PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default());
    let emitted = workspace(&package).and_then(|root| {
        for file in sources(&root, &package)? {
            println!("cargo::rerun-if-changed={}", file.display());
        }
        println!("cargo::rustc-env=RUSSET_BUILD_ID={}", of(&root, &package)?);
        Ok(())
    });
    if let Err(error) = emitted {
        println!(
            "cargo::error=the sources of {} could not be read: {error}",
            package.display()
        );
    }
}

/// The id of what a package of the workspace at `root` builds to now.
pub fn of(root: &Path, package: &Path) -> io::Result<String> {
    let mut hash = DefaultHasher::new();
    for file in sources(root, package)? {
        let name = file.strip_prefix(root).unwrap_or(&file);
        hash.write(name.as_os_str().as_encoded_bytes());
        hash.write_u8(0);
        hash.write(&std::fs::read(&file)?);
        hash.write_u8(0);
    }
    Ok(format!("{:016x}", hash.finish()))
}

/// The nearest folder above that is a workspace.
fn workspace(package: &Path) -> io::Result<PathBuf> {
    let mut above = package.ancestors();
    let root = above.find(|folder| folder.join("Cargo.lock").is_file());
    root.map(Path::to_path_buf)
        .ok_or_else(|| io::Error::other(format!("no Cargo.lock above {}", package.display())))
}

/// Every file that decides what the package builds to, in order.
fn sources(root: &Path, package: &Path) -> io::Result<BTreeSet<PathBuf>> {
    let ours = paths_of_crates(root)?;
    let mut files = BTreeSet::from([root.join("Cargo.lock"), root.join("Cargo.toml")]);
    let mut seen = BTreeSet::new();
    let mut next = vec![package.to_path_buf()];
    while let Some(folder) = next.pop() {
        if !seen.insert(folder.clone()) {
            continue;
        }
        let manifest = table(&folder.join("Cargo.toml"))?;
        next.extend(dependencies(&manifest).filter_map(|name| ours.get(name).cloned()));
        collect(&folder, &mut files)?;
    }
    Ok(files)
}

/// Where the crates of the workspace are, as its manifest says.
fn paths_of_crates(root: &Path) -> io::Result<BTreeMap<String, PathBuf>> {
    let manifest = table(&root.join("Cargo.toml"))?;
    let all = manifest
        .get("workspace")
        .and_then(|workspace| workspace.get("dependencies"));
    let path = |(name, given): (&String, &Value)| Some((name.clone(), root.join(given.get("path")?.as_str()?)));
    Ok(all
        .and_then(Value::as_table)
        .into_iter()
        .flatten()
        .filter_map(path)
        .collect())
}

/// What a package links or builds with; what only its tests use is left out.
fn dependencies(manifest: &Table) -> impl Iterator<Item = &str> {
    let targets = manifest.get("target").and_then(Value::as_table);
    let tables = targets.into_iter().flat_map(Table::values).filter_map(Value::as_table);
    tables
        .chain([manifest])
        .flat_map(|table| ["dependencies", "build-dependencies"].map(|kind| table.get(kind)))
        .flatten()
        .filter_map(Value::as_table)
        .flat_map(Table::keys)
        .map(String::as_str)
}

/// The files of a folder, but for tests: they are no part of a program.
fn collect(folder: &Path, files: &mut BTreeSet<PathBuf>) -> io::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if name.starts_with('.') || matches!(&*name, "target" | "tests" | "tests.rs" | "snapshots") {
            continue;
        }
        if entry.file_type()?.is_dir() {
            collect(&entry.path(), files)?;
        } else {
            files.insert(entry.path());
        }
    }
    Ok(())
}

fn table(path: &Path) -> io::Result<Table> {
    let text = std::fs::read_to_string(path)
        .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))?;
    text.parse()
        .map_err(|error| io::Error::other(format!("{}: {error}", path.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORKSPACE: &str = "[workspace.dependencies]
linked = { path = 'crates/linked' }
tested = { path = 'crates/tested' }
";

    /// A workspace with a program that links one crate, tests with another, and has a test of its own.
    fn tree() -> tempfile::TempDir {
        let tree = tempfile::tempdir().unwrap();
        for (path, text) in [
            ("Cargo.toml", WORKSPACE),
            ("Cargo.lock", ""),
            (
                "bin/program/Cargo.toml",
                "[dependencies]\nlinked.workspace = true\n[dev-dependencies]\ntested.workspace = true\n",
            ),
            ("bin/program/src/main.rs", "fn main() {}"),
            ("bin/program/tests/it.rs", ""),
            ("crates/linked/Cargo.toml", ""),
            ("crates/linked/src/lib.rs", ""),
            ("crates/tested/Cargo.toml", ""),
            ("crates/tested/src/lib.rs", ""),
        ] {
            let path = tree.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        tree
    }

    #[test]
    fn an_edit_of_what_is_linked_changes_the_id_and_an_edit_of_a_test_does_not() {
        let tree = tree();
        let id = || of(tree.path(), &tree.path().join("bin/program")).unwrap();
        let before = id();
        for test in ["bin/program/tests/it.rs", "crates/tested/src/lib.rs"] {
            std::fs::write(tree.path().join(test), "// edited").unwrap();
            assert_eq!(id(), before, "{test}");
        }
        for source in ["bin/program/src/main.rs", "crates/linked/src/lib.rs", "Cargo.lock"] {
            let before = id();
            std::fs::write(tree.path().join(source), "# edited").unwrap();
            assert_ne!(id(), before, "{source}");
        }
    }

    #[test]
    fn a_folder_that_is_no_package_is_named() {
        let tree = tree();
        let error = of(tree.path(), &tree.path().join("bin")).unwrap_err().to_string();
        assert!(error.contains("Cargo.toml"), "{error}");
    }
}
