//! The workspace's own programs: what is generated, what is checked, and the gate that runs it all.
//!
//! `cargo run -p xtask -- <command>`. Each command is a module; this file only parses and dispatches.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::{Parser, Subcommand};

mod bite;
mod changed;
mod chart;
mod check_mac;
mod ci;
mod clusterctl;
mod compatibility;
mod dependencies;
mod depth;
mod faults;
mod generate;
mod history;
mod layers;
mod reference;
mod runs;
mod setup;
mod test_run;
mod times;

#[derive(Parser)]
#[command(name = "xtask", about = "Generates and checks what the workspace promises")]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Write the CRD chart and the field reference from crates/api, and the clusterctl files from charts/capi-provider
    Generate {
        /// Write nothing; fail with a difference if a file is not what would be written
        #[arg(long)]
        check: bool,
    },
    /// Compare the CRDs with every schema that was ever installed; fail on a change that could hurt a stored object
    CheckCrds,
    /// Keep the current CRDs as a new entry of the schema history, as the last act before a release
    RecordCrds {
        /// Name of the entry, such as 0.2.0
        name: String,
    },
    /// Check that dependencies between crates point down
    CheckLayers,
    /// Check that each fault switch of the emulators is set by a test of what ships
    CheckFaults,
    /// Check that the patches beside scenarios apply, and that each names a promise of its scenario
    CheckPatches,
    /// Take the defence of scenarios out of the shipped code, one by one, and check that the named promise is seen broken
    Bite(bite::BiteArgs),
    /// Check that what runs on a Mac would compile there, where that can be found out
    CheckMac,
    /// Formatting, generated files, CRD history, layers, fault switches, patches of scenarios, clippy, dependencies
    Lint,
    /// Everything: lint, real parts, tests
    Ci(ci::CiArgs),
    /// Write the times of the last whole run here to xtask/times.tsv, which later runs compare themselves with
    Times,
}

fn main() -> ExitCode {
    match run(Args::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        // Without the backtrace: these errors are about the workspace, not about this program.
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> Result<()> {
    let root = root()?;
    match command {
        Command::Generate { check: false } => generate::write(&root),
        Command::Generate { check: true } => generate::check(&root),
        Command::CheckCrds => history::check(&root),
        Command::RecordCrds { name } => history::record(&root, &name),
        Command::CheckLayers => layers::check(&root),
        Command::CheckFaults => faults::check(&root),
        Command::CheckPatches => bite::check(&root),
        Command::Bite(args) => bite::run(&root, &args),
        Command::CheckMac => check_mac::check(&root),
        Command::Lint => ci::lint(&root),
        Command::Ci(args) => ci::ci(&root, &args),
        Command::Times => {
            let runs = runs::kept();
            let whole = runs.iter().rev().find(|run| run.passed && !run.partial);
            let run = whole.context("no whole run passed here yet: run `make test`")?;
            times::Times::of_run(run).write(&root)
        }
    }
}

/// The folder of the workspace: the parent of this crate.
fn root() -> Result<PathBuf> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent()
        .map(Path::to_path_buf)
        .context("failed to find the workspace: xtask has no parent folder")
}
