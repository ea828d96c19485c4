//! A watch that goes on with whichever certificate the node has.

use std::time::Duration;

use futures::StreamExt as _;
use futures::stream::BoxStream;
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;
use tokio::sync::watch;

/// A watch is asked for anew after this at the latest and half of it at the soonest, as by a stock kubelet, and not by a whole fleet at once: a
/// thousand Macs that had come back together did so every five minutes, and Pods waited for two seconds each time. One that is dead is
/// noticed long before that, by its silence.
const LONGEST: Duration = Duration::from_mins(10);

/// Events of one watch, told anew from the start with each client: the certificate of the old one may end while the watch goes on.
pub(super) struct Lasting<K: Resource> {
    client: watch::Receiver<Option<Client>>,
    api: Box<dyn Fn(Client) -> Api<K> + Send + Sync>,
    config: watcher::Config,
    events: Option<BoxStream<'static, watcher::Result<watcher::Event<K>>>>,
    /// The object of a list that is being told.
    listed: Option<K>,
}

impl<K> Lasting<K>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + std::fmt::Debug + Send + 'static,
{
    pub(super) fn new(
        client: watch::Receiver<Option<Client>>,
        api: impl Fn(Client) -> Api<K> + Send + Sync + 'static,
        config: watcher::Config,
    ) -> Self {
        let seconds = russet_node::spread(LONGEST).as_secs();
        Self {
            client,
            api: Box::new(api),
            config: config.timeout(u32::try_from(seconds).unwrap_or(u32::MAX)),
            events: None,
            listed: None,
        }
    }

    /// For a watch of one object: how it is from now on, `None` if it is not there. A list that has only begun says nothing yet.
    pub(super) async fn next_state(&mut self) -> Option<watcher::Result<Option<K>>> {
        loop {
            return Some(Ok(match self.next().await? {
                Ok(watcher::Event::Init) => {
                    self.listed = None;
                    continue;
                }
                Ok(watcher::Event::InitApply(object)) => {
                    self.listed = Some(object);
                    continue;
                }
                Ok(watcher::Event::InitDone) => self.listed.take(),
                Ok(watcher::Event::Apply(object)) => Some(object),
                Ok(watcher::Event::Delete(_)) => None,
                Err(error) => return Some(Err(error)),
            }));
        }
    }

    /// The next event, or why there is none at the moment; after `None` there are none any more, since nobody joins the cluster.
    /// What is dropped before it is ready loses nothing.
    pub(super) async fn next(&mut self) -> Option<watcher::Result<watcher::Event<K>>> {
        loop {
            let Some(events) = &mut self.events else {
                self.client.wait_for(Option::is_some).await.ok()?;
                let joined = self.client.borrow_and_update().clone();
                let api = joined.map(&self.api);
                self.events = api.map(|api| watcher(api, self.config.clone()).default_backoff().boxed());
                continue;
            };
            tokio::select! {
                event = events.next() => match event {
                    Some(event) => return Some(event),
                    None => self.events = None,
                },
                changed = self.client.changed() => {
                    changed.ok()?;
                    self.events = None;
                }
            }
        }
    }
}
