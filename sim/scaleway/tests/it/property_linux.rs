//! Whatever is asked of Linux servers in whatever order, nothing is doubled or lost, and the bill is what exists.

use crate::harness::{Api, BLOCK, INSTANCE, INSTANCES, METAL, METALS, id_of, instance, metal, text};
use proptest::collection::vec;
use proptest::prelude::*;
use russet_sim_scaleway::{Act, DEFAULT_PROJECT, Fault, Id, MicroEuro, Zone};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

const ZONE: &str = "fr-par-1";
const ACTIONS: [&str; 5] = ["poweron", "poweroff", "terminate", "reboot", "stop_in_place"];

/// One step of somebody. Numbers pick among all that ever were, the deleted included.
#[derive(Debug, Clone)]
enum Step {
    Create,
    Act(usize, usize),
    Delete(usize),
    Nic(usize),
    KeepAddress(usize),
    ReleaseAddress(usize),
    DeleteVolume(usize),
    Order,
    Install(usize),
    Option(usize),
    Network(usize),
    Power(usize),
    Return(usize),
    Nonsense(usize),
    Fault(u8),
    Wait(u32),
}

fn step() -> impl Strategy<Value = Step> {
    let which = 0..6_usize;
    prop_oneof![
        2 => Just(Step::Create),
        4 => (which.clone(), 0..ACTIONS.len()).prop_map(|(which, action)| Step::Act(which, action)),
        2 => which.clone().prop_map(Step::Delete),
        2 => which.clone().prop_map(Step::Nic),
        1 => which.clone().prop_map(Step::KeepAddress),
        1 => which.clone().prop_map(Step::ReleaseAddress),
        1 => which.clone().prop_map(Step::DeleteVolume),
        2 => Just(Step::Order),
        2 => which.clone().prop_map(Step::Install),
        1 => which.clone().prop_map(Step::Option),
        2 => which.clone().prop_map(Step::Network),
        1 => which.clone().prop_map(Step::Power),
        2 => which.clone().prop_map(Step::Return),
        1 => which.prop_map(Step::Nonsense),
        1 => (0..4_u8).prop_map(Step::Fault),
        4 => prop_oneof![1..40_u32, 100..4_000_u32].prop_map(Step::Wait),
    ]
}

/// What a client of the emulator may rely on, checked after every step.
struct Watch {
    api: Api,
    instance_order: Value,
    metal_order: Value,
    option: Value,
    network: Id,
    ever: Vec<Id>,
    gone: BTreeSet<Id>,
    generations: BTreeMap<Id, u32>,
    total: MicroEuro,
}

fn ids(rows: &[Value]) -> BTreeSet<Id> {
    rows.iter().map(id_of).collect()
}

impl Watch {
    async fn new() -> Self {
        let api = Api::start().await;
        let options = format!(
            "{METAL}/options?name=Private&offer_id={}",
            api.offer().await["id"].as_str().unwrap()
        );
        Self {
            instance_order: api.instance_order("new").await,
            metal_order: api.metal_order("new").await,
            option: api.read(&options).await["options"][0]["id"].clone(),
            network: api.network("cache").await,
            api,
            ever: Vec::new(),
            gone: BTreeSet::new(),
            generations: BTreeMap::new(),
            total: MicroEuro(0),
        }
    }

    async fn call(&self, method: &str, path: &str, body: Option<Value>) -> u16 {
        // Cut off: it may or may not have happened.
        self.api
            .send(method, path, body)
            .await
            .map_or(0, |answer| answer.status)
    }

    fn everything(&self) -> Vec<Value> {
        let handle = self.api.handle();
        [
            handle.instances(),
            handle.metals(),
            handle.volumes(),
            handle.addresses(),
        ]
        .concat()
    }

