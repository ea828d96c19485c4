//! Faults: what goes wrong with which call, before it had any effect or after it had all of it.

use crate::deed::Deed;
use crate::refusal::Refusal;
use russet_sim_kit::wire::{Outcome, Reply};

/// What a fault does.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Act {
    /// The hour is spent, whatever was counted.
    PrimaryLimit {
        /// 403 or 429: GitHub uses both.
        status: u16,
        /// Seconds until the end of the hour.
        reset_in: i64,
    },
    /// Too fast.
    SecondaryLimit {
        /// 403 or 429: GitHub uses both.
        status: u16,
        /// Seconds; GitHub does not always say.
        retry_after: Option<u64>,
    },
    /// An answer with this status and a body that is not JSON, as gateways send it.
    Status(u16),
    /// The connection ends without an answer.
    Cut,
    /// No answer comes until the client gives up.
    Hang,
    /// Somebody else does something just then; the call itself is answered as usual.
    Meanwhile(Vec<Deed>),
}

/// A fault to inject.
pub type Fault = russet_sim_kit::Fault<Act>;
/// The faults that wait.
pub(crate) type Faults = russet_sim_kit::Faults<Act>;

impl Act {
    /// What a struck client gets; none if it gets the usual answer.
    pub(crate) fn instead(&self, now: jiff::Timestamp) -> Option<Outcome> {
        Some(match self {
            Self::PrimaryLimit { status, reset_in } => {
                let reset = now.as_second().saturating_add(*reset_in);
                Outcome::Reply(Refusal::primary_limit(*status, "installation", reset).reply())
            }
            Self::SecondaryLimit { status, retry_after } => {
                Outcome::Reply(Refusal::secondary_limit(*status, *retry_after).reply())
            }
            Self::Status(status) => {
                let page = "<html><head><title>Unicorn!</title></head></html>";
                Outcome::Reply(Reply::text(*status, "text/html", page))
            }
            Self::Cut => Outcome::Cut,
            Self::Hang => Outcome::Hang,
            Self::Meanwhile(_) => return None,
        })
    }
}
