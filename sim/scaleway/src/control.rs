//! The control API under `/_sim/`: the world from behind the scenes. Beside what [every emulator has](russet_sim_kit::control):
//!
//! | Call | What it does |
//! | --- | --- |
//! | `POST deeds` | one [`Deed`] or a list of them, all or none |
//! | `GET bill` | what is owed |
//! | `GET servers`, `GET hosts`, `GET events?after=N&wait=true` | minis, machines, what happened to them |
//! | `GET instances`, `GET volumes`, `GET addresses` | Instances, their volumes of both kinds, their public addresses |
//! | `GET metals` | Elastic Metal servers |
//! | `GET boxes`, `GET box-events?after=N` | Linux machines, and what changed; waits unless `wait=false` |
//! | `GET snapshot`, `PUT snapshot` | everything |

use crate::call::Call;
use crate::core::{Core, State};
use crate::deed::Deed;
use crate::snapshot::Snapshot;
use crate::strict::Query;
use http::Method;
use jiff::Timestamp;
use russet_sim_kit::Log;
use russet_sim_kit::control::{self, PREFIX, Problem};
use russet_sim_kit::wire::Reply;
use serde::Serialize;
use serde_json::{Value, json};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// How long a question for events may wait.
const LONGEST_WAIT: Duration = Duration::from_secs(25);

/// Answers a control call.
pub(crate) async fn answer(core: &Core, call: &Call, stop: &CancellationToken) -> Reply {
    let path = call.path.strip_prefix(PREFIX).unwrap_or_default();
    control::reply(match (&call.method, path) {
        (&Method::GET, "events") => events(core, |state| &state.events, call, false, stop).await,
        (&Method::GET, "box-events") => events(core, |state| &state.box_events, call, true, stop).await,
        (&Method::GET, "snapshot") => Ok(json!(core.snapshot())),
        (&Method::GET, what) => core.look(|state, now| match shown(state, now, what) {
            Some(_) if !call.query.is_empty() => Err(Problem::wrong(format!("{what} has no query"))),
            Some(shown) => Ok(shown),
            None => control::answer(state.common(), &call.method, path, &call.query, &call.body),
        }),
        (&Method::POST, "deeds") => deeds(core, call),
        (&Method::PUT, "snapshot") => restored(core, call),
        _ => core.change(|state, _| control::answer(state.common(), &call.method, path, &call.query, &call.body)),
    })
}

fn shown(state: &State, now: Timestamp, what: &str) -> Option<Value> {
    let world = &state.world;
    let servers = world.apple.servers.iter();
    Some(match what {
        "bill" => json!(world.bill.bill(now)),
        "servers" => servers.map(|server| world.show(server, now)).collect(),
        "hosts" => servers
            .filter_map(|server| world.host(&server.id))
            .map(|host| json!(host))
            .collect(),
        "instances" => json!(world.all_instances()),
        "metals" => json!(world.all_metals()),
        "volumes" => json!(world.all_volumes()),
        "addresses" => json!(world.all_addresses()),
        "boxes" => json!(world.boxes()),
        _ => return None,
    })
}

/// Everything after a number; who waits gets it when there is something, or after long enough.
async fn events<E: Clone + Serialize>(
    core: &Core,
    of: fn(&State) -> &Log<E>,
    call: &Call,
    wait: bool,
    stop: &CancellationToken,
) -> Result<Value, Problem> {
    let mut query = Query::new(&call.query);
    let after = u64::from(query.number("after").unwrap_or(0));
    let wait = query.flag("wait").unwrap_or(wait);
    query.finish().map_err(|refusal| Problem::wrong(refusal.body()))?;
    let mut last = core.last_event(of);
    core.tick();
    if wait {
        tokio::select! {
            _ = tokio::time::timeout(LONGEST_WAIT, last.wait_for(|last| *last > after)) => {}
            () = stop.cancelled() => {}
        }
    }
    Ok(json!(core.events(of, after)))
}

fn deeds(core: &Core, call: &Call) -> Result<Value, Problem> {
    let deeds: Vec<Deed> = control::several(&call.body)?;
    let made = core.change(|state, now| state.perform(now, deeds));
    Ok(json!({ "servers": made.map_err(Problem::wrong)? }))
}

fn restored(core: &Core, call: &Call) -> Result<Value, Problem> {
    let snapshot: Snapshot = control::read(&call.body)?;
    core.restore(snapshot).map_err(Problem::wrong)?;
    Ok(json!({}))
}
