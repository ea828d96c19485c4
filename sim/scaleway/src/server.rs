//! What comes over the wire, as calls; and answers, as they go back.

use crate::call::Call;
use crate::control;
use crate::core::Core;
use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::request::Parts;
use russet_sim_kit::control::PREFIX;
use russet_sim_kit::wire::{Answer, Cut, Emulator};
use tokio_util::sync::CancellationToken;

const JSON: &str = "application/json";
const MAX_BODY: usize = 1 << 20;
/// A snapshot of a large fleet is larger than any request of the API.
const MAX_CONTROL_BODY: usize = 256 << 20;

impl Emulator for Core {
    fn limit(&self, path: &str) -> usize {
        if path.starts_with(PREFIX) {
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
        if call.path.starts_with(PREFIX) {
            return Ok(control::answer(self, &call, stop).await.render(JSON));
        }
        self.serve(&call).carried_out(JSON, stop).await
    }
}
