//! What must never happen to a host, watched at the moment of each effect.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;

use axum::http::Method;
use russet_sim_scaleway::{Handle, Host, Id};
use serde_json::Value;

use crate::gate::{Call, Watchman};

pub(crate) const POOL: &str = "tuist-pool-";

/// What happened so far.
pub(crate) struct Ledger {
    sim: Handle,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Who logged in to a host last, and which installation it had then.
    logins: BTreeMap<String, (String, u32)>,
    /// Machines somebody wants deleted.
    deleted: BTreeSet<String>,
    knocks: usize,
    updates: Vec<(String, String)>,
    wrongs: Vec<String>,
}

impl Ledger {
    pub(crate) fn new(sim: Handle) -> Self {
        Self {
            sim,
            state: Mutex::default(),
        }
    }

    pub(crate) fn server(&self, id: &str) -> Option<Value> {
        self.sim.servers().into_iter().find(|server| server["id"] == id)
    }

    fn host(&self, id: &str) -> Option<Host> {
        self.sim.host(&id.parse::<Id>().ok()?)
    }

    /// This machine may lose its host from now on.
    pub(crate) fn deletes(&self, machine: &str) {
        self.state.lock().unwrap().deleted.insert(machine.to_owned());
    }

    /// A host that serves is brought to this configuration.
    pub(crate) fn updates(&self, machine: &str, hash: &str) {
        let update = (machine.to_owned(), hash.to_owned());
        self.state.lock().unwrap().updates.push(update);
    }

    /// All updates, in order.
    pub(crate) fn updated(&self) -> Vec<(String, String)> {
        self.state.lock().unwrap().updates.clone()
    }

    /// A set-up stands at the door of a host.
    pub(crate) fn knock(&self) {
        self.state.lock().unwrap().knocks += 1;
    }

    /// How many did.
    pub(crate) fn knocks(&self) -> usize {
        self.state.lock().unwrap().knocks
    }

    /// A machine's set-up logs in to a host; a host that was wiped since the password was read refuses.
    pub(crate) fn log_in(&self, machine: &str, id: &str, password: &str) -> bool {
        let mut state = self.state.lock().unwrap();
        let Some(host) = self.host(id).filter(|host| host.password == password) else {
            return false;
        };
        if let Some((other, generation)) = state.logins.get(id)
            && other != machine
            && *generation == host.generation
        {
            let wrong = format!("{machine} uses {id} unwiped after {other}");
            state.wrongs.push(wrong);
        }
        if host.name.starts_with(POOL) {
            let wrong = format!("{machine} uses {id}, which is in the pool as {}", host.name);
            state.wrongs.push(wrong);
        }
        state
            .logins
            .insert(id.to_owned(), (machine.to_owned(), host.generation));
        true
    }

    /// Everything that should not have happened.
    pub(crate) fn wrongs(&self) -> Vec<String> {
        self.state.lock().unwrap().wrongs.clone()
    }
}

impl Watchman for Ledger {
    fn label(&self, call: &Call) -> Option<String> {
        let path = call.path.split('?').next().unwrap_or_default();
        if path.contains("/ssh-keys") {
            // Lists are made for the report of what is left behind, too.
            return (call.method != Method::GET).then(|| format!("{} ssh-key", call.method));
        }
        let (_, server) = path.split_once("/servers/")?;
        let body = call.json();
        let what = match (body["name"].as_str(), server.split_once('/')) {
            (Some(name), _) if name.starts_with("tuist-claim-pending-") => "mark",
            (Some(name), _) if name.starts_with("tuist-releasing-") => "release",
            (Some(name), _) if name.starts_with(POOL) => "pool",
            (Some(_), _) => "name",
            (None, Some((_, action))) => action,
            (None, None) => "server",
        };
        Some(format!("{} {what}", call.method))
    }

    fn sees(&self, call: &Call) {
        let (method, path, body) = (call.method.as_str(), call.path.as_str(), call.json());
        let mut state = self.state.lock().unwrap();
        let rest = path.split("/servers/").nth(1).unwrap_or_default();
        let id = rest.split('/').next().unwrap_or_default();
        let (Some(server), Some(host)) = (self.server(id), self.host(id)) else {
            return;
        };
        let user = state
            .logins
            .get(id)
            .filter(|(_, generation)| *generation == host.generation);
        let in_use = user.is_some_and(|(machine, _)| !state.deleted.contains(machine));
        let wrong = match (method, body["name"].as_str()) {
            ("POST", _) if path.ends_with("/reinstall") && in_use => Some("wiped while it was in use"),
            ("POST", _) if path.ends_with("/reinstall") && host.name.starts_with(POOL) => Some("wiped in the pool"),
            ("POST", None) if path.ends_with("/servers") => Some("ordered"),
            ("DELETE", _) => Some("given up"),
            ("PATCH", Some(name)) if name.starts_with(POOL) && in_use => Some("pooled while it was in use"),
            ("PATCH", Some(name)) if name.starts_with(POOL) && user.is_some() => Some("pooled without a wipe"),
            ("PATCH", Some(name)) if name.starts_with(POOL) && server["status"] != "ready" => {
                Some("pooled in mid wipe")
            }
            _ => None,
        };
        if let Some(wrong) = wrong {
            let wrong = format!("{id} ({}) was {wrong}, last used by {user:?}", host.name);
            state.wrongs.push(wrong);
        }
    }
}
