//! Embeds the API fixtures, so that `russet replay` can tell its stories without a checkout.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

fn main() -> std::io::Result<()> {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/api/fixtures");
    println!("cargo::rerun-if-changed={}", fixtures.display());
    let mut files = Vec::new();
    collect(&fixtures, &mut files);
    files.sort();
    let mut source = String::from(
        "/// `(era/file, YAML)` of every fixture of `crates/api/fixtures`.\npub const FIXTURES: &[(&str, &str)] = &[\n",
    );
    for file in files {
        let name = file.strip_prefix(&fixtures).unwrap_or(&file).display().to_string();
        let path = file.canonicalize().unwrap_or(file);
        let _ = writeln!(
            source,
            "    ({name:?}, include_str!({:?})),",
            path.display().to_string()
        );
    }
    source.push_str("];\n");
    let out = std::env::var_os("OUT_DIR").map(PathBuf::from).unwrap_or_default();
    std::fs::write(out.join("fixtures.rs"), source)
}

fn collect(dir: &Path, files: &mut Vec<PathBuf>) {
    let Ok(entries) = std::fs::read_dir(dir) else { return };
    for path in entries.flatten().map(|entry| entry.path()) {
        if path.is_dir() {
            collect(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "yaml") {
            files.push(path);
        }
    }
}
