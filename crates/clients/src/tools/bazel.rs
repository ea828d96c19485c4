//! Bazel, over HTTP or gRPC: two genrules. Credentials and the URL go into a bazelrc of mode 0600, since the flags for them would
//! be visible to everybody.

use std::{ffi::OsString, fs, path::PathBuf};

use crate::{
    Claim, Kit, Target, Tool,
    plan::{Invocation, Plan, Site, number_before},
};

pub(super) fn plan(kit: &Kit, site: &Site, target: &Target) -> Plan {
    let mut plan = Plan::default();
    let project = site.project();
    plan.file(project.join("WORKSPACE"), "");
    for unit in super::UNITS {
        plan.file(project.join(format!("{unit}.txt")), format!("{} {unit}\n", site.seed));
        plan.outputs.push(project.join(format!("bazel-bin/{unit}.out")));
    }
    let rules = super::UNITS.map(|unit| {
        format!(
            "genrule(name = \"{unit}\", srcs = [\"{unit}.txt\"], outs = [\"{unit}.out\"], cmd = \"cat $< $< > $@\")\n"
        )
    });
    plan.file(project.join("BUILD"), rules.concat());
    let rc = site.dir.join("bazelrc");
    plan.secret_file(&rc, configuration(kit.tool, target));
    let bazel = || {
        let tree = &kit.main;
        Invocation::new(tree.join("usr/bin/bazel-4"), &project)
            .args([format!("--install_base={}", tree.join("usr/share/bazel").display())])
            .args([
                "--trust_install_base",
                "--nosystem_rc",
                "--nohome_rc",
                "--noworkspace_rc",
            ])
            .args([format!("--bazelrc={}", rc.display())])
            .args([format!("--output_user_root={}", site.keep("bazel").display())])
            .args(["--max_idle_secs=60", "--host_jvm_args=-Xmx256m"])
            .args(["--host_jvm_args=-XX:TieredStopAtLevel=1"])
            .env("LD_LIBRARY_PATH", libraries(kit))
            .env("USER", "russet")
    };
    plan.forget = vec![bazel().args(["clean"])];
    plan.build = vec![bazel().args(["build", "--config=cache", "//:all"])];
    plan.stop = vec![bazel().args(["shutdown"])];
    plan
}

/// The cache is a named configuration: `clean` inherits what is said for `build`, and fails when it cannot reach a gRPC cache.
fn configuration(tool: Tool, target: &Target) -> String {
    let common = "build --spawn_strategy=local --jobs=2 --color=no --curses=no --noshow_progress --remote_upload_local_results=true";
    let cache = if tool == Tool::BazelGrpc {
        format!("{} --remote_instance_name={}", target.grpc(), target.project())
    } else {
        target.under("bazel")
    };
    let credentials = target.token().map_or_else(String::new, |token| {
        format!("build:cache \"--remote_header=authorization=Bearer {token}\"\n")
    });
    format!("{common}\nbuild:cache --remote_cache={cache}\n{credentials}")
}

/// The folders of shared libraries in the unpacked tree; their name depends on the machine.
fn libraries(kit: &Kit) -> OsString {
    let lib = kit.main.join("usr/lib");
    let folders: Vec<PathBuf> = fs::read_dir(lib)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.to_string_lossy().ends_with("-linux-gnu"))
        .collect();
    std::env::join_paths(folders).unwrap_or_default()
}

/// `INFO: 4 processes: 2 remote cache hit, 2 internal.`
pub(super) fn claim(output: &str) -> Claim {
    let Some(line) = output
        .lines()
        .find(|line| line.starts_with("INFO: ") && (line.contains(" processes: ") || line.contains(" process: ")))
    else {
        return Claim::default();
    };
    Claim::of(
        number_before(line, " remote cache hit").unwrap_or(0),
        number_before(line, " local").unwrap_or(0),
    )
}
