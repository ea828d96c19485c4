//! Fault switches of the emulators: each is set by a test against a program or library that ships, or it goes.
//!
//! A switch that only the emulator's own tests set proves nothing about us, and looks as if it did. Textual: a test outside `sim/` that
//! writes `faults.<name>`, `quirks.<name>` or `switches.<name>` sets it.

use std::path::Path;

use anyhow::{Context, Result, ensure};

/// File, struct, and what a value of it is called where a test sets it.
const SWITCHES: &[(&str, &str, &str)] = &[
    ("sim/mac/src/macos/faults.rs", "Faults", "faults"),
    ("sim/mac/src/macos/faults.rs", "Quirks", "quirks"),
    ("sim/tart/src/switches.rs", "Switches", "switches"),
];
/// Where the images of an emulated `tart` lie: set by the bundle that brings them, and no fault.
const NO_FAULTS: &[&str] = &["registry"];

pub(crate) fn check(root: &Path) -> Result<()> {
    let mut tests = String::new();
    for entry in entries(root)? {
        let name = entry.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if entry.is_dir() && name != "sim" && name != "target" && !name.starts_with('.') {
            read(&entry, &mut tests)?;
        }
    }
    // A scenario may ask a Mac for what the emulator does by default: `quirks().btm_cap`.
    let tests = tests.replace("()", "");
    let mut unset = Vec::new();
    for (file, name, called) in SWITCHES {
        let path = root.join(file);
        let source = std::fs::read_to_string(&path).with_context(|| format!("failed to read {}", path.display()))?;
        let fields = fields(&source, name);
        ensure!(!fields.is_empty(), "{file} has no struct {name} with fields");
        let missing = fields.into_iter().filter(|field| !NO_FAULTS.contains(field));
        unset.extend(
            missing
                .filter(|field| !is_set(&tests, called, field))
                .map(|field| format!("{file}: {name}::{field}")),
        );
    }
    ensure!(
        unset.is_empty(),
        "no test outside sim/ sets these fault switches against what ships; set each in one, or remove it:\n{}",
        unset.join("\n")
    );
    Ok(())
}

fn entries(folder: &Path) -> Result<Vec<std::path::PathBuf>> {
    let entries = std::fs::read_dir(folder).with_context(|| format!("failed to list {}", folder.display()))?;
    Ok(entries.flatten().map(|entry| entry.path()).collect())
}

/// Appends every Rust file below a folder.
fn read(folder: &Path, tests: &mut String) -> Result<()> {
    for path in entries(folder)? {
        if path.is_dir() && !path.ends_with("target") {
            read(&path, tests)?;
        } else if path.extension().is_some_and(|kind| kind == "rs") {
            tests.push_str(
                &std::fs::read_to_string(&path).with_context(|| format!("failed to read {}", path.display()))?,
            );
        }
    }
    Ok(())
}

/// The public fields of a struct.
fn fields<'a>(source: &'a str, name: &str) -> Vec<&'a str> {
    let body = source
        .split_once(&format!("struct {name} {{"))
        .map_or("", |(_, rest)| rest);
    let lines = body.lines().take_while(|line| *line != "}").map(str::trim);
    let named = lines.filter_map(|line| line.strip_prefix("pub ").or_else(|| line.strip_prefix("pub(crate) ")));
    named.filter_map(|field| Some(field.split_once(':')?.0)).collect()
}

fn is_set(tests: &str, called: &str, field: &str) -> bool {
    let text = format!("{called}.{field}");
    let ends = |rest: &str| !rest.starts_with(|next: char| next.is_alphanumeric() || next == '_');
    tests
        .match_indices(&text)
        .any(|(at, _)| ends(tests.get(at + text.len()..).unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str = "pub struct Faults {\n    /// A doc: comment.\n    pub slow: bool,\n    pub(crate) slower: Option<u32>,\n}\n\
                          pub struct Other {\n    pub else_where: bool,\n}\n";

    #[test]
    fn a_switch_counts_as_set_only_by_its_whole_name() {
        assert_eq!(fields(SOURCE, "Faults"), ["slow", "slower"]);
        assert_eq!(fields(SOURCE, "Missing"), [""; 0]);
        let tests = "mac.set_faults(|faults| faults.slower = Some(1)); quirks.slow = true;";
        assert!(is_set(tests, "faults", "slower"));
        assert!(!is_set(tests, "faults", "slow"));
    }

    #[test]
    fn every_switch_of_this_workspace_is_set() {
        check(Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()).unwrap();
    }
}
