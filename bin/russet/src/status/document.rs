//! The document behind `russet status --json`, and the decision what state it is in.
//!
//! The fields are an interface: they are only ever added to (`schema` rises if one must change its meaning), and
//! `russet status --help` describes them. A snapshot test pins them.

pub use super::hosts::{Hosting, Image, Vm};
use crate::state::{Layout, lock::Holder, record, run};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::path::PathBuf;

pub const SCHEMA: u32 = 1;

/// Everything `status` knows.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Document {
    pub schema: u32,
    pub state: Health,
    /// Why `state` is not `ready`; empty when it is.
    pub problems: Vec<String>,
    /// The state directory.
    pub dir: PathBuf,
    /// The process of `russet up`, if one runs.
    pub up: Option<Up>,
    pub parts: Vec<Part>,
    pub cluster: Option<Cluster>,
    /// The emulated Scaleway account of the running `up`.
    #[serde(default)]
    pub account: Option<Account>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Health {
    Ready,
    Starting,
    Stopping,
    Degraded,
    Stopped,
}

impl Health {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::Starting => "starting",
            Self::Stopping => "stopping",
            Self::Degraded => "degraded",
            Self::Stopped => "stopped",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Up {
    pub pid: u32,
    pub version: String,
    pub started_at: Timestamp,
    pub uptime_seconds: i64,
    pub ready_after_seconds: Option<f64>,
    pub memory_bytes: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Part {
    pub name: String,
    pub state: run::PartState,
    pub pid: Option<u32>,
    pub started_at: Option<Timestamp>,
    pub uptime_seconds: Option<i64>,
    pub restarts: u32,
    pub ready_after_seconds: Option<f64>,
    pub memory_bytes: Option<u64>,
    pub cpu_seconds: Option<f64>,
    /// Of one core, over the last moments.
    pub cpu_percent: Option<f64>,
    pub address: Option<String>,
    pub log: PathBuf,
    pub last_exit: Option<String>,
}

/// What the API server said.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Cluster {
    pub server: Option<String>,
    pub kubeconfig: PathBuf,
    pub context: Option<String>,
    pub reachable: bool,
    /// Why it is not, if it is not.
    pub error: Option<String>,
    pub version: Option<String>,
    pub nodes: Nodes,
    pub crds: Vec<Crd>,
    pub cluster_api: ClusterApi,
    /// Macs and cache nodes; none where their kinds are not served.
    #[serde(default)]
    pub fleet: Option<Fleet>,
}

/// The Macs and cache nodes of a cluster.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Fleet {
    /// MachineDeployments.
    pub groups: Vec<Group>,
    /// Macs.
    pub macs: Vec<Mac>,
    /// Linux cache nodes.
    #[serde(default)]
    pub servers: Vec<Server>,
}

impl Fleet {
    fn vms_mut(&mut self) -> impl Iterator<Item = &mut Vm> {
        let hostings = self.macs.iter_mut().filter_map(|mac| mac.hosting.as_mut());
        hostings.flat_map(|hosting| &mut hosting.vms)
    }
}

/// What a machine is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Kind {
    #[default]
    Mac,
    ElasticMetal,
    Instance,
}

impl Kind {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Mac => "Mac",
            Self::ElasticMetal => "Elastic Metal",
            Self::Instance => "Instance",
        }
    }
}

/// A MachineDeployment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Group {
    pub name: String,
    pub namespace: String,
    #[serde(default)]
    pub kind: Kind,
    pub wanted: u32,
    pub ready: u32,
    pub available: u32,
}

/// A `ScalewayAppleSiliconMachine`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mac {
    pub name: String,
    pub namespace: String,
    pub fleet: Option<String>,
    pub phase: String,
    pub server_id: Option<String>,
    pub address: Option<String>,
    pub ready: bool,
    /// What it waits for, if it does.
    pub message: Option<String>,
    pub created_at: Option<Timestamp>,
    /// What is on it; none while it has no Node.
    #[serde(default)]
    pub hosting: Option<Hosting>,
}

