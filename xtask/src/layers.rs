//! `xtask check-layers`: dependencies between our crates point down.
//!
//! ```text
//! bin/russet ──▶ bin/* ──▶ crates/* ──▶ crates/api
//!      └──────▶ sim/* ──────▶┘   e2e, bench and fuzz may use all of it; xtask only crates;
//!                                bin/russet also uses e2e, whose scenarios it replays
//! ```

use std::collections::BTreeMap;
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
/// Where the scenarios are that the launcher replays.
const SCENARIOS: &str = "e2e";

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
    /// testkit, e2e, bench, fuzz: proof, not product.
    Proof,
    Xtask,
}

impl Layer {
    fn of(folder: &str) -> Option<Self> {
        match folder.split('/').next() {
            Some("bin") => Some(Self::Deployable),
            Some("crates") => Some(Self::Library),
            Some("sim") => Some(Self::Simulation),
            Some("testkit" | "e2e" | "bench" | "fuzz") => Some(Self::Proof),
            Some("xtask") => Some(Self::Xtask),
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
    let violations = violations(&metadata);
    if violations.is_empty() {
        return Ok(());
    }
    bail!(
        "dependencies must point down (see ARCHITECTURE.md):\n{}",
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
                "{from}: belongs to no layer; put it under bin/, crates/, sim/, testkit/, e2e, bench, fuzz or xtask"
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
    match (layer, target) {
        (_, Layer::Xtask) => Some("xtask is a program, not a library"),
        (Layer::Proof, _) | (_, Layer::Library) | (Layer::Simulation, Layer::Simulation) => None,
        (Layer::Deployable | Layer::Library, Layer::Simulation) if test_only => None,
        (_, Layer::Deployable | Layer::Simulation) if from == LAUNCHER => None,
        (_, Layer::Proof) if from == LAUNCHER && to == SCENARIOS => None,
        (_, Layer::Proof) if test_only && to.starts_with("testkit/") => None,
        // The harness that starts real clusters, for the tests of what runs on them.
        (Layer::Deployable, Layer::Proof) if test_only && to == SCENARIOS => None,
        (_, Layer::Deployable) => Some("only bin/russet and e2e may depend on a deployable"),
        (_, Layer::Simulation) => Some("nothing that ships depends on sim/, bin/russet apart"),
        (_, Layer::Proof) => Some("nothing depends on e2e, bench or fuzz, bin/russet and its replays apart"),
    }
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
            bin/russet: bin/kura sim/scaleway crates/cluster e2e
            bin/kura: crates/segstore crates/telemetry
            bin/kura-controller: crates/controller crates/api sim/scaleway(dev)
            crates/controller: crates/api crates/telemetry
            crates/telemetry:
            crates/cluster: crates/parts
            crates/parts:
            crates/api:
            crates/segstore: sim/tart(dev) testkit/skip(dev)
            testkit/skip:
            sim/scaleway: crates/api sim/tart
            sim/tart:
            e2e: crates/cluster bin/kura sim/tart
            bench: bin/kura
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
        refused("bin/kura: e2e\ne2e:", "nothing depends on e2e");
        refused("crates/vm: e2e\ne2e:", "nothing depends on e2e");
        refused("bin/russet: bench\nbench:", "nothing depends on e2e");
        refused("crates/vm: testkit/skip\ntestkit/skip:", "nothing depends on e2e");
        refused("crates/vm: xtask\nxtask:", "xtask is a program");
    }

    #[test]
    fn deployables_and_controllers_do_not_depend_on_each_other() {
        refused("bin/kura: bin/server\nbin/server:", "only bin/russet and e2e");
        refused("crates/vm: bin/server\nbin/server:", "only bin/russet and e2e");
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
