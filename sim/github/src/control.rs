//! The control API under `/_sim/`: the world from behind the scenes.
//!
//! | Call | What it does |
//! | --- | --- |
//! | `GET health` | 200 when it runs |
//! | `GET clock`, `POST clock` | `{"advance_seconds": 600}` or `{"factor": 60}` |
//! | `GET settings`, `PATCH settings` | the switches of [`crate::Settings`] |
//! | `POST deeds` | one [`Deed`] or a list of them, all or none |
//! | `GET`, `POST`, `DELETE faults`, `DELETE faults/{id}` | [`Fault`]s |
//! | `GET journal`, `DELETE journal` | every request |

use crate::call::{Call, Reply};
use crate::core::Core;
use crate::deed::Deed;
use crate::fault::Fault;
use crate::settings::Settings;
use http::{Method, StatusCode};
use russet_sim_kit::FaultId;
use russet_sim_kit::clock::Factor;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::time::Duration;

/// Where the control API is.
pub(crate) const PREFIX: &str = "/_sim/";

/// Why a control call failed: status and sentence.
struct Problem(StatusCode, String);

impl Problem {
    fn wrong(why: impl std::fmt::Display) -> Self {
        Self(StatusCode::BAD_REQUEST, why.to_string())
    }
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

/// Answers a control call.
pub(crate) fn answer(core: &Core, call: &Call) -> Reply {
    let path = call.path.strip_prefix(PREFIX).unwrap_or_default();
    match respond(core, call, path) {
        Ok(body) => Reply::json(StatusCode::OK, body),
        Err(Problem(status, message)) => Reply::json(status, json!({ "message": message })),
    }
}

fn respond(core: &Core, call: &Call, path: &str) -> Result<Value, Problem> {
    let mut state = core.lock();
    let pieces: Vec<&str> = path.split('/').collect();
    match (&call.method, pieces.as_slice()) {
        (&Method::GET, ["health"]) => Ok(json!({"ok": true})),
        (&Method::GET, ["clock"]) => Ok(json!({"now": state.now(), "factor": state.clock.factor()})),
        (&Method::POST, ["clock"]) => {
            let change: ClockChange = read(call)?;
            let ahead = Duration::try_from_secs_f64(change.advance_seconds).map_err(Problem::wrong)?;
            state.clock.advance(ahead);
            if let Some(factor) = change.factor {
                state.clock.set_factor(factor);
            }
            Ok(json!({"now": state.now(), "factor": state.clock.factor()}))
        }
        (&Method::GET, ["settings"]) => Ok(json!(state.world.settings)),
        (&Method::PATCH, ["settings"]) => {
            let mut all = json!(state.world.settings);
            let changes: serde_json::Map<String, Value> = read(call)?;
            if let Some(all) = all.as_object_mut() {
                all.extend(changes);
            }
            state.world.settings = serde_json::from_value::<Settings>(all).map_err(Problem::wrong)?;
            Ok(json!(state.world.settings))
        }
        (&Method::POST, ["deeds"]) => {
            let deeds = match read(call)? {
                Value::Array(deeds) => deeds,
                deed => vec![deed],
            };
            let deeds: Result<Vec<Deed>, _> = deeds.into_iter().map(serde_json::from_value).collect();
            state.perform(deeds.map_err(Problem::wrong)?).map_err(Problem::wrong)?;
            Ok(json!({}))
        }
        (&Method::GET, ["faults"]) => {
            let faults = state.faults.all().iter();
            Ok(faults.map(|(id, fault)| json!({"id": id, "fault": fault})).collect())
        }
        (&Method::POST, ["faults"]) => {
            let fault: Fault = read(call)?;
            Ok(json!({"id": state.faults.add(fault)}))
        }
        (&Method::DELETE, ["faults"]) => {
            state.faults.clear();
            Ok(json!({}))
        }
        (&Method::DELETE, ["faults", id]) => {
            let id = FaultId(id.parse().map_err(Problem::wrong)?);
            if state.faults.remove(id) {
                Ok(json!({}))
            } else {
                Err(Problem(StatusCode::NOT_FOUND, format!("there is no fault {id}")))
            }
        }
        (&Method::GET, ["journal"]) => Ok(json!(state.journal.all())),
        (&Method::DELETE, ["journal"]) => {
            state.journal.clear();
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
