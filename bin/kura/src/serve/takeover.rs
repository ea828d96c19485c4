//! Upgrade in place: a new process on the folder of an old one waits while the old one drains, and not otherwise.
//!
//! The old process leaves a note in the folder when it begins to drain. A new one that finds the folder locked by the process
//! that wrote the note knows that it will be released; a folder locked by anybody else is a mistake that should be told at once.

use crate::blob::{Blobs, Error};
use crate::config::Config;
use anyhow::Context as _;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::time::Instant;

/// How often the lock is tried.
const LOOK: Duration = Duration::from_millis(50);
/// What the old process may need after its drain: workers end, reports are sent, the store is closed.
const CLOSING: Duration = Duration::from_mins(1);

fn note(data_dir: &Path) -> PathBuf {
    data_dir.join(".draining")
}

/// Leaves the note. Without it a successor fails instead of waiting, which is no reason not to drain.
pub(super) fn announce(data_dir: &Path) {
    if let Err(error) = std::fs::write(note(data_dir), std::process::id().to_string()) {
        tracing::warn!(%error, "no successor will know that this node drains");
    }
}

/// Who wrote the note.
fn draining(data_dir: &Path) -> Option<u32> {
    std::fs::read_to_string(note(data_dir)).ok()?.trim().parse().ok()
}

/// Opens the store, waiting for a predecessor that drains. Returns early, with its error, when nothing is worth waiting for.
pub(super) async fn open(config: &Config) -> anyhow::Result<Blobs> {
    let dir = &config.data_dir;
    std::fs::create_dir_all(dir).with_context(|| format!("cannot create the data folder {}", dir.display()))?;
    let deadline = Instant::now() + config.drain_timeout + CLOSING;
    let mut told = false;
    loop {
        let error = match Blobs::open(dir, config.capacity, config.durability) {
            Ok(blobs) => {
                // It is about us from now on.
                let _ = std::fs::remove_file(note(dir));
                return Ok(blobs);
            }
            Err(error) => error,
        };
        let holder = match error.downcast_ref::<Error>() {
            Some(Error::Store(russet_segstore::Error::Locked { pid, .. })) => *pid,
            _ => return Err(error),
        };
        if holder.is_none() || holder != draining(dir) || Instant::now() >= deadline {
            return Err(error);
        }
        if !told {
            told = true;
            tracing::info!(
                holder,
                data_dir = %dir.display(),
                "waiting for the process that drains to release the data folder"
            );
        }
        tokio::time::sleep(LOOK).await;
    }
}
