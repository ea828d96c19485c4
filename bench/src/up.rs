//! Measures `russet up` as a user meets it: the real binary, a directory of its own, started, resumed, left alone.

use crate::fleet::table::Head;
use crate::machine::{program, say};
use crate::report::{Idle, Report, Start};
use anyhow::{Context, Result, ensure};
use clap::Args;
use russet::process::{self, Usage};
use russet::state::{Layout, run};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// How often to start
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    runs: u32,

    /// Seconds over which idle use is measured
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=3600))]
    window: u64,

    /// Seconds the cluster is left alone before that
    #[arg(long, default_value_t = 30)]
    settle: u64,

    /// The binary to measure (the one beside this program if not given)
    #[arg(long, value_name = "FILE")]
    russet: Option<PathBuf>,
}

pub(crate) async fn measure(options: &Options) -> Result<String> {
    let hint = "build it with `cargo build --release -p russet`, or name one with --russet";
    let russet = Russet {
        program: program("russet", options.russet.as_deref(), hint)?,
    };
    // Obtaining parts is no part of the figures.
    let parts = "etcd kube-apiserver kube-controller-manager kube-scheduler kubectl helm capi-core cluster-api-config";
    let fetch: Vec<&str> = ["parts", "fetch"].into_iter().chain(parts.split(' ')).collect();
    russet.run(&fetch)?;
    let mut fresh = Vec::new();
    let mut resumed = Vec::new();
    let mut idle = Vec::new();
    for number in 1..=options.runs {
        let folder = tempfile::Builder::new().prefix("russet-bench-").tempdir();
        let folder = folder.context("failed to make a folder")?;
        let layout = Layout::new(folder.path(), Path::new(".russet"));
        let cluster = Cluster {
            russet: &russet,
            layout: &layout,
        };
        say(&format!("run {number} of {}: fresh state", options.runs));
        fresh.push(cluster.start()?);
        cluster.stop(&["--keep-data"])?;
        say(&format!("run {number} of {}: resumed state", options.runs));
        resumed.push(cluster.start()?);
        if number == options.runs {
            let (settle, window) = (options.settle, options.window);
            say(&format!("idle: {settle} s to settle, {window} s to measure"));
            tokio::time::sleep(Duration::from_secs(options.settle)).await;
            idle = cluster.idle(Duration::from_secs(options.window)).await?;
        }
        cluster.stop(&[])?;
    }
    let command = command_line(options, profile().as_deref().unwrap_or("release"));
    let report = Report {
        head: Head {
            load: None,
            versions: russet.versions()?,
            ..Head::new(command, 0.0, "russet", &[])
        },
        fresh,
        resumed,
        window_seconds: options.window,
        idle,
    };
    Ok(report.markdown())
}

/// What to type to get these figures again, from the root of a checkout.
fn command_line(options: &Options, profile: &str) -> String {
    let Options {
        runs,
        window,
        settle,
        russet,
    } = options;
    let release = if profile == "release" { "--release " } else { "" };
    let other = russet.as_ref().map(|path| format!(" --russet {}", path.display()));
    let other = other.unwrap_or_default();
    format!(
        "cargo build {release}-p russet -p russet-bench\n\
         target/{profile}/russet-bench up --runs {runs} --settle {settle} --window {window}{other}"
    )
}

/// Cargo names the folder of a program after its profile.
fn profile() -> Option<String> {
    let program = std::env::current_exe().ok()?;
    Some(program.parent()?.file_name()?.to_string_lossy().into_owned())
}

/// The binary under measurement.
struct Russet {
    program: PathBuf,
}

