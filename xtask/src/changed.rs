//! `make test CHANGED=<commit>`: the tests that a change can reach, by cargo's graph and by the programs that tests start.
//!
//! Cargo does not know that a test starts a program or reads a chart, so packages say it in their manifests:
//!
//! ```toml
//! [package.metadata.starts.it]        # the test target
//! kura = ["scope_confusion"]          # a package whose program it starts: only tests with this in their names; [] means all
//! "charts/capi-provider" = []         # a folder that it reads
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use crate::test_run::Program;

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
    workspace_root: String,
}

#[derive(Deserialize)]
struct Package {
    name: String,
    manifest_path: String,
    dependencies: Vec<Dependency>,
    #[serde(default)]
    metadata: Option<OurMetadata>,
}

#[derive(Deserialize)]
struct Dependency {
    name: String,
    /// None for an ordinary dependency, else `dev` or `build`.
    kind: Option<String>,
    path: Option<String>,
}

#[derive(Default, Deserialize)]
struct OurMetadata {
    /// By test target: what it starts or reads, and which of its tests do.
    #[serde(default)]
    starts: BTreeMap<String, BTreeMap<String, Vec<String>>>,
}

/// What a change can reach.
pub(crate) struct Changed {
    packages: Vec<Package>,
    /// Packages whose library or programs are other than before.
    rebuilt: BTreeSet<String>,
    /// Folders and files, relative to the workspace.
    files: Vec<String>,
    /// A file that all packages depend on.
    everything: bool,
}

/// A change of these can change what every package is compiled to.
const SHARED: [&str; 3] = ["Cargo.toml", "Cargo.lock", "rust-toolchain.toml"];

impl Changed {
    /// What changed since a commit, with what is not committed yet; `1` stands for that alone, or for the last commit if there is none.
    pub(crate) fn since(root: &Path, base: &str) -> Result<Self> {
        let mut files = Vec::new();
        if base == "1" {
            files = differing(root, "HEAD")?;
        }
        if files.is_empty() {
            files = differing(root, if base == "1" { "HEAD~1" } else { base })?;
        }
        let output = Command::new("cargo")
            .args(["metadata", "--no-deps", "--format-version", "1"])
            .current_dir(root)
            .output()
            .context("failed to start `cargo metadata`")?;
        let metadata = serde_json::from_slice(&output.stdout).context("failed to understand `cargo metadata`")?;
        let changed = Self::new(metadata, files);
        eprintln!(
            "changed: {} files; compiled anew: {}",
            changed.files.len(),
            if changed.everything {
                "everything".to_owned()
            } else {
                Vec::from_iter(changed.rebuilt.clone()).join(", ")
            }
        );
        Ok(changed)
    }

    fn new(metadata: Metadata, files: Vec<String>) -> Self {
        let Metadata {
            packages,
            workspace_root,
        } = metadata;
        let folder = |package: &Package| {
            let folder = package.manifest_path.trim_end_matches("Cargo.toml").to_owned();
            folder
                .trim_start_matches(&workspace_root)
                .trim_start_matches('/')
                .to_owned()
        };
        let owner = |file: &String| {
            let holding = packages.iter().filter(|package| file.starts_with(&folder(package)));
            holding
                .max_by_key(|package| package.manifest_path.len())
                .map(|package| package.name.clone())
        };
        let mut rebuilt: BTreeSet<String> = files.iter().filter_map(owner).collect();
        loop {
            let users = packages.iter().filter(|package| package.uses(&rebuilt, false));
            let users: Vec<String> = users.map(|package| package.name.clone()).collect();
            let before = rebuilt.len();
            rebuilt.extend(users);
            if rebuilt.len() == before {
                break;
            }
        }
        let everything = files.iter().any(|file| SHARED.contains(&file.as_str()));
        Self {
            packages,
            rebuilt,
            files,
            everything,
        }
    }

    /// The programs that hold a test which the change can reach, and the parts of their tests' names.
    pub(crate) fn touched(&self, programs: Vec<Program>) -> Vec<Program> {
        programs
            .into_iter()
            .filter_map(|program| self.reached(program))
            .collect()
    }

