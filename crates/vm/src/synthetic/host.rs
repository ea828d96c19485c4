//! A synthetic host: everything that outlives an agent.

use super::script::{Op, Plain, Script};
use crate::error::Error;
use crate::image::{Digest, ImageRef, Pinned};
use crate::name::VmName;
use crate::process::Process;
use crate::runtime::{
    Credentials, DiskUsage, Exit, Hardware, How, Image, Listed, Listing, Owner, Power, Source, StartFailure, Step,
};
use sha2::Digest as _;
use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;

/// What every image takes on the disk.
const SIZE: u64 = 25_000_000_000;

/// What a host is like.
#[derive(Clone, Debug)]
pub struct Settings {
    /// How many VMs may run at once.
    pub vm_limit: usize,
    /// The size of its disk.
    pub disk: u64,
    /// The first address it gives out.
    pub first_address: Ipv4Addr,
    /// Delays and guests.
    pub script: Arc<dyn Script>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            vm_limit: 2,
            disk: 256_000_000_000,
            first_address: Ipv4Addr::new(192, 168, 64, 2),
            script: Arc::new(Plain::default()),
        }
    }
}

#[derive(Debug, Default)]
struct State {
    vms: BTreeMap<String, Vm>,
    /// What a registry has: the tag as the reference prints it, and every digest.
    published: BTreeMap<String, Digest>,
    /// What a registry wants, by host.
    wanted: BTreeMap<String, (String, String)>,
    logins: BTreeMap<String, Credentials>,
    tags: BTreeMap<String, Digest>,
    images: BTreeSet<Pinned>,
    processes: u32,
    addresses: u32,
}

#[derive(Debug)]
struct Vm {
    /// Blocks are shared within a family.
    family: String,
    hardware: Hardware,
    power: Power,
    up_at: Instant,
    address: Ipv4Addr,
    steps: BTreeMap<String, Step>,
}

/// A host. Cheap to copy; all copies are the same one.
#[derive(Clone, Debug)]
pub struct Host {
    settings: Settings,
    state: Arc<Mutex<State>>,
    /// Counts changes of power.
    changes: Arc<watch::Sender<u64>>,
}

