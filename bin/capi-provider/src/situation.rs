//! What a machine is waiting for, in words for people and programs.
//!
//! One table, [`Situation::report`]: phase, condition, reason, severity, sentence, and when to look again. The sentence says
//! what to do, if there is anything to do.

use std::time::Duration;

use jiff::Timestamp;
use russet_api::conditions::{Condition, ConditionStatus, Severity, reasons, types};
use russet_api::machine::Phase;
use russet_api::values::PoolPrefix;
use russet_scaleway::apple_silicon::ServerStatus;

use crate::candidates::{Shortage, Wanted};
use crate::claims::Holder;
use crate::images::is_pin;
use crate::waiting::Waiting;

/// A spec that cannot be worked with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SpecProblem {
    /// No pool in the spec and no default.
    NoPool,
    /// An image where a family belongs.
    OsPin {
        /// What the spec says.
        os: String,
    },
    /// The machine's own name begins like those of free hosts.
    NameInPool {
        /// The pool.
        pool: PoolPrefix,
    },
    /// A field that does not parse.
    Field {
        /// The error, which names it.
        why: String,
    },
}

impl SpecProblem {
    /// Whether a host may be taken for this `spec.os`. A machine that has one keeps it and can give it back, whatever the
    /// spec says.
    pub fn check_os(os: &str) -> Result<(), Self> {
        if is_pin(os) {
            Err(Self::OsPin { os: os.to_owned() })
        } else {
            Ok(())
        }
    }
}

/// Why nothing is done now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Situation {
    /// It is not up to us.
    Waiting(Waiting),
    /// The spec cannot be worked with.
    Spec(SpecProblem),
    /// The pool has no host.
    NoAvailableHost {
        /// What it has instead.
        shortage: Box<Shortage>,
        /// What is wanted.
        wanted: Box<Wanted>,
    },
    /// A call may be on its way whose answer was lost.
    CallInFlight {
        /// Until when.
        until: Timestamp,
    },
    /// The marker must stand a while.
    Settling {
        /// Until when.
        until: Timestamp,
    },
    /// The host does something that ends by itself.
    HostBusy {
        /// What.
        status: ServerStatus,
    },
    /// The host does not get well by itself.
    HostBroken {
        /// What Scaleway says.
        status: ServerStatus,
    },
    /// The host does not exist any more.
    HostGone,
    /// The host bears a name that is not ours.
    HostRenamed {
        /// The name.
        name: String,
    },
    /// The host belongs to another project.
    ForeignProject,
    /// Another machine has the claim for the host.
    ClaimedByAnother {
        /// Which.
        holder: Holder,
    },
    /// Scaleway does not tell the password.
    MissingPassword,
    /// The host is being wiped.
    Wiping,
    /// All is well.
    Serving,
    /// Scaleway said no, or nothing.
    Scaleway(Box<russet_scaleway::Error>),
}

/// When to look again if no event comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// After this long.
    After(Duration),
    /// At this time.
    At(Timestamp),
    /// Only an event changes anything.
    OnEvent,
}

/// What to write about a situation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// `status.phase`; none leaves it.
    pub phase: Option<Phase>,
    /// The condition, without a time.
    pub condition: Condition,
    /// When to look again.
    pub retry: Retry,
}

pub(crate) fn report(
    phase: impl Into<Option<Phase>>,
    type_: &str,
    reason: &str,
    severity: Severity,
    message: impl Into<String>,
    retry: Retry,
) -> Report {
    let condition = Condition::new(type_, ConditionStatus::False, reason)
        .message(message)
        .severity(severity);
    Report {
        phase: phase.into(),
        condition,
        retry,
    }
}

pub(crate) const SOON: Retry = Retry::After(Duration::from_secs(15));
pub(crate) const MINUTE: Retry = Retry::After(Duration::from_mins(1));
pub(crate) const SELDOM: Retry = Retry::After(Duration::from_mins(5));

