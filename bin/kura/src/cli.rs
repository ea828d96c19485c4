//! The command line.

use crate::config::args::Args;
use std::path::PathBuf;

/// The build cache node
#[derive(Debug, clap::Parser)]
#[command(name = "kura", version, args_conflicts_with_subcommands = true)]
#[command(
    after_help = "Secrets are read from the environment only: KURA_AUTH_JWT_SECRET, KURA_CONTROL_PLANE_CLIENT_SECRET,\n\
    KURA_TURBOREPO_SIGNATURE_KEY.\n\
    Without a command, kura serves."
)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Option<Command>,
    /// Settings of `serve`, which is what happens without a command.
    #[command(flatten)]
    pub serve: Args,
}

/// What to do.
#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// Serve the cache
    Serve(Box<Args>),
    /// Say what is stored, by kind and namespace
    Inspect(Look),
    /// Read every stored byte and compare checksums
    Verify(Look),
    /// Be the build cache of the go command (GOCACHEPROG)
    Cacheprog(crate::cacheprog::Args),
    /// Print the version
    Version,
}

/// Settings of commands that only look.
#[derive(Debug, clap::Args)]
pub struct Look {
    /// Folder of the store
    #[arg(long, env = "KURA_DATA_DIR", default_value = "kura-data")]
    pub data_dir: PathBuf,
    /// Print JSON instead of a table
    #[arg(long)]
    pub json: bool,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{CommandFactory as _, Parser as _};

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn serving_is_what_happens_without_a_command() {
        let cli = Cli::parse_from(["kura", "--port", "1"]);
        assert!(cli.command.is_none());
        assert_eq!(cli.serve.listen.port, 1);
        let cli = Cli::parse_from(["kura", "serve", "--port", "2"]);
        assert!(matches!(cli.command, Some(Command::Serve(args)) if args.listen.port == 2));
    }

    /// Every variable an existing deployment may set is known, so none is silently without effect.
    #[test]
    fn every_setting_has_a_variable() {
        let command = Cli::command();
        let serve = command.get_subcommands().find(|sub| sub.get_name() == "serve").unwrap();
        for arg in serve.get_arguments() {
            let name = arg.get_id().as_str();
            if matches!(name, "check_config" | "print_config" | "help") {
                continue;
            }
            assert!(arg.get_env().is_some(), "{name} has no variable");
        }
    }
}