impl Russet {
    fn run(&self, args: &[&str]) -> Result<String> {
        let output = Command::new(&self.program).args(args).output();
        let output = output.with_context(|| format!("failed to run {}", self.program.display()))?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "`russet {}` failed: {said}", args.join(" "));
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    fn versions(&self) -> Result<Vec<(String, String)>> {
        let json: serde_json::Value = serde_json::from_str(&self.run(&["version", "--json"])?)?;
        let text = |value: Option<&serde_json::Value>| value.and_then(|v| v.as_str()).unwrap_or("?").to_owned();
        let parts = json.get("parts").and_then(|parts| parts.as_array());
        let parts = parts.into_iter().flatten();
        // Only what runs, or ran, during the measurement.
        let used = ["etcd", "kubernetes", "cluster-api", "helm"];
        let mut versions = vec![("russet".to_owned(), text(json.get("russet")))];
        let parts = parts.map(|part| (text(part.get("name")), text(part.get("version"))));
        versions.extend(parts.filter(|(name, _)| used.contains(&name.as_str())));
        Ok(versions)
    }
}

/// One cluster under measurement. Ends with its owner's last word, also when a measurement fails.
struct Cluster<'a> {
    russet: &'a Russet,
    layout: &'a Layout,
}

impl Cluster<'_> {
    fn dir(&self) -> Result<&str> {
        let root = self.layout.root().to_str();
        root.context("the temporary folder has a name that is not UTF-8")
    }

    fn start(&self) -> Result<Start> {
        let began = Instant::now();
        self.russet.run(&["up", "--detach", "--dir", self.dir()?])?;
        let wall_seconds = began.elapsed().as_secs_f64();
        let run = self.read()?;
        let (parts, steps) = (run.parts.iter(), run.steps.iter());
        let parts = parts.filter_map(|part| Some((part.name.clone(), part.ready_after_seconds?)));
        let steps = steps.filter_map(|step| Some((step.name.clone(), step.seconds?)));
        Ok(Start {
            wall_seconds,
            ready_seconds: run.ready_after_seconds.context("`up` did not say when it was ready")?,
            pieces: parts.chain(steps).collect(),
        })
    }

    fn stop(&self, flags: &[&str]) -> Result<()> {
        self.russet
            .run(&[&["down", "--dir", self.dir()?], flags].concat())
            .map(drop)
    }

    async fn idle(&self, window: Duration) -> Result<Vec<Idle>> {
        let run = self.read()?;
        let named = |name: &str, pid: u32| (name.to_owned(), pid);
        let mut processes = vec![named("russet up", run.pid)];
        processes.extend(run.parts.iter().filter_map(|part| Some(named(&part.name, part.pid?))));
        let look =
            |pid: u32| process::usage(pid).with_context(|| format!("process {pid} ended during the measurement"));
        let before: Vec<Usage> = processes.iter().map(|(_, pid)| look(*pid)).collect::<Result<_>>()?;
        let began = Instant::now();
        tokio::time::sleep(window).await;
        let elapsed = began.elapsed();
        processes
            .into_iter()
            .zip(before)
            .map(|((name, pid), before)| {
                let after = look(pid)?;
                let cpu_percent = process::cpu_percent(before.cpu, after.cpu, elapsed);
                Ok(Idle {
                    name,
                    memory_bytes: after.memory,
                    cpu_percent,
                })
            })
            .collect()
    }

    fn read(&self) -> Result<run::Run> {
        run::read(self.layout).with_context(|| format!("failed to read {}", self.layout.run().display()))
    }
}

impl Drop for Cluster<'_> {
    fn drop(&mut self) {
        if self.layout.root().exists() {
            let _ = self.stop(&[]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_says_what_was_really_run() {
        let options = Options {
            runs: 3,
            window: 60,
            settle: 30,
            russet: None,
        };
        assert_eq!(
            command_line(&options, "release"),
            "cargo build --release -p russet -p russet-bench\n\
             target/release/russet-bench up --runs 3 --settle 30 --window 60"
        );
        let other = Options {
            russet: Some("old/russet".into()),
            ..options
        };
        let line = command_line(&other, "debug");
        let built = line.contains("cargo build -p russet") && line.contains("target/debug/russet-bench");
        assert!(built, "{line}");
        assert!(line.ends_with("--russet old/russet"), "{line}");
    }
}