    async fn take(&self, step: &Step) {
        let pick = |which: &usize| (!self.ever.is_empty()).then(|| self.ever[which % self.ever.len()].clone());
        let of = |rows: Vec<Value>, which: &usize| {
            (!rows.is_empty()).then(|| rows[which % rows.len()]["id"].as_str().unwrap().to_owned())
        };
        let (method, path, body) = match step {
            Step::Wait(seconds) => return self.api.advance(Duration::from_secs((*seconds).into())),
            Step::Fault(kind) => {
                let act = if kind % 2 == 0 { Act::Cut } else { Act::Status(502) };
                let fault = Fault::new("POST", "/**", act);
                self.api.inject(if *kind < 2 { fault } else { fault.after_effect() });
                return;
            }
            Step::Create => ("POST", INSTANCES.to_owned(), Some(self.instance_order.clone())),
            Step::Order => ("POST", METALS.to_owned(), Some(self.metal_order.clone())),
            Step::ReleaseAddress(which) => {
                let Some(id) = of(self.api.handle().addresses(), which) else {
                    return;
                };
                ("DELETE", format!("{INSTANCE}/ips/{id}"), None)
            }
            Step::DeleteVolume(which) => {
                let Some(id) = of(self.api.handle().volumes(), which) else {
                    return;
                };
                ("DELETE", format!("{BLOCK}/volumes/{id}"), None)
            }
            Step::Act(which, action) => {
                let Some(id) = pick(which) else { return };
                (
                    "POST",
                    format!("{}/action", instance(&id)),
                    Some(json!({"action": ACTIONS[*action]})),
                )
            }
            Step::Delete(which) => {
                let Some(id) = pick(which) else { return };
                ("DELETE", instance(&id), None)
            }
            Step::Nic(which) => {
                let Some(id) = pick(which) else { return };
                (
                    "POST",
                    format!("{}/private_nics", instance(&id)),
                    Some(json!({"private_network_id": self.network})),
                )
            }
            Step::KeepAddress(which) => {
                let Some(id) = pick(which) else { return };
                let body = json!({"project": DEFAULT_PROJECT, "server": id});
                ("POST", format!("{INSTANCE}/ips"), Some(body))
            }
            Step::Install(which) => {
                let Some(id) = pick(which) else { return };
                (
                    "POST",
                    format!("{}/install", metal(&id)),
                    Some(self.metal_order["install"].clone()),
                )
            }
            Step::Option(which) => {
                let Some(id) = pick(which) else { return };
                let path = format!("{}/options/{}", metal(&id), self.option.as_str().unwrap());
                if self.call("POST", &path, Some(json!({}))).await != 409 {
                    return;
                }
                ("DELETE", path, None)
            }
            Step::Network(which) => {
                let Some(id) = pick(which) else { return };
                let path = format!("{}/private-networks", metal(&id));
                if self
                    .call("POST", &path, Some(json!({"private_network_id": self.network})))
                    .await
                    != 409
                {
                    return;
                }
                ("DELETE", format!("{path}/{}", self.network), None)
            }
            Step::Power(which) => {
                let Some(id) = pick(which) else { return };
                (
                    "POST",
                    format!("{}/reboot", metal(&id)),
                    Some(json!({"boot_type": "normal"})),
                )
            }
            Step::Return(which) => {
                let Some(id) = pick(which) else { return };
                ("DELETE", metal(&id), None)
            }
            Step::Nonsense(which) => {
                let Some(id) = pick(which) else { return };
                let before = self.everything();
                for path in [instance(&id), metal(&id)] {
                    let status = self.call("PATCH", &path, Some(json!({"name": "x", "nmae": "y"}))).await;
                    assert_eq!(status, 400);
                }
                assert_eq!(self.everything(), before, "what is refused changes nothing");
                return;
            }
        };
        let status = self.call(method, &path, body).await;
        assert!(status < 500 || status == 502, "{method} {path}: {status}");
    }

