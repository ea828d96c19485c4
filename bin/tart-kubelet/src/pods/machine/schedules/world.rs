//! A host, its agents one after the other, and what happens to them.

use super::mortal::{Disk, Fault, Mortal, Page, Pulse};
use super::{Chance, Event, Judge, LIMIT, Moody, PODS};
use crate::host::Board;
use crate::housekeeping::Keeping;
use crate::ledger::{Entry, Ledger, Stage};
use crate::meters::Meters;
use crate::places::Places;
use crate::pods::directory::Directory;
use crate::pods::folder::Folders;
use crate::pods::images::Images;
use crate::pods::machine::{Life, Machine, Plan, Shop, Tally};
use crate::pods::recover;
use russet_telemetry::Metrics;
use russet_vm::synthetic::{Host, Script, Settings};
use russet_vm::{Hardware, ImageRef, Launch, Owner, PodVm, Pull, Runtime, Source, Synthetic, VmName};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::time::Instant;

/// Long enough for everything to end that ends by itself.
const PATIENCE: Duration = Duration::from_mins(30);

/// A folder that is not there: what guests and agents would leave in it is no part of this.
const NOWHERE: &str = "/nowhere";

pub(super) struct World {
    host: Host,
    disk: Disk,
    faults: Arc<Mutex<Vec<Fault>>>,
    judge: Judge,
    chance: Chance,
    source: Source,
    /// Which start of which Pod is the present one; written before anything else is done for it.
    attempts: BTreeMap<u8, u32>,
    meters: Arc<Meters>,
    strangers: u32,
    agent: Agent,
}

/// An agent, as long as it lives.
struct Agent {
    pulse: Arc<Pulse>,
    shop: Shop,
    machines: BTreeMap<u8, Machine>,
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.pulse.kill();
    }
}

impl World {
    pub(super) async fn live(seed: u64, events: &[(Event, u16)]) -> Result<(), String> {
        let mut world = Self::new(seed, |chance| Arc::new(Moody(chance.clone()))).await;
        for (event, pause) in events {
            world.happen(*event).await;
            world.pass(Duration::from_millis((*pause).into())).await;
            world.verdict()?;
        }
        world.end().await?;
        world.verdict()
    }

    pub(super) async fn new(seed: u64, script: impl FnOnce(&Chance) -> Arc<dyn Script>) -> Self {
        let chance = Chance(Arc::new(Mutex::new(seed)));
        let host = Host::new(Settings {
            // The kernel of a Mac would refuse; this one lets it be seen.
            vm_limit: usize::MAX,
            script: script(&chance),
            ..Settings::default()
        });
        let image = ImageRef::parse("ghcr.io/acme/mac:v1").unwrap();
        host.publish(&image, "").unwrap();
        let digest = Synthetic::new(host.clone())
            .pull(&image, Pull::default())
            .await
            .unwrap();
        let (disk, faults, judge) = (Disk::default(), Arc::default(), Judge::default());
        let meters = Arc::new(Meters::new(&Metrics::new()));
        let agent = Agent::start(&host, &disk, &faults, &judge, &chance, &meters).await;
        Self {
            source: Source::Image(image.at(digest)),
            host,
            disk,
            faults,
            judge,
            chance,
            attempts: BTreeMap::new(),
            meters,
            strangers: 0,
            agent,
        }
    }

    pub(super) fn verdict(&self) -> Result<(), String> {
        self.judge.verdict.lock().unwrap().take().map_or(Ok(()), Err)
    }

    /// Time passes. An agent that dies meanwhile is followed by another.
    pub(super) async fn pass(&mut self, time: Duration) {
        let until = Instant::now() + time;
        loop {
            let pulse = Arc::clone(&self.agent.pulse);
            tokio::select! {
                () = pulse.died() => self.restart().await,
                () = tokio::time::sleep_until(until) => return,
            }
        }
    }

    /// Another agent: looks around, and goes on with what it finds.
    async fn restart(&mut self) {
        // The machines first: their tasks must not go on beside the next agent's.
        self.agent.machines.clear();
        self.agent.pulse.kill();
        self.agent = Agent::start(
            &self.host,
            &self.disk,
            &self.faults,
            &self.judge,
            &self.chance,
            &self.meters,
        )
        .await;
        for (vm, entry) in self.agent.shop.ledger.all() {
            let present = self.attempts.iter().find(|(pod, attempt)| name(**pod, **attempt) == vm);
            let (Some((pod, _)), false) = (present, matches!(entry.stage, Stage::Deleted(_))) else {
                continue;
            };
            let machine = self.agent.adopt(&vm, &entry, has_command(*pod));
            self.agent.machines.insert(*pod, machine);
        }
    }

