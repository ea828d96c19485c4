//! `xtask generate`: every generated file, written or compared.
//!
//! Generated files are committed, so that a reader and Helm need no toolchain; the check keeps them honest.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::{chart, clusterctl, reference};

/// Files by their path from the root of the workspace.
type Files = BTreeMap<PathBuf, String>;

/// Writes all generated files and removes those nobody generates any more.
pub(crate) fn write(root: &Path) -> Result<()> {
    let wanted = render_all(root)?;
    for stale in existing(root)?.into_keys().filter(|path| !wanted.contains_key(path)) {
        fs::remove_file(root.join(&stale)).with_context(|| format!("failed to remove {}", stale.display()))?;
    }
    for (path, text) in &wanted {
        let full = root.join(path);
        if let Some(folder) = full.parent() {
            fs::create_dir_all(folder).with_context(|| format!("failed to make {}", folder.display()))?;
        }
        // Unchanged files keep their time stamp, or everything that includes them is built again.
        if fs::read_to_string(&full).ok().as_ref() != Some(text) {
            fs::write(&full, text).with_context(|| format!("failed to write {}", path.display()))?;
        }
    }
    Ok(())
}

/// Fails if a generated file is not what [`write`] would write.
pub(crate) fn check(root: &Path) -> Result<()> {
    let differences = differences(&render_all(root)?, &existing(root)?);
    if differences.is_empty() {
        return Ok(());
    }
    bail!(
        "{} generated file(s) differ from what they come from; run `cargo run -p xtask -- generate` and commit the result\n\n{}",
        differences.len(),
        differences.join("\n")
    );
}

/// Everything: what needs nothing but our own crates, and what Helm renders.
fn render_all(root: &Path) -> Result<Files> {
    let mut files = render()?;
    files.extend(clusterctl::files(root)?);
    Ok(files)
}

fn render() -> Result<Files> {
    let crds = russet_api::all_crds();
    let mut files = Files::new();
    for crd in &crds {
        let (name, text) = chart::template(crd)?;
        files.insert(Path::new(chart::FOLDER).join(name), text);
        let (name, text) = reference::page(crd)?;
        files.insert(Path::new(reference::FOLDER).join(name), text);
    }
    files.insert(Path::new(reference::FOLDER).join("README.md"), reference::index(&crds));
    Ok(files)
}

/// The generated files that are there: all YAML of the chart's templates, all pages of the reference, and the clusterctl files of
/// every version.
fn existing(root: &Path) -> Result<Files> {
    let mut files = Files::new();
    let mut folders = vec![
        (PathBuf::from(chart::FOLDER), "yaml"),
        (PathBuf::from(reference::FOLDER), "md"),
    ];
    for version in fs::read_dir(root.join(clusterctl::FOLDER)).into_iter().flatten() {
        let name = version.context("failed to list the clusterctl files")?.file_name();
        folders.push((Path::new(clusterctl::FOLDER).join(name), "yaml"));
    }
    for (folder, extension) in folders {
        let Ok(entries) = fs::read_dir(root.join(&folder)) else {
            continue;
        };
        for entry in entries {
            let name = entry
                .with_context(|| format!("failed to list {}", folder.display()))?
                .file_name();
            let path = folder.join(name);
            if path.extension().is_some_and(|e| e == extension) {
                let text = fs::read_to_string(root.join(&path));
                files.insert(
                    path.clone(),
                    text.with_context(|| format!("failed to read {}", path.display()))?,
                );
            }
        }
    }
    Ok(files)
}

fn differences(wanted: &Files, found: &Files) -> Vec<String> {
    let missing = wanted.iter().filter(|(path, _)| !found.contains_key(*path));
    let stale = found.keys().filter(|path| !wanted.contains_key(*path));
    let changed = wanted.iter().filter_map(|(path, new)| {
        let old = found.get(path).filter(|old| *old != new)?;
        let diff = similar::TextDiff::from_lines(old, new);
        let name = path.display().to_string();
        Some(
            diff.unified_diff()
                .context_radius(2)
                .header(&name, "generated")
                .to_string(),
        )
    });
    missing
        .map(|(path, _)| format!("{}: missing\n", path.display()))
        .chain(stale.map(|path| format!("{}: no longer generated\n", path.display())))
        .chain(changed)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(entries: &[(&str, &str)]) -> Files {
        entries
            .iter()
            .map(|(path, text)| (PathBuf::from(path), (*text).to_owned()))
            .collect()
    }

    #[test]
    fn equal_files_have_no_difference() {
        assert!(differences(&files(&[("a", "x\n")]), &files(&[("a", "x\n")])).is_empty());
    }

    #[test]
    fn a_changed_file_shows_the_lines_that_changed() {
        let found = differences(&files(&[("a", "one\ntwo\n")]), &files(&[("a", "one\n2\n")]));
        assert_eq!(found.len(), 1);
        assert!(found[0].contains("-2") && found[0].contains("+two"), "{}", found[0]);
    }

    #[test]
    fn missing_and_stale_files_are_named() {
        let found = differences(&files(&[("new", "")]), &files(&[("old", "")]));
        assert_eq!(found, ["new: missing\n", "old: no longer generated\n"]);
    }

    #[test]
    fn every_kind_has_a_template_and_a_page() {
        let files = render().unwrap();
        let count = |folder: &str| files.keys().filter(|p| p.starts_with(folder)).count();
        assert_eq!(count(chart::FOLDER), russet_api::all_crds().len());
        assert_eq!(count(reference::FOLDER), russet_api::all_crds().len() + 1);
    }
}
