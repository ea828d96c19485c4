//! What a machine answers on its address, until SSH takes its place.
//!
//! | Call | Answer |
//! | --- | --- |
//! | `POST /join` with [`Join`] | 202, the rest happens in the background |
//! | `GET /state` | 200 with [`crate::State`] |
//!
//! Both want `Authorization: Basic <user:password of the installation>`, else 401. A body that makes no sense is 400 and
//! `{"message": "<a sentence>"}`.

use crate::join::Join;
use crate::machine::Machine;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use http::header::AUTHORIZATION;
use http::request::Parts;
use http::{HeaderMap, Method, StatusCode};
use russet_sim_kit::wire::{Answer, Cut, Emulator, Reply};
use russet_telemetry::Secret;
use serde_json::json;
use tokio_util::sync::CancellationToken;

impl Emulator for Machine {
    async fn answer(&self, head: Parts, body: Bytes, _: &CancellationToken) -> Result<Answer, Cut> {
        Ok(answer(self, &head, &body).render("application/json"))
    }
}

fn answer(machine: &Machine, head: &Parts, body: &[u8]) -> Reply {
    let path = head.uri.path();
    let allowed = match path {
        "/join" => Method::POST,
        "/state" => Method::GET,
        _ => return refusal(StatusCode::NOT_FOUND, format!("there is no {path} on this machine")),
    };
    if head.method != allowed {
        let refused = refusal(StatusCode::METHOD_NOT_ALLOWED, format!("{path} wants {allowed}"));
        return with(refused, "allow", allowed.as_str());
    }
    if !is_admitted(&head.headers, machine) {
        let message = "wrong user or password for this installation of the machine";
        let refused = refusal(StatusCode::UNAUTHORIZED, message);
        return with(refused, "www-authenticate", "Basic realm=\"mac\"");
    }
    if allowed == Method::GET {
        return Reply::ok(json!(machine.state()));
    }
    match Join::parse(body, &machine.provider_id()) {
        Ok(join) => {
            machine.order(join);
            Reply::json(StatusCode::ACCEPTED, json!(machine.state()))
        }
        Err(error) => refusal(StatusCode::BAD_REQUEST, error.to_string()),
    }
}

fn is_admitted(headers: &HeaderMap, machine: &Machine) -> bool {
    let given = headers
        .get(AUTHORIZATION)
        .and_then(|value| value.to_str().ok())
        .and_then(|value| value.strip_prefix("Basic "))
        .and_then(|encoded| BASE64.decode(encoded.trim()).ok())
        .and_then(|bytes| String::from_utf8(bytes).ok())
        .map(Secret::new);
    given
        .as_ref()
        .and_then(|given| given.expose().split_once(':'))
        .is_some_and(|(user, password)| machine.admits(user, password.as_bytes()))
}

fn refusal(status: StatusCode, message: impl Into<String>) -> Reply {
    Reply::json(status, json!({"message": message.into()}))
}

fn with(mut reply: Reply, name: &'static str, value: &str) -> Reply {
    reply.headers.push((name, value.to_owned()));
    reply
}