    pub(super) async fn happen(&mut self, event: Event) {
        self.agent.tidy();
        match event {
            Event::Start(pod) => self.start(pod),
            Event::Stop(pod, grace) => {
                if let Some(machine) = self.agent.machines.get(&pod) {
                    machine.stop_by(Instant::now() + Duration::from_millis(grace.into()));
                }
            }
            Event::Crash(pod) => {
                if let Some(vm) = self.present(pod) {
                    self.host.crash(&vm);
                }
            }
            Event::Vanish(pod) => {
                if let Some(machine) = self.agent.machines.get(&pod) {
                    machine.stop_by(Instant::now());
                }
            }
            Event::Lose(pod) => {
                if let Some(vm) = self.present(pod) {
                    self.host.crash(&vm);
                    let _ = Synthetic::new(self.host.clone()).delete(&vm).await;
                }
            }
            Event::Damage(pod) => {
                if let Some(attempt) = self.attempts.get(&pod) {
                    self.disk.entries.lock().unwrap().remove(&name(pod, *attempt));
                }
            }
            Event::Kill => self.restart().await,
            Event::Burn(after, fuse) => *self.disk.fuse.lock().unwrap() = Some((after, fuse)),
            Event::Wrong(fault) => self.faults.lock().unwrap().push(fault),
            Event::Reboot => {
                self.judge.strangers.lock().unwrap().clear();
                self.agent.machines.clear();
                self.agent.pulse.kill();
                self.host.reboot();
                self.restart().await;
            }
            Event::Stranger(comes) => self.stranger(comes).await,
            Event::Sweep => {
                let (runtime, ledger) = (Arc::clone(&self.agent.shop.runtime), self.agent.shop.ledger.clone());
                tokio::spawn(async move { recover::sweep(&runtime, &ledger).await });
            }
        }
    }

    /// How far the VM of a Pod is, as it is written down.
    pub(super) fn stage(&self, pod: u8) -> Option<Stage> {
        let vm = name(pod, *self.attempts.get(&pod)?);
        Some(self.disk.entries.lock().unwrap().get(&vm)?.stage.clone())
    }

    /// How far the VM of a Pod is, as its agent sees it.
    pub(super) fn life(&self, pod: u8) -> Option<Life> {
        Some(self.agent.machines.get(&pod)?.now())
    }

    /// How often something is still to go wrong.
    pub(super) fn to_come(&self, fault: Fault) -> usize {
        let faults = self.faults.lock().unwrap();
        faults.iter().filter(|next| **next == fault).count()
    }

    fn present(&self, pod: u8) -> Option<VmName> {
        Some(VmName::from(name(pod, *self.attempts.get(&pod)?)))
    }

    fn start(&mut self, pod: u8) {
        if self.agent.machines.contains_key(&pod) || self.agent.pulse.is_dead() {
            return;
        }
        let attempt = self.attempts.get(&pod).map_or(0, |attempt| attempt + 1);
        self.attempts.insert(pod, attempt);
        let plan = Plan {
            pod: format!("p{pod}"),
            source: Some(self.source.clone()),
            image: String::new(),
            hardware: Hardware::default(),
            launch: Launch::default(),
            command: has_command(pod),
            late: None,
            message_policy: None,
            tally: Tally::default(),
        };
        let machine = self.agent.machine(&name(pod, attempt), plan);
        self.agent.machines.insert(pod, machine);
    }

    /// Somebody else's VM comes, if the kernel has room for it, or ends.
    async fn stranger(&mut self, comes: bool) {
        let listing = Synthetic::new(self.host.clone()).list().await.unwrap();
        let running = listing.vms.iter().filter(|listed| listed.running).count();
        if comes && running < LIMIT {
            self.strangers += 1;
            let vm = format!("stranger-{}", self.strangers);
            self.host.add_foreign(&vm, true);
            self.judge.strangers.lock().unwrap().insert(vm, Instant::now());
        } else if !comes && let Some((vm, _)) = self.judge.strangers.lock().unwrap().pop_first() {
            self.host.add_foreign(&vm, false);
        }
    }

