//! One Pod: a task that looks at what is known, asks [`russet_pod::lifecycle`] what comes next, and begins it.
//!
//! Whatever takes time runs beside the loop and reports back as [`Happened`], so that a Pod can be deleted while its image is
//! pulled, its hook hangs or the API server is away.

mod hooks;
mod objects;
mod probes;
mod report;
mod scrape;
mod start;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::future::select_all;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, PodStatus};
use kube::ResourceExt as _;
use russet_pod::admit::Refusal;
use russet_pod::facts::{Hook, State};
use russet_pod::lifecycle::{self, Action, Stop};
use russet_pod::status::Phase;
use russet_vm::{PodVm, VmName};
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::Instant;

use self::hooks::Within;
use self::objects::Tokens;
use self::probes::{Probed, Rounds};
use self::report::{Wrote, version};
use self::scrape::Scraped;
use self::start::{Ready, Refused};
use super::Host;
use super::directory::{Instance, Shown};
use super::machine::{Life, Machine, Plan};
use super::record::{self, Kept};
use crate::ledger::Stage;
use crate::places::LIMIT;

/// A Pod without news is looked at again: what was missed for any reason is noticed then.
const IDLE: Duration = Duration::from_mins(1);
/// How often volumes are compared with what they are made of.
const REFRESH: Duration = Duration::from_secs(75);
const AGAIN: Duration = Duration::from_secs(1);
const SLOWEST_AGAIN: Duration = Duration::from_secs(30);

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
    Parted(String, u32, Instant),
    /// A probe was answered.
    Probed(Probed),
    /// A status was written, or was not.
    Wrote(Wrote),
    /// The Pod was taken away, or was not.
    Deleted(bool),
}

pub(super) struct Worker {
    host: Host,
    uid: String,
    pod: Arc<Pod>,
    wanted: watch::Receiver<Wanted>,
    kept: Kept,
    machines: BTreeMap<String, Machine>,
    tasks: JoinSet<Happened>,
    /// Starts that have no VM yet.
    starting: BTreeMap<String, AbortHandle>,
    rounds: BTreeMap<String, Rounds>,
    scraped: Option<Scraped>,
    tokens: Tokens,
    /// When the volumes are compared with the API server again.
    refresh: Instant,
    preparing: bool,
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
    /// What was told last, so that it is not told again and again.
    told: BTreeMap<String, String>,
}

impl Worker {
    pub(super) fn new(host: Host, uid: String, pod: Arc<Pod>, wanted: watch::Receiver<Wanted>) -> Self {
        let entries = host.shop.ledger.of_pod(&uid);
        let kept = Kept::open(&host.folders.pod(&uid), &entries);
        let published = pod.status.clone();
        Self {
            host,
            uid,
            pod,
            wanted,
            kept,
            machines: BTreeMap::new(),
            tasks: JoinSet::new(),
            starting: BTreeMap::new(),
            rounds: BTreeMap::new(),
            scraped: None,
            tokens: Tokens::default(),
            refresh: Instant::now(),
            preparing: false,
            writing: false,
            deleting: false,
            refusal: None,
            silent: false,
            published,
            version: 0,
            later: None,
            pause: AGAIN,
            told: BTreeMap::new(),
        }
    }

