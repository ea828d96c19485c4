//! The status of a Pod, written when it changed and at no other time.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use russet_pod::status;
use tokio::time::Instant;

use super::super::server::ServerError;
use super::told::back_offs;
use super::{AGAIN, Happened, Worker};

/// How long what nobody waits for may wait for something else.
const UNHURRIED: Duration = Duration::from_secs(2);

/// The answer to a write.
pub(super) struct Wrote(Result<Option<Pod>, ServerError>);

impl Worker {
    /// Writes the status if it changed, and takes the Pod away once everybody knows of its end.
    pub(super) fn report(&mut self) {
        let waits = self.later.is_some_and(|later| Instant::now() < later);
        if self.writing || waits {
            return;
        }
        if !self.silent {
            let mut pod = Pod::clone(&self.pod);
            pod.status.clone_from(&self.published);
            let now = Timestamp::now();
            let wanted = match &self.refusal {
                Some(refusal) => refusal.status(&pod, now),
                None => status::status(&pod, &self.kept.record.facts, now),
            };
            for (container, message) in back_offs(&self.pod, &wanted) {
                self.tell_of(&container, "BackOff", &message);
            }
            let patch = status::patch(&self.uid, self.published.as_ref(), &wanted);
            let small = patch.is_some() && !status::hurries(self.published.as_ref(), &wanted);
            if !small && !self.leaves() {
                self.unhurried = None;
            }
            // Of a Pod that is over and goes, nobody needs to hear a last small thing.
            let due = !small || !self.leaves() && self.may_wait_no_longer();
            if let Some(patch) = patch.filter(|_| due) {
                self.unhurried = None;
                self.writing = true;
                let (host, pod) = (self.host.clone(), Arc::clone(&self.pod));
                self.tasks.spawn(async move {
                    Happened::Wrote(Box::new(Wrote(host.server.write_status(&pod, &patch).await)))
                });
                return;
            }
        }
        // Whoever gave it no time takes it away as well; but may have been interrupted.
        let theirs = self.pod.metadata.deletion_grace_period_seconds == Some(0);
        if self.leaves() && !self.deleting && (!theirs || self.may_wait_no_longer()) {
            self.unhurried = None;
            self.deleting = true;
            let (host, pod) = (self.host.clone(), Arc::clone(&self.pod));
            self.tasks.spawn(async move {
                let done = host.server.delete(&pod).await;
                if let Err(error) = &done {
                    tracing::info!(pod = pod.name_any(), %error, "a Pod is over and could not be taken away; it is tried again");
                }
                Happened::Deleted(done.is_ok())
            });
        }
    }

    /// Whether something that nobody waits for has waited long enough; from the first time on that this is asked.
    fn may_wait_no_longer(&mut self) -> bool {
        let now = Instant::now();
        now >= *self.unhurried.get_or_insert(now + UNHURRIED)
    }

    /// Whether it is over and nobody wants to keep it.
    fn leaves(&self) -> bool {
        self.pod.metadata.deletion_timestamp.is_some() && self.kept.record.finished
    }

    pub(super) fn wrote(&mut self, Wrote(answer): Wrote) {
        self.writing = false;
        match answer {
            Ok(Some(pod)) => {
                self.pause = AGAIN;
                self.version = version(&pod);
                self.published = pod.status;
            }
            // Gone, which the watch tells soon.
            Ok(None) => self.try_later(),
            Err(error) => {
                tracing::debug!(uid = self.uid, %error, "the status of a Pod was not written; it is tried again");
                self.try_later();
            }
        }
    }
}

/// How new an object is. API servers give rising numbers.
pub(super) fn version(pod: &Pod) -> u64 {
    let text = pod.resource_version();
    text.and_then(|text| text.parse().ok()).unwrap_or(u64::MAX)
}
