//! The Macs from behind the scenes, over HTTP: what tests in other processes use.
//!
//! | Call | What it does |
//! | --- | --- |
//! | `GET /_sim/macs`, `GET /_sim/macs/{server id or name}` | what they are and how they are |
//! | `PATCH /_sim/macs/{mac}/faults` | some of [`Faults`]; the others stay |
//! | `PATCH /_sim/macs/{mac}/quirks` | some of [`Quirks`] |
//! | `PUT /_sim/macs/{mac}/disk-left` | how many bytes the disk still takes, or `null` |
//! | `POST /_sim/macs/{mac}/reboot`, `.../cut-power`, `.../restore-power` | 204 when it is so |
//! | `GET /_sim/macs/{mac}/calls` | everything that was called on it |
//!
//! It has no password: it listens on loopback, and what it tells is for tests.

use super::mac::Mac;
use super::macs::Macs;
use bytes::Bytes;
use http::Method;
use http::request::Parts;
use russet_sim_kit::control::{self, PREFIX, Problem};
use russet_sim_kit::wire::{self, Answer, Cut, Emulator};
use serde_json::{Value, json};
use std::sync::Arc;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

struct Control(Macs);

/// Answers for ever.
pub async fn serve_control(listener: TcpListener, macs: Macs) {
    wire::run(listener, Arc::new(Control(macs)), CancellationToken::new()).await;
}

impl Emulator for Control {
    async fn answer(&self, head: Parts, body: Bytes, _: &CancellationToken) -> Result<Answer, Cut> {
        let path = head.uri.path().strip_prefix(PREFIX).unwrap_or_default();
        Ok(control::reply(answer(&self.0, &head.method, path, &body).await).render("application/json"))
    }
}

async fn answer(macs: &Macs, method: &Method, path: &str, body: &[u8]) -> Result<Value, Problem> {
    let pieces: Vec<&str> = path.split('/').collect();
    match (method, pieces.as_slice()) {
        (&Method::GET, ["macs"]) => {
            let all = macs.all().await;
            Ok(all.iter().map(shown).collect())
        }
        (method, ["macs", name, rest @ ..]) => {
            let mac = find(macs, name).await?;
            one(method, &mac, rest, body).await
        }
        _ => Err(Problem::missing(path)),
    }
}

async fn find(macs: &Macs, name: &str) -> Result<Mac, Problem> {
    let all = macs.all().await;
    let found = all
        .into_iter()
        .find(|mac| mac.host().server_id.to_string() == name || mac.host().name == name);
    found.ok_or_else(|| Problem::missing(format!("Mac {name}")))
}

async fn one(method: &Method, mac: &Mac, rest: &[&str], body: &[u8]) -> Result<Value, Problem> {
    match (method, rest) {
        (&Method::GET, []) => Ok(shown(mac)),
        (&Method::GET, ["calls"]) => Ok(json!(mac.calls())),
        (&Method::PATCH, ["faults"]) => {
            let next = control::changed(&mac.faults(), body)?;
            mac.set_faults(|faults| *faults = next);
            Ok(json!(mac.faults()))
        }
        (&Method::PATCH, ["quirks"]) => {
            let next = control::changed(&mac.quirks(), body)?;
            mac.set_quirks(|quirks| *quirks = next);
            Ok(json!(mac.quirks()))
        }
        (&Method::PUT, ["disk-left"]) => {
            mac.leave_on_disk(control::read(body)?).map_err(Problem::wrong)?;
            Ok(Value::Null)
        }
        (&Method::POST, ["reboot"]) => {
            mac.reboot().await;
            Ok(Value::Null)
        }
        (&Method::POST, ["cut-power"]) => {
            mac.cut_power().await;
            Ok(Value::Null)
        }
        (&Method::POST, ["restore-power"]) => {
            mac.restore_power().await;
            Ok(Value::Null)
        }
        _ => Err(Problem::missing(format!("{} of a Mac", rest.join("/")))),
    }
}

fn shown(mac: &Mac) -> Value {
    let host = mac.host();
    json!({
        "server_id": host.server_id, "name": host.name, "address": host.address, "ssh_port": host.ssh_port,
        "generation": host.generation, "root": mac.root(), "faults": mac.faults(), "quirks": mac.quirks(),
        "unexpected": mac.unexpected(), "btm_churn": mac.btm_churn(), "console_user": mac.console_user(),
    })
}
