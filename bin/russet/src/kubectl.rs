//! `russet kubectl`: our kubectl with our kubeconfig.

use crate::cli;
use crate::config::Surroundings;
use crate::exit::Exit;
use crate::parts;
use crate::state::{Layout, record};
use anyhow::{Context, Result, bail};
use russet_parts::Bars;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Replaces this process, so that signals, the terminal and the exit code are kubectl's own.
pub(crate) async fn kubectl(args: &cli::Kubectl, surroundings: &Surroundings) -> Result<Exit> {
    let layout = Layout::new(&surroundings.working_dir, &args.dir.dir);
    let existing = match record::read(&layout)? {
        record::Found::Record(record) => record.existing,
        record::Found::Nothing | record::Found::Corrupt(_) => None,
    };
    let kubeconfig = existing
        .as_ref()
        .map_or_else(|| layout.kubeconfig(), |existing| existing.kubeconfig.clone());
    if !kubeconfig.exists() {
        bail!(
            "there is no cluster in {}; start one with `russet up`",
            layout.root().display()
        );
    }
    let tools = parts::store(&[]).ensure(&["kubectl"], &Bars::stderr()).await?;
    let program = tools.path("kubectl")?;
    let mut command = Command::new(program);
    command.env("KUBECONFIG", kubeconfig);
    if let Some(context) = existing.and_then(|existing| existing.context) {
        command.arg(format!("--context={context}"));
    }
    Err(command.args(&args.args).exec()).with_context(|| format!("failed to run {}", program.display()))
}