/// Reasons of ours that the reference does not have.
pub mod more_reasons {
    /// The host does not exist any more.
    pub const HOST_GONE: &str = "HostGone";
    /// Somebody renamed the host.
    pub const HOST_RENAMED: &str = "HostRenamed";
    /// The host belongs to another project.
    pub const FOREIGN_PROJECT: &str = "ForeignProject";
    /// Another machine has the host.
    pub const HOST_CLAIMED_BY_ANOTHER: &str = "HostClaimedByAnother";
    /// The host is busy.
    pub const HOST_BUSY: &str = "HostBusy";
    /// The host is broken or locked.
    pub const HOST_BROKEN: &str = "HostBroken";
    /// The host is being wiped.
    pub const WIPING: &str = "Wiping";
    /// The host is being claimed.
    pub const CLAIMING: &str = "Claiming";
    /// It is found out what became of a call.
    pub const VERIFYING: &str = "Verifying";
}

impl Situation {
    /// What to write about it. `deleting` decides which condition and phase it concerns.
    #[expect(clippy::too_many_lines, reason = "one table, one row per situation")]
    pub fn report(&self, deleting: bool) -> Report {
        use more_reasons as more;
        use reasons::apple_silicon as mac;
        let (phase, concern) = if deleting {
            (Phase::Deleting, types::DELETING)
        } else {
            (Phase::Adopting, types::PROVISIONED)
        };
        match self {
            Self::Waiting(waiting) => waiting.report(),
            Self::Serving => Report {
                phase: Some(Phase::Ready),
                condition: Condition::new(types::PROVISIONED, true, reasons::READY),
                retry: SELDOM,
            },
            Self::Spec(problem) => problem.report(deleting),
            Self::NoAvailableHost { shortage, wanted } => report(
                Phase::Pending,
                types::PROVISIONED,
                mac::NO_AVAILABLE_HOST,
                Severity::Warning,
                format!(
                    "no {} with macOS {} is free under {}*: {shortage}; order one and name it {}<anything>, or scale another fleet down",
                    wanted.type_, wanted.os, wanted.pool, wanted.pool
                ),
                MINUTE,
            ),
            Self::CallInFlight { until } => report(
                phase,
                concern,
                more::VERIFYING,
                Severity::Info,
                "the answer to a call was lost or is awaited; what became of it is found out before anything else is done",
                Retry::At(*until),
            ),
            Self::Settling { until } => report(
                phase,
                concern,
                more::CLAIMING,
                Severity::Info,
                "a host is marked as taken; it is used when nobody else has marked it for a while",
                Retry::At(*until),
            ),
            Self::HostBusy { status } => report(
                None,
                concern,
                more::HOST_BUSY,
                Severity::Info,
                format!("the host is {status}; nothing to do, this ends by itself"),
                SOON,
            ),
            Self::HostBroken { status } => report(
                None,
                concern,
                more::HOST_BROKEN,
                Severity::Error,
                format!(
                    "Scaleway says the host is {status}; reinstall it in the console or open a ticket with Scaleway support"
                ),
                SELDOM,
            ),
            Self::HostGone => report(
                None,
                concern,
                more::HOST_GONE,
                Severity::Error,
                "the host was deleted at Scaleway; delete the Machine and a new one takes its place",
                SELDOM,
            ),
            Self::HostRenamed { name } => report(
                None,
                concern,
                more::HOST_RENAMED,
                Severity::Error,
                format!(
                    "somebody renamed the host to {name}; give it the name of this machine again, or delete the Machine and the host is left alone"
                ),
                SELDOM,
            ),
            Self::ForeignProject => report(
                None,
                concern,
                more::FOREIGN_PROJECT,
                Severity::Error,
                "the host belongs to another project and is left alone; check SCW_DEFAULT_PROJECT_ID",
                SELDOM,
            ),
            Self::ClaimedByAnother { holder } => report(
                None,
                concern,
                more::HOST_CLAIMED_BY_ANOTHER,
                Severity::Error,
                format!(
                    "machine {}/{} holds the claim for this host; delete whichever of the two is not meant to have it",
                    holder.namespace, holder.name
                ),
                SELDOM,
            ),
            Self::MissingPassword => report(
                Phase::Bootstrapping,
                types::BOOTSTRAPPED,
                mac::MISSING_SUDO_PASSWORD,
                Severity::Error,
                "Scaleway does not tell the administrator password of the host any more; put it into the Secret <machine>-bootstrap under sudo-password, or delete the Machine to have the host reinstalled",
                SELDOM,
            ),
            Self::Wiping => report(
                phase,
                concern,
                more::WIPING,
                Severity::Info,
                "the host is being wiped before it goes back to its pool; this takes 5 to 15 minutes",
                MINUTE,
            ),
            Self::Scaleway(error) => scaleway(error, phase, concern),
        }
    }
}

