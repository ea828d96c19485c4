//! `russet-bench`: measures what `docs/benchmarks.md` claims, on the machine it runs on, and prints the table to paste.

mod machine;
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
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let Command::Up(options) = Cli::parse().command;
    match up::measure(&options).await {
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
