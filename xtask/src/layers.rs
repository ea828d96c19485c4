//! `xtask check-layers`: dependencies between our crates point down.
//!
//! ```text
//! ships   bin/russet ──▶ bin/* ──▶ crates/* ──▶ crates/api      xtask uses only crates
//!              │  └────▶ sim/* ──────▶┘
//!              ▼
//! proof   scenarios ──▶ conformance ──▶ stages ──▶ testkit ──▶ crates/*
//!                                         └──▶ sim/*            bench and fuzz may use all of it
//! ```
//!
//! Tests of any package may use testkit, stages and conformance. Scenarios prove programs: which of their files still use a library of
//! ours in place of its program is listed here, and the list may only get shorter.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde::Deserialize;

/// Crates that must stay usable on their own.
const LEAVES: [&str; 3] = ["crates/api", "crates/segstore", "crates/reapi"];
/// The plumbing of controllers; who uses it is a controller.
const PLUMBING: &str = "crates/controller";
/// The one deployable that may start others.
const LAUNCHER: &str = "bin/russet";
/// The part of the proof that the launcher links, since it replays them.
const SCENARIOS: &str = "scenarios";
/// What tests of any package may stand on.
const FOR_TESTS: [&str; 3] = ["testkit", "stages", "conformance"];
/// Libraries of programs that scenarios start.
const SHIPPED: [&str; 4] = [
    "russet_bootstrap",
    "russet_capi_provider",
    "russet_controller",
    "russet_github",
];
/// The scenarios that use one of [`SHIPPED`] and so prove a part of its program only. Take a file out when it starts the program.
const PARTS_ONLY: [&str; 11] = [
    "scenarios/src/crd_pruning.rs",
    "scenarios/src/egress_race.rs",
    "scenarios/src/fleet_key_race.rs",
    "scenarios/src/iam_project_scope.rs",
    "scenarios/src/linux/dash_is_not_bash.rs",
    "scenarios/src/mac/bench.rs",
    "scenarios/src/mac/crash_loop_pid.rs",
    "scenarios/src/mac/legacy_launchctl.rs",
    "scenarios/src/mac/mini.rs",
    "scenarios/src/namespaced_informer.rs",
    "scenarios/src/pem_and_spaces.rs",
];

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
    workspace_root: String,
}

#[derive(Deserialize)]
struct Package {
    manifest_path: String,
    dependencies: Vec<Dependency>,
}

#[derive(Deserialize)]
struct Dependency {
    /// None for an ordinary dependency, else `dev` or `build`.
    kind: Option<String>,
    /// Only for dependencies by path, which all of ours are.
    path: Option<String>,
}

/// Where a crate lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Layer {
    Deployable,
    Library,
    Simulation,
    /// testkit, stages, conformance, scenarios, bench, fuzz: proof, not product.
    Proof,
    Xtask,
}

impl Layer {
    fn of(folder: &str) -> Option<Self> {
        match root_of(folder) {
            "bin" => Some(Self::Deployable),
            "crates" => Some(Self::Library),
            "sim" => Some(Self::Simulation),
            "testkit" | "stages" | "conformance" | "scenarios" | "bench" | "fuzz" => Some(Self::Proof),
            "xtask" => Some(Self::Xtask),
            _ => None,
        }
    }
}

/// Fails if a dependency points up or sideways where it must not.
pub(crate) fn check(root: &Path) -> Result<()> {
    let output = Command::new("cargo")
        .args(["metadata", "--no-deps", "--format-version", "1"])
        .current_dir(root)
        .output()
        .context("failed to start `cargo metadata`; is cargo on the PATH?")?;
    if !output.status.success() {
        bail!("`cargo metadata` failed:\n{}", String::from_utf8_lossy(&output.stderr));
    }
    let metadata: Metadata =
        serde_json::from_slice(&output.stdout).context("failed to understand the answer of `cargo metadata`")?;
    let mut violations = violations(&metadata);
    violations.extend(parts_only(&uses_of_shipped(root)?, &PARTS_ONLY));
    if violations.is_empty() {
        return Ok(());
    }
    bail!(
        "dependencies must point down, and scenarios prove programs (see ARCHITECTURE.md):\n{}",
        violations.join("\n")
    );
}