impl Host {
    /// An empty host.
    pub fn new(settings: Settings) -> Self {
        Self {
            settings,
            state: Arc::default(),
            changes: Arc::new(watch::channel(0).0),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // No code of others runs under the lock, so a panic left nothing half done.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn script(&self) -> &dyn Script {
        self.settings.script.as_ref()
    }

    pub(super) fn delay(&self, op: Op, name: &str) -> Duration {
        self.script().delay(op, name)
    }

    pub(super) async fn pause(&self, op: Op, name: &str) {
        let delay = self.delay(op, name);
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
    }

    /// Puts an image into the registry, told apart by `content`, and moves its tag there.
    pub fn publish(&self, image: &ImageRef, content: &str) -> Result<Digest, Error> {
        let hex = crate::name::hex(&sha2::Sha256::digest(content), 32);
        let digest: Digest = format!("sha256:{hex}")
            .parse()
            .map_err(|_| Error::Unsuitable("a digest".to_owned()))?;
        let mut state = self.state();
        state.published.insert(image.to_string(), digest.clone());
        state
            .published
            .insert(image.at(digest.clone()).to_string(), digest.clone());
        Ok(digest)
    }

    /// Makes a registry private.
    pub fn require_login(&self, host: &str, username: &str, password: &str) {
        self.state()
            .wanted
            .insert(host.to_owned(), (username.to_owned(), password.to_owned()));
    }

    /// Somebody else's VM appears, running or not.
    pub fn add_foreign(&self, name: &str, running: bool) {
        let power = if running { Power::Running(None) } else { Power::Off };
        self.state().vms.insert(
            name.to_owned(),
            Vm {
                family: name.to_owned(),
                hardware: Hardware::default(),
                power,
                up_at: Instant::now(),
                address: Ipv4Addr::UNSPECIFIED,
                steps: BTreeMap::new(),
            },
        );
    }

    /// What a VM was given.
    pub fn hardware(&self, name: &VmName) -> Option<Hardware> {
        Some(self.state().vms.get(&name.to_string())?.hardware)
    }

    /// The guest of a VM crashes.
    pub fn crash(&self, name: &VmName) {
        self.end(&name.to_string(), How::Crashed("the guest panicked".to_owned()));
    }

    /// The host loses power and comes back. Nobody saw how its VMs ended.
    pub fn reboot(&self) {
        let names: Vec<_> = self.state().vms.keys().cloned().collect();
        for name in names {
            self.end(&name, How::Unknown);
        }
    }

    pub(super) fn published(&self, image: &ImageRef, given: Option<&Credentials>) -> Result<Digest, Error> {
        let state = self.state();
        let shown = given
            .filter(|given| given.host == image.host())
            .or_else(|| state.logins.get(image.host()));
        if let Some((username, password)) = state.wanted.get(image.host())
            && !shown.is_some_and(|shown| shown.username == *username && shown.password.matches(password.as_bytes()))
        {
            return Err(Error::Unauthorized(image.to_string()));
        }
        state
            .published
            .get(&image.to_string())
            .cloned()
            .ok_or_else(|| Error::NoSuchImage(image.to_string()))
    }

    pub(super) fn login(&self, credentials: &Credentials) -> Result<(), Error> {
        let mut state = self.state();
        let good = state
            .wanted
            .get(&credentials.host)
            .is_none_or(|(name, word)| *name == credentials.username && credentials.password.matches(word.as_bytes()));
        if !good {
            return Err(Error::Unauthorized(credentials.host.clone()));
        }
        state.logins.insert(credentials.host.clone(), credentials.clone());
        Ok(())
    }

    pub(super) fn pulled(&self, image: &Pinned) -> bool {
        self.state().images.contains(image)
    }

    pub(super) fn take(&self, image: &ImageRef, digest: &Digest) {
        let mut state = self.state();
        state.tags.insert(image.to_string(), digest.clone());
        state.images.insert(image.at(digest.clone()));
    }

    pub(super) fn resolved(&self, image: &ImageRef) -> Option<Digest> {
        let state = self.state();
        let digest = match image.pinned() {
            Some(pinned) => pinned.digest().clone(),
            None => state.tags.get(&image.to_string())?.clone(),
        };
        state.images.contains(&image.at(digest.clone())).then_some(digest)
    }

    pub(super) fn drop_image(&self, image: &Pinned) {
        self.state().images.remove(image);
    }

    pub(super) fn check_clone(&self, source: &Source, name: &VmName) -> Result<String, Error> {
        let state = self.state();
        if state.vms.contains_key(&name.to_string()) {
            return Err(Error::Exists(name.to_string()));
        }
        match source {
            Source::Vm(from) => match state.vms.get(&from.to_string()) {
                Some(vm) => Ok(vm.family.clone()),
                None => Err(Error::Missing(from.to_string())),
            },
            Source::Image(image) if state.images.contains(image) => Ok(image.to_string()),
            Source::Image(image) => Err(Error::Missing(image.to_string())),
        }
    }

    pub(super) fn clone_vm(&self, source: &Source, name: &VmName) -> Result<(), Error> {
        let family = self.check_clone(source, name)?;
        let mut state = self.state();
        state.addresses += 1;
        let address = Ipv4Addr::from(u32::from(self.settings.first_address).wrapping_add(state.addresses - 1));
        state.vms.insert(
            name.to_string(),
            Vm {
                family,
                hardware: Hardware::default(),
                power: Power::Off,
                up_at: Instant::now(),
                address,
                steps: BTreeMap::new(),
            },
        );
        Ok(())
    }

    pub(super) fn configure(&self, name: &VmName, hardware: Hardware) -> Result<(), Error> {
        let mut state = self.state();
        let vm = state
            .vms
            .get_mut(&name.to_string())
            .ok_or_else(|| Error::Missing(name.to_string()))?;
        if matches!(vm.power, Power::Running(_)) {
            return Err(Error::Running(name.to_string()));
        }
        if hardware.cpu.is_some_and(|cpu| cpu < 4) {
            return Err(Error::Unsuitable("VM should have 4 CPU cores at minimum".to_owned()));
        }
        vm.hardware = hardware;
        Ok(())
    }

    pub(super) fn start(&self, name: &VmName) -> Result<Process, Error> {
        let text = name.to_string();
        let boot = self.delay(Op::Boot, &text);
        let mut state = self.state();
        let running: Vec<_> = state
            .vms
            .iter()
            .filter(|(_, vm)| is_running(vm))
            .map(|(name, _)| name.clone())
            .collect();
        state.processes += 1;
        let process = Process {
            pid: state.processes,
            started: format!("synthetic/{}", state.processes),
        };
        let vm = state.vms.get_mut(&text).ok_or_else(|| Error::Missing(text.clone()))?;
        if is_running(vm) {
            return Err(Error::Running(text));
        }
        vm.steps.clear();
        if running.len() >= self.settings.vm_limit {
            let why = format!(
                "The number of VMs exceeds the system limit (other running VMs: {})",
                running.join(", ")
            );
            vm.power = ended(How::Failed(StartFailure::TooMany(why)));
        } else {
            vm.power = Power::Running(Some(process.clone()));
            vm.up_at = Instant::now() + boot;
        }
        drop(state);
        self.changes.send_modify(|count| *count += 1);
        Ok(process)
    }

    pub(super) fn power(&self, name: &VmName) -> Option<Power> {
        Some(self.state().vms.get(&name.to_string())?.power.clone())
    }

    pub(super) async fn ended(&self, name: &VmName) -> Result<Exit, Error> {
        let text = name.to_string();
        self.until_over(&text).await;
        match self.power(name) {
            None => Err(Error::Missing(text)),
            Some(Power::Ended(exit)) => Ok(exit),
            Some(_) => Err(Error::NotRunning(text)),
        }
    }

    /// Waits until a VM does not run.
    pub(super) async fn until_over(&self, name: &str) {
        let mut changes = self.changes.subscribe();
        loop {
            changes.borrow_and_update();
            if !self.state().vms.get(name).is_some_and(is_running) || changes.changed().await.is_err() {
                return;
            }
        }
    }

    pub(super) fn end(&self, name: &str, how: How) {
        if let Some(vm) = self.state().vms.get_mut(name).filter(|vm| is_running(vm)) {
            vm.power = ended(how);
            for step in vm.steps.values_mut() {
                if matches!(step, Step::Running { .. }) {
                    *step = Step::Lost;
                }
            }
        }
        self.changes.send_modify(|count| *count += 1);
    }

    pub(super) fn address(&self, name: &VmName) -> Result<Option<Ipv4Addr>, Error> {
        let state = self.state();
        let vm = state
            .vms
            .get(&name.to_string())
            .ok_or_else(|| Error::Missing(name.to_string()))?;
        if !is_running(vm) {
            return Err(Error::NotRunning(name.to_string()));
        }
        Ok((vm.up_at <= Instant::now()).then_some(vm.address))
    }

    /// A guest that is not up yet has no agent.
    pub(super) fn require_agent(&self, name: &VmName) -> Result<(), Error> {
        match self.address(name)? {
            Some(_) => Ok(()),
            None => Err(Error::NoAgent {
                vm: name.to_string(),
                why: "the guest is still booting".to_owned(),
            }),
        }
    }

    pub(super) fn begin_step(&self, vm: &str, id: &str) -> Result<(), Error> {
        let mut state = self.state();
        let steps = &mut state
            .vms
            .get_mut(vm)
            .ok_or_else(|| Error::Missing(vm.to_owned()))?
            .steps;
        if matches!(steps.get(id), Some(Step::Running { .. })) {
            return Err(Error::Running(format!("{vm}/{id}")));
        }
        steps.insert(
            id.to_owned(),
            Step::Running {
                since: jiff::Timestamp::now(),
            },
        );
        Ok(())
    }

    pub(super) fn end_step(&self, vm: &str, id: &str, end: Step) {
        if let Some(step) = self.state().vms.get_mut(vm).and_then(|vm| vm.steps.get_mut(id)) {
            *step = end;
        }
    }

    pub(super) fn step(&self, name: &VmName, id: &str) -> Option<Step> {
        self.state().vms.get(&name.to_string())?.steps.get(id).copied()
    }

    pub(super) fn delete(&self, name: &VmName) -> Result<(), Error> {
        let mut state = self.state();
        match state.vms.get(&name.to_string()) {
            Some(vm) if is_running(vm) => return Err(Error::Running(name.to_string())),
            _ => {}
        }
        state.vms.remove(&name.to_string());
        Ok(())
    }

    pub(super) fn list(&self) -> Listing {
        let state = self.state();
        let vms = state.vms.iter().map(|(name, vm)| Listed {
            owner: VmName::parse(name).map_or_else(|| Owner::Foreign(name.clone()), Owner::Ours),
            running: is_running(vm),
            bytes: SIZE,
            accessed: None,
        });
        let images = state.images.iter().map(|image| Image {
            image: image.clone(),
            bytes: SIZE,
            accessed: None,
        });
        Listing {
            vms: vms.collect(),
            images: images.collect(),
        }
    }

    pub(super) fn disk(&self) -> DiskUsage {
        let state = self.state();
        let images = state.images.iter().map(ToString::to_string);
        let families: BTreeSet<_> = images.chain(state.vms.values().map(|vm| vm.family.clone())).collect();
        let used = u64::try_from(families.len()).unwrap_or(u64::MAX).saturating_mul(SIZE);
        DiskUsage {
            total: self.settings.disk,
            free: self.settings.disk.saturating_sub(used),
        }
    }
}

fn is_running(vm: &Vm) -> bool {
    matches!(vm.power, Power::Running(_))
}

fn ended(how: How) -> Power {
    let finished = (how != How::Unknown).then(jiff::Timestamp::now);
    Power::Ended(Exit { how, finished })
}
