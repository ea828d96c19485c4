//! The control API under `/_sim/`, where no path of the real one can be: the world from behind the scenes.
//!
//! | Call | What it does |
//! | --- | --- |
//! | `GET health` | 200 when it runs |
//! | `GET clock`, `POST clock` | `{"advance_seconds": 600}` or `{"factor": 60}` |
//! | `GET settings`, `PATCH settings` | the switches of [`crate::Settings`] |
//! | `POST deeds` | one [`Deed`] or a list of them, all or none |
//! | `GET`, `POST`, `DELETE faults`, `DELETE faults/{id}` | [`Fault`]s |
//! | `GET journal?after=N`, `DELETE journal` | every request |
//! | `GET bill` | what is owed |
//! | `GET servers`, `GET hosts`, `GET events?after=N&wait=true` | minis, machines, what happened to them |
//! | `GET instances`, `GET volumes`, `GET addresses` | Instances, their volumes of both kinds, their public addresses |
//! | `GET metals` | Elastic Metal servers |
//! | `GET boxes`, `GET box-events?after=N` | Linux machines, and what changed; waits unless `wait=false` |
//! | `GET snapshot`, `PUT snapshot` | everything |

use crate::call::{Call, Reply};
use crate::core::Core;
use crate::deed::Deed;
use crate::fault::Fault;
use crate::ids::Id;
use crate::settings::Settings;
use crate::snapshot::Snapshot;
use crate::strict::Query;
use http::{Method, StatusCode};
use russet_sim_kit::FaultId;
use russet_sim_kit::clock::Factor;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::time::Duration;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// Where the control API is.
pub(crate) const PREFIX: &str = "/_sim/";
/// How long a question for events may wait.
const LONGEST_WAIT: Duration = Duration::from_secs(25);

/// Why a control call failed: status and sentence.
struct Problem(StatusCode, String);

impl Problem {
    fn wrong(why: impl std::fmt::Display) -> Self {
        Self(StatusCode::BAD_REQUEST, why.to_string())
    }
}

/// Answers a control call.
pub(crate) async fn answer(core: &Core, call: &Call, stop: &CancellationToken) -> Reply {
    let path = call.path.strip_prefix(PREFIX).unwrap_or_default();
    let pieces: Vec<&str> = path.split('/').collect();
    let result = match (&call.method, pieces.as_slice()) {
        (&Method::GET, ["events"]) => events(core, call, stop).await,
        (&Method::GET, ["box-events"]) => box_events(core, call, stop).await,
        (&Method::GET, [what]) => shown(core, what, call),
        (_, [what, rest @ ..]) => changed(core, what, rest, call),
        (_, []) => Err(Problem(StatusCode::NOT_FOUND, "nothing here".to_owned())),
    };
    result.map_or_else(
        |Problem(status, message)| Reply {
            status,
            headers: Vec::new(),
            body: Some(json!({ "message": message })),
        },
        Reply::ok,
    )
}

fn shown(core: &Core, what: &str, call: &Call) -> Result<Value, Problem> {
    let mut query = Query::new(&call.query);
    let after = if what == "journal" {
        query.number("after").unwrap_or(0)
    } else {
        0
    };
    query.finish().map_err(|refusal| Problem::wrong(refusal.body()))?;
    Ok(match what {
        "health" => json!({"ok": true}),
        "clock" => core.look(|state, now| json!({"now": now, "factor": state.clock.factor()})),
        "settings" => core.look(|state, _| json!(state.world.settings)),
        "faults" => core.look(|state, _| {
            let faults = state.faults.all().iter();
            faults.map(|(id, fault)| json!({"id": id, "fault": fault})).collect()
        }),
        "journal" => core.look(|state, _| json!(state.journal.after(after.into()))),
        "bill" => core.look(|state, now| json!(state.world.bill.bill(now))),
        "servers" => core.look(|state, now| {
            let servers = state.world.apple.servers.iter();
            servers.map(|server| state.world.show(server, now)).collect()
        }),
        "hosts" => core.look(|state, _| {
            let ids: Vec<&Id> = state.world.apple.servers.iter().map(|server| &server.id).collect();
            ids.into_iter()
                .filter_map(|id| state.world.host(id))
                .map(|host| json!(host))
                .collect()
        }),
        "instances" => core.look(|state, _| json!(state.world.all_instances())),
        "metals" => core.look(|state, _| json!(state.world.all_metals())),
        "volumes" => core.look(|state, _| json!(state.world.all_volumes())),
        "addresses" => core.look(|state, _| json!(state.world.all_addresses())),
        "boxes" => core.look(|state, _| json!(state.world.boxes())),
        "snapshot" => json!(core.snapshot()),
        other => return Err(Problem(StatusCode::NOT_FOUND, format!("there is no /_sim/{other}"))),
    })
}