impl SpecProblem {
    fn report(&self, deleting: bool) -> Report {
        use reasons::apple_silicon as mac;
        let phase = if deleting { Phase::Deleting } else { Phase::Pending };
        let concern = if deleting { types::DELETING } else { types::PROVISIONED };
        let (reason, message) = match self {
            Self::NoPool => (
                mac::NO_ADOPT_POOL_PREFIX,
                "no pool is named; set spec.adoptPoolPrefix, or --default-adopt-pool-prefix of the provider".to_owned(),
            ),
            Self::OsPin { os } => (
                mac::INVALID_OS_PIN,
                format!(
                    "spec.os {os:?} names an image, and images are retired without notice; name the family, such as Tahoe"
                ),
            ),
            Self::NameInPool { pool } => (
                reasons::INVALID_SPEC,
                format!(
                    "the name of this machine begins with {pool}, as those of free hosts do; rename the MachineDeployment or the pool"
                ),
            ),
            Self::Field { why } => (
                reasons::INVALID_SPEC,
                format!("{why}; correct the template under a new name"),
            ),
        };
        report(phase, concern, reason, Severity::Error, message, Retry::OnEvent)
    }
}

fn scaleway(error: &russet_scaleway::Error, phase: Phase, concern: &str) -> Report {
    use russet_scaleway::Kind;
    let retry = match &error.kind {
        Kind::RateLimited { after, .. } => Retry::After(*after),
        Kind::PermissionDenied { .. }
        | Kind::Unauthenticated { .. }
        | Kind::QuotaExceeded { .. }
        | Kind::Locked { .. }
        | Kind::InvalidArguments { .. }
        | Kind::Unexpected { .. } => SELDOM,
        Kind::TransientState { .. } | Kind::OutOfStock { .. } | Kind::PreconditionFailed { .. } => MINUTE,
        _ => SOON,
    };
    let severity = if error.is_transient() {
        Severity::Warning
    } else {
        Severity::Error
    };
    let reason = match &error.kind {
        _ if concern == types::DELETING => error.reason(),
        Kind::PermissionDenied { .. } | Kind::Unauthenticated { .. } | Kind::QuotaExceeded { .. } => error.reason(),
        _ => reasons::apple_silicon::ADOPT_FAILED,
    };
    report(phase, concern, reason, severity, error.to_string(), retry)
}

#[cfg(test)]
mod tests {
    use russet_scaleway::error::{Error, Kind};

    use super::*;

    fn wanted() -> Wanted {
        Wanted {
            type_: "M2-L".into(),
            os: "Tahoe".into(),
            pool: "tuist-pool-".parse().unwrap(),
        }
    }

    fn scaleway(kind: Kind) -> Situation {
        Situation::Scaleway(Box::new(Error {
            endpoint: "apple_silicon.list_servers",
            permission: "AppleSiliconFullAccess",
            kind,
            request_id: None,
        }))
    }

