//! What comes over the wire, as calls; and answers, as they go back.

use crate::call::Call;
use crate::control;
use crate::core::Core;
use bytes::Bytes;
use http::request::Parts;
use russet_sim_kit::control::PREFIX;
use russet_sim_kit::wire::{Answer, Cut, Emulator};
use tokio_util::sync::CancellationToken;

const JSON: &str = "application/json; charset=utf-8";

impl Emulator for Core {
    async fn answer(&self, head: Parts, body: Bytes, stop: &CancellationToken) -> Result<Answer, Cut> {
        let path = head.uri.path();
        let call = Call {
            method: head.method,
            path: path.strip_prefix("/api/v3").unwrap_or(path).to_owned(),
            query: head.uri.query().unwrap_or_default().to_owned(),
            headers: head.headers,
            body: body.to_vec(),
        };
        if call.path.starts_with(PREFIX) {
            return Ok(control::answer(self, &call).render(JSON));
        }
        let outcome = self.lock().serve(&call);
        outcome.carried_out(JSON, stop).await
    }
}