/// What a follower asks for: everything after a number, and whether to wait for it.
fn following(call: &Call, wait: bool) -> Result<(u64, bool), Problem> {
    let mut query = Query::new(&call.query);
    let after = u64::from(query.number("after").unwrap_or(0));
    let wait = query.flag("wait").unwrap_or(wait);
    query.finish().map_err(|refusal| Problem::wrong(refusal.body()))?;
    Ok((after, wait))
}

/// Waits until there is something after a number, or long enough.
async fn news(mut last: watch::Receiver<u64>, after: u64, stop: &CancellationToken) {
    tokio::select! {
        _ = tokio::time::timeout(LONGEST_WAIT, last.wait_for(|last| *last > after)) => {}
        () = stop.cancelled() => {}
    }
}

async fn events(core: &Core, call: &Call, stop: &CancellationToken) -> Result<Value, Problem> {
    let (after, wait) = following(call, false)?;
    let last = core.events.subscribe();
    core.tick();
    if wait {
        news(last, after, stop).await;
    }
    Ok(json!(core.events_after(after)))
}

async fn box_events(core: &Core, call: &Call, stop: &CancellationToken) -> Result<Value, Problem> {
    let (after, wait) = following(call, true)?;
    let last = core.box_events.subscribe();
    core.tick();
    if wait {
        news(last, after, stop).await;
    }
    Ok(json!(core.box_events_after(after)))
}

/// `POST clock`
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct ClockChange {
    #[serde(default)]
    advance_seconds: f64,
    #[serde(default)]
    factor: Option<Factor>,
}

/// One deed or several.
#[derive(serde::Deserialize)]
#[serde(untagged)]
enum OneOrMany {
    Many(Vec<Value>),
    One(Value),
}

fn changed(core: &Core, what: &str, rest: &[&str], call: &Call) -> Result<Value, Problem> {
    match (what, &call.method, rest) {
        ("clock", &Method::POST, []) => {
            let change: ClockChange = read(call)?;
            let ahead = Duration::try_from_secs_f64(change.advance_seconds).map_err(Problem::wrong)?;
            core.change(|state, _| {
                state.clock.advance(ahead);
                if let Some(factor) = change.factor {
                    state.clock.set_factor(factor);
                }
                Ok(json!({"now": state.clock.now(), "factor": state.clock.factor()}))
            })
        }
        ("settings", &Method::PATCH, []) => {
            let changes: Value = read(call)?;
            core.change(|state, _| {
                let mut all = json!(state.world.settings);
                merge(&mut all, changes);
                state.world.settings = serde_json::from_value::<Settings>(all).map_err(Problem::wrong)?;
                Ok(json!(state.world.settings))
            })
        }
        ("deeds", &Method::POST, []) => {
            // Not an untagged enum of deeds: its errors would say nothing.
            let deeds = match read(call)? {
                OneOrMany::Many(deeds) => deeds,
                OneOrMany::One(deed) => vec![deed],
            };
            let deeds: Result<Vec<Deed>, _> = deeds.into_iter().map(serde_json::from_value).collect();
            let deeds = deeds.map_err(Problem::wrong)?;
            let made = core
                .change(|state, now| state.perform(now, deeds))
                .map_err(Problem::wrong)?;
            Ok(json!({ "servers": made }))
        }
        ("faults", &Method::POST, []) => {
            let fault: Fault = read(call)?;
            Ok(json!({"id": core.change(|state, _| state.faults.add(fault))}))
        }
        ("faults", &Method::DELETE, []) => {
            core.change(|state, _| state.faults.clear());
            Ok(json!({}))
        }
        ("faults", &Method::DELETE, [id]) => {
            let id = FaultId(id.parse().map_err(Problem::wrong)?);
            if core.change(|state, _| state.faults.remove(id)) {
                Ok(json!({}))
            } else {
                Err(Problem(StatusCode::NOT_FOUND, format!("there is no fault {id}")))
            }
        }
        ("journal", &Method::DELETE, []) => {
            core.change(|state, _| state.journal.clear());
            Ok(json!({}))
        }
        ("snapshot", &Method::PUT, []) => {
            let snapshot: Snapshot = read(call)?;
            core.restore(snapshot).map_err(Problem::wrong)?;
            Ok(json!({}))
        }
        _ => Err(Problem(
            StatusCode::NOT_FOUND,
            format!("there is no {} {}", call.method, call.path),
        )),
    }
}

fn read<T: DeserializeOwned>(call: &Call) -> Result<T, Problem> {
    serde_json::from_slice(&call.body).map_err(Problem::wrong)
}

/// Puts the fields of `changes` into `all`, objects field by field.
fn merge(all: &mut Value, changes: Value) {
    match (all, changes) {
        (Value::Object(all), Value::Object(changes)) => {
            for (name, change) in changes {
                merge(all.entry(name).or_insert(Value::Null), change);
            }
        }
        (all, changes) => *all = changes,
    }
}
