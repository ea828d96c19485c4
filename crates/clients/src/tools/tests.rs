use std::{ffi::OsStr, path::Path};

use russet_telemetry::Secret;

use super::*;

const TOKEN: &str = "a-token-of-this-test-0123456789";

fn plan_of(tool: Tool) -> Plan {
    let site = Site {
        dir: "/nowhere/site".into(),
        seed: "seed".to_owned(),
    };
    let target = Target::new("http://127.0.0.1:4000/", "tiny").with_token(Some(Secret::new(TOKEN.to_owned())));
    plan(&Kit::pretend(tool), &site, &target)
}

/// Arguments are world-readable, and so is a file of mode 0644.
#[test]
fn a_token_is_never_an_argument_and_only_in_files_of_its_owner() {
    for tool in Tool::ALL {
        let plan = plan_of(tool);
        let commands = plan
            .forget
            .iter()
            .chain(&plan.build)
            .chain(&plan.report)
            .chain(&plan.stop);
        for invocation in commands {
            for arg in &invocation.args {
                assert!(!arg.to_string_lossy().contains(TOKEN), "{tool}: {arg:?}");
            }
        }
        for file in &plan.files {
            if file.content.contains(TOKEN) {
                assert_eq!(file.mode, 0o600, "{tool}: {}", file.path.display());
            }
        }
        let reaches_the_tool = plan.files.iter().any(|file| file.content.contains(TOKEN))
            || plan.build.iter().any(|invocation| {
                invocation
                    .env
                    .values()
                    .any(|value| value.to_string_lossy().contains(TOKEN))
            });
        assert!(reaches_the_tool, "{tool} is not given the token at all");
    }
}

#[test]
fn every_tool_is_pointed_at_the_cache_and_at_nothing_else() {
    for tool in Tool::ALL {
        let plan = plan_of(tool);
        let named = |text: &str| text.contains("127.0.0.1:4000");
        let in_files = plan.files.iter().any(|file| named(&file.content));
        let in_env = plan
            .build
            .iter()
            .flat_map(|invocation| invocation.env.values())
            .any(|value| value.to_str().is_some_and(named));
        assert!(in_files || in_env, "{tool}");
    }
}

/// What a second build could find without the cache is gone before it starts, and everything is inside the folder of the site.
#[test]
fn outputs_are_local_state_and_nothing_outside_the_site_is_touched() {
    for tool in Tool::ALL {
        let plan = plan_of(tool);
        assert!(!plan.outputs.is_empty(), "{tool}");
        let inside = |path: &Path| path.starts_with("/nowhere/site");
        assert!(plan.files.iter().all(|file| inside(&file.path)), "{tool}");
        assert!(plan.state.iter().all(|path| inside(path)), "{tool}");
        for output in &plan.outputs {
            let forgotten = plan.state.iter().any(|state| output.starts_with(state));
            // Bazel's outputs are behind a link that `bazel clean` removes.
            let cleaned = plan
                .forget
                .iter()
                .any(|invocation| invocation.args.iter().any(|arg| arg == OsStr::new("clean")));
            assert!(forgotten || cleaned, "{tool}: {}", output.display());
        }
    }
}

/// Lines as the tools printed them.
#[test]
fn what_a_tool_says_is_read() {
    let gradle = "BUILD SUCCESSFUL in 3s\n1 actionable task: 1 from cache\n";
    assert_eq!(claim(Tool::Gradle, gradle, ""), Claim::of(1, 0));
    assert_eq!(
        claim(Tool::Gradle, "2 actionable tasks: 1 executed, 1 from cache", ""),
        Claim::of(1, 1)
    );
    let maven = "[INFO] Found cached build, restoring org.example:answer from cache by checksum 423805b12d4d0902";
    assert_eq!(claim(Tool::Maven, maven, ""), Claim::of(1, 0));
    assert_eq!(
        claim(Tool::Maven, "[INFO] Local build was not found by checksum", ""),
        Claim::of(0, 1)
    );
    let ccache = "cache_miss\t1\ndirect_cache_hit\t2\npreprocessed_cache_hit\t0\n";
    assert_eq!(claim(Tool::Ccache, "", ccache), Claim::of(2, 1));
    let sccache = r#"{"stats": {"cache_hits": {"counts": {"C/C++": 2}}, "cache_misses": {"counts": {}}}}"#;
    assert_eq!(claim(Tool::Sccache, "", sccache), Claim::of(2, 0));
    let bazel = "INFO: Elapsed time: 0.3s\nINFO: 3 processes: 2 remote cache hit, 1 internal.\n";
    assert_eq!(claim(Tool::Bazel, bazel, ""), Claim::of(2, 0));
    assert_eq!(
        claim(Tool::BazelGrpc, "INFO: 3 processes: 1 internal, 2 local.", ""),
        Claim::of(0, 2)
    );
    assert_eq!(
        claim(Tool::Nx, "  Cache:             1/2 hit (50%)", ""),
        Claim::of(1, 1)
    );
    assert_eq!(
        claim(Tool::Turborepo, "Cached:    2 cached, 2 total", ""),
        Claim::of(2, 0)
    );
    let moon = "▮▮▮▮ one:build (cached from remote, 51ms)\n▮▮▮▮ two:build (12ms)\n";
    assert_eq!(claim(Tool::Moon, moon, ""), Claim::of(1, 1));
}

#[test]
fn a_tool_that_said_nothing_claims_nothing() {
    for tool in [
        Tool::Gradle,
        Tool::Ccache,
        Tool::Sccache,
        Tool::Bazel,
        Tool::Turborepo,
        Tool::Metro,
        Tool::Go,
    ] {
        assert_eq!(
            claim(tool, "something else entirely", "garbage {"),
            Claim::default(),
            "{tool}"
        );
    }
}
