//! What has to be done now and then: results that are too old go, and so do uploads nobody resumes.

use super::action_cache::LIFE;
use crate::blob::{Blobs, Error, Kind, Target};
use crate::http::service::Shared;
use crate::multipart::unix_ms;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio_util::sync::CancellationToken;

/// How often uploads are looked at.
const UPLOADS: Duration = Duration::from_mins(1);
/// How often results are.
const RESULTS: Duration = Duration::from_hours(6);
/// Most results deleted at a time.
const MOST: usize = 100_000;

/// Sweeps until told to stop.
pub async fn sweep(shared: Arc<Shared>, stop: CancellationToken) {
    let mut ticks = tokio::time::interval(UPLOADS);
    let mut last = Instant::now();
    while stop.run_until_cancelled(ticks.tick()).await.is_some() {
        let now = Instant::now();
        shared.reapi.uploads.forget(now);
        if now.saturating_duration_since(last) < RESULTS {
            continue;
        }
        last = now;
        let cutoff = unix_ms().saturating_sub(u64::try_from(LIFE.as_millis()).unwrap_or(u64::MAX));
        match expire(&shared.blobs, cutoff).await {
            Ok(0) => {}
            Ok(deleted) => tracing::info!(deleted, "action results were too old"),
            Err(error) => tracing::warn!(%error, "old action results could not be deleted"),
        }
    }
}

/// Deletes results written before `cutoff`; how many.
async fn expire(blobs: &Blobs, cutoff: u64) -> Result<usize, Error> {
    let looking = blobs.clone();
    let task = tokio::task::spawn_blocking(move || {
        let mut listed = looking.list(Kind::Action, None);
        listed.sort_by_key(russet_segstore::Listed::sequence);
        let mut old = Vec::new();
        for entry in listed.iter().take(MOST) {
            let Some(opened) = looking.open_listed(entry)? else {
                continue;
            };
            // Written in this order, so what follows is younger still.
            if opened.version >= cutoff {
                break;
            }
            old.push(Target {
                kind: Kind::Action,
                namespace: String::from_utf8_lossy(&opened.namespace).into(),
                key: opened.key.into(),
            });
        }
        Ok::<_, Error>(old)
    });
    let old = task.await.map_err(|_| Error::Unanswered)??;
    let count = old.len();
    for target in old {
        blobs.remove(target).await?;
    }
    Ok(count)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Durability;

    #[tokio::test]
    async fn only_results_older_than_the_cutoff_go() {
        let dir = tempfile::tempdir().unwrap();
        let blobs = Blobs::open(dir.path(), Some(256 << 20), Durability::ProcessCrash).unwrap();
        let target = |kind, key: &[u8]| Target {
            kind,
            namespace: "x".into(),
            key: key.into(),
        };
        blobs.put(&target(Kind::Action, b"old"), b"1".to_vec()).await.unwrap();
        blobs.put(&target(Kind::Cas, b"blob"), b"2".to_vec()).await.unwrap();
        let cutoff = blobs.find(Kind::Cas, "x", b"blob").unwrap().unwrap().version();
        blobs.put(&target(Kind::Action, b"new"), b"3".to_vec()).await.unwrap();
        assert_eq!(expire(&blobs, cutoff).await.unwrap(), 1);
        assert!(!blobs.contains(Kind::Action, "x", b"old"));
        assert!(blobs.contains(Kind::Action, "x", b"new") && blobs.contains(Kind::Cas, "x", b"blob"));
        assert_eq!(expire(&blobs, cutoff).await.unwrap(), 0);
    }
}