    /// Nothing goes wrong any more, and all Pods are taken away: nothing may be left.
    pub(super) async fn end(&mut self) -> Result<(), String> {
        *self.disk.fuse.lock().unwrap() = None;
        self.faults.lock().unwrap().clear();
        while !self.judge.strangers.lock().unwrap().is_empty() {
            self.stranger(false).await;
        }
        self.restart().await;
        let agent = &mut self.agent;
        let mut machines: Vec<Machine> = std::mem::take(&mut agent.machines).into_values().collect();
        for (vm, entry) in agent.shop.ledger.all() {
            if !machines.iter().any(|machine| machine.vm == vm) {
                machines.push(agent.adopt(&vm, &entry, false));
            }
        }
        for machine in &machines {
            machine.stop_by(Instant::now());
        }
        for mut machine in machines {
            let ends = tokio::time::timeout(PATIENCE, machine.life.wait_for(is_over))
                .await
                .is_ok();
            if !ends {
                return Err(format!("{} does not end: {:?}", machine.vm, machine.now()));
            }
        }
        // What agents that died had begun comes to its end, too.
        tokio::time::sleep(Duration::from_mins(1)).await;
        recover::sweep(&agent.shop.runtime, &agent.shop.ledger).await;
        let listing = Synthetic::new(self.host.clone()).list().await.unwrap();
        let ours = |owner: &Owner| matches!(owner, Owner::Ours(VmName::Pod(_)));
        let left: Vec<Owner> = listing
            .vms
            .into_iter()
            .map(|listed| listed.owner)
            .filter(ours)
            .collect();
        if !left.is_empty() {
            return Err(format!("{left:?} are left"));
        }
        let mut places = Vec::new();
        for pod in 0..u8::try_from(LIMIT).unwrap() {
            let vm = name(PODS + pod, 0);
            let place = tokio::time::timeout(PATIENCE, agent.shop.places.take(&vm, |_| {})).await;
            let Ok(Ok(place)) = place else {
                return Err("a place is never free again".to_owned());
            };
            places.push(place);
        }
        Ok(())
    }
}

impl Agent {
    /// Starts one, for as often as it dies while it starts.
    async fn start(
        host: &Host,
        disk: &Disk,
        faults: &Arc<Mutex<Vec<Fault>>>,
        judge: &Judge,
        chance: &Chance,
        meters: &Arc<Meters>,
    ) -> Self {
        loop {
            let pulse = Arc::new(Pulse::default());
            let page = Page {
                disk: disk.clone(),
                pulse: Arc::clone(&pulse),
                judge: judge.clone(),
            };
            let ledger = Ledger::on(Arc::new(page)).unwrap();
            let runtime: Arc<dyn Runtime> = Arc::new(Mortal {
                host: Synthetic::new(host.clone()),
                pulse: Arc::clone(&pulse),
                judge: judge.clone(),
                chance: chance.clone(),
                faults: Arc::clone(faults),
            });
            let occupied = tokio::select! {
                occupied = recover::recover(&runtime, &ledger) => occupied,
                () = pulse.died() => continue,
            };
            let places = Places::new(Arc::clone(&runtime), LIMIT, occupied);
            let images = Images::new(
                Arc::clone(&runtime),
                Arc::clone(meters),
                Path::new(NOWHERE),
                &Keeping::default(),
                ledger.clone(),
                Directory::default(),
            );
            return Self {
                pulse,
                shop: Shop {
                    runtime,
                    ledger,
                    places,
                    pace: Arc::default(),
                    meters: Arc::clone(meters),
                    images,
                    board: Board::default(),
                    logs: Keeping::default().logs,
                },
                machines: BTreeMap::new(),
            };
        }
    }

    fn machine(&self, vm: &PodVm, plan: Plan) -> Machine {
        let room = Folders::new(Path::new(NOWHERE)).room(vm);
        Machine::start(self.shop.clone(), vm.clone(), room, plan)
    }

    fn adopt(&self, vm: &PodVm, entry: &Entry, command: bool) -> Machine {
        self.machine(vm, Plan::adopted(entry, command))
    }

    /// Forgets Pods whose VMs are over, as the task of a Pod does.
    fn tidy(&mut self) {
        self.machines.retain(|_, machine| !is_over(&machine.now()));
    }
}

fn is_over(life: &Life) -> bool {
    matches!(life, Life::Failed { .. } | Life::Ended { gone: true, .. })
}

fn name(pod: u8, attempt: u32) -> PodVm {
    PodVm::new("ci", &format!("p{pod}"), "main", &format!("{pod:08x}"), attempt).unwrap()
}

/// Every other Pod runs a program in its VM; the VMs of the rest do all by themselves.
fn has_command(pod: u8) -> bool {
    pod.is_multiple_of(2)
}