/// A `ScalewayElasticMetalMachine` or a `ScalewayInstanceMachine`, and its Node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Server {
    pub name: String,
    pub namespace: String,
    pub kind: Kind,
    pub fleet: Option<String>,
    pub zone: Option<String>,
    pub phase: String,
    pub server_id: Option<String>,
    /// Where runners dial it: `tuist.dev/pn-ipv4` of its Node.
    pub private_address: Option<String>,
    pub public_address: Option<String>,
    pub ready: bool,
    /// Whether its Node is Ready.
    pub node_ready: bool,
    /// Without a machine: no Pod runs there.
    pub synthetic: bool,
    /// What the emulated account pays for it, in millionths of a euro.
    pub per_hour_micro_eur: Option<u64>,
    /// What it waits for, if it does.
    pub message: Option<String>,
    pub created_at: Option<Timestamp>,
}

/// What is paid for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Account {
    pub url: String,
    /// No real money.
    pub emulated: bool,
    pub servers: usize,
    /// Hosts in the pool.
    pub pooled: usize,
    /// Those of them that can be adopted now.
    pub pooled_ready: usize,
    /// What the next hour costs, in millionths of a euro.
    pub per_hour_micro_eur: u64,
    /// What is owed so far.
    pub total_micro_eur: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Nodes {
    pub total: usize,
    pub ready: usize,
}

/// One of our CRDs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Crd {
    pub name: String,
    pub established: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ClusterApi {
    /// Its CRDs are there and served.
    pub installed: bool,
    /// Its controller runs: as a part of ours, or as a Deployment of the cluster.
    pub ready: bool,
    /// Whether this cluster should have it.
    pub wanted: bool,
}

/// Resource use of one process.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sample {
    pub memory: u64,
    pub cpu_seconds: f64,
    pub cpu_percent: Option<f64>,
}

/// The inputs of [`judge`].
#[derive(Debug)]
pub struct Facts<'a> {
    pub now: Timestamp,
    pub layout: &'a Layout,
    /// The living process of `up`.
    pub holder: Option<Holder>,
    /// The last `status.json`, perhaps of a run that is over.
    pub run: Option<run::Run>,
    pub existing: Option<record::Existing>,
    pub samples: HashMap<u32, Sample>,
    pub cluster: Option<Cluster>,
    pub account: Option<Account>,
}

