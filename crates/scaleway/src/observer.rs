//! What the client tells about its work. The binary turns it into metrics; this crate knows no metrics library.

use std::fmt;
use std::time::Duration;

use crate::call::Endpoint;

/// How one exchange ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// A good answer.
    Ok,
    /// An answer that says no.
    Refused,
    /// 429.
    RateLimited,
    /// A 5xx.
    ServerError,
    /// No connection; nothing was sent.
    NotSent,
    /// Sent, and no answer in time or the connection broke.
    NoAnswer,
    /// An answer that could not be read.
    Unreadable,
}

impl Outcome {
    /// Value of a label `outcome`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Refused => "refused",
            Self::RateLimited => "rate_limited",
            Self::ServerError => "server_error",
            Self::NotSent => "not_sent",
            Self::NoAnswer => "no_answer",
            Self::Unreadable => "unreadable",
        }
    }
}

/// One exchange.
#[derive(Clone, Copy, Debug)]
pub struct Exchange {
    /// What was called.
    pub endpoint: &'static Endpoint,
    /// Which try of the call this was, from 0.
    pub attempt: u32,
    /// How it ended.
    pub outcome: Outcome,
    /// Status of the answer, if there was one.
    pub status: Option<u16>,
    /// How long the exchange took, waits not included.
    pub duration: Duration,
    /// How long it waited for the limiter.
    pub queued: Duration,
}

/// Receives what the client tells. Calls come from the request path and must not block.
pub trait Observer: Send + Sync + fmt::Debug {
    /// One exchange ended.
    fn exchange(&self, exchange: &Exchange) {
        let _ = exchange;
    }

    /// A list had to be read again because rows moved between its pages.
    fn list_shifted(&self, endpoint: &'static Endpoint) {
        let _ = endpoint;
    }
}

/// Listens to nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Deaf;

impl Observer for Deaf {}
