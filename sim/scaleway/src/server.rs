//! What comes over the wire, as calls; and answers, as they go back.

use crate::call::{Call, Reply};
use crate::control;
use crate::core::{Core, Outcome};
use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::request::Parts;
use russet_sim_kit::wire::{self, Answer, Cut, Emulator};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

const MAX_BODY: usize = 1 << 20;
/// A snapshot of a large fleet is larger than any request of the API.
const MAX_CONTROL_BODY: usize = 256 << 20;

impl Emulator for Core {
    fn limit(&self, path: &str) -> usize {
        if path.starts_with(control::PREFIX) {
            MAX_CONTROL_BODY
        } else {
            MAX_BODY
        }
    }

    async fn answer(&self, head: Parts, body: Bytes, stop: &CancellationToken) -> Result<Answer, Cut> {
        let token = head.headers.get("x-auth-token").and_then(|token| token.to_str().ok());
        let content_type = head.headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
        let content_type = content_type.and_then(|kind| kind.split(';').next());
        let call = Call {
            path: head.uri.path().to_owned(),
            query: head.uri.query().unwrap_or_default().to_owned(),
            token: token.map(str::to_owned),
            content_type: content_type.map(|kind| kind.trim().to_ascii_lowercase()),
            method: head.method,
            body: body.to_vec(),
        };
        if call.path.starts_with(control::PREFIX) {
            return Ok(render(control::answer(self, &call, stop).await));
        }
        match self.serve(&call) {
            Outcome::Reply(reply) => Ok(render(reply)),
            Outcome::Cut => Err(Cut),
            Outcome::Hang => {
                stop.cancelled().await;
                Err(Cut)
            }
        }
    }
}

fn render(reply: Reply) -> Answer {
    let plain = reply.headers.iter().any(|(name, _)| *name == "content-type");
    let body = match reply.body {
        None => Bytes::new(),
        Some(Value::String(text)) if plain => Bytes::from(text),
        Some(value) => Bytes::from(value.to_string()),
    };
    wire::render(reply.status, "application/json", reply.headers, body)
}