/// Puts the facts together and decides what they amount to.
pub fn judge(facts: Facts<'_>) -> Document {
    let Facts {
        now,
        layout,
        holder,
        run,
        existing,
        samples,
        cluster,
        account,
    } = facts;
    let live = match (&holder, &run) {
        (Some(holder), Some(run)) if holder.pid == run.pid => true,
        (Some(_) | None, _) => false,
    };
    let parts: Vec<Part> = run
        .iter()
        .flat_map(|run| &run.parts)
        .map(|part| describe(part, live, now, &samples))
        .collect();
    let wanted = run.as_ref().is_some_and(|run| run.cluster_api) && existing.is_none();
    let cluster = cluster.map(|mut cluster| {
        cluster.cluster_api.wanted = wanted;
        for vm in cluster.fleet.iter_mut().flat_map(Fleet::vms_mut) {
            vm.age_seconds = vm.created_at.map(|created| seconds_between(created, now));
        }
        if existing.is_none() {
            let runs = parts
                .iter()
                .any(|p| p.name == russet_cluster::capi::NAME && p.state == run::PartState::Running);
            cluster.cluster_api.ready = cluster.cluster_api.installed && runs;
        }
        cluster
    });
    let up = run.as_ref().filter(|_| live).map(|run| Up {
        pid: run.pid,
        version: run.russet.clone(),
        started_at: run.started_at,
        uptime_seconds: seconds_between(run.started_at, now),
        ready_after_seconds: run.ready_after_seconds,
        memory_bytes: samples.get(&run.pid).map(|sample| sample.memory),
    });
    let phase = run.as_ref().filter(|_| live).map(|run| run.phase);
    let mut problems = Vec::new();
    let state = match (&existing, holder.is_some(), phase) {
        (Some(_), _, _) => {
            problems.extend(cluster_problems(cluster.as_ref()));
            if problems.is_empty() {
                Health::Ready
            } else {
                Health::Degraded
            }
        }
        (None, false, _) => {
            problems.push(format!(
                "nothing runs with the state in {}; start it with `russet up`",
                layout.root().display()
            ));
            Health::Stopped
        }
        // The lock is taken but nothing was written yet.
        (None, true, None | Some(run::Phase::Starting)) => {
            problems.push("still starting".to_owned());
            Health::Starting
        }
        (None, true, Some(run::Phase::Stopping)) => {
            problems.push("being stopped".to_owned());
            Health::Stopping
        }
        (None, true, Some(run::Phase::Ready)) => {
            problems.extend(parts.iter().filter_map(part_problem));
            problems.extend(cluster_problems(cluster.as_ref()));
            if problems.is_empty() {
                Health::Ready
            } else {
                Health::Degraded
            }
        }
    };
    Document {
        schema: SCHEMA,
        state,
        problems,
        dir: layout.root().to_owned(),
        up,
        parts,
        cluster,
        account,
    }
}

fn describe(part: &run::Part, live: bool, now: Timestamp, samples: &HashMap<u32, Sample>) -> Part {
    // What a dead run wrote last says nothing about now, except where the log is.
    let state = if live { part.state } else { run::PartState::Stopped };
    let pid = part.pid.filter(|_| live);
    let sample = pid.and_then(|pid| samples.get(&pid));
    let started_at = part.started_at.filter(|_| live);
    Part {
        name: part.name.clone(),
        state,
        pid,
        started_at,
        uptime_seconds: started_at
            .filter(|_| pid.is_some())
            .map(|started| seconds_between(started, now)),
        restarts: part.restarts,
        ready_after_seconds: part.ready_after_seconds,
        memory_bytes: sample.map(|sample| sample.memory),
        cpu_seconds: sample.map(|sample| sample.cpu_seconds),
        cpu_percent: sample
            .and_then(|sample| sample.cpu_percent)
            .map(|percent| (percent * 10.0).round() / 10.0),
        address: part.address.clone(),
        log: part.log.clone(),
        last_exit: part.last_exit.clone(),
    }
}

fn part_problem(part: &Part) -> Option<String> {
    if part.state == run::PartState::Running {
        return None;
    }
    let why = part
        .last_exit
        .as_ref()
        .map(|exit| format!(", last ended with: {exit}"))
        .unwrap_or_default();
    Some(format!(
        "{} is {}{why}; see `russet logs {}`",
        part.name, part.state, part.name
    ))
}

fn cluster_problems(cluster: Option<&Cluster>) -> Vec<String> {
    let Some(cluster) = cluster else {
        return vec!["the cluster was not asked".to_owned()];
    };
    if !cluster.reachable {
        let why = cluster.error.as_deref().unwrap_or("no answer");
        return vec![format!("the API server does not answer: {why}")];
    }
    let mut problems: Vec<String> = cluster
        .crds
        .iter()
        .filter(|crd| !crd.established)
        .map(|crd| format!("CRD {} is not Established; `russet up` installs it", crd.name))
        .collect();
    if cluster.cluster_api.wanted && !cluster.cluster_api.ready {
        problems.push("Cluster API core is not ready".to_owned());
    }
    problems
}

fn seconds_between(from: Timestamp, to: Timestamp) -> i64 {
    (to.as_second() - from.as_second()).max(0)
}

#[cfg(test)]
#[path = "document_tests.rs"]
pub(crate) mod tests;
