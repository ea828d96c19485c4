//! One Pod: a task that looks at what is known, asks [`russet_pod::lifecycle`] what comes next, and begins it.
//!
//! Whatever takes time runs beside the loop and reports back as [`Happened`], so that a Pod can be deleted while its image is
//! pulled, its hook hangs or the API server is away.

mod begin;
mod doing;
mod evicted;
pub(super) mod farewell;
mod hear;
mod hooks;
mod objects;
mod parting;
mod ports;
mod probes;
mod report;
mod scrape;
mod start;
mod told;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::future::select_all;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, PodStatus};
use russet_pod::admit::Refusal;
use russet_pod::facts::{State, Why};
use russet_pod::lifecycle::{self, Action};
use russet_vm::PodVm;
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::Instant;

use self::farewell::farewell;
use self::objects::Sources;
use self::parting::Partings;
use self::ports::Opened;
use self::probes::{Probed, Rounds};
use self::report::{Wrote, version};
use self::scrape::Scraped;
use self::start::{Ready, Refused};
use self::told::Told;
use super::Host;
use super::directory::{Instance, Shown};
use super::machine::{Life, Machine};
use super::record::{self, Kept};
use super::watched::Held;
use crate::places::LIMIT;

/// A Pod without news is looked at again: what was missed for any reason is noticed then.
const IDLE: Duration = Duration::from_mins(1);
/// How often volumes are compared with what they are made of.
const REFRESH: Duration = Duration::from_secs(75);
const AGAIN: Duration = Duration::from_secs(1);
const SLOWEST_AGAIN: Duration = Duration::from_secs(30);
/// A disk that is full stays so for a while.
const SAVE_AGAIN: Duration = Duration::from_secs(5);

/// What the API server says about a Pod.
#[derive(Clone, Debug)]
pub(super) enum Wanted {
    /// It is so.
    Pod(Arc<Pod>),
    /// It is not there any more.
    Gone,
}

/// Something that ran beside the loop has an answer.
enum Happened {
    /// The volumes are in place, or are not.
    Prepared(Result<(), Refused>),
    /// A container can be given its VM, or cannot.
    Ready(String, Box<Result<Ready, Refused>>),
    /// The hook after a start ended.
    Greeted(String, u32, Result<(), String>),
    /// The hook before a stop ended, or its time did.
    Parted(String, u32),
    /// A probe was answered.
    Probed(Probed),
    /// A status was written, or was not.
    Wrote(Box<Wrote>),
    /// The Pod was taken away, or was not.
    Deleted(bool),
}

pub(super) struct Worker {
    host: Host,
    uid: String,
    pod: Arc<Pod>,
    wanted: watch::Receiver<Wanted>,
    /// Which Pods have to go.
    evictions: watch::Receiver<BTreeMap<String, Why>>,
    kept: Kept,
    /// When the Pod was created, until the first of its VMs starts.
    created: Arc<Mutex<Option<Timestamp>>>,
    machines: BTreeMap<String, Machine>,
    tasks: JoinSet<Happened>,
    /// Starts that have no VM yet.
    starting: BTreeMap<String, AbortHandle>,
    partings: Partings,
    rounds: BTreeMap<String, Rounds>,
    scraped: Option<Scraped>,
    /// Ports of the Node that lead to a container.
    opened: BTreeMap<String, Opened>,
    sources: Sources,
    /// Tells that an object changed that some Pod refers to.
    changes: watch::Receiver<()>,
    /// When the volumes are compared with the API server again.
    refresh: Instant,
    /// The task that fills the volumes.
    preparing: Option<AbortHandle>,
    /// Tasks that were told to end, until they have: they may still be writing what is about to be removed.
    winding: Vec<AbortHandle>,
    writing: bool,
    deleting: bool,
    /// Why the Node did not take it on.
    refusal: Option<Refusal>,
    /// Others have written the end of this Pod, and nothing is known here that could make it truer.
    silent: bool,
    /// The status that the API server has, as far as is known.
    published: Option<PodStatus>,
    /// How new that is.
    version: u64,
    /// After something failed: not before then, and how long to wait the next time.
    later: Option<Instant>,
    pause: Duration,
    /// When news is told that nobody waits for.
    unhurried: Option<Instant>,
    /// When what is known is written down again, after that failed.
    save_again: Option<Instant>,
    told: Told,
}

