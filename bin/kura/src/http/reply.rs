//! Answers, independent of the engine that sends them; and the one place where failures become statuses.

use super::body;
use super::egress::Receipt;
use crate::blob::{self, Hit};
use crate::budget::Overloaded;
use crate::scope;
use bytes::Bytes;
use russet_identity::Denial;
use std::borrow::Cow;

/// What a client is told.
#[derive(Debug)]
pub struct Reply {
    /// HTTP status.
    pub status: u16,
    /// The body and the fields that describe it.
    pub payload: Payload,
    /// One more field, where a status asks for it.
    pub extra: Option<(&'static str, &'static str)>,
    /// Fields only few answers have. Values hold no control characters: they came in as fields, or were made here.
    pub more: Vec<(&'static str, Cow<'static, str>)>,
    /// No further request is answered on this connection.
    pub close: bool,
    /// The `Content-Digest` field.
    pub digest: Option<String>,
    /// Who to tell when an artifact has left.
    pub receipt: Option<Receipt>,
}

/// What an answer carries.
#[derive(Debug)]
pub enum Payload {
    /// Nothing.
    Empty,
    /// A document made for this answer.
    Document {
        /// Its media type.
        content_type: &'static str,
        /// Its bytes.
        body: Bytes,
    },
    /// The answer to HEAD where GET would get a document.
    Described {
        /// Its media type.
        content_type: &'static str,
        /// Its length.
        length: u64,
    },
    /// A stored blob, or a part of it.
    Blob(Slice),
    /// The blob exists, this is its tag (304).
    Tag(blob::Tag),
    /// No byte of a blob of that size lies in the wanted range (416).
    Beyond(u64),
    /// A gRPC status without messages.
    Grpc(&'static str),
}

/// Consecutive bytes of a stored blob.
#[derive(Debug)]
pub struct Slice {
    /// The blob.
    pub hit: Hit,
    /// Its media type.
    pub content_type: &'static str,
    /// First byte.
    pub start: u64,
    /// How many bytes.
    pub length: u64,
    /// The request was HEAD: describe, do not send.
    pub described_only: bool,
}

impl Reply {
    /// An answer without a body.
    pub fn empty(status: u16) -> Self {
        Self {
            status,
            payload: Payload::Empty,
            extra: None,
            more: Vec::new(),
            close: false,
            digest: None,
            receipt: None,
        }
    }

    /// A JSON document.
    pub fn json(status: u16, body: impl Into<Bytes>) -> Self {
        Self {
            payload: Payload::Document {
                content_type: "application/json",
                body: body.into(),
            },
            ..Self::empty(status)
        }
    }

    /// The same answer to HEAD. A body there would be read as the beginning of the next answer.
    #[must_use]
    pub fn described(mut self) -> Self {
        if let Payload::Document { content_type, body } = self.payload {
            let length = body.len() as u64;
            self.payload = Payload::Described { content_type, length };
        }
        self
    }

    /// `{"message": …}`.
    pub fn message(status: u16, message: &str) -> Self {
        let body = serde_json::json!({ "message": message });
        Self::json(status, body.to_string())
    }

    /// A miss: the most frequent refusal, so its body is not made anew.
    pub fn missing(body: &'static str) -> Self {
        Self::json(404, Bytes::from_static(body.as_bytes()))
    }

    /// The receipt of an artifact that is about to be sent, and how many bytes that is.
    pub fn egress(&mut self) -> Option<(Receipt, u64)> {
        match &self.payload {
            Payload::Blob(slice) if !slice.described_only => Some((self.receipt.take()?, slice.length)),
            _ => None,
        }
    }

    fn retry(mut self) -> Self {
        self.extra = Some(("retry-after", "1"));
        self
    }

    fn closing(mut self) -> Self {
        self.close = true;
        self
    }
}

/// Why a request was not served.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The query or the key cannot be understood.
    #[error(transparent)]
    Scope(#[from] scope::Error),
    /// The request names no scope, or two.
    #[error(transparent)]
    Unscoped(#[from] scope::Refused),
    /// The caller may not.
    #[error(transparent)]
    Denied(#[from] Denial),
    /// The body did not arrive.
    #[error(transparent)]
    Body(#[from] body::Error),
    /// No memory left for it now.
    #[error(transparent)]
    Overloaded(#[from] Overloaded),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] blob::Error),
    /// The node is leaving.
    #[error("server is draining")]
    Draining,
    /// The body is larger than the route allows.
    #[error("{0}")]
    TooLarge(&'static str),
    /// The request contradicts itself or the state it refers to.
    #[error("{status} {message}")]
    Refused {
        /// The status.
        status: u16,
        /// The message.
        message: Cow<'static, str>,
    },
}

impl Error {
    /// A refusal with a fixed message.
    pub fn refused(status: u16, message: &'static str) -> Self {
        Self::Refused {
            status,
            message: Cow::Borrowed(message),
        }
    }
}

impl From<Error> for Reply {
    fn from(error: Error) -> Self {
        match error {
            Error::Scope(error) | Error::Unscoped(scope::Refused::Query(error)) => {
                Self::message(400, &error.to_string())
            }
            Error::Denied(denial) | Error::Unscoped(scope::Refused::Handle(denial)) => {
                let mut reply = Self::message(denial.http_status(), denial.message());
                if denial.retry_after().is_some() {
                    reply = reply.retry();
                }
                if let Some(value) = denial.www_authenticate() {
                    reply.extra = Some(("www-authenticate", value));
                }
                reply
            }
            // The body was read to its end, so the connection goes on.
            Error::Body(error @ body::Error::Mismatch) => Self::message(400, &error.to_string()),
            // After a broken body the framing is lost, after a stalled one the patience.
            Error::Body(error @ body::Error::Stalled) => Self::message(408, &error.to_string()).closing(),
            Error::Body(error) => Self::message(400, &error.to_string()).closing(),
            Error::Overloaded(error) => Self::message(503, &error.to_string()).retry(),
            Error::Store(error) => {
                error.log();
                match error.class() {
                    blob::Class::Retry => Self::message(503, error.client_message()).retry(),
                    blob::Class::TooLarge => Self::message(413, error.client_message()),
                    blob::Class::Broken => Self::message(500, error.client_message()),
                }
            }
            Error::Draining => Self::message(503, "server is draining").retry().closing(),
            Error::TooLarge(message) => Self::message(413, message),
            Error::Refused { status, message } => {
                let reply = Self::message(status, &message);
                if status == 503 { reply.retry() } else { reply }
            }
        }
    }
}

/// The reason phrase of a status we send.
pub fn reason(status: u16) -> &'static str {
    http::StatusCode::from_u16(status)
        .ok()
        .and_then(|status| status.canonical_reason())
        .unwrap_or("Unknown")
}
