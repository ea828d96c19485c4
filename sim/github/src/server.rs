//! What comes over the wire, as calls; and answers, as they go back.

use crate::call::{Body, Call, Reply};
use crate::control;
use crate::core::Core;
use crate::fault::Outcome;
use bytes::Bytes;
use http::request::Parts;
use russet_sim_kit::wire::{self, Answer, Cut, Emulator};
use tokio_util::sync::CancellationToken;

const MAX_BODY: usize = 1 << 20;

impl Emulator for Core {
    fn limit(&self, _path: &str) -> usize {
        MAX_BODY
    }

    async fn answer(&self, head: Parts, body: Bytes, stop: &CancellationToken) -> Result<Answer, Cut> {
        let path = head.uri.path();
        let call = Call {
            method: head.method,
            path: path.strip_prefix("/api/v3").unwrap_or(path).to_owned(),
            query: head.uri.query().unwrap_or_default().to_owned(),
            headers: head.headers,
            body: body.to_vec(),
        };
        if call.path.starts_with(control::PREFIX) {
            return Ok(render(control::answer(self, &call)));
        }
        let outcome = self.lock().serve(&call);
        match outcome {
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
    let body = match reply.body {
        Body::None => Bytes::new(),
        Body::Text(text) => Bytes::from_static(text.as_bytes()),
        Body::Json(value) => Bytes::from(value.to_string()),
    };
    wire::render(reply.status, "application/json; charset=utf-8", reply.headers, body)
}