impl Worker {
    pub(super) fn new(host: Host, uid: String, pod: Arc<Pod>, wanted: watch::Receiver<Wanted>) -> Self {
        let entries = host.shop.ledger.of_pod(&uid);
        let kept = Kept::open(&host.folders.pod(&uid), &pod, &entries, Timestamp::now());
        // Of a Pod that earlier agents have begun, they have told how long it waited.
        let created = pod.metadata.creation_timestamp.as_ref().map(|created| created.0);
        let created = created.filter(|_| entries.is_empty());
        let published = pod.status.clone();
        let changes = host.watched.changes();
        Self {
            evictions: host.evictions.subscribe(),
            host,
            uid,
            pod,
            wanted,
            kept,
            created: Arc::new(Mutex::new(created)),
            machines: BTreeMap::new(),
            tasks: JoinSet::new(),
            starting: BTreeMap::new(),
            partings: Partings::default(),
            rounds: BTreeMap::new(),
            scraped: None,
            opened: BTreeMap::new(),
            sources: Sources::default(),
            changes,
            refresh: Instant::now(),
            preparing: None,
            winding: Vec::new(),
            writing: false,
            deleting: false,
            refusal: None,
            silent: false,
            published,
            version: 0,
            later: None,
            pause: AGAIN,
            unhurried: None,
            save_again: None,
            told: Told::default(),
        }
    }

    pub(super) async fn run(mut self) {
        self.adopt();
        // What it refers to is on its way while the Node decides whether to take it on.
        if !self.kept.record.finished {
            self.sources.held = self.host.watched.hold(&self.pod);
        }
        if !self.admitted().await {
            // Gone before anything was decided.
            return farewell(&self.host, &self.uid, BTreeMap::new()).await;
        }
        if self.kept.record.finished {
            self.sources.held = Held::default();
        }
        loop {
            let wanted = self.wanted.borrow_and_update().clone();
            match wanted {
                Wanted::Pod(pod) => self.see(pod),
                Wanted::Gone => break,
            }
            self.scrape();
            self.open_ports();
            self.observe();
            self.heed();
            let wake = self.act();
            match self.kept.save() {
                Ok(()) => self.save_again = None,
                Err(error) => self.unsaved(&error),
            }
            self.report();
            self.show();
            self.wait(wake).await;
        }
        let Self {
            host,
            uid,
            machines,
            mut tasks,
            ..
        } = self;
        // Whoever is still writing would write after the farewell.
        tasks.shutdown().await;
        farewell(&host, &uid, machines).await;
    }

    /// Lets others know.
    fn show(&self) {
        let instance = |machine: &Machine| Instance {
            vm: machine.vm.clone(),
            life: machine.life.clone(),
        };
        let instances = self
            .machines
            .iter()
            .map(|(name, machine)| (name.clone(), instance(machine)));
        self.host.directory.put(
            &self.uid,
            Shown {
                pod: Arc::clone(&self.pod),
                instances: instances.collect(),
            },
        );
    }

    fn see(&mut self, pod: Arc<Pod>) {
        if !Arc::ptr_eq(&pod, &self.pod) {
            // A write of ours may be newer than the watch; the next event catches up with it.
            if !self.writing && version(&pod) >= self.version {
                self.published.clone_from(&pod.status);
            }
            let told = |pod: &Pod| (pod.metadata.labels.clone(), pod.metadata.annotations.clone());
            if told(&pod) != told(&self.pod) {
                // Files of the downward API follow.
                self.refresh = Instant::now();
            }
            self.pod = pod;
        }
    }

    /// Brings the facts up to what the VMs do.
    fn observe(&mut self) {
        let now = Timestamp::now();
        let facts = &mut self.kept.record.facts;
        facts.started.get_or_insert(now);
        facts.host_ips = (self.host.options.address)().into_iter().collect();
        let (mut over, mut news) = (Vec::new(), Vec::new());
        let begun = |name: &str| (name.to_owned(), "Started", format!("Started container {name}"));
        for (name, machine) in &self.machines {
            let life = machine.now();
            if let Some(address) = life.address()
                && start::is_main(&self.pod, name)
            {
                let outside = self.scraped.as_ref().and_then(Scraped::address);
                facts.pod_ips = vec![outside.unwrap_or(address.into())];
            }
            let known = facts.container_mut(name);
            match life {
                Life::Making(why) => known.note = why,
                Life::Running { since, .. } => {
                    if !matches!(known.state, State::Running { .. }) {
                        known.running(record::id(&machine.vm), since);
                        news.push(begun(name));
                    }
                }
                Life::Failed { reason, message, pause } => {
                    self.host.shop.meters.failed();
                    if known.stopping.is_some() {
                        known.abandoned();
                    } else {
                        news.push((name.clone(), "Failed", message.clone()));
                        known.stuck(reason, message, now + pause);
                    }
                    over.push(name.clone());
                }
                Life::Ended { gone: false, .. } => {}
                Life::Ended { ending, gone: true, .. } => {
                    if let Some(entry) = self.host.shop.ledger.get(&machine.vm) {
                        // It ran so shortly that only its end was seen.
                        if entry.running.is_some() && matches!(known.state, State::Starting { .. }) {
                            news.push(begun(name));
                        }
                        known.exited(record::exit(&machine.vm, &entry, &ending));
                    }
                    over.push(name.clone());
                }
            }
        }
        for (container, reason, message) in news {
            self.tell_of(&container, reason, &message);
        }
        for name in over {
            self.partings.over(&name);
            if let Some(machine) = self.machines.remove(&name) {
                self.leave(&machine.vm);
            }
            self.forget_old(&name);
        }
    }

