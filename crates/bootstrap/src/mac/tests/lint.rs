//! What other programs say about ours: bash, shellcheck, sshd.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use super::{bare, builder, full, plain};
use crate::mac::plan;
use crate::mac::program::{self, Patience};
use crate::mac::resource::Resource;
use crate::mac::steps::ssh;

/// A program of the tests' `parts.toml`, obtained on first use.
async fn part(name: &str) -> PathBuf {
    use russet_parts::{Bars, Manifest, Modules, Options, Store};
    let manifest = Manifest::parse(include_str!("../../../tests/it/parts.toml"), Modules::default()).unwrap();
    let store = Store::new(manifest, Options::from_env());
    let tools = store.ensure(&[name], &Bars::lines()).await.unwrap();
    tools.path(name).unwrap().to_owned()
}

fn lint(command: &mut Command, what: &str, script: &str) {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(script.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(
        output.status.success(),
        "{what}: {}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}

/// What bash 3.2, the one of macOS, does not have. shellcheck knows no version.
const NEWER_THAN_3_2: [&str; 12] = [
    "declare -A",
    "local -A",
    "local -n",
    "mapfile",
    "readarray",
    "coproc",
    "${@@",
    "|&",
    "&>>",
    "[[ -v",
    ",,}",
    "^^}",
];

#[tokio::test]
async fn shellcheck_and_bash_find_nothing_to_complain_about_in_any_program() {
    let shellcheck = part("shellcheck").await;
    let mut programs = Vec::new();
    for (fleet, host) in [(full(), builder()), (plain(), bare())] {
        let steps = plan(&fleet, &host);
        programs.push((
            "survey".to_owned(),
            program::survey(&steps, &host.user, Patience::default()),
        ));
        for step in &steps {
            programs.push((
                step.name().to_owned(),
                program::change(step, &host.user, Patience::default()),
            ));
            for resource in &step.resources {
                if let Resource::File { path, content, .. } = resource
                    && content.expose().starts_with(b"#!/bin/bash")
                {
                    let text = String::from_utf8(content.expose().clone()).unwrap();
                    programs.push((path.clone(), russet_telemetry::Secret::new(text)));
                }
            }
        }
    }
    let frame = program::survey(&[], "", Patience::default());
    let (prelude, _) = frame.expose().split_once("main() {").unwrap();
    for (name, program) in &programs {
        // The prelude is looked at once, with the survey: shellcheck takes its time.
        let text = program.expose();
        let text = if name == "survey" {
            text
        } else {
            text.strip_prefix(prelude).unwrap_or(text)
        };
        for newer in NEWER_THAN_3_2 {
            assert!(!text.contains(newer), "{name} has {newer}");
        }
        lint(Command::new("bash").arg("-n"), name, text);
        // Functions and variables of the prelude that a step has no use for, functions called by composed names, values quoted on
        // purpose, and conditions that are meant as they are read.
        let style = "--exclude=SC2016,SC2034,SC2015,SC2329,SC2317,SC2154";
        lint(
            Command::new(&shellcheck).args(["--shell=bash", "--severity=style", style, "-"]),
            name,
            text,
        );
    }
}

/// A setting sshd does not know keeps it from starting, and the host is lost.
#[tokio::test]
async fn sshd_accepts_the_settings() {
    let tree = part("openssh-server").await;
    let dir = tempfile::tempdir().unwrap();
    let (settings, key) = (dir.path().join("sshd_config"), dir.path().join("key"));
    std::fs::write(&settings, ssh::CONTENT).unwrap();
    let made = Command::new("ssh-keygen")
        .args(["-q", "-t", "ed25519", "-N", "", "-f"])
        .arg(&key)
        .status()
        .unwrap();
    assert!(made.success());
    let libraries: Vec<_> = std::fs::read_dir(tree.join("usr/lib"))
        .unwrap()
        .map(|entry| entry.unwrap().path().display().to_string())
        .collect();
    // It insists on a user and a folder of its own, which a machine need not have.
    let users = dir.path().join("passwd");
    std::fs::write(
        &users,
        "root:x:0:0:root:/root:/bin/bash\nsshd:x:100:65534::/run/sshd:/usr/sbin/nologin\n",
    )
    .unwrap();
    let program = r#"
        mount -t tmpfs tmpfs /run && mkdir -m 0755 /run/sshd && mount --bind "$1" /etc/passwd
        exec "$2" -T -f "$3" -h "$4"
    "#;
    let tried = |settings: &std::path::Path| {
        Command::new("unshare")
            .args([
                "--map-root-user",
                "--mount",
                "--propagation",
                "private",
                "bash",
                "-c",
                program,
                "sshd",
            ])
            .arg(&users)
            .arg(tree.join("usr/sbin/sshd"))
            .arg(settings)
            .arg(&key)
            .env("LD_LIBRARY_PATH", libraries.join(":"))
            .output()
            .unwrap()
    };
    let good = tried(&settings);
    let said = String::from_utf8_lossy(&good.stdout).into_owned();
    assert!(good.status.success(), "{}", String::from_utf8_lossy(&good.stderr));
    for setting in [
        "passwordauthentication no",
        "kbdinteractiveauthentication no",
        "permitrootlogin no",
    ] {
        assert!(said.contains(setting), "{said}");
    }
    std::fs::write(&settings, format!("{}NoSuchSetting yes\n", ssh::CONTENT)).unwrap();
    assert!(!tried(&settings).status.success(), "this test could not fail");
}