    fn all() -> Vec<Situation> {
        let holder = Holder {
            uid: "u".into(),
            namespace: "default".into(),
            name: "mac-2".into(),
        };
        let until = Timestamp::UNIX_EPOCH;
        let busy = ServerStatus::Rebooting;
        vec![
            Situation::Waiting(Waiting::Paused),
            Situation::Waiting(Waiting::ForOwner),
            Situation::Waiting(Waiting::ForCluster),
            Situation::Waiting(Waiting::ForBootstrapData),
            Situation::Spec(SpecProblem::NoPool),
            Situation::Spec(SpecProblem::OsPin {
                os: "macos-tahoe-26.3".into(),
            }),
            Situation::Spec(SpecProblem::NameInPool { pool: wanted().pool }),
            Situation::Spec(SpecProblem::Field {
                why: "zone is wrong".into(),
            }),
            Situation::NoAvailableHost {
                shortage: Box::new(Shortage {
                    pooled: 3,
                    other_type: 2,
                    busy: 1,
                    ..Shortage::default()
                }),
                wanted: Box::new(wanted()),
            },
            Situation::CallInFlight { until },
            Situation::Settling { until },
            Situation::HostBusy { status: busy.clone() },
            Situation::HostBroken {
                status: ServerStatus::Error,
            },
            Situation::HostGone,
            Situation::HostRenamed { name: "keep".into() },
            Situation::ForeignProject,
            Situation::ClaimedByAnother { holder },
            Situation::MissingPassword,
            Situation::Wiping,
            scaleway(Kind::Unauthenticated {
                reason: "expired".into(),
            }),
            scaleway(Kind::PermissionDenied { what: Vec::new() }),
            scaleway(Kind::ListRestless { sweeps: 6 }),
        ]
    }

    #[test]
    fn every_situation_has_a_reason_and_a_sentence_that_says_what_to_do() {
        for situation in all() {
            for deleting in [false, true] {
                let report = situation.report(deleting);
                let reason = report.condition.reason.unwrap();
                assert!(
                    reason.chars().all(char::is_alphanumeric) && reason.starts_with(char::is_uppercase),
                    "{reason}"
                );
                let message = report.condition.message.unwrap();
                assert!(
                    message.len() > 40 && !message.ends_with('.'),
                    "{situation:?}: {message}"
                );
            }
        }
    }

    #[test]
    fn a_shortage_says_what_the_pool_has_and_how_to_fill_it() {
        let Some(report) = all()
            .into_iter()
            .find(|s| matches!(s, Situation::NoAvailableHost { .. }))
        else {
            panic!("it is in the list")
        };
        let report = report.report(false);
        assert_eq!(
            report.condition.message.as_deref(),
            Some(
                "no M2-L with macOS Tahoe is free under tuist-pool-*: the pool has 3 hosts: 2 of another type, 1 not ready; \
                 order one and name it tuist-pool-<anything>, or scale another fleet down"
            )
        );
        assert_eq!((report.phase, report.retry), (Some(Phase::Pending), MINUTE));
    }

    #[test]
    fn an_expired_key_and_a_missing_right_are_named_as_such_and_tried_seldom() {
        let report = scaleway(Kind::Unauthenticated {
            reason: "expired".into(),
        })
        .report(false);
        assert_eq!(report.condition.reason.as_deref(), Some("Unauthenticated"));
        assert_eq!(report.retry, SELDOM);
        let report = scaleway(Kind::PermissionDenied { what: Vec::new() }).report(false);
        assert!(report.condition.message.unwrap().contains("AppleSiliconFullAccess"));
        let after = Duration::from_secs(7);
        let limited = scaleway(Kind::RateLimited {
            after,
            by: russet_scaleway::error::Keeper::Scaleway,
        });
        assert_eq!(limited.report(false).retry, Retry::After(after));
    }

    #[test]
    fn a_deletion_is_told_about_in_its_own_condition() {
        let report = Situation::Wiping.report(true);
        assert_eq!(report.condition.type_, types::DELETING);
        assert_eq!(report.phase, Some(Phase::Deleting));
    }
}