fn violations(metadata: &Metadata) -> Vec<String> {
    let folder = |path: &str| -> String {
        let path = path.replace('\\', "/");
        let relative = path
            .strip_prefix(&metadata.workspace_root.replace('\\', "/"))
            .unwrap_or(&path);
        relative
            .trim_matches('/')
            .trim_end_matches("Cargo.toml")
            .trim_end_matches('/')
            .to_owned()
    };
    // Folder of a crate -> folders of ours it depends on, with the kind of dependency.
    let mut graph: BTreeMap<String, Vec<(String, Option<&str>)>> = BTreeMap::new();
    for package in &metadata.packages {
        let ours = package
            .dependencies
            .iter()
            .filter_map(|d| Some((folder(d.path.as_deref()?), d.kind.as_deref())));
        graph.insert(folder(&package.manifest_path), ours.collect());
    }
    let is_controller = |folder: &str| {
        folder != PLUMBING
            && Layer::of(folder) != Some(Layer::Proof)
            && folder != LAUNCHER
            && graph
                .get(folder)
                .is_some_and(|deps| deps.iter().any(|(to, kind)| to == PLUMBING && *kind != Some("dev")))
    };
    let mut found = Vec::new();
    for (from, dependencies) in &graph {
        let Some(layer) = Layer::of(from) else {
            found.push(format!(
                "{from}: belongs to no layer; put it under bin/, crates/, sim/, testkit, stages, conformance, scenarios, bench, fuzz or xtask"
            ));
            continue;
        };
        for (to, kind) in dependencies {
            if let Some(why) = forbidden(layer, from, to, *kind, is_controller(from) && is_controller(to)) {
                found.push(format!("{from} -> {to}: {why}"));
            }
        }
    }
    found
}

fn root_of(folder: &str) -> &str {
    folder.split('/').next().unwrap_or_default()
}

/// Why this dependency must not be, if so.
fn forbidden(layer: Layer, from: &str, to: &str, kind: Option<&str>, both_controllers: bool) -> Option<&'static str> {
    let target = Layer::of(to)?;
    let test_only = kind == Some("dev");
    if LEAVES.contains(&from) && !test_only {
        return Some("this crate must stay usable on its own, so it depends on no sibling");
    }
    if both_controllers && !test_only {
        return Some(
            "controllers do not depend on each other; what they share belongs in crates/controller or crates/api",
        );
    }
    let (from_root, to_root) = (root_of(from), root_of(to));
    match (layer, target) {
        (_, Layer::Xtask) => Some("xtask is a program, not a library"),
        (_, Layer::Library) | (Layer::Simulation, Layer::Simulation) => None,
        (Layer::Proof, _) => match (from_root, target) {
            ("testkit", Layer::Simulation) => {
                Some("testkit serves what needs no emulator; what does belongs into stages")
            }
            ("testkit" | "stages" | "conformance", Layer::Deployable) => {
                Some("testkit, stages and conformance know a program by what it is started with, never as a library")
            }
            ("testkit", Layer::Proof) if to_root != "testkit" => Some("testkit is the lowest of the proof"),
            ("stages", Layer::Proof) if !["testkit", "stages"].contains(&to_root) => {
                Some("stages depend on testkit alone of the proof")
            }
            _ => None,
        },
        (Layer::Deployable | Layer::Library, Layer::Simulation) if test_only => None,
        (_, Layer::Deployable | Layer::Simulation) if from == LAUNCHER => None,
        (_, Layer::Proof) if from == LAUNCHER && to == SCENARIOS => None,
        (Layer::Deployable | Layer::Library | Layer::Simulation, Layer::Proof)
            if test_only && FOR_TESTS.contains(&to_root) =>
        {
            None
        }
        (_, Layer::Deployable) => Some("only bin/russet, scenarios and bench may depend on a deployable"),
        (_, Layer::Simulation) => Some("nothing that ships depends on sim/, bin/russet apart"),
        (_, Layer::Proof) => Some(
            "nothing depends on testkit, stages, conformance, scenarios, bench or fuzz, but tests on the first three and bin/russet on scenarios",
        ),
    }
}

