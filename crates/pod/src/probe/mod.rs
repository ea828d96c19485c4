//! Probes: when to ask, what an answer means, and the askers for HTTP, TCP and gRPC.
//!
//! ```text
//!   running ─▶ startup ──passed──▶ liveness ── failed too often ──▶ unhealthy: the container is ended, then restarted
//!                 │                readiness ─ passed / failed ───▶ ready / not ready
//!                 └─ failed too often ──▶ unhealthy
//! ```
//!
//! [`Probes`] is the state of one instance of a container and knows neither clock nor network: [`Probes::due`] says what to
//! ask and when, [`Probes::observe`] takes the answer. [`ask`] is a real asker; the way to the VM comes in as [`Dial`], since a
//! Mac has to choose the interface, and the way into it as [`Inside`].

mod ask;
mod grpc;
mod http;
mod machine;
#[cfg(test)]
mod tests;
mod tls;

pub use ask::{Dial, Direct, Inside, NothingInside, Target, Word, ask, run_hook};
pub use machine::{Due, News, Probes};

use serde::{Deserialize, Serialize};

/// What a probe is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Kind {
    /// Whether it has come up.
    Startup,
    /// Whether it still works.
    Liveness,
    /// Whether it can be given work.
    Readiness,
}

impl Kind {
    /// As in messages of kubelets.
    pub fn word(self) -> &'static str {
        match self {
            Self::Startup => "startup",
            Self::Liveness => "liveness",
            Self::Readiness => "readiness",
        }
    }

    fn title(self) -> &'static str {
        match self {
            Self::Startup => "Startup",
            Self::Liveness => "Liveness",
            Self::Readiness => "Readiness",
        }
    }
}

/// What a probe found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// All is well.
    Good,
    /// It is not, with the words of a kubelet.
    Bad(String),
    /// It could not be asked, which says nothing about the container.
    Unknown(String),
}

impl Answer {
    /// The text of the `Unhealthy` event, if the answer is worth one.
    pub fn event(&self, kind: Kind) -> Option<String> {
        match self {
            Self::Good => None,
            Self::Bad(words) => Some(format!("{} probe failed: {words}", kind.title())),
            Self::Unknown(words) => Some(format!(
                "{} probe errored and resulted in unknown state: {words}",
                kind.title()
            )),
        }
    }
}
