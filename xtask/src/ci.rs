//! `xtask ci` and `xtask lint`: every check in the order in which it fails fastest, with the time each took.
//!
//! The order matters on two cores: formatting and generated files answer in seconds, lints need one compile, tests need another and the real
//! parts. Nothing is compiled twice for the same purpose.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::Args;
use jiff::Timestamp;

use crate::changed::Changed;
use crate::depth::{self, DepthArgs};
use crate::runs::{self, Run};
use crate::test_run::{self, Outcome};
use crate::times::{self, Times};
use crate::{check_mac, dependencies, setup};

#[derive(Args, Debug)]
pub(crate) struct CiArgs {
    #[command(flatten)]
    depth: DepthArgs,
    /// Run only the tests that what changed since this commit can reach; `1` is the last commit, or what is not committed yet
    #[arg(long, env = "CHANGED", value_name = "COMMIT")]
    changed: Option<String>,
}

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
        name: "patches of scenarios",
        program: "cargo",
        args: &["run", "--quiet", "--package", "xtask", "--", "check-patches"],
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
    // The report of its times is read by `times::compiled`.
    args: &["test", "--workspace", "--no-run", "--quiet", "--timings"],
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
pub(crate) fn ci(root: &Path, args: &CiArgs) -> Result<()> {
    let known = Times::checked_in(root)?;
    let seed = args.depth.seed(root);
    let changed = args
        .changed
        .as_deref()
        .map(|base| Changed::since(root, base))
        .transpose()?;
    let mut report = Report::default();
    let mut outcome = Outcome::default();
    let passed = checked(
        root,
        changed.as_ref(),
        seed.as_deref(),
        &known,
        &mut report,
        &mut outcome,
    );
    report.print();
    outcome.print();
    let run = Run {
        at: Timestamp::now(),
        commit: depth::commit(root),
        minutes: report.total().as_secs_f64() / 60.0,
        passed: passed.is_ok(),
        draw: seed,
        partial: changed.is_some(),
        shaky: outcome.shaky.clone(),
        skipped: outcome.skipped().len(),
        steps: report
            .rows
            .iter()
            .map(|row| (row.name.to_owned(), row.took.as_secs_f64()))
            .collect(),
        programs: outcome
            .ended
            .iter()
            .map(|one| (one.program.name(), one.cost.into()))
            .collect(),
        compiled: times::compiled(),
    };
    for (package, before, now) in known.grown(&Times::of_run(&run)) {
        eprintln!("grew: {package} takes {now:.0} s of processor to compile and test, {before:.0} in xtask/times.tsv");
    }
    // A record that cannot be kept is no reason for a red gate.
    if let Err(error) = runs::keep(&run) {
        eprintln!("this run was not kept: {error:#}");
    }
    runs::print(&runs::kept());
    passed
}

fn checked(
    root: &Path,
    changed: Option<&Changed>,
    seed: Option<&str>,
    known: &Times,
    report: &mut Report,
    outcome: &mut Outcome,
) -> Result<()> {
    report.timed("system packages", setup::system_packages)?;
    report.run_all(root, LINTS)?;
    report.timed("dependencies", || dependencies::check(root))?;
    report.timed("macOS", || check_mac::check(root))?;
    report.run_all(root, BEFORE_TESTS)?;
    report.timed("share crates", || share(root))?;
    report.timed("real parts", || parts(root))?;
    report.timed("tests", || {
        let mut programs = test_run::built(root)?;
        if let Some(changed) = changed {
            programs = changed.touched(programs);
        }
        let known = known.clone().with_runs(&runs::kept());
        test_run::run(programs, &depth::environment(seed), &known, outcome)
    })?;
    report.timed("examples", || test_run::examples(root))
}

/// Keeps what was compiled of other projects for other clones, by the program beside this one.
fn share(root: &Path) -> Result<()> {
    let here = std::env::current_exe().context("failed to find this program")?;
    let program = here.with_file_name("xtask-artifacts");
    // `make test` starts it first; a run without make goes without.
    if program.is_file() {
        let status = Command::new(&program).arg("save").current_dir(root).status();
        status.with_context(|| format!("failed to start {}", program.display()))?;
    }
    Ok(())
}

/// One step of the gate that ended well.
struct Row {
    name: &'static str,
    took: Duration,
    /// How many processors were busy on average, with whatever else ran here.
    busy: Option<f64>,
}

#[derive(Default)]
struct Report {
    rows: Vec<Row>,
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
        let (start, busy) = (Instant::now(), busy_time());
        let done = work().with_context(|| format!("{name} failed"));
        let took = start.elapsed();
        let busy = busy_time()
            .zip(busy)
            .map(|(now, then)| (now - then) / took.as_secs_f64());
        self.rows.push(Row { name, took, busy });
        done
    }

    fn total(&self) -> Duration {
        self.rows.iter().map(|row| row.took).sum()
    }

    fn print(&self) {
        eprintln!("steps: seconds, processors busy");
        for Row { name, took, busy } in &self.rows {
            let busy = busy.map_or("-".to_owned(), |busy| format!("{busy:.1}"));
            eprintln!("{:>7.1} {busy:>4}  {name}", took.as_secs_f64());
        }
        eprintln!("{:>7.1}       in all", self.total().as_secs_f64());
    }
}

/// Seconds that all processors together were busy since the machine started; Linux only.
fn busy_time() -> Option<f64> {
    let text = std::fs::read_to_string("/proc/stat").ok()?;
    let fields = text.lines().next()?.split_whitespace().skip(1);
    let ticks: Vec<f64> = fields.filter_map(|field| field.parse().ok()).collect();
    // user, nice, system, idle, iowait, irq, softirq, steal: the two in the middle are not busy.
    let busy: f64 = [0, 1, 2, 5, 6].iter().filter_map(|field| ticks.get(*field)).sum();
    #[expect(clippy::cast_precision_loss, reason = "a hundred, as a rule")]
    let per_second = rustix::param::clock_ticks_per_second() as f64;
    Some(busy / per_second)
}