    fn check(&mut self) {
        let handle = self.api.handle();
        let (instances, metals) = (handle.instances(), handle.metals());
        let servers: BTreeSet<Id> = ids(&instances).union(&ids(&metals)).cloned().collect();
        assert_eq!(servers.len(), instances.len() + metals.len());
        for id in &servers {
            assert!(!self.gone.contains(id), "{id} came back");
            if !self.ever.contains(id) {
                self.ever.push(id.clone());
            }
        }
        self.gone
            .extend(self.ever.iter().filter(|id| !servers.contains(id)).cloned());
        let volumes = ids(&handle.volumes());
        let kept = ids(&handle.addresses());
        let mut expected: BTreeSet<Id> = volumes.union(&kept).cloned().collect();
        let mut places = 0;
        for shown in &instances {
            let state = text(&shown["state"]);
            if state != "stopped" {
                places += 1;
                expected.insert(id_of(shown));
            }
            for address in shown["public_ips"].as_array().unwrap() {
                expected.insert(id_of(address));
            }
            if ["stopped", "stopping"].contains(&state) {
                let dynamic = shown["public_ips"]
                    .as_array()
                    .unwrap()
                    .iter()
                    .any(|ip| ip["dynamic"] == true);
                assert!(!dynamic, "a stopped server has no dynamic address");
            }
            for volume in shown["volumes"].as_object().unwrap().values() {
                assert!(volumes.contains(&id_of(volume)), "a server lost its volume");
            }
        }
        let mut options = 0;
        for shown in metals
            .iter()
            .filter(|shown| !["ordered", "delivering"].contains(&text(&shown["status"])))
        {
            expected.insert(id_of(shown));
            options += shown["options"].as_array().unwrap().len();
        }
        let bill = handle.bill();
        let of_options = |line: &&russet_sim_scaleway::BilledLine| line.line.resource == "elastic_metal_option";
        let paid: BTreeSet<Id> = bill
            .lines
            .iter()
            .filter(|line| line.running && !of_options(line))
            .map(|line| line.line.resource_id.clone())
            .collect();
        assert_eq!(paid, expected, "what is paid for is what is there");
        let found = bill.lines.iter().filter(of_options).filter(|line| line.running).count();
        assert_eq!(found, options);
        assert!(bill.total >= self.total, "the bill shrank");
        self.total = bill.total;
        let zone = Zone::new(ZONE);
        let found = handle.stock(&zone, "PRO2-S").unwrap() + places;
        assert_eq!(found, 100, "a place was lost or made up");
        let owned = u32::try_from(metals.len()).unwrap();
        let found = handle.stock(&zone, "EM-B220E-NVME").unwrap() + owned;
        assert_eq!(found, 10, "a machine was lost or made up");
        self.check_boxes();
    }

    fn check_boxes(&mut self) {
        let handle = self.api.handle();
        let boxes = handle.boxes();
        let rows: BTreeSet<&Id> = boxes.iter().map(|row| &row.server_id).collect();
        let alive: BTreeSet<&Id> = self.ever.iter().filter(|id| !self.gone.contains(id)).collect();
        assert_eq!(rows, alive, "each server has one machine");
        let mut addresses = BTreeSet::new();
        let mut private = BTreeSet::new();
        for row in &boxes {
            assert!(
                row.public_ip.is_none_or(|ip| addresses.insert(ip)),
                "two machines share an address"
            );
            let leg = row.private.as_ref();
            assert!(
                leg.is_none_or(|leg| private.insert(leg.address.clone())),
                "two machines share a private address"
            );
            let before = self
                .generations
                .insert(row.server_id.clone(), row.generation)
                .unwrap_or(0);
            assert!(row.generation >= before, "a disk came back");
        }
        // Whoever follows the events knows the same as whoever asks.
        let mut followed = BTreeMap::new();
        for event in handle.box_events_after(0) {
            let id = event.row.server_id.clone();
            match event.change {
                russet_sim_scaleway::BoxChange::Gone => followed.remove(&id),
                _ => followed.insert(id, event.row),
            };
        }
        assert_eq!(followed.into_values().collect::<Vec<_>>(), sorted(boxes));
    }
}

fn sorted(mut boxes: Vec<russet_sim_scaleway::LinuxBox>) -> Vec<russet_sim_scaleway::LinuxBox> {
    boxes.sort_by(|a, b| a.server_id.cmp(&b.server_id));
    boxes
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn any_row_of_calls_neither_doubles_nor_leaks_and_is_paid_for(steps in vec(step(), 1..60)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let mut watch = Watch::new().await;
            for step in &steps {
                watch.take(step).await;
                watch.check();
            }
            let snapshot = serde_json::to_string(&watch.api.handle().snapshot()).unwrap();
            let other = Api::start().await;
            other.handle().restore(serde_json::from_str(&snapshot).unwrap()).unwrap();
            for api in [&watch.api, &other] {
                api.advance(Duration::from_hours(3));
            }
            let (here, there) = (watch.api.handle(), other.handle());
            assert_eq!(here.boxes(), there.boxes());
            assert_eq!((here.instances(), here.metals()), (there.instances(), there.metals()));
            assert_eq!(here.bill(), there.bill());
        });
    }
}