    fn reached(&self, mut program: Program) -> Option<Program> {
        let package = self.packages.iter().find(|package| package.name == program.package)?;
        if self.everything || self.rebuilt.contains(&package.name) || package.uses(&self.rebuilt, true) {
            return Some(program);
        }
        let starts = package.metadata.as_ref()?.starts.get(&program.target)?;
        let reached: Vec<&Vec<String>> = starts
            .iter()
            .filter(|(what, _)| self.rebuilt.contains(*what) || self.files.iter().any(|file| file.starts_with(*what)))
            .map(|(_, tests)| tests)
            .collect();
        if reached.is_empty() {
            return None;
        }
        if reached.iter().all(|tests| !tests.is_empty()) {
            program.only = reached.into_iter().flatten().cloned().collect();
        }
        Some(program)
    }
}

impl Package {
    /// Whether it depends on one of these; its tests also by what only they use.
    fn uses(&self, packages: &BTreeSet<String>, tests: bool) -> bool {
        let ours = self.dependencies.iter().filter(|dependency| dependency.path.is_some());
        ours.filter(|dependency| tests || dependency.kind.as_deref() != Some("dev"))
            .any(|dependency| packages.contains(&dependency.name))
    }
}

/// Files that differ from a commit, and those that git does not know yet.
fn differing(root: &Path, commit: &str) -> Result<Vec<String>> {
    let git = |args: &[&str]| -> Result<Vec<String>> {
        let output = Command::new("git")
            .args(args)
            .current_dir(root)
            .output()
            .context("failed to start git")?;
        if !output.status.success() {
            bail!(
                "`git {}` failed: {}",
                args.join(" "),
                String::from_utf8_lossy(&output.stderr).trim()
            );
        }
        Ok(String::from_utf8_lossy(&output.stdout)
            .lines()
            .map(str::to_owned)
            .collect())
    };
    let mut files = git(&["diff", "--name-only", commit])?;
    files.extend(git(&["ls-files", "--others", "--exclude-standard"])?);
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// api ◀─ kura, api ◀─ vm ◀─(dev) kit; scenarios start kura in one test.
    fn changed(files: &[&str]) -> Changed {
        let package = |folder: &str, name: &str, uses: &[(&str, Option<&str>)], starts: serde_json::Value| {
            let dependencies: Vec<_> = uses
                .iter()
                .map(|(name, kind)| serde_json::json!({"name": name, "kind": kind, "path": "/w/x"}))
                .collect();
            serde_json::json!({
                "name": name, "manifest_path": format!("/w/{folder}/Cargo.toml"), "dependencies": dependencies,
                "metadata": {"starts": starts},
            })
        };
        let none = serde_json::json!({});
        let metadata = serde_json::json!({"workspace_root": "/w", "packages": [
            package("crates/api", "api", &[], none.clone()),
            package("crates/vm", "vm", &[("api", None)], none.clone()),
            package("bin/kura", "kura", &[("api", None)], none.clone()),
            package("testkit", "kit", &[("vm", Some("dev"))], none),
            package("scenarios", "scenarios", &[], serde_json::json!({"it": {"kura": ["header_drip"], "charts/kura": []}})),
        ]});
        let metadata = serde_json::from_value(metadata).unwrap();
        Changed::new(metadata, files.iter().map(|file| (*file).to_owned()).collect())
    }

    fn touched(files: &[&str]) -> Vec<(String, Vec<String>)> {
        let programs = ["api", "vm", "kura", "kit", "scenarios"].map(|package| Program {
            package: package.to_owned(),
            target: "it".to_owned(),
            file: "it".into(),
            folder: "/".into(),
            only: Vec::new(),
        });
        let touched = changed(files).touched(programs.into());
        touched
            .into_iter()
            .map(|program| (program.package, program.only))
            .collect()
    }

    fn all(name: &str) -> (String, Vec<String>) {
        (name.to_owned(), Vec::new())
    }

    #[test]
    fn a_change_reaches_users_and_tests_that_start_the_program() {
        let stories = ("scenarios".to_owned(), vec!["header_drip".to_owned()]);
        assert_eq!(touched(&["bin/kura/src/main.rs"]), [all("kura"), stories]);
    }

    #[test]
    fn a_dependency_of_tests_touches_these_tests_and_not_what_uses_their_package() {
        assert_eq!(touched(&["crates/vm/src/lib.rs"]), [all("vm"), all("kit")]);
    }

    #[test]
    fn a_folder_that_tests_read_is_named_beside_them() {
        assert_eq!(touched(&["charts/kura/values.yaml"]), [all("scenarios")]);
    }

    #[test]
    fn a_change_of_the_lock_file_reaches_everything() {
        assert_eq!(touched(&["Cargo.lock"]).len(), 5);
    }

    #[test]
    fn a_document_reaches_nothing() {
        assert_eq!(touched(&["docs/clients.md"]), []);
    }
}
