//! Why a request was refused, in the words of HTTP and of gRPC.

use std::borrow::Cow;
use std::fmt;

/// The kind of a refusal; decides the status in both protocols.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// 400: the request does not say what it is about, or says it twice.
    BadRequest,
    /// 401: no credential, or one that is not valid (any more).
    Unauthenticated,
    /// 402: the account has to pay first.
    PaymentRequired,
    /// 403: a valid credential that does not cover this.
    Forbidden,
    /// 503: nobody could be asked. Never an allow.
    Unavailable,
}

impl Refusal {
    /// Status of the HTTP response.
    pub const fn http_status(self) -> u16 {
        match self {
            Self::BadRequest => 400,
            Self::Unauthenticated => 401,
            Self::PaymentRequired => 402,
            Self::Forbidden => 403,
            Self::Unavailable => 503,
        }
    }

    /// Code of the gRPC response. 402 has no code of its own; see [`Denial::grpc_metadata`].
    pub const fn grpc_code(self) -> GrpcCode {
        match self {
            Self::BadRequest => GrpcCode::InvalidArgument,
            Self::Unauthenticated => GrpcCode::Unauthenticated,
            Self::PaymentRequired | Self::Forbidden => GrpcCode::PermissionDenied,
            Self::Unavailable => GrpcCode::Unavailable,
        }
    }
}

/// The gRPC codes a refusal can have, with their numbers on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum GrpcCode {
    /// INVALID_ARGUMENT
    InvalidArgument = 3,
    /// PERMISSION_DENIED
    PermissionDenied = 7,
    /// UNAVAILABLE
    Unavailable = 14,
    /// UNAUTHENTICATED
    Unauthenticated = 16,
}

impl GrpcCode {
    /// Number on the wire.
    pub const fn number(self) -> i32 {
        self as i32
    }
}

/// A refusal with its message. Messages never quote a credential; most are static, so refusing allocates nothing.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Denial {
    refusal: Refusal,
    message: Cow<'static, str>,
}

impl Denial {
    pub(crate) fn new(refusal: Refusal, message: impl Into<Cow<'static, str>>) -> Self {
        Self {
            refusal,
            message: message.into(),
        }
    }

    pub(crate) const fn fixed(refusal: Refusal, message: &'static str) -> Self {
        Self {
            refusal,
            message: Cow::Borrowed(message),
        }
    }

    /// No `Authorization` header where one is needed.
    pub const fn missing_header() -> Self {
        Self::fixed(Refusal::Unauthenticated, "Missing Authorization header")
    }

    /// No account in the request.
    pub const fn missing_tenant() -> Self {
        Self::fixed(Refusal::BadRequest, "Missing tenant_id")
    }

    /// The kind.
    pub const fn refusal(&self) -> Refusal {
        self.refusal
    }

    /// Status of the HTTP response.
    pub const fn http_status(&self) -> u16 {
        self.refusal.http_status()
    }

    /// Text for `{"message": …}` and for the gRPC status.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Code of the gRPC response.
    pub const fn grpc_code(&self) -> GrpcCode {
        self.refusal.grpc_code()
    }

    /// Trailer that tells a gRPC client about 402, which shares its code with 403.
    pub const fn grpc_metadata(&self) -> Option<(&'static str, &'static str)> {
        match self.refusal {
            Refusal::PaymentRequired => Some(("tuist-refusal-reason", "payment_required")),
            _ => None,
        }
    }

    /// Seconds for `Retry-After`.
    pub const fn retry_after(&self) -> Option<u32> {
        match self.refusal {
            Refusal::Unavailable => Some(1),
            _ => None,
        }
    }

    /// Value for `WWW-Authenticate`, which HTTP asks for with every 401.
    pub const fn www_authenticate(&self) -> Option<&'static str> {
        match self.refusal {
            Refusal::Unauthenticated => Some("Bearer realm=\"kura\""),
            _ => None,
        }
    }
}

impl fmt::Debug for Denial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Denial({} {:?})", self.http_status(), self.message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_refusal_has_its_status_in_both_protocols() {
        let table = [
            (Refusal::BadRequest, 400, 3),
            (Refusal::Unauthenticated, 401, 16),
            (Refusal::PaymentRequired, 402, 7),
            (Refusal::Forbidden, 403, 7),
            (Refusal::Unavailable, 503, 14),
        ];
        for (refusal, http, grpc) in table {
            assert_eq!(refusal.http_status(), http);
            assert_eq!(refusal.grpc_code().number(), grpc);
        }
    }

    #[test]
    fn only_payment_is_explained_in_a_trailer_and_only_unavailable_may_be_retried() {
        let payment = Denial::fixed(Refusal::PaymentRequired, "x");
        let told = payment.grpc_metadata();
        assert_eq!(told, Some(("tuist-refusal-reason", "payment_required")));
        assert_eq!(payment.retry_after(), None);
        let down = Denial::fixed(Refusal::Unavailable, "x");
        assert_eq!((down.grpc_metadata(), down.retry_after()), (None, Some(1)));
        assert!(Denial::missing_header().www_authenticate().is_some());
    }
}
