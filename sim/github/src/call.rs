//! A request, without the wire.

use crate::refusal::Refusal;
use http::{HeaderMap, Method};
use serde_json::Value;

/// A request.
#[derive(Debug, Clone)]
pub(crate) struct Call {
    pub(crate) method: Method,
    /// Without the `/api/v3` of an Enterprise Server.
    pub(crate) path: String,
    /// The query as it came, without the question mark.
    pub(crate) query: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Vec<u8>,
}

impl Call {
    /// A header that is there, once, and is text.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// The bearer's token. GitHub takes both words.
    pub(crate) fn bearer(&self) -> Option<&str> {
        let value = self.header("authorization")?;
        let (word, token) = value.split_once(' ')?;
        (word.eq_ignore_ascii_case("bearer") || word.eq_ignore_ascii_case("token")).then_some(token)
    }

    /// The path in pieces; percent-encoding is never needed in the paths that exist.
    pub(crate) fn pieces(&self) -> Vec<&str> {
        self.path.trim_start_matches('/').split('/').collect()
    }

    /// The body as JSON. No body is an empty object.
    pub(crate) fn json(&self) -> Result<Value, Refusal> {
        if self.body.is_empty() {
            return Ok(Value::Object(serde_json::Map::new()));
        }
        serde_json::from_slice(&self.body).map_err(|_| Refusal::new(400, "Problems parsing JSON"))
    }
}
