//! The control API under `/_sim/`: the world from behind the scenes. Beside what [every emulator has](russet_sim_kit::control):
//!
//! | Call | What it does |
//! | --- | --- |
//! | `POST deeds` | one [`Deed`] or a list of them, all or none |

use crate::call::Call;
use crate::core::Core;
use crate::deed::Deed;
use http::Method;
use russet_sim_kit::control::{self, PREFIX, Problem};
use russet_sim_kit::wire::Reply;
use serde_json::{Value, json};

/// Answers a control call.
pub(crate) fn answer(core: &Core, call: &Call) -> Reply {
    control::reply(respond(core, call))
}

fn respond(core: &Core, call: &Call) -> Result<Value, Problem> {
    let mut state = core.lock();
    let path = call.path.strip_prefix(PREFIX).unwrap_or_default();
    if (&call.method, path) == (&Method::POST, "deeds") {
        let deeds: Vec<Deed> = control::several(&call.body)?;
        state.perform(deeds).map_err(Problem::wrong)?;
        return Ok(json!({}));
    }
    control::answer(state.common(), &call.method, path, &call.query, &call.body)
}
