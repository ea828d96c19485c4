//! Nx with its self-hosted remote cache: two projects with one target each.

use serde_json::json;

use crate::{
    Claim, Kit, Target,
    plan::{Invocation, Plan, Site},
};

pub(super) fn plan(kit: &Kit, site: &Site, target: &Target) -> Plan {
    let mut plan = Plan::default();
    let project = site.project();
    plan.file(
        project.join("package.json"),
        "{\"name\": \"root\", \"private\": true}\n",
    );
    plan.file(project.join("nx.json"), "{\"analytics\": false}\n");
    plan.links
        .push((kit.main.join("node_modules"), project.join("node_modules")));
    for unit in super::UNITS {
        let description = json!({
            "name": unit,
            "targets": {"build": {
                "executor": "nx:run-commands",
                "cache": true,
                "inputs": ["{projectRoot}/in.txt"],
                "outputs": ["{projectRoot}/out"],
                "options": {"command": format!("mkdir -p {unit}/out && cat {unit}/in.txt {unit}/in.txt > {unit}/out/o.txt")},
            }},
        });
        plan.file(project.join(unit).join("project.json"), format!("{description:#}\n"));
        plan.file(project.join(unit).join("in.txt"), format!("{} {unit}\n", site.seed));
        plan.state.push(project.join(unit).join("out"));
        plan.outputs.push(project.join(unit).join("out/o.txt"));
    }
    plan.state.push(project.join(".nx"));
    let mut nx = Invocation::new(kit.command("node"), &project)
        .args([kit.main.join("node_modules/.bin/nx")])
        .args(["run-many", "--target=build"])
        .env("NX_SELF_HOSTED_REMOTE_CACHE_SERVER", target.base())
        .env("NX_DAEMON", "false")
        .env("NX_TUI", "false")
        .env("NX_NO_CLOUD", "true");
    if let Some(token) = target.token() {
        nx = nx.env("NX_SELF_HOSTED_REMOTE_CACHE_ACCESS_TOKEN", token);
    }
    plan.build = vec![nx];
    plan
}

/// `Cache: 2/2 hit (100%)`, and nothing when nothing was hit.
pub(super) fn claim(output: &str) -> Claim {
    let parsed = output.lines().find_map(|line| {
        let (_, rest) = line.split_once("Cache: ")?;
        let (hits, rest) = rest.split_once('/')?;
        let all: u64 = rest.split_whitespace().next()?.parse().ok()?;
        Some((hits.trim().parse::<u64>().ok()?, all))
    });
    match parsed {
        Some((hits, all)) => Claim::of(hits, all.saturating_sub(hits)),
        None => Claim {
            hits: Some(output.matches("[remote cache]").count() as u64),
            misses: None,
        },
    }
}
