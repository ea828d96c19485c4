//! Embeds our charts, so that an installed `russet` works without a checkout.

#![expect(
    clippy::expect_used,
    reason = "a build script fails by panicking, and these mean a broken build"
)]

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

fn main() {
    for name in ["russet-crds", "capi-provider"] {
        embed(name);
    }
}

fn embed(name: &str) {
    let chart = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../charts").join(name);
    println!("cargo::rerun-if-changed={}", chart.display());
    let mut files = Vec::new();
    collect(&chart, &mut files);
    // Sorted, since the order decides the content hash.
    files.sort();
    if !files.iter().any(|file| file.ends_with("Chart.yaml")) {
        println!("cargo::error=charts/{name} has no Chart.yaml; `cargo xtask generate` makes what is generated of it");
        return;
    }
    let mut source = String::from("&[\n");
    for file in files {
        let inside = file.strip_prefix(&chart).unwrap_or(&file).display().to_string();
        let path = file.canonicalize().unwrap_or(file);
        writeln!(
            source,
            "    ({inside:?}, include_bytes!({:?})),",
            path.display().to_string()
        )
        .expect("writing to a string");
    }
    source.push_str("]\n");
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR")).join(format!("{name}.rs"));
    // A file of its own: that of a target folder that was copied by links belongs to other checkouts, too.
    let _ = std::fs::remove_file(&out);
    std::fs::write(out, source).expect("OUT_DIR is writable");
}

fn collect(dir: &Path, files: &mut Vec<PathBuf>) {
    let Ok(entries) = std::fs::read_dir(dir) else { return };
    for path in entries.flatten().map(|entry| entry.path()) {
        if path.is_dir() {
            collect(&path, files);
        } else {
            files.push(path);
        }
    }
}
