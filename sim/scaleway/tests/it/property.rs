//! Whatever is asked in whatever order, some things hold.

use crate::harness::{Api, MINIS, id_of, order, server};
use proptest::collection::vec;
use proptest::prelude::*;
use russet_sim_scaleway::{Act, Fault, Id, MicroEuro, Zone};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// One step of somebody. Numbers pick a server among all that ever were, the deleted included.
#[derive(Debug, Clone)]
enum Step {
    Order,
    Rename(usize, u8),
    RenameByOther(usize, u8),
    Reboot(usize),
    Reinstall(usize),
    Vpc(usize, bool),
    Schedule(usize, bool),
    Delete(usize),
    Nonsense(usize),
    Fault(u8),
    Wait(u32),
}

fn step() -> impl Strategy<Value = Step> {
    let which = 0..8_usize;
    prop_oneof![
        3 => Just(Step::Order),
        3 => (which.clone(), 0..4_u8).prop_map(|(which, name)| Step::Rename(which, name)),
        1 => (which.clone(), 0..4_u8).prop_map(|(which, name)| Step::RenameByOther(which, name)),
        2 => which.clone().prop_map(Step::Reboot),
        2 => which.clone().prop_map(Step::Reinstall),
        1 => (which.clone(), any::<bool>()).prop_map(|(which, on)| Step::Vpc(which, on)),
        1 => (which.clone(), any::<bool>()).prop_map(|(which, on)| Step::Schedule(which, on)),
        3 => which.clone().prop_map(Step::Delete),
        1 => which.prop_map(Step::Nonsense),
        1 => (0..4_u8).prop_map(Step::Fault),
        4 => (1..200_000_u32).prop_map(Step::Wait),
    ]
}

/// What a client of the emulator may rely on, checked after every step.
struct Watch {
    api: Api,
    /// In the order they were made.
    ever: Vec<Id>,
    gone: BTreeSet<Id>,
    names: BTreeMap<Id, String>,
    generations: BTreeMap<Id, u32>,
    total: MicroEuro,
    stock_and_owned: u32,
}

const ZONE: &str = "fr-par-1";

impl Watch {
    async fn new() -> Self {
        let api = Api::with_settings(|settings| settings.delays.restock = Duration::ZERO).await;
        Self {
            stock_and_owned: api.handle().stock(&Zone::new(ZONE), "M2-L").unwrap(),
            api,
            ever: Vec::new(),
            gone: BTreeSet::new(),
            names: BTreeMap::new(),
            generations: BTreeMap::new(),
            total: MicroEuro(0),
        }
    }

    async fn call(&self, method: &str, path: &str, body: Option<Value>) -> u16 {
        match self.api.send(method, path, body).await {
            Ok(answer) => answer.status,
            // Cut off: it may or may not have happened.
            Err(_) => 0,
        }
    }

