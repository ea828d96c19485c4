//! The control API under `/_sim/`, where no path of a real API can be: what every emulator has of it.
//!
//! | Call | What it does |
//! | --- | --- |
//! | `GET health` | 200 when it runs |
//! | `GET clock`, `POST clock` | `{"advance_seconds": 600}` or `{"factor": 60}` |
//! | `GET settings`, `PATCH settings` | the emulator's own switches |
//! | `GET`, `POST`, `DELETE faults`, `DELETE faults/{id}` | [`Fault`]s |
//! | `GET journal?after=N`, `DELETE journal` | every request |

use crate::clock::{Clock, Factor};
use crate::fault::{Fault, FaultId, Faults};
use crate::log::Log;
use crate::wire::Reply;
use http::{Method, StatusCode};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::fmt::Display;
use std::time::Duration;

/// Where the control API is.
pub const PREFIX: &str = "/_sim/";

/// Why a control call failed: status and sentence.
#[derive(Debug)]
pub struct Problem(pub StatusCode, pub String);

impl Problem {
    /// The call makes no sense.
    pub fn wrong(why: impl Display) -> Self {
        Self(StatusCode::BAD_REQUEST, why.to_string())
    }

    /// There is nothing of that name.
    pub fn missing(what: impl Display) -> Self {
        Self(StatusCode::NOT_FOUND, format!("there is no {what}"))
    }
}

/// The answer to a control call.
pub fn reply(result: Result<Value, Problem>) -> Reply {
    match result {
        Ok(Value::Null) => Reply::no_content(),
        Ok(body) => Reply::json(StatusCode::OK, body),
        Err(Problem(status, message)) => Reply::json(status, json!({ "message": message })),
    }
}

/// The body of a control call.
pub fn read<T: DeserializeOwned>(body: &[u8]) -> Result<T, Problem> {
    serde_json::from_slice(body).map_err(Problem::wrong)
}

/// One or a list of them. Not an untagged enum: its errors would say nothing.
pub fn several<T: DeserializeOwned>(body: &[u8]) -> Result<Vec<T>, Problem> {
    let all = match read(body)? {
        Value::Array(all) => all,
        one => vec![one],
    };
    let all: Result<Vec<T>, _> = all.into_iter().map(serde_json::from_value).collect();
    all.map_err(Problem::wrong)
}

/// The value with the fields of a body put into it, objects field by field; unknown ones are refused.
pub fn changed<T: Serialize + DeserializeOwned>(now: &T, body: &[u8]) -> Result<T, Problem> {
    let mut all = json!(now);
    let changes: serde_json::Map<String, Value> = read(body)?;
    merge(&mut all, Value::Object(changes));
    serde_json::from_value(all).map_err(Problem::wrong)
}

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

/// The state of an emulator, as far as all have it: its switches, what faults do, its requests.
#[derive(Debug)]
pub struct Common<'a, S, A, E> {
    pub clock: &'a mut Clock,
    pub settings: &'a mut S,
    pub faults: &'a mut Faults<A>,
    pub journal: &'a mut Log<E>,
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

/// Answers a control call by its method, its path below [`PREFIX`], its query and its body.
pub fn answer<S, A, E>(
    state: Common<'_, S, A, E>,
    method: &Method,
    path: &str,
    query: &str,
    body: &[u8],
) -> Result<Value, Problem>
where
    S: Serialize + DeserializeOwned,
    A: Clone + Serialize + DeserializeOwned,
    E: Clone + Serialize,
{
    let Common {
        clock,
        settings,
        faults,
        journal,
    } = state;
    let pieces: Vec<&str> = path.split('/').collect();
    if let (&Method::GET, ["journal"]) = (method, pieces.as_slice()) {
        let after = if query.is_empty() {
            Some("0")
        } else {
            query.strip_prefix("after=")
        };
        let after = after.and_then(|number| number.parse().ok());
        return match after {
            Some(after) => Ok(json!(journal.after(after))),
            None => Err(Problem::wrong(format!("{query:?} is not after=<number>"))),
        };
    }
    if !query.is_empty() {
        return Err(Problem::wrong(format!("{path} has no query")));
    }
    match (method, pieces.as_slice()) {
        (&Method::GET, ["health"]) => return Ok(json!({"ok": true})),
        (&Method::GET, ["clock"]) => {}
        (&Method::POST, ["clock"]) => {
            let change: ClockChange = read(body)?;
            let ahead = Duration::try_from_secs_f64(change.advance_seconds).map_err(Problem::wrong)?;
            clock.advance(ahead);
            if let Some(factor) = change.factor {
                clock.set_factor(factor);
            }
        }
        (&Method::GET, ["settings"]) => return Ok(json!(settings)),
        (&Method::PATCH, ["settings"]) => {
            *settings = changed(settings, body)?;
            return Ok(json!(settings));
        }
        (&Method::GET, ["faults"]) => {
            let faults = faults.all().iter();
            return Ok(faults.map(|(id, fault)| json!({"id": id, "fault": fault})).collect());
        }
        (&Method::POST, ["faults"]) => {
            let fault: Fault<_> = read(body)?;
            return Ok(json!({"id": faults.add(fault)}));
        }
        (&Method::DELETE, ["faults"]) => {
            faults.clear();
            return Ok(json!({}));
        }
        (&Method::DELETE, ["faults", id]) => {
            let id = FaultId(id.parse().map_err(Problem::wrong)?);
            let removed = faults.remove(id);
            return if removed {
                Ok(json!({}))
            } else {
                Err(Problem::missing(format!("fault {id}")))
            };
        }
        (&Method::DELETE, ["journal"]) => {
            journal.clear();
            return Ok(json!({}));
        }
        _ => return Err(Problem::missing(format!("{method} {PREFIX}{path}"))),
    }
    Ok(json!({"now": clock.now(), "factor": clock.factor()}))
}
