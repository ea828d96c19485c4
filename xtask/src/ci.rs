//! `xtask ci` and `xtask lint`: every check in the order in which it fails fastest, with the time each took.
//!
//! The order matters on two cores: formatting and generated files answer in seconds, lints need one compile, tests need another and the real
//! parts. Nothing is compiled twice for the same purpose.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::{check_mac, dependencies, setup, test_run};

/// One command line of the gate.
struct Step {
    name: &'static str,
    program: &'static str,
    args: &'static [&'static str],
}

const LINTS: &[Step] = &[
    Step {
        name: "format",
        program: "cargo",
        args: &["fmt", "--all", "--check"],
    },
    Step {
        name: "generated files",
        program: "cargo",
        args: &["run", "--quiet", "--package", "xtask", "--", "generate", "--check"],
    },
    Step {
        name: "CRD history",
        program: "cargo",
        args: &["run", "--quiet", "--package", "xtask", "--", "check-crds"],
    },
    Step {
        name: "layers",
        program: "cargo",
        args: &["run", "--quiet", "--package", "xtask", "--", "check-layers"],
    },
    Step {
        name: "fault switches",
        program: "cargo",
        args: &["run", "--quiet", "--package", "xtask", "--", "check-faults"],
    },
    Step {
        name: "clippy",
        program: "cargo",
        args: &[
            "clippy",
            "--quiet",
            "--workspace",
            "--all-targets",
            "--",
            "--deny",
            "warnings",
        ],
    },
];

const BEFORE_TESTS: &[Step] = &[Step {
    name: "compile",
    program: "cargo",
    args: &["test", "--workspace", "--no-run", "--quiet"],
}];

/// Only what the tests run: building every part of the manifest would take longer than the rest of the gate.
const PARTS: &[&str] = &[
    "etcd",
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "kubectl",
    "kubelet",
    "kube-proxy",
    "helm",
    "capi-core",
    "cluster-api-config",
    "containerd",
    "ctr",
    "containerd-shim-runc-v2",
    "runc",
    "cni-plugins",
    "busybox",
    "zsh",
    "local-path-provisioner",
    "metrics-server",
    "xfsprogs-tree",
];

/// Fetches the real parts before the tests, so that a missing one fails here with one clear message and not in the first test that needs it.
/// The program is the one that was built with the tests, beside this one: `cargo run` would build it once more with other features.
fn parts(root: &Path) -> Result<()> {
    let here = std::env::current_exe().context("failed to find this program")?;
    let russet = here.with_file_name("russet");
    let status = Command::new(&russet)
        .args(["parts", "fetch"])
        .args(PARTS)
        .current_dir(root)
        .status()
        .with_context(|| format!("failed to start {}", russet.display()))?;
    if !status.success() {
        bail!("`russet parts fetch` failed: {status}");
    }
    Ok(())
}

/// The fast half: no cluster, no tests.
pub(crate) fn lint(root: &Path) -> Result<()> {
    let mut report = Report::default();
    report.run_all(root, LINTS)?;
    report.timed("dependencies", || dependencies::check(root))?;
    report.print();
    Ok(())
}

/// The whole gate.
pub(crate) fn ci(root: &Path) -> Result<()> {
    let mut report = Report::default();
    report.timed("system packages", setup::system_packages)?;
    report.run_all(root, LINTS)?;
    report.timed("dependencies", || dependencies::check(root))?;
    report.timed("macOS", || check_mac::check(root))?;
    report.run_all(root, BEFORE_TESTS)?;
    report.timed("real parts", || parts(root))?;
    let mut shaky = Vec::new();
    report.timed("tests", || {
        shaky = test_run::run(root)?;
        Ok(())
    })?;
    report.print();
    for test in shaky {
        eprintln!("shaky: passed only by itself: {test}");
    }
    Ok(())
}

#[derive(Default)]
struct Report {
    rows: Vec<(&'static str, Duration)>,
}

impl Report {
    fn run_all(&mut self, root: &Path, steps: &[Step]) -> Result<()> {
        for step in steps {
            self.timed(step.name, || {
                let status = Command::new(step.program)
                    .args(step.args)
                    .current_dir(root)
                    .status()
                    .with_context(|| format!("failed to start {}", step.program))?;
                if !status.success() {
                    bail!("`{} {}` failed: {status}", step.program, step.args.join(" "));
                }
                Ok(())
            })?;
        }
        Ok(())
    }

    fn timed(&mut self, name: &'static str, work: impl FnOnce() -> Result<()>) -> Result<()> {
        eprintln!("==> {name}");
        let start = Instant::now();
        work().with_context(|| format!("{name} failed"))?;
        self.rows.push((name, start.elapsed()));
        Ok(())
    }

    fn print(&self) {
        let total: Duration = self.rows.iter().map(|(_, took)| *took).sum();
        for (name, took) in &self.rows {
            eprintln!("{:>7.1} s  {name}", took.as_secs_f64());
        }
        eprintln!("{:>7.1} s  in all", total.as_secs_f64());
    }
}
