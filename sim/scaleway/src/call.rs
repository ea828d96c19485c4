//! A request and its answer, without the wire.

use crate::refusal::{Reason, Refusal};
use http::{Method, StatusCode};
pub(crate) use russet_sim_kit::wire::Reply;
use serde_json::Value;
use std::fmt::Write as _;

/// A request: what was asked, by whom, with what.
#[derive(Debug, Clone)]
pub(crate) struct Call {
    pub(crate) method: Method,
    pub(crate) path: String,
    /// The query as it came, without the question mark.
    pub(crate) query: String,
    /// The value of `X-Auth-Token`.
    pub(crate) token: Option<String>,
    /// The value of `Content-Type`, without parameters.
    pub(crate) content_type: Option<String>,
    pub(crate) body: Vec<u8>,
}

/// What becomes of a call.
pub(crate) type Answer<T = Reply> = Result<T, Refusal>;

/// 201 with a body, and where the new thing is.
pub(crate) fn created(call: &Call, id: &str, body: Value) -> Reply {
    Reply {
        headers: vec![("location", format!("{}/{id}", call.path))],
        ..Reply::json(StatusCode::CREATED, body)
    }
}

impl From<&Refusal> for Reply {
    fn from(refusal: &Refusal) -> Self {
        let headers = match refusal {
            Refusal::Method(allowed) => vec![("allow", (*allowed).to_owned())],
            _ => Vec::new(),
        };
        Self {
            status: refusal.status(),
            headers,
            body: Some(refusal.body()),
        }
    }
}

impl Call {
    /// The path in pieces, percent-decoding included; an undecodable or empty piece is no route.
    pub(crate) fn segments(&self) -> Result<Vec<String>, Refusal> {
        let no_route = || Refusal::Route(self.path.clone());
        let path = self.path.strip_prefix('/').ok_or_else(no_route)?;
        path.split('/')
            .map(|piece| match decode(piece) {
                Some(piece) if !piece.is_empty() => Ok(piece),
                _ => Err(no_route()),
            })
            .collect()
    }

    /// The body as JSON. No body is an empty object: the SDKs send none with actions.
    pub(crate) fn json(&self) -> Result<Value, Refusal> {
        if self.body.is_empty() {
            return Ok(Value::Object(serde_json::Map::new()));
        }
        serde_json::from_slice(&self.body)
            .map_err(|error| Refusal::argument("body", Reason::Format, format!("not JSON: {error}")))
    }
}

/// Undoes percent-encoding; none if it is broken.
pub(crate) fn decode(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, tail)) = rest.split_first() {
        rest = tail;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let (hex, tail) = rest.split_at_checked(2)?;
        let hex = std::str::from_utf8(hex).ok().filter(|hex| !hex.starts_with('+'))?;
        bytes.push(u8::from_str_radix(hex, 16).ok()?);
        rest = tail;
    }
    String::from_utf8(bytes).ok()
}

/// Percent-encodes everything but the unreserved characters of RFC 3986.
pub(crate) fn encode(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            // Writing to a string cannot fail.
            let _ = write!(encoded, "%{byte:02X}");
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encoding_survives_decoding() {
        for text in ["", "abc", "p@ss:w/rd%", "é ", "%41"] {
            assert_eq!(decode(&encode(text)).as_deref(), Some(text));
        }
        assert_eq!(decode("%4"), None);
        assert_eq!(decode("%zz"), None);
        assert_eq!(decode("%+1"), None);
    }
}
