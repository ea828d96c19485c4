//! `russet-bench`: measures what `docs/benchmarks.md` claims, on the machine it runs on, and prints the table to paste.

#[cfg(target_os = "linux")]
mod cache;
mod fleet;
#[cfg(target_os = "linux")]
mod kubelet;
#[cfg(target_os = "linux")]
mod linux;
mod machine;
#[cfg(target_os = "linux")]
mod macs;
mod pods;
mod report;
mod up;

use clap::{Parser, Subcommand};
use std::io::Write;
use std::process::ExitCode;

/// Measures Russet on this machine and prints Markdown.
#[derive(Debug, Parser)]
#[command(name = "russet-bench", version, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Start times of `russet up` (fresh and resumed state), idle memory and processor use of every part
    Up(up::Options),
    /// Macs on a real API server and Cluster API core: what the provider costs per Machine, and at rest
    Fleet(fleet::Options),
    /// Instances and Elastic Metal servers in the same place: what they cost up, at rest and down
    #[cfg(target_os = "linux")]
    Linux(linux::Options),
    /// Macs that are set up over SSH: from bare, with nothing to do, with another agent, and what a check for drift costs
    #[cfg(target_os = "linux")]
    Macs(macs::Options),
    /// Macs that run Pods on a real API server: requests at rest and per Pod, and how long a Pod waits for its agent
    Pods(pods::Options),
    /// One agent beside a stock kubelet with containerd: memory, processor use, size, requests, `kubectl exec` and `kubectl cp`
    #[cfg(target_os = "linux")]
    Kubelet(kubelet::Options),
    /// The build cache beside nginx and any other server: processor time per request, rates, start-up, memory
    #[cfg(target_os = "linux")]
    Cache(Box<cache::Options>),
    /// Becomes another program, which ends with the process that started it
    #[cfg(target_os = "linux")]
    #[command(hide = true)]
    Follow {
        parent: u32,
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        program: Vec<std::ffi::OsString>,
    },
}

fn up(options: &up::Options) -> anyhow::Result<String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(up::measure(options))
}

/// Emulated machines live in this process, so it may use all cores.
fn with_machines(measured: impl Future<Output = anyhow::Result<String>>) -> anyhow::Result<String> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(measured)
}

fn main() -> ExitCode {
    let measured = match Cli::parse().command {
        Command::Up(options) => up(&options),
        Command::Fleet(options) => with_machines(fleet::measure(&options)),
        #[cfg(target_os = "linux")]
        Command::Linux(options) => with_machines(linux::measure(&options)),
        #[cfg(target_os = "linux")]
        Command::Macs(options) => with_machines(macs::measure(&options)),
        Command::Pods(options) => with_machines(pods::measure(&options)),
        #[cfg(target_os = "linux")]
        Command::Kubelet(options) => with_machines(kubelet::measure(&options)),
        #[cfg(target_os = "linux")]
        Command::Cache(options) => cache::measure(&options),
        #[cfg(target_os = "linux")]
        Command::Follow { parent, program } => cache::follow(parent, &program).map(|()| String::new()),
    };
    match measured {
        Ok(markdown) => {
            // A closed pipe is the reader's choice.
            let _ = std::io::stdout().write_all(markdown.as_bytes());
            ExitCode::SUCCESS
        }
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
