//! What is told of every Pod, from the first word to the last.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Result, bail};
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Pod;
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client, ResourceExt as _};
use tokio::sync::watch;

use crate::compare::{Moment, View};

/// Two kubelets and a dozen containers share the machine with whatever else it does.
const PATIENCE: Duration = Duration::from_mins(4);

/// Everything that was told, by the uid of the Pod.
#[derive(Clone)]
pub(crate) struct Record {
    told: Arc<Mutex<BTreeMap<String, Vec<View>>>>,
    news: watch::Sender<()>,
}

impl Record {
    /// Records the Pods of a namespace from now on.
    pub(crate) fn start(client: &Client, namespaces: &[&str]) -> Self {
        let record = Self {
            told: Arc::default(),
            news: watch::channel(()).0,
        };
        for namespace in namespaces {
            let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
            let record = record.clone();
            tokio::spawn(async move {
                let mut events = watcher(pods, watcher::Config::default()).default_backoff().boxed();
                while let Some(event) = events.next().await {
                    match event {
                        Ok(watcher::Event::Apply(pod) | watcher::Event::InitApply(pod)) => {
                            record.tell(&pod, View::of(&pod));
                        }
                        Ok(watcher::Event::Delete(pod)) => record.tell(&pod, View::gone(&pod)),
                        Ok(_) => {}
                        Err(error) => eprintln!("the watch was interrupted and goes on: {error}"),
                    }
                }
            });
        }
        record
    }

    fn tell(&self, pod: &Pod, view: View) {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        let views = told.entry(pod.uid().unwrap_or_default()).or_default();
        if views.last() != Some(&view) {
            views.push(view);
        }
        drop(told);
        self.news.send_replace(());
    }

    /// Everything so far.
    pub(crate) fn views(&self, uid: &str) -> Vec<View> {
        let told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        told.get(uid).cloned().unwrap_or_default()
    }

    /// Waits for a moment, not before the `from`-th view. Which view it was.
    pub(crate) async fn until(&self, uid: &str, moment: &Moment, from: usize) -> Result<usize> {
        let mut news = self.news.subscribe();
        let deadline = tokio::time::Instant::now() + PATIENCE;
        loop {
            news.mark_unchanged();
            let views = self.views(uid);
            let found = views.iter().skip(from).position(|view| moment.is(view));
            if let Some(found) = found {
                return Ok(from + found);
            }
            if tokio::time::timeout_at(deadline, news.changed()).await.is_err() {
                bail!("waited {PATIENCE:?} {moment}; told: {views:#?}");
            }
        }
    }
}
