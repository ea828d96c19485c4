//! moon over gRPC, with zstd: two projects with one task each. The token's environment variable is named in the configuration.

use crate::{
    Claim, Kit, Target,
    plan::{Invocation, Plan, Site},
};

pub(super) fn plan(kit: &Kit, site: &Site, target: &Target) -> Plan {
    let mut plan = Plan::default();
    let project = site.project();
    let auth = if target.token().is_some() {
        "\n  auth:\n    token: 'CACHE_TOKEN'"
    } else {
        ""
    };
    plan.file(
        project.join(".moon/workspace.yml"),
        format!(
            "projects: ['one', 'two']\ntelemetry: false\nvcs:\n  defaultBranch: 'master'\nremote:\n  host: '{}'{auth}\n  cache:\n    \
             compression: 'zstd'\n    instanceName: '{}'\n",
            target.grpc(),
            target.project()
        ),
    );
    for unit in super::UNITS {
        let folder = project.join(unit);
        plan.file(
            folder.join("moon.yml"),
            "language: unknown\ntasks:\n  build:\n    command: 'bash -c \"mkdir -p out && cat in.txt in.txt > out/o.txt\"'\n    \
             inputs: ['in.txt']\n    outputs: ['out']\n    toolchains: ['system']\n",
        );
        plan.file(folder.join("in.txt"), format!("{} {unit}\n", site.seed));
        plan.state.push(folder.join("out"));
        plan.outputs.push(folder.join("out/o.txt"));
    }
    plan.state.push(project.join(".moon/cache"));
    let mut moon = Invocation::new(kit.command("node"), &project)
        .args([kit.main.join("node_modules/.bin/moon")])
        .args(["run", "one:build", "two:build"])
        .env("MOON_TOOLCHAIN_FORCE_GLOBALS", "true")
        .env("PROTO_OFFLINE", "true");
    if let Some(token) = target.token() {
        moon = moon.env("CACHE_TOKEN", token);
    }
    // moon finds its workspace through git and compares with the latest commit; an empty one will do.
    let git = || {
        Invocation::new(kit.command("git"), &project)
            .args(["-c", "init.defaultBranch=master", "-c", "user.name=russet"])
            .args(["-c", "user.email=russet@localhost", "-c", "commit.gpgSign=false"])
    };
    let init = git().args(["init", "--quiet"]);
    let commit = git().args(["commit", "--quiet", "--allow-empty", "--message=tiny"]);
    plan.build = vec![init, commit, moon];
    plan
}

/// One line per task: `▮▮▮▮ one:build (cached from remote, 5ms, …)`.
pub(super) fn claim(output: &str) -> Claim {
    let hits = output
        .lines()
        .filter(|line| line.contains("cached from remote"))
        .count() as u64;
    let done = super::UNITS
        .iter()
        .filter(|unit| output.contains(&format!("{unit}:build")))
        .count() as u64;
    Claim::of(hits, done.saturating_sub(hits))
}