    async fn take(&mut self, step: &Step) {
        let pick = |which: &usize| (!self.ever.is_empty()).then(|| self.ever[which % self.ever.len()].clone());
        match step {
            Step::Order => {
                self.call("POST", MINIS, Some(order("new"))).await;
            }
            Step::Wait(seconds) => self.api.advance(Duration::from_secs((*seconds).into())),
            Step::Fault(kind) => {
                let act = if kind % 2 == 0 { Act::Cut } else { Act::Status(502) };
                let fault = Fault::new("PATCH", "/apple-silicon/**", act);
                self.api.inject(if *kind < 2 { fault } else { fault.after_effect() });
            }
            Step::Rename(which, name) => {
                let Some(id) = pick(which) else { return };
                let name = format!("n{name}");
                let status = self.call("PATCH", &server(&id), Some(json!({"name": name}))).await;
                if status == 200 {
                    assert!(!self.gone.contains(&id));
                    self.names.insert(id, name);
                } else if status == 0 || status == 502 {
                    self.names.remove(&id);
                }
            }
            Step::RenameByOther(which, name) => {
                let Some(id) = pick(which) else { return };
                let name = format!("other{name}");
                if self.api.handle().rename(&id, &name).is_ok() {
                    self.names.insert(id, name);
                }
            }
            Step::Reboot(which) | Step::Reinstall(which) => {
                let Some(id) = pick(which) else { return };
                let action = if matches!(step, Step::Reboot(_)) {
                    "reboot"
                } else {
                    "reinstall"
                };
                let status = self
                    .call("POST", &format!("{}/{action}", server(&id)), Some(json!({})))
                    .await;
                if status == 200 && action == "reinstall" {
                    *self.generations.entry(id).or_insert(1) += 1;
                }
            }
            Step::Vpc(which, on) => {
                let Some(id) = pick(which) else { return };
                self.call("PATCH", &server(&id), Some(json!({"enable_vpc": on}))).await;
            }
            Step::Schedule(which, on) => {
                let Some(id) = pick(which) else { return };
                self.call("PATCH", &server(&id), Some(json!({"schedule_deletion": on})))
                    .await;
            }
            Step::Delete(which) => {
                let Some(id) = pick(which) else { return };
                if self.call("DELETE", &server(&id), None).await == 204 {
                    assert!(self.gone.insert(id.clone()), "{id} was deleted twice");
                }
            }
            Step::Nonsense(which) => {
                let Some(id) = pick(which) else { return };
                let before = self.api.handle().servers();
                let status = self
                    .call("PATCH", &server(&id), Some(json!({"name": "x", "nmae": "y"})))
                    .await;
                assert!([400, 403, 502, 0].contains(&status), "{status}");
                assert_eq!(self.api.handle().servers(), before, "what is refused changes nothing");
            }
        }
    }

    async fn check(&mut self) {
        let handle = self.api.handle();
        let servers = handle.servers();
        let mut present = BTreeSet::new();
        for shown in &servers {
            let id: Id = id_of(shown);
            assert!(!self.gone.contains(&id), "{id} came back");
            if !self.ever.contains(&id) {
                self.ever.push(id.clone());
            }
            if let Some(name) = self.names.get(&id) {
                assert_eq!(shown["name"], json!(name), "the last writer did not win");
            }
            let generation = handle.host(&id).unwrap().generation;
            assert_eq!(generation, self.generations.get(&id).copied().unwrap_or(1));
            if shown["status"] == "ready" {
                assert_eq!(shown["delivered"], true);
            }
            present.insert(id);
        }
        for id in self.ever.iter().filter(|id| !present.contains(id)) {
            self.gone.insert(id.clone());
        }
        let bill = handle.bill();
        let running: BTreeSet<Id> = bill.running().cloned().collect();
        assert_eq!(running, present, "what is paid for is what is there");
        assert_eq!(bill.lines.len(), self.ever.len());
        assert!(bill.total >= self.total, "the bill shrank");
        self.total = bill.total;
        let stock = handle.stock(&Zone::new(ZONE), "M2-L").unwrap();
        let owned = u32::try_from(present.len()).unwrap();
        assert_eq!(stock + owned, self.stock_and_owned, "a mini was lost or made up");
        let list = self.api.read(format!("{MINIS}?page_size=100")).await;
        assert_eq!(list["total_count"], json!(servers.len()));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn any_row_of_calls_keeps_stock_bill_names_and_the_dead(steps in vec(step(), 1..60)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let mut watch = Watch::new().await;
            for step in &steps {
                watch.take(step).await;
                watch.check().await;
            }
        });
    }

    #[test]
    fn a_snapshot_taken_anywhere_is_the_same_world(steps in vec(step(), 1..30)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let mut watch = Watch::new().await;
            for step in &steps {
                watch.take(step).await;
                watch.check().await;
            }
            let snapshot = serde_json::to_string(&watch.api.handle().snapshot()).unwrap();
            let other = Api::start().await;
            other.handle().restore(serde_json::from_str(&snapshot).unwrap()).unwrap();
            for api in [&watch.api, &other] {
                api.advance(Duration::from_hours(26));
            }
            assert_eq!(watch.api.handle().servers(), other.handle().servers());
            assert_eq!(watch.api.handle().bill(), other.handle().bill());
        });
    }
}
