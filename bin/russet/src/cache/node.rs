//! Which cache to try: the one that is named, the one of the running `up`, or one for this command alone.

use crate::cli;
use crate::state::{Layout, lock, run};
use crate::up::cache;
use anyhow::{Context, Result, anyhow, bail};
use russet_cluster::process::Supervisor;
use std::path::{Path, PathBuf};

/// A cache that answers.
pub(super) struct Node {
    url: String,
    whose: &'static str,
    /// Ended and removed with this value, in this order.
    _own: Option<(Supervisor, tempfile::TempDir)>,
}

impl Node {
    pub(super) async fn find(args: &cli::Try, layout: &Layout) -> Result<Self> {
        if let Some(url) = &args.url {
            return Ok(Self::of(url.clone(), "as given"));
        }
        if args.start {
            return Self::start().await;
        }
        match running(layout) {
            Some(url) => Ok(Self::of(url, "of the running `russet up`")),
            None => bail!(
                "no cache runs in {}; start one with `russet up`, name one with --url, or add --start for a cache that lives as long \
                 as this command",
                layout.root().display()
            ),
        }
    }

    fn of(url: String, whose: &'static str) -> Self {
        Self { url, whose, _own: None }
    }

    async fn start() -> Result<Self> {
        let program = program().ok_or_else(|| {
            anyhow!("there is no kura beside this russet; build it with `cargo build --package kura`, or name a cache with --url")
        })?;
        let dir = tempfile::Builder::new()
            .prefix("russet-cache-")
            .tempdir()
            .context("failed to make a folder for the cache")?;
        let layout = Layout::new(dir.path(), Path::new("."));
        std::fs::create_dir_all(layout.logs()).context("failed to make a folder for logs")?;
        let supervisor = Supervisor::new(dir.path());
        let url = cache::start(&program, &layout, &supervisor).await?;
        Ok(Self {
            url,
            whose: "started for this command",
            _own: Some((supervisor, dir)),
        })
    }

    pub(super) fn url(&self) -> &str {
        &self.url
    }

    pub(super) fn describe(&self) -> String {
        format!("{} ({})", self.url, self.whose)
    }
}

/// The `kura` beside this program.
pub(super) fn program() -> Option<PathBuf> {
    std::env::current_exe().ok().and_then(|russet| cache::program(&russet))
}

/// What `status.json` says is believed only while the `up` that wrote it lives.
fn running(layout: &Layout) -> Option<String> {
    let holder = lock::holder(&layout.lock()).filter(|holder| holder.command == "up")?;
    let run = run::read(layout).filter(|run| run.pid == holder.pid)?;
    run.parts
        .into_iter()
        .find(|part| part.name == cache::NAME)
        .and_then(|part| part.address)
}
