//! The `russet` command line: the newcomer's and operator's door to the system.
//!
//! `up` starts real parts on this machine and keeps them alive; `status`, `logs`, `kubectl` and `down` look at it, use it and
//! end it, through the state directory alone. There is no daemon and no socket: `up` holds a lock and rewrites one status
//! file, and everything else is read from there and from the API server.
//!
//! ```text
//! cli (flags) ─► up ─► parts::Store ─► cluster::ControlPlane ─► helm (CRD chart) ┬─► board ─► status.json ─► status, logs
//!                                                          └─► Cluster API core ─┘
//! ```

pub mod cli;
pub mod config;
pub mod exit;
pub mod process;
pub mod state;
pub mod status;
pub mod suggest;
pub mod table;
pub mod up;

mod cache;
mod down;
mod host;
mod kubectl;
mod logs;
mod parts;
mod replay;
mod signals;
mod version;

use anyhow::Result;
use clap::CommandFactory;
use cli::{Cli, Command};
use config::Surroundings;
use exit::Exit;

/// Runs one command. An error is a failure; [`exit_of`] says with which code.
pub async fn run(cli: Cli, surroundings: &Surroundings) -> Result<Exit> {
    match cli.command {
        Command::Up(args) => up::up(&args, cli.verbose, surroundings).await,
        Command::Down(args) => down::down(&args, surroundings).await,
        Command::Status(args) => status::status(&args, surroundings).await,
        Command::Logs(args) => logs::logs(&args, surroundings).await,
        Command::Kubectl(args) => kubectl::kubectl(&args, surroundings).await,
        Command::Parts(args) => parts::parts(&args, surroundings).await,
        Command::Host(args) => host::host(&args, surroundings).await,
        Command::Cache(args) => cache::cache(&args, surroundings).await,
        Command::Replay(args) => replay::replay(&args, surroundings).await,
        Command::Version(args) => version::version(&args, surroundings),
        Command::Completions(args) => {
            clap_complete::generate(args.shell, &mut Cli::command(), "russet", &mut std::io::stdout());
            Ok(Exit::Success)
        }
    }
}

/// The exit code of a failure.
pub fn exit_of(error: &anyhow::Error) -> Exit {
    match error.downcast_ref::<state::lock::Error>() {
        Some(state::lock::Error::Held { .. }) => Exit::InUse,
        _ => Exit::Failure,
    }
}

/// A failure as people read it: what was attempted, then why, cause by cause.
pub fn explain(error: &anyhow::Error) -> String {
    let mut text = format!("error: {error}");
    let mut last = error.to_string();
    for cause in error.chain().skip(1) {
        let cause = cause.to_string();
        // Several libraries repeat the cause in their own text.
        if !last.contains(&cause) {
            text.push_str("\n  because: ");
            text.push_str(&cause);
            last = cause;
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::anyhow;

    #[test]
    fn a_failure_lists_its_causes_once() {
        let error = anyhow!("no such file")
            .context("failed to read /x: no such file")
            .context("failed to start");
        insta::assert_snapshot!(explain(&error), @r"
        error: failed to start
          because: failed to read /x: no such file
        ");
    }

    #[test]
    fn only_a_held_lock_has_its_own_code() {
        let held = state::lock::Error::Held {
            dir: "/x".into(),
            holder: None,
        };
        assert_eq!(exit_of(&held.into()), Exit::InUse);
        assert_eq!(exit_of(&anyhow!("else")), Exit::Failure);
    }
}
