//! How a refusal is put to each tool, since some tools fail a build over an answer others shrug at.
//!
//! The rules come from running the tools against every answer (`docs/clients.md`): a read that cannot be served now is a miss
//! for every tool, because a 5xx fails Nx and Metro builds, keeps sccache from starting and turns Gradle's cache off; a write
//! that is refused to Nx is a 403, the only refusal it does not fail over.

use super::reply::{Error, Payload, Reply};
use bytes::Bytes;

/// Who is spoken to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Voice {
    /// The routes of the original contract: statuses as they are.
    Api,
    /// A build tool.
    Tool,
    /// Nx, which wants plain text and takes 403 for "do not store".
    Nx,
    /// Turborepo, which reads the code out of a JSON error.
    Turborepo,
}

/// What kind of request is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asked {
    /// It would have read.
    Read,
    /// It would have written.
    Write,
}

/// A refusal, and whether it hides that the node could not serve a read now.
#[derive(Debug)]
pub struct Refusal {
    /// What the client is told.
    pub reply: Reply,
    /// It would have been a 5xx, and is a miss.
    pub shed: bool,
}

impl Voice {
    /// The refusal as this client should hear it.
    pub fn refuse(self, asked: Asked, error: Error) -> Refusal {
        let mut reply = Reply::from(error);
        if self == Self::Api {
            return Refusal { reply, shed: false };
        }
        if asked == Asked::Read && reply.status >= 500 {
            reply.status = 404;
            reply.extra = None;
            reply.payload = Payload::Empty;
            return Refusal { reply, shed: true };
        }
        if reply.status == 401 {
            // Maven, like any Java client, sends Basic only after this challenge.
            reply.extra = Some(("www-authenticate", "Basic realm=\"kura\""));
        }
        match self {
            Self::Nx => nx(asked, &mut reply),
            Self::Turborepo => turborepo(&mut reply),
            Self::Api | Self::Tool => {}
        }
        Refusal { reply, shed: false }
    }
}

fn nx(asked: Asked, reply: &mut Reply) {
    // Malformed requests stay what they are: they are a bug of the client, and no refusal.
    if asked == Asked::Write && matches!(reply.status, 401 | 402 | 413 | 500..) {
        reply.status = 403;
        reply.extra = None;
    }
    if let Payload::Document { body, .. } = &reply.payload {
        let text = message(body).unwrap_or_default();
        reply.payload = Payload::Document {
            content_type: "text/plain",
            body: text.into(),
        };
    }
}

fn turborepo(reply: &mut Reply) {
    if let Payload::Document { body, .. } = &reply.payload {
        let message = message(body).unwrap_or_default();
        let code = match reply.status {
            401 | 403 => "forbidden",
            402 => "payment_required",
            404 => "not_found",
            413 => "too_large",
            500.. => "unavailable",
            _ => "bad_request",
        };
        let error = serde_json::json!({ "error": { "code": code, "message": message }, "message": message });
        reply.payload = Payload::Document {
            content_type: "application/json",
            body: error.to_string().into(),
        };
    }
}

/// The text of a `{"message": …}` document.
fn message(body: &Bytes) -> Option<String> {
    let value: serde_json::Value = serde_json::from_slice(body).ok()?;
    Some(value.get("message")?.as_str()?.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::budget::Overloaded;
    use russet_identity::Denial;

    fn refuse(voice: Voice, asked: Asked, error: Error) -> (u16, String, bool) {
        let Refusal { reply, shed } = voice.refuse(asked, error);
        let body = match reply.payload {
            Payload::Document { content_type, body } => format!("{content_type} {}", String::from_utf8_lossy(&body)),
            _ => String::new(),
        };
        (reply.status, body, shed)
    }

    #[test]
    fn a_read_that_cannot_be_served_now_is_a_miss_for_tools_only() {
        for voice in [Voice::Tool, Voice::Nx, Voice::Turborepo] {
            for error in [Error::Overloaded(Overloaded), Error::Draining] {
                let refused = refuse(voice, Asked::Read, error);
                assert_eq!(refused, (404, String::new(), true), "{voice:?}");
            }
        }
        assert_eq!(refuse(Voice::Api, Asked::Read, Error::Overloaded(Overloaded)).0, 503);
        let refused = Voice::Tool.refuse(Asked::Write, Error::Overloaded(Overloaded)).reply;
        assert_eq!((refused.status, refused.extra), (503, Some(("retry-after", "1"))));
        let refused = Voice::Tool.refuse(Asked::Read, Error::Draining).reply;
        assert!(refused.close, "a draining node still says goodbye");
    }

    #[test]
    fn nx_is_told_403_about_writes_and_plain_text_about_everything() {
        let missing = || Error::Denied(Denial::missing_header());
        assert_eq!(refuse(Voice::Nx, Asked::Read, missing()).0, 401);
        for error in [missing(), Error::TooLarge("large"), Error::Overloaded(Overloaded)] {
            let (status, body, _) = refuse(Voice::Nx, Asked::Write, error);
            assert_eq!((status, body.starts_with("text/plain ")), (403, true), "{body}");
        }
        assert_eq!(refuse(Voice::Nx, Asked::Write, Error::refused(400, "x")).0, 400);
    }

    #[test]
    fn turborepo_finds_a_code_in_its_errors() {
        let (status, body, _) = refuse(Voice::Turborepo, Asked::Write, Error::refused(403, "no"));
        assert_eq!(status, 403);
        let expected = r#"application/json {"error":{"code":"forbidden","message":"no"},"message":"no"}"#;
        assert_eq!(body, expected);
    }

    #[test]
    fn tools_are_challenged_for_basic() {
        let missing = Error::Denied(Denial::missing_header());
        let refused = Voice::Tool.refuse(Asked::Read, missing).reply;
        assert_eq!(refused.extra, Some(("www-authenticate", "Basic realm=\"kura\"")));
    }
}
