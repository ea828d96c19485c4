//! How a call ended, and what of ours means what to a client.

use super::body::Body;
use crate::blob;
use crate::budget::Overloaded;
use http::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use russet_identity::{Denial, Refusal};
use russet_reapi::wire::{BadDigest, Malformed};
use std::borrow::Cow;

/// The codes we use, by their numbers on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Code {
    Ok = 0,
    Cancelled = 1,
    InvalidArgument = 3,
    DeadlineExceeded = 4,
    NotFound = 5,
    PermissionDenied = 7,
    ResourceExhausted = 8,
    FailedPrecondition = 9,
    Aborted = 10,
    OutOfRange = 11,
    Unimplemented = 12,
    Internal = 13,
    Unavailable = 14,
    Unauthenticated = 16,
}

impl Code {
    pub(super) const fn number(self) -> u8 {
        self as u8
    }
}

/// Why a call, or a part of one, failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Status {
    pub(super) code: Code,
    pub(super) message: Cow<'static, str>,
    metadata: Option<(&'static str, &'static str)>,
}

impl Status {
    pub(super) fn new(code: Code, message: impl Into<Cow<'static, str>>) -> Self {
        Self {
            code,
            message: message.into(),
            metadata: None,
        }
    }

    pub(super) fn invalid(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(Code::InvalidArgument, message)
    }

    pub(super) fn not_found(message: &'static str) -> Self {
        Self::new(Code::NotFound, message)
    }

    pub(super) fn exhausted(message: &'static str) -> Self {
        Self::new(Code::ResourceExhausted, message)
    }

    pub(super) fn unimplemented(message: &'static str) -> Self {
        Self::new(Code::Unimplemented, message)
    }

    pub(super) fn unavailable(message: &'static str) -> Self {
        Self::new(Code::Unavailable, message)
    }

    pub(super) fn internal(message: &'static str) -> Self {
        Self::new(Code::Internal, message)
    }

    /// A whole answer that consists of this.
    pub(super) fn into_response(self) -> http::Response<Body> {
        let mut response = http::Response::new(Body::Empty);
        response
            .headers_mut()
            .insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
        self.write(response.headers_mut());
        response
    }

    /// The trailers that say it.
    pub(super) fn trailers(&self) -> HeaderMap {
        let mut trailers = HeaderMap::with_capacity(3);
        self.write(&mut trailers);
        trailers
    }

    fn write(&self, headers: &mut HeaderMap) {
        headers.insert(
            HeaderName::from_static("grpc-status"),
            HeaderValue::from(u16::from(self.code.number())),
        );
        if let Ok(message) = HeaderValue::from_str(&escape(&self.message)) {
            headers.insert(HeaderName::from_static("grpc-message"), message);
        }
        if let Some((name, value)) = self.metadata {
            headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        if self.code == Code::Unimplemented {
            let accepted = HeaderValue::from_static("identity");
            headers.insert(HeaderName::from_static("grpc-accept-encoding"), accepted);
        }
    }
}

/// Percent-encoding, as gRPC asks for messages.
fn escape(message: &str) -> String {
    use std::fmt::Write as _;
    let mut text = String::with_capacity(message.len());
    for byte in message.bytes() {
        if matches!(byte, b' '..=b'~') && byte != b'%' {
            text.push(char::from(byte));
        } else {
            let _ = write!(text, "%{byte:02X}");
        }
    }
    text
}

impl From<Denial> for Status {
    fn from(denial: Denial) -> Self {
        let code = match denial.refusal() {
            Refusal::BadRequest => Code::InvalidArgument,
            Refusal::Unauthenticated => Code::Unauthenticated,
            Refusal::PaymentRequired | Refusal::Forbidden => Code::PermissionDenied,
            Refusal::Unavailable => Code::Unavailable,
        };
        Self {
            code,
            message: denial.message().to_owned().into(),
            metadata: denial.grpc_metadata(),
        }
    }
}

impl From<blob::Error> for Status {
    fn from(error: blob::Error) -> Self {
        error.log();
        match error.class() {
            blob::Class::Retry => Self::unavailable(error.client_message()),
            blob::Class::TooLarge => Self::exhausted("the blob does not fit the store"),
            blob::Class::Broken => Self::internal(error.client_message()),
        }
    }
}

impl From<Overloaded> for Status {
    fn from(_: Overloaded) -> Self {
        Self::exhausted("Server is overloaded")
    }
}

impl From<Malformed> for Status {
    fn from(error: Malformed) -> Self {
        Self::invalid(error.to_string())
    }
}

impl From<BadDigest> for Status {
    fn from(error: BadDigest) -> Self {
        Self::invalid(error.to_string())
    }
}

impl From<russet_reapi::pack::Error> for Status {
    fn from(error: russet_reapi::pack::Error) -> Self {
        Self::invalid(error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_travel_in_ascii() {
        assert_eq!(escape("a%b\n\u{e9}"), "a%25b%0A%C3%A9");
        let response = Status::not_found("gone").into_response();
        assert_eq!(response.headers()["grpc-status"], "5");
        assert_eq!(response.headers()["grpc-message"], "gone");
    }

    #[test]
    fn a_disk_that_refuses_is_unavailable_and_one_that_is_broken_internal() {
        let failed = |kind: std::io::ErrorKind| {
            let source = std::sync::Arc::new(std::io::Error::from(kind));
            let action = "appending";
            Status::from(blob::Error::Store(russet_segstore::Error::Io { action, source })).code
        };
        assert_eq!(failed(std::io::ErrorKind::PermissionDenied), Code::Unavailable);
        assert_eq!(failed(std::io::ErrorKind::Other), Code::Internal);
    }

    #[test]
    fn payment_is_told_apart_in_the_trailers() {
        // Denials of that kind are made by the authoriser only; its own tests hold the metadata.
        let status = Status {
            metadata: Some(("tuist-refusal-reason", "payment_required")),
            ..Status::new(Code::PermissionDenied, "pay")
        };
        assert_eq!(status.trailers()["tuist-refusal-reason"], "payment_required");
    }
}