    /// Removes what a start left that is over, if it was none: nothing ran whose log somebody could ask for. Starts that fail every
    /// ten seconds left thousands of folders a day.
    fn leave(&self, vm: &PodVm) {
        if self.host.shop.ledger.get(vm).is_none()
            && let Err(error) = self.host.folders.remove_room(vm)
        {
            tracing::warn!(%vm, %error, "what a start left could not be removed");
        }
    }

    /// Of the starts of a container that are over, the last two are kept: the present one and the one `--previous` shows.
    fn forget_old(&self, container: &str) {
        let mut ended = self.host.shop.ledger.of_pod(&self.uid);
        ended.retain(|(vm, _)| vm.container() == container);
        let surplus = ended.len().saturating_sub(2);
        for (vm, _) in ended.into_iter().take(surplus) {
            if let Err(error) = self.host.shop.ledger.forget(&vm) {
                tracing::warn!(%vm, %error, "an old entry could not be removed");
            }
            if let Err(error) = self.host.folders.remove_room(&vm) {
                tracing::warn!(%vm, %error, "an old log could not be removed");
            }
        }
    }

    /// Begins whatever comes next. When to look again.
    fn act(&mut self) -> Option<Timestamp> {
        if self.kept.record.finished {
            return None;
        }
        let now = Timestamp::now();
        let asks = self.probe(now);
        self.refresh();
        let room = lifecycle::Room { free: LIMIT };
        let plan = lifecycle::next(&self.pod, &self.kept.record.facts, room, now);
        if let Some(ending) = plan.ending {
            self.kept.record.facts.ending = Some(ending);
        }
        for action in plan.actions {
            match action {
                Action::Prepare => self.prepare(),
                Action::Start { container, .. } => self.start(&container),
                Action::PostStart { container, hook } => self.greet(container, hook),
                Action::Stop(stop) => self.stop(stop),
                Action::Finish => self.finish(),
            }
        }
        [plan.wake, asks].into_iter().flatten().min()
    }

    fn try_later(&mut self) {
        self.later = Some(Instant::now() + self.pause);
        self.pause = (self.pause * 2).min(SLOWEST_AGAIN);
    }

    /// What is known could not be written down. It is told all the same: what must not be lost is in the ledger.
    fn unsaved(&mut self, error: &std::io::Error) {
        if self.save_again.is_none() {
            tracing::warn!(uid = self.uid, %error, "what is known of a Pod could not be written down");
        }
        self.save_again = Some(Instant::now() + SAVE_AGAIN);
    }

    /// Until something happens, or it is time.
    async fn wait(&mut self, wake: Option<Timestamp>) {
        let now = Timestamp::now();
        let mut until = Instant::now() + IDLE;
        if let Some(wake) = wake {
            let left = Duration::try_from(wake.duration_since(now)).unwrap_or_default();
            until = until.min(Instant::now() + left);
        }
        let unhurried = self.unhurried.filter(|_| self.later.is_none());
        for at in [self.later, self.save_again, unhurried].into_iter().flatten() {
            until = until.min(at);
        }
        let machines = &mut self.machines;
        let lives = async move {
            if machines.is_empty() {
                std::future::pending::<()>().await;
            }
            let changes = machines.values_mut().map(|machine| Box::pin(machine.life.changed()));
            let (heard, index, _) = select_all(changes).await;
            if heard.is_err() {
                // Its task is over, and everything it had to say was heard.
                tracing::debug!(index, "a virtual machine has nothing more to say");
                tokio::time::sleep(AGAIN).await;
            }
        };
        let happened = tokio::select! {
            _ = self.wanted.changed() => None,
            _ = self.evictions.changed() => None,
            Some(done) = self.tasks.join_next() => done.ok(),
            () = lives => None,
            () = scrape::changed(self.scraped.as_mut()) => None,
            Ok(()) = self.changes.changed() => {
                (self.refresh, self.later) = (Instant::now(), None);
                None
            }
            () = tokio::time::sleep_until(until) => None,
        };
        if self.later.is_some_and(|later| Instant::now() >= later) {
            self.later = None;
        }
        if let Some(happened) = happened {
            self.hear(happened);
        }
    }
}