    pub(super) async fn run(mut self) {
        self.adopt();
        if !self.admitted().await {
            // Gone before anything was decided.
            return farewell(&self.host, &self.uid, BTreeMap::new()).await;
        }
        loop {
            let wanted = self.wanted.borrow_and_update().clone();
            match wanted {
                Wanted::Pod(pod) => self.see(pod),
                Wanted::Gone => break,
            }
            self.scrape();
            self.observe();
            let wake = self.act();
            if let Err(error) = self.kept.save() {
                tracing::warn!(uid = self.uid, %error, "what is known of a Pod could not be written down");
                self.try_later();
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
        tasks.abort_all();
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

    /// Goes on with the VMs of earlier agents.
    fn adopt(&mut self) {
        for (vm, entry) in self.host.shop.ledger.of_pod(&self.uid) {
            let container = vm.container().to_owned();
            let present = self.kept.record.attempts.get(&container) == Some(&vm.attempt());
            if matches!(entry.stage, Stage::Deleted(_)) || !present {
                continue;
            }
            let command = start::has_command(&self.pod, &container);
            let machine = self.machine(vm, Plan::adopted(&entry, command));
            self.machines.insert(container, machine);
        }
        if self.is_over() && self.machines.is_empty() {
            self.kept.record.finished = true;
            self.silent = self.kept.record.facts.containers.is_empty();
        }
        if self.kept.record.taken_on && !self.kept.record.finished {
            self.host.roster.add(&self.uid, &self.pod);
        }
    }

    /// Whether the Node takes the Pod on, asked once. `false` if the Pod is gone before that is decided.
    async fn admitted(&mut self) -> bool {
        let known = !self.kept.record.facts.containers.is_empty();
        if self.kept.record.taken_on || self.kept.record.finished || known {
            return true;
        }
        loop {
            let verdict = {
                let admission = self.host.roster.admit(&self.host, &self.uid, &self.pod);
                tokio::select! {
                    verdict = admission => verdict,
                    changed = self.wanted.changed() => match changed.map(|()| self.wanted.borrow().clone()) {
                        Ok(Wanted::Pod(pod)) => {
                            self.pod = pod;
                            continue;
                        }
                        _ => return false,
                    },
                }
            };
            match verdict {
                Ok(Ok(())) => {
                    self.kept.record.taken_on = true;
                    return true;
                }
                Ok(Err(refusal)) => {
                    self.tell_once(&refusal.reason, &refusal.message);
                    self.refusal = Some(refusal);
                    self.kept.record.finished = true;
                    return true;
                }
                Err(error) => {
                    tracing::debug!(uid = self.uid, %error, "a Pod waits to be taken on");
                    tokio::time::sleep(AGAIN).await;
                }
            }
        }
    }

    fn machine(&self, vm: PodVm, plan: Plan) -> Machine {
        let room = self.host.folders.room(&vm);
        Machine::start(self.host.shop.clone(), vm, room, plan)
    }

    /// Whether the API server already knows of an end.
    fn is_over(&self) -> bool {
        let phase = self.pod.status.as_ref().and_then(|status| status.phase.as_deref());
        phase.and_then(Phase::parse).is_some_and(Phase::is_terminal)
    }

    fn see(&mut self, pod: Arc<Pod>) {
        if !Arc::ptr_eq(&pod, &self.pod) {
            // A write of ours may be newer than the watch; the next event catches up with it.
            if !self.writing && version(&pod) >= self.version {
                self.published.clone_from(&pod.status);
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
        let mut over = Vec::new();
        for (name, machine) in &self.machines {
            let known = facts.container_mut(name);
            match machine.now() {
                Life::Making(why) => known.note = why,
                Life::Running { since, address } => {
                    if !matches!(known.state, State::Running { .. }) {
                        known.running(record::id(&machine.vm), since);
                    }
                    if let Some(address) = address
                        && start::is_main(&self.pod, name)
                    {
                        let outside = self.scraped.as_ref().and_then(Scraped::address);
                        facts.pod_ips = vec![outside.unwrap_or(address.into())];
                    }
                }
                Life::Failed { reason, message, pause } => {
                    self.host.shop.meters.failed();
                    match known.stopping {
                        Some(_) => known.abandoned(),
                        None => known.stuck(reason, message, now + pause),
                    }
                    over.push(name.clone());
                }
                Life::Ended { gone: false, .. } => {}
                Life::Ended { ending, gone: true } => {
                    if let Some(entry) = self.host.shop.ledger.get(&machine.vm) {
                        known.exited(record::exit(&machine.vm, &entry, &ending));
                    }
                    over.push(name.clone());
                }
            }
        }
        for name in over {
            self.machines.remove(&name);
            self.forget_old(&name);
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
            if let Err(error) = self.host.folders.room(&vm).clear() {
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

    fn prepare(&mut self) {
        let waits = self.later.is_some_and(|later| Instant::now() < later);
        if self.preparing || waits {
            return;
        }
        self.preparing = true;
        self.refresh = Instant::now() + REFRESH;
        let (host, pod, tokens) = (self.host.clone(), Arc::clone(&self.pod), self.tokens.clone());
        let facts = self.kept.record.facts.clone();
        self.tasks
            .spawn(async move { Happened::Prepared(objects::prepare(&host, &pod, &facts, &tokens).await) });
    }

    /// Volumes follow what they are made of for as long as somebody may read them.
    fn refresh(&mut self) {
        let live = self.kept.record.facts.prepared && !self.machines.is_empty();
        if live && Instant::now() >= self.refresh {
            self.prepare();
        }
    }

    fn start(&mut self, container: &str) {
        let entries = self.host.shop.ledger.of_pod(&self.uid);
        let attempt = self.kept.record.next_attempt(container, &entries);
        let namespace = self.pod.namespace().unwrap_or_default();
        let vm = match PodVm::new(&namespace, &self.pod.name_any(), container, &self.uid, attempt) {
            Ok(vm) => vm,
            Err(error) => {
                // No API server gives such a name out; nothing will change it.
                let retry = Timestamp::now() + SLOWEST_AGAIN;
                let facts = self.kept.record.facts.container_mut(container);
                facts.stuck(russet_pod::facts::reasons::CREATE, error.to_string(), retry);
                return;
            }
        };
        self.kept.record.attempts.insert(container.to_owned(), attempt);
        self.kept.record.facts.container_mut(container).begun(Timestamp::now());
        // Before the first effect, so that no later agent uses the number again.
        if let Err(error) = self.kept.save() {
            tracing::warn!(uid = self.uid, %error, "what is known of a Pod could not be written down");
            self.kept.record.facts.container_mut(container).abandoned();
            self.try_later();
            return;
        }
        let (host, pod, name) = (self.host.clone(), Arc::clone(&self.pod), container.to_owned());
        let (facts, tokens) = (self.kept.record.facts.clone(), self.tokens.clone());
        let task = self.tasks.spawn(async move {
            let ready = start::ready(&host, &pod, &name, vm, &facts, &tokens).await;
            Happened::Ready(name, Box::new(ready))
        });
        self.starting.insert(container.to_owned(), task);
    }

    fn greet(&mut self, container: String, hook: k8s_openapi::api::core::v1::LifecycleHandler) {
        let Some(machine) = self.machines.get(&container) else {
            return;
        };
        self.kept.record.facts.container_mut(&container).post_start = Hook::Running;
        let within = self.within(machine);
        let (pod, attempt) = (Arc::clone(&self.pod), machine.vm.attempt());
        self.tasks.spawn(async move {
            let done = within.hook(&pod, &container, &hook).await;
            Happened::Greeted(container, attempt, done)
        });
    }

    fn within(&self, machine: &Machine) -> Within {
        let address = match machine.now() {
            Life::Running { address, .. } => address,
            _ => None,
        };
        Within::new(&self.host.shop.runtime, &machine.vm, address)
    }

    fn stop(&mut self, stop: Stop) {
        let facts = self.kept.record.facts.container_mut(&stop.container);
        let first = facts.stopping.is_none();
        facts.told_to_stop(stop.deadline);
        let Some(machine) = self.machines.get(&stop.container) else {
            if let Some(task) = self.starting.remove(&stop.container) {
                task.abort();
            }
            facts.abandoned();
            return;
        };
        let begun = Instant::now();
        let message = stop.message();
        match stop.pre_stop.clone() {
            None => machine.stop_by(begun + stop.grace),
            Some(hook) => {
                let within = self.within(machine);
                let (host, pod, attempt) = (self.host.clone(), Arc::clone(&self.pod), machine.vm.attempt());
                self.tasks.spawn(async move {
                    let hook = within.hook(&pod, &stop.container, &hook);
                    if !matches!(tokio::time::timeout(stop.grace, hook).await, Ok(Ok(()))) {
                        host.server
                            .tell(&pod, "Warning", "FailedPreStopHook", "PreStopHook failed");
                    }
                    let now = Instant::now();
                    let deadline = now + stop.after_hook(now - begun);
                    Happened::Parted(stop.container, attempt, deadline)
                });
            }
        }
        if first {
            self.tell_once("Killing", &message);
        }
    }

    fn finish(&mut self) {
        if self.machines.is_empty() && self.starting.is_empty() {
            self.kept.record.finished = true;
            self.kept.record.facts.prepared = false;
            self.host.roster.remove(&self.uid);
            let volumes = self.host.folders.volumes(&self.uid);
            if let Err(error) = super::folder::remove(&volumes) {
                tracing::warn!(uid = self.uid, %error, "the volumes of a Pod could not be removed");
            }
        }
    }

    fn hear(&mut self, happened: Happened) {
        match happened {
            Happened::Prepared(done) => {
                self.preparing = false;
                match done {
                    Ok(()) => {
                        self.kept.record.facts.prepared = true;
                        self.pause = AGAIN;
                    }
                    // What is there stays as it is.
                    Err(refused) if self.kept.record.facts.prepared => {
                        tracing::info!(
                            uid = self.uid,
                            why = refused.message,
                            "the volumes of a Pod were not refreshed"
                        );
                    }
                    Err(refused) => {
                        self.tell_once("FailedMount", &refused.message);
                        let pod = Arc::clone(&self.pod);
                        for (_, container) in russet_pod::spec::containers(&pod) {
                            self.kept.record.facts.container_mut(&container.name).note = Some(refused.message.clone());
                        }
                        self.try_later();
                    }
                }
            }
            Happened::Ready(container, ready) => {
                self.starting.remove(&container);
                match *ready {
                    Ok(Ready { vm, plan }) => {
                        self.kept.record.facts.container_mut(&container).image_id = Some(plan.image.clone());
                        self.tell_once("Created", &format!("Created container: {container}"));
                        let machine = self.machine(vm, plan);
                        self.machines.insert(container, machine);
                    }
                    Err(refused) => self.refuse(&container, refused),
                }
            }
            Happened::Greeted(container, attempt, done) => {
                if self.is_present(&container, attempt) {
                    let facts = self.kept.record.facts.container_mut(&container);
                    facts.post_start = match done {
                        Ok(()) => Hook::Done,
                        Err(why) => Hook::Failed(why),
                    };
                }
            }
            Happened::Parted(container, attempt, deadline) => {
                if let Some(machine) = self
                    .machines
                    .get(&container)
                    .filter(|machine| machine.vm.attempt() == attempt)
                {
                    machine.stop_by(deadline);
                }
            }
            Happened::Probed(probed) => self.probed(probed),
            Happened::Wrote(wrote) => self.wrote(wrote),
            Happened::Deleted(done) => {
                self.deleting = done;
                if !done {
                    self.try_later();
                }
            }
        }
    }

    fn is_present(&self, container: &str, attempt: u32) -> bool {
        self.machines
            .get(container)
            .is_some_and(|machine| machine.vm.attempt() == attempt)
    }

    /// A container that could not be given a VM, and when it is tried again.
    fn refuse(&mut self, container: &str, refused: Refused) {
        let now = Timestamp::now();
        let facts = self.kept.record.facts.container_mut(container);
        let retry = if refused.pulls {
            self.kept
                .record
                .pulls
                .entry(container.to_owned())
                .or_default()
                .failed(now)
        } else {
            now + refused.pause
        };
        if facts.stopping.is_some() {
            facts.abandoned();
        } else {
            facts.stuck(refused.reason, refused.message.clone(), retry);
        }
        self.tell_once("Failed", &refused.message);
    }

    fn try_later(&mut self) {
        self.later = Some(Instant::now() + self.pause);
        self.pause = (self.pause * 2).min(SLOWEST_AGAIN);
    }

    /// An event, unless it was the last one of its kind.
    fn tell_once(&mut self, reason: &str, message: &str) {
        if self.told.get(reason).is_some_and(|last| last == message) {
            return;
        }
        self.told.insert(reason.to_owned(), message.to_owned());
        let kind = match reason {
            "Killing" | "Created" | "Started" | "Pulled" | "Pulling" => "Normal",
            _ => "Warning",
        };
        self.host.server.tell(&self.pod, kind, reason, message);
    }

    /// Until something happens, or it is time.
    async fn wait(&mut self, wake: Option<Timestamp>) {
        let now = Timestamp::now();
        let mut until = Instant::now() + IDLE;
        if let Some(wake) = wake {
            let left = Duration::try_from(wake.duration_since(now)).unwrap_or_default();
            until = until.min(Instant::now() + left);
        }
        if let Some(later) = self.later {
            until = until.min(later);
        }
        let machines = &mut self.machines;
        let lives = async move {
            if machines.is_empty() {
                std::future::pending::<()>().await;
            }
            let changes = machines.values_mut().map(|machine| Box::pin(machine.life.changed()));
            let (changed, index, _) = select_all(changes).await;
            if changed.is_err() {
                // Its task is over, and everything it had to say was heard.
                tracing::debug!(index, "a virtual machine has nothing more to say");
                tokio::time::sleep(AGAIN).await;
            }
        };
        let happened = tokio::select! {
            _ = self.wanted.changed() => None,
            Some(done) = self.tasks.join_next() => done.ok(),
            () = lives => None,
            () = scrape::changed(self.scraped.as_mut()) => None,
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

/// Ends what is left of a Pod that nobody knows any more.
pub(super) async fn bury(host: Host, uid: String) {
    farewell(&host, &uid, BTreeMap::new()).await;
}

/// Ends the VMs at once, and leaves nothing.
async fn farewell(host: &Host, uid: &str, machines: BTreeMap<String, Machine>) {
    let mut machines: Vec<Machine> = machines.into_values().collect();
    for (vm, entry) in host.shop.ledger.of_pod(uid) {
        if !machines.iter().any(|machine| machine.vm == vm) {
            let room = host.folders.room(&vm);
            let plan = Plan::adopted(&entry, false);
            machines.push(Machine::start(host.shop.clone(), vm, room, plan));
        }
    }
    for machine in &machines {
        machine.stop_by(Instant::now());
    }
    for mut machine in machines {
        let over = |life: &Life| matches!(life, Life::Failed { .. } | Life::Ended { gone: true, .. });
        // An error means that the task has ended, after its last word.
        let _ = machine.life.wait_for(over).await;
    }
    host.roster.remove(uid);
    host.directory.remove(uid);
    for (vm, entry) in host.shop.ledger.of_pod(uid) {
        // The clone of an agent that died may have come after it was given up.
        if entry.given_up
            && let Err(error) = host.shop.runtime.delete(&VmName::from(vm.clone())).await
        {
            tracing::info!(%vm, %error, "a virtual machine that came late could not be deleted; it is swept later");
        }
        if let Err(error) = host.shop.ledger.forget(&vm) {
            tracing::warn!(%vm, %error, "an old entry could not be removed");
        }
    }
    if let Err(error) = host.folders.remove_pod(uid) {
        tracing::warn!(uid, %error, "what a Pod left could not be removed");
    }
}
