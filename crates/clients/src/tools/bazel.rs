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
    let mut rules = String::new();
    for unit in super::UNITS {
        rules.push_str(&format!(
            "genrule(name = \"{unit}\", srcs = [\"{unit}.txt\"], outs = [\"{unit}.out\"], cmd = \"cat $< $< > $@\")\n"
        ));
        plan.file(project.join(format!("{unit}.txt")), format!("{} {unit}\n", site.seed));
        plan.outputs.push(project.join(format!("bazel-bin/{unit}.out")));
    }
    plan.file(project.join("BUILD"), rules);
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
    plan.build = vec![bazel().args(["build", "//:all"])];
    plan.stop = vec![bazel().args(["shutdown"])];
    plan
}

fn configuration(tool: Tool, target: &Target) -> String {
    let mut text = String::from(
        "build --spawn_strategy=local --jobs=2 --color=no --curses=no --noshow_progress --remote_upload_local_results=true\n",
    );
    if tool == Tool::BazelGrpc {
        text.push_str(&format!(
            "build --remote_cache={} --remote_instance_name={}\n",
            target.grpc(),
            target.project()
        ));
    } else {
        text.push_str(&format!("build --remote_cache={}\n", target.under("bazel")));
    }
    if let Some(token) = target.token() {
        text.push_str(&format!("build \"--remote_header=authorization=Bearer {token}\"\n"));
    }
    text
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
