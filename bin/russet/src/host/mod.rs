//! `russet host`: one Mac, as its operator wants to see it.

mod exec;
mod find;
mod steps;

use crate::cli::{self, HostAction};
use crate::config::Surroundings;
use crate::exit::Exit;
use anyhow::Result;

pub(crate) use steps::progress;

pub(crate) async fn host(args: &cli::Host, surroundings: &Surroundings) -> Result<Exit> {
    match &args.action {
        HostAction::Exec(args) => exec::exec(args, surroundings).await,
        HostAction::Steps(args) => steps::steps(args, surroundings).await,
    }
}
