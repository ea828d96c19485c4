//! Pods that come and go, and how long each waited.
//!
//! Every other Pod is a job, whose program ends by itself; the rest are machines that serve until they are deleted. Both are made
//! as bound Pods, since no scheduler is measured, and looked at with one watch, as everybody sees them.

use super::mac::{IMAGE, JOB, node_name, own_time};
use crate::fleet::say;
use anyhow::{Result, ensure};
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams, PostParams};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Client, ResourceExt as _};
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;
use tokio::time::MissedTickBehavior;

pub(super) const NAMESPACE: &str = "churn";

/// What is known of a Pod.
#[derive(Debug)]
struct Known {
    job: bool,
    number: u32,
    /// Since when the API server has it.
    asked: Instant,
    running: Option<Instant>,
    ended: bool,
    gone: bool,
}

/// What came of them.
#[derive(Debug, Default)]
pub(super) struct Waits {
    /// How long each Pod waited beyond what its runtime took, sorted.
    pub(super) beyond: Vec<Duration>,
    /// The same of the first Pod of each Mac, which finds no connection and nothing known.
    pub(super) first: Vec<Duration>,
    /// Pods that could not be made, did not run or failed.
    pub(super) failures: Vec<String>,
}

#[derive(Clone, Debug, Default)]
struct Book {
    pods: Arc<Mutex<BTreeMap<String, Known>>>,
    failures: Arc<Mutex<Vec<String>>>,
}

impl Book {
    fn pods(&self) -> MutexGuard<'_, BTreeMap<String, Known>> {
        self.pods.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn fail(&self, why: String) {
        self.failures.lock().unwrap_or_else(PoisonError::into_inner).push(why);
    }
}

#[derive(Debug)]
pub(super) struct Churn {
    api: Api<Pod>,
    macs: u32,
    next: AtomicU32,
    book: Book,
    watch: JoinHandle<()>,
}

impl Drop for Churn {
    fn drop(&mut self) {
        self.watch.abort();
    }
}

impl Churn {
    pub(super) fn start(client: Client, macs: u32) -> Self {
        let api: Api<Pod> = Api::namespaced(client, NAMESPACE);
        let book = Book::default();
        Self {
            watch: tokio::spawn(watch(api.clone(), book.clone())),
            api,
            macs,
            next: AtomicU32::new(0),
            book,
        }
    }

    /// So many Pods were asked for.
    pub(super) fn made(&self) -> u32 {
        self.next.load(Ordering::Relaxed)
    }

    /// Makes so many a second for so long, from one Mac to the next.
    pub(super) async fn make(&self, rate: u32, time: Duration) {
        let mut beat = tokio::time::interval(Duration::from_secs(1) / rate.max(1));
        beat.set_missed_tick_behavior(MissedTickBehavior::Burst);
        let until = Instant::now() + time;
        loop {
            beat.tick().await;
            if Instant::now() >= until {
                return;
            }
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            tokio::spawn(create(self.api.clone(), self.book.clone(), number, self.macs));
        }
    }

    /// Waits for the end of all.
    pub(super) async fn finish(self, patience: Duration) -> Result<Waits> {
        let (mut moved, mut fewest) = (Instant::now(), usize::MAX);
        loop {
            let left = self.book.pods().values().filter(|known| !known.gone).count();
            if left == 0 {
                break;
            }
            if left < fewest {
                (moved, fewest) = (Instant::now(), left);
            }
            ensure!(moved.elapsed() < patience, "{left} Pods do not go away");
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
        let mut waits = Waits {
            failures: std::mem::take(&mut *self.book.failures.lock().unwrap_or_else(PoisonError::into_inner)),
            ..Waits::default()
        };
        for (name, known) in &*self.book.pods() {
            match known.running {
                Some(running) => {
                    let waited = running.saturating_duration_since(known.asked);
                    let beyond = waited.saturating_sub(own_time(known.job));
                    let of = if known.number < self.macs {
                        &mut waits.first
                    } else {
                        &mut waits.beyond
                    };
                    of.push(beyond);
                }
                None => waits.failures.push(format!("{name} was never seen to run")),
            }
        }
        waits.beyond.sort();
        waits.first.sort();
        for failure in waits.failures.iter().take(5) {
            say(failure);
        }
        Ok(waits)
    }
}

async fn create(api: Api<Pod>, book: Book, number: u32, macs: u32) {
    let (name, job) = (format!("pod-{number:06}"), number.is_multiple_of(2));
    let command = if job {
        json!(["/usr/local/bin/job"])
    } else {
        json!(null)
    };
    let pod = serde_json::from_value(json!({
        "metadata": {"name": name},
        "spec": {
            "nodeName": node_name(number % macs),
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 10,
            "tolerations": [{"operator": "Exists"}],
            "containers": [{"name": "main", "image": IMAGE, "command": command}],
        },
    }));
    let pod: Pod = match pod {
        Ok(pod) => pod,
        Err(error) => return book.fail(format!("{name}: {error}")),
    };
    let known = Known {
        job,
        number,
        asked: Instant::now(),
        running: None,
        ended: false,
        gone: false,
    };
    book.pods().insert(name.clone(), known);
    match api.create(&PostParams::default(), &pod).await {
        Ok(_) => {
            if let Some(known) = book.pods().get_mut(&name) {
                known.asked = Instant::now();
            }
        }
        Err(error) => {
            book.fail(format!("{name} was not made: {error}"));
            book.pods().remove(&name);
        }
    }
}

async fn watch(api: Api<Pod>, book: Book) {
    let mut events = watcher(api.clone(), watcher::Config::default())
        .default_backoff()
        .boxed();
    while let Some(event) = events.next().await {
        match event {
            Ok(watcher::Event::Apply(pod) | watcher::Event::InitApply(pod)) => see(&api, &book, &pod),
            Ok(watcher::Event::Delete(pod)) => {
                if let Some(known) = book.pods().get_mut(&pod.name_any()) {
                    known.gone = true;
                }
            }
            Ok(watcher::Event::Init | watcher::Event::InitDone) => {}
            Err(error) => book.fail(format!("the watch broke: {error}")),
        }
    }
}

fn see(api: &Api<Pod>, book: &Book, pod: &Pod) {
    let now = Instant::now();
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    let name = pod.name_any();
    let mut pods = book.pods();
    let Some(known) = pods.get_mut(&name) else { return };
    match phase {
        Some("Running") if known.running.is_none() => {
            known.running = Some(now);
            if !known.job {
                delete(api, book, name, JOB);
            }
        }
        Some("Succeeded") if known.job && !known.ended => {
            known.ended = true;
            delete(api, book, name, Duration::ZERO);
        }
        Some("Failed") if !known.ended => {
            known.ended = true;
            // A machine that is deleted while it serves ends with 0 or not, as its guest likes; a job has no such excuse.
            if known.running.is_none() || known.job {
                let status = pod.status.clone().unwrap_or_default();
                book.fail(format!("{name} failed: {:?} {:?}", status.reason, status.message));
                delete(api, book, name, Duration::ZERO);
            }
        }
        _ => {}
    }
}

fn delete(api: &Api<Pod>, book: &Book, name: String, after: Duration) {
    let (api, book) = (api.clone(), book.clone());
    tokio::spawn(async move {
        tokio::time::sleep(after).await;
        match api.delete(&name, &DeleteParams::default()).await {
            Ok(_) => {}
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            Err(error) => book.fail(format!("{name} was not deleted: {error}")),
        }
    });
}