/// The files under `scenarios/` that use one of [`SHIPPED`].
fn uses_of_shipped(root: &Path) -> Result<BTreeSet<String>> {
    let mut found = BTreeSet::new();
    let mut folders = vec![root.join(SCENARIOS)];
    while let Some(folder) = folders.pop() {
        let entries = std::fs::read_dir(&folder).with_context(|| format!("failed to read {}", folder.display()))?;
        for entry in entries {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text =
                    std::fs::read_to_string(&path).with_context(|| format!("failed to read {}", path.display()))?;
                if uses_shipped(&text) {
                    let relative = path.strip_prefix(root).unwrap_or(&path);
                    found.insert(relative.to_string_lossy().replace('\\', "/"));
                }
            }
        }
    }
    Ok(found)
}

/// Whether a source names one of [`SHIPPED`] in a path; log filters and comments name them, too.
fn uses_shipped(source: &str) -> bool {
    let mut code = source
        .lines()
        .map(str::trim_start)
        .filter(|line| !line.starts_with("//"));
    code.any(|line| {
        SHIPPED.iter().any(|library| {
            let renamed = |keyword: &str| line.starts_with(&format!("{keyword} {library}"));
            line.contains(&format!("{library}::")) || renamed("use") || renamed("extern crate")
        })
    })
}

