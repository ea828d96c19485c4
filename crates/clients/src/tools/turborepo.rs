//! Turborepo with its remote cache alone: two workspaces with a `build` script each.

use serde_json::{Map, Value, json};

use crate::{
    Claim, Kit, Target,
    plan::{Invocation, Plan, Site, number_before},
};

/// Without a token Turborepo does not use its remote cache at all. A cache that asks for none ignores this one.
const NOBODY: &str = "anonymous";

pub(super) fn plan(kit: &Kit, site: &Site, target: &Target) -> Plan {
    let mut plan = Plan::default();
    let project = site.project();
    let root = json!({
        "name": "root",
        "private": true,
        "packageManager": "npm@10.0.0",
        "workspaces": ["packages/*"],
    });
    let mut packages = Map::from_iter([(String::new(), json!({"name": "root", "workspaces": ["packages/*"]}))]);
    for unit in super::UNITS {
        let folder = project.join("packages").join(unit);
        let package = json!({
            "name": unit,
            "version": "1.0.0",
            "scripts": {"build": "mkdir -p out && cat in.txt in.txt > out/o.txt"},
        });
        plan.file(folder.join("package.json"), format!("{package:#}\n"));
        plan.file(folder.join("in.txt"), format!("{} {unit}\n", site.seed));
        plan.state.extend([folder.join("out"), folder.join(".turbo")]);
        plan.outputs.push(folder.join("out/o.txt"));
        packages.insert(
            format!("node_modules/{unit}"),
            json!({"resolved": format!("packages/{unit}"), "link": true}),
        );
        packages.insert(format!("packages/{unit}"), json!({"name": unit, "version": "1.0.0"}));
    }
    let lock = json!({"name": "root", "lockfileVersion": 3, "requires": true, "packages": Value::Object(packages)});
    let turbo = json!({"tasks": {"build": {"inputs": ["in.txt"], "outputs": ["out/**"]}}});
    plan.file(project.join("package.json"), format!("{root:#}\n"));
    plan.file(project.join("package-lock.json"), format!("{lock:#}\n"));
    plan.file(project.join("turbo.json"), format!("{turbo:#}\n"));
    plan.state
        .extend([project.join(".turbo"), project.join("node_modules/.cache")]);
    plan.build = vec![
        Invocation::new(kit.command("node"), &project)
            .args([kit.main.join("node_modules/.bin/turbo")])
            .args(["run", "build", "--cache=remote:rw", "--no-color"])
            .env("TURBO_API", target.base())
            .env("TURBO_TOKEN", target.token().unwrap_or(NOBODY))
            .env("TURBO_TEAM", target.project())
            .env("TURBO_TELEMETRY_DISABLED", "1")
            .env("DO_NOT_TRACK", "1")
            .env("TURBO_NO_UPDATE_NOTIFIER", "1"),
    ];
    plan
}

/// `Cached:    2 cached, 2 total`
pub(super) fn claim(output: &str) -> Claim {
    let Some(line) = output.lines().find(|line| line.trim_start().starts_with("Cached:")) else {
        return Claim::default();
    };
    match (number_before(line, " cached"), number_before(line, " total")) {
        (Some(hits), Some(all)) => Claim::of(hits, all.saturating_sub(hits)),
        _ => Claim::default(),
    }
}
