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
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::convert::Infallible;
use tokio::net::TcpListener;

const MAX_BODY: usize = 1 << 20;
/// When no connection can be had.
const AGAIN: std::time::Duration = std::time::Duration::from_millis(200);

struct Problem(StatusCode, String);

/// Answers for ever.
pub async fn serve_control(listener: TcpListener, macs: Macs) {
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(%error, "the control of the Macs could not accept a connection");
                tokio::time::sleep(AGAIN).await;
                continue;
            }
        };
        let macs = macs.clone();
        tokio::spawn(async move {
            let service = service_fn(|request| {
                let macs = macs.clone();
                async move { Ok::<_, Infallible>(reply(answer(request, &macs).await)) }
            });
            let serving = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service);
            if let Err(error) = serving.await {
                tracing::debug!(%error, "a connection ended early");
            }
        });
    }
}

async fn answer(request: Request<Incoming>, macs: &Macs) -> Result<Value, Problem> {
    let (head, body) = request.into_parts();
    let Ok(body) = Limited::new(body, MAX_BODY).collect().await else {
        return Err(Problem(StatusCode::BAD_REQUEST, "the body broke off".to_owned()));
    };
    let body = body.to_bytes();
    let path = head.uri.path().trim_start_matches("/_sim/").to_owned();
    let pieces: Vec<&str> = path.split('/').collect();
    match (&head.method, pieces.as_slice()) {
        (&Method::GET, ["macs"]) => {
            let all = macs.all().await;
            Ok(all.iter().map(shown).collect())
        }
        (method, ["macs", name, rest @ ..]) => {
            let mac = find(macs, name).await?;
            one(method, &mac, rest, &body).await
        }
        _ => Err(Problem(
            StatusCode::NOT_FOUND,
            format!("there is no {}", head.uri.path()),
        )),
    }
}

async fn find(macs: &Macs, name: &str) -> Result<Mac, Problem> {
    let all = macs.all().await;
    let found = all
        .into_iter()
        .find(|mac| mac.host().server_id.to_string() == name || mac.host().name == name);
    found.ok_or_else(|| Problem(StatusCode::NOT_FOUND, format!("there is no Mac {name}")))
}

async fn one(method: &Method, mac: &Mac, rest: &[&str], body: &[u8]) -> Result<Value, Problem> {
    match (method, rest) {
        (&Method::GET, []) => Ok(shown(mac)),
        (&Method::GET, ["calls"]) => Ok(json!(mac.calls())),
        (&Method::PATCH, ["faults"]) => {
            let next = merged(&mac.faults(), body)?;
            mac.set_faults(|faults| *faults = next);
            Ok(json!(mac.faults()))
        }
        (&Method::PATCH, ["quirks"]) => {
            let next = merged(&mac.quirks(), body)?;
            mac.set_quirks(|quirks| *quirks = next);
            Ok(json!(mac.quirks()))
        }
        (&Method::PUT, ["disk-left"]) => {
            let left = serde_json::from_slice(body).map_err(|error| wrong(&error))?;
            mac.leave_on_disk(left).map_err(|error| wrong(&error))?;
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
        _ => Err(Problem(StatusCode::NOT_FOUND, "a Mac has no such thing".to_owned())),
    }
}

fn wrong(error: &dyn std::fmt::Display) -> Problem {
    Problem(StatusCode::BAD_REQUEST, error.to_string())
}

/// The value with some of its fields replaced; unknown ones are refused.
fn merged<T: Serialize + DeserializeOwned>(now: &T, body: &[u8]) -> Result<T, Problem> {
    let mut value = serde_json::to_value(now).map_err(|error| wrong(&error))?;
    let change: Value = serde_json::from_slice(body).map_err(|error| wrong(&error))?;
    match (&mut value, change) {
        (Value::Object(value), Value::Object(change)) => value.extend(change),
        _ => return Err(wrong(&"an object with some of the fields is wanted")),
    }
    serde_json::from_value(value).map_err(|error| wrong(&error))
}

fn shown(mac: &Mac) -> Value {
    let host = mac.host();
    json!({
        "server_id": host.server_id, "name": host.name, "address": host.address, "ssh_port": host.ssh_port,
        "generation": host.generation, "root": mac.root(), "faults": mac.faults(), "quirks": mac.quirks(),
        "unexpected": mac.unexpected(), "btm_churn": mac.btm_churn(), "console_user": mac.console_user(),
    })
}

fn reply(result: Result<Value, Problem>) -> Response<Full<Bytes>> {
    let (status, body) = match result {
        Ok(Value::Null) => (StatusCode::NO_CONTENT, String::new()),
        Ok(value) => (StatusCode::OK, value.to_string()),
        Err(Problem(status, message)) => (status, json!({"message": message}).to_string()),
    };
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}