/// What is wrong between the scenarios that use a shipped library and those that may.
fn parts_only(using: &BTreeSet<String>, listed: &[&str]) -> Vec<String> {
    let new = using.iter().filter(|file| !listed.contains(&file.as_str()));
    let new = new.map(|file| format!("{file}: uses a library of a shipped program; a scenario starts the program"));
    let done = listed.iter().filter(|file| !using.contains(**file));
    let done = done
        .map(|file| format!("{file}: uses no library of a shipped program any more; take it off the list in xtask"));
    new.chain(done).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A workspace from `from: to to(dev) ...` lines.
    fn workspace(lines: &str) -> Metadata {
        let packages = lines.trim().lines().map(|line| {
            let (from, to) = line.trim().split_once(':').unwrap();
            let dependencies = to.split_whitespace().map(|to| {
                let (path, kind) = match to.strip_suffix("(dev)") {
                    Some(path) => (path, Some("dev".to_owned())),
                    None => (to, None),
                };
                Dependency {
                    kind,
                    path: Some(format!("/w/{path}")),
                }
            });
            Package {
                manifest_path: format!("/w/{from}/Cargo.toml"),
                dependencies: dependencies.collect(),
            }
        });
        Metadata {
            packages: packages.collect(),
            workspace_root: "/w".into(),
        }
    }

    #[track_caller]
    fn refused(lines: &str, expected: &str) {
        let found = violations(&workspace(lines));
        assert!(found.len() == 1 && found[0].contains(expected), "{found:?}");
    }

    #[test]
    fn the_intended_shape_is_accepted() {
        let good = "
            bin/russet: bin/kura sim/scaleway crates/cluster scenarios
            bin/kura: crates/segstore crates/telemetry conformance(dev) stages(dev)
            bin/kura-controller: crates/controller crates/api sim/scaleway(dev) testkit(dev)
            crates/controller: crates/api crates/telemetry testkit(dev)
            crates/telemetry:
            crates/cluster: crates/parts testkit(dev)
            crates/parts:
            crates/api: testkit(dev)
            crates/segstore: sim/tart(dev)
            crates/bootstrap: stages/linux-box(dev)
            sim/scaleway: crates/api sim/tart testkit(dev)
            sim/tart:
            testkit: crates/cluster crates/api
            stages: testkit sim/scaleway crates/cluster
            stages/linux-box:
            conformance: stages testkit
            scenarios: conformance stages testkit bin/kura sim/tart
            bench: bin/kura stages
            xtask: crates/api";
        assert_eq!(violations(&workspace(good)), Vec::<String>::new());
    }

    #[test]
    fn leaves_depend_on_no_sibling() {
        refused(
            "crates/api: crates/telemetry\ncrates/telemetry:",
            "crates/api -> crates/telemetry",
        );
        refused("crates/segstore: crates/api\ncrates/api:", "usable on its own");
    }

    #[test]
    fn what_ships_depends_on_no_simulation() {
        refused("bin/kura: sim/tart\nsim/tart:", "nothing that ships depends on sim/");
        refused("crates/vm: sim/tart\nsim/tart:", "nothing that ships depends on sim/");
    }

    #[test]
    fn nothing_depends_on_the_proof_of_it() {
        for proof in [
            "testkit",
            "stages",
            "stages/linux-box",
            "conformance",
            "scenarios",
            "bench",
        ] {
            for folder in ["bin/kura", "crates/vm", "sim/tart"] {
                refused(&format!("{folder}: {proof}\n{proof}:"), "nothing depends on testkit");
            }
        }
        for proof in ["testkit", "stages", "conformance", "bench"] {
            refused(&format!("bin/russet: {proof}\n{proof}:"), "nothing depends on testkit");
        }
        refused("bin/kura: scenarios(dev)\nscenarios:", "nothing depends on testkit");
        refused("crates/vm: bench(dev)\nbench:", "nothing depends on testkit");
        refused("crates/vm: xtask\nxtask:", "xtask is a program");
    }

    #[test]
    fn what_tests_stand_on_knows_programs_by_what_they_are_started_with() {
        refused("testkit: sim/tart\nsim/tart:", "needs no emulator");
        refused("testkit: stages\nstages:", "the lowest");
        refused("stages: conformance\nconformance:", "testkit alone");
        for proof in ["testkit", "stages", "conformance"] {
            refused(&format!("{proof}: bin/kura\nbin/kura:"), "never as a library");
            refused(&format!("{proof}: bin/kura(dev)\nbin/kura:"), "never as a library");
        }
    }

    #[test]
    fn the_list_of_scenarios_that_prove_a_part_may_only_get_shorter() {
        let using = |files: &[&str]| files.iter().map(|file| (*file).to_owned()).collect::<BTreeSet<_>>();
        assert_eq!(
            parts_only(&using(&["a.rs", "b.rs"]), &["a.rs", "b.rs"]),
            [] as [&str; 0]
        );
        let new = parts_only(&using(&["a.rs", "b.rs"]), &["a.rs"]);
        assert!(new.len() == 1 && new[0].starts_with("b.rs: uses a library"), "{new:?}");
        let done = parts_only(&using(&["a.rs"]), &["a.rs", "b.rs"]);
        assert!(done.len() == 1 && done[0].contains("take it off the list"), "{done:?}");
    }

    #[test]
    fn a_use_of_a_shipped_library_is_told_from_its_mention() {
        assert!(uses_shipped("use russet_github::Client;"));
        assert!(uses_shipped("use russet_github as github;"));
        assert!(uses_shipped("    let scope = russet_controller::Scope::All;"));
        assert!(!uses_shipped(
            "// as russet_controller::Scope says\nlet log = \"info,russet_controller=debug\";"
        ));
        assert!(!uses_shipped("use russet_stages::macs::Fleet;"));
    }

    #[test]
    fn deployables_and_controllers_do_not_depend_on_each_other() {
        refused("bin/kura: bin/server\nbin/server:", "only bin/russet");
        refused("crates/vm: bin/server\nbin/server:", "only bin/russet");
        refused(
            "crates/a: crates/controller crates/b\ncrates/b: crates/controller\ncrates/controller:",
            "controllers do not depend on each other",
        );
    }

    #[test]
    fn a_crate_outside_the_layout_is_named() {
        refused("stuff/x:", "belongs to no layer");
    }

    #[test]
    fn the_answer_of_cargo_is_understood() {
        let answer = r#"{"packages":[{"name":"a","manifest_path":"/w/crates/a/Cargo.toml","dependencies":[
            {"name":"serde","kind":null},{"name":"b","kind":"dev","path":"/w/sim/b"}]}],"workspace_root":"/w"}"#;
        let metadata: Metadata = serde_json::from_str(answer).unwrap();
        assert_eq!(violations(&metadata), Vec::<String>::new());
        assert_eq!(metadata.packages[0].dependencies[1].path.as_deref(), Some("/w/sim/b"));
    }
}
