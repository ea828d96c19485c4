//! The words of each situation: one table.

use std::time::Duration;

use jiff::Timestamp;
use russet_api::conditions::{Condition, Severity, reasons, types};
use russet_api::machine::Phase;

use super::{OUT_OF_STOCK, Situation, SpecProblem};
use crate::linux::plan::NOT_SENT;
use crate::linux::wanted::{Catalog, Wanted};
use crate::situation::{MINUTE, Report, Retry, SELDOM, SOON, more_reasons, report};

impl Situation {
    /// What to write about it. `deleting` decides which condition and phase it concerns.
    #[expect(clippy::too_many_lines, reason = "one table, one row per situation")]
    pub fn report(&self, deleting: bool) -> Report {
        use more_reasons as more;
        use reasons::linux;
        let (phase, concern) = if deleting {
            (Phase::Deleting, types::DELETING)
        } else {
            (Phase::Provisioning, types::PROVISIONED)
        };
        let going_on =
            |reason: &str, message: &str, retry| report(phase.clone(), concern, reason, Severity::Info, message, retry);
        let wrong =
            |reason: &str, message: String, retry| report(None, concern, reason, Severity::Error, message, retry);
        match self {
            Self::Waiting(waiting) => waiting.report(),
            Self::Serving { ready } => Report {
                phase: Some(if *ready { Phase::Ready } else { Phase::Bootstrapping }),
                condition: Condition::new(types::PROVISIONED, true, reasons::READY),
                retry: Retry::After(Duration::from_mins(10)),
            },
            Self::Spec(problem) => problem.report(deleting),
            Self::CallInFlight { until } => going_on(
                more::VERIFYING,
                "the answer to a call was lost or is awaited; what became of it is found out before anything else is done",
                Retry::At(*until),
            ),
            Self::Refused(refusal) => report(
                phase,
                concern,
                &refusal.reason,
                if refusal.reason == NOT_SENT {
                    Severity::Info
                } else {
                    Severity::Warning
                },
                refusal.message.clone(),
                Retry::At(refusal.retry_at),
            ),
            Self::Scaleway(error) => unreadable(error, phase, concern),
            Self::NotOffered { catalog, wanted } => not_offered(catalog, wanted),
            Self::NoAdoptableServer {
                shortage,
                wanted,
                prefix,
            } => report(
                Phase::Pending,
                types::PROVISIONED,
                linux::NO_ADOPTABLE_SERVER,
                Severity::Warning,
                format!(
                    "no installed {} with {} is free under {prefix}*: {shortage}; order one, install it and name it {prefix}<anything>, or remove spec.adoptNamePrefix to have one ordered",
                    wanted.type_, wanted.image
                ),
                MINUTE,
            ),
            Self::ClaimedByAnother { holder } => wrong(
                more::HOST_CLAIMED_BY_ANOTHER,
                format!(
                    "machine {}/{} holds the claim for this server; delete whichever of the two is not meant to have it",
                    holder.namespace, holder.name
                ),
                SELDOM,
            ),
            Self::NetworkElsewhere { network, region } => wrong(
                linux::PRIVATE_NETWORK_ELSEWHERE,
                format!(
                    "there is no Private Network {network} in {region}, where this server is; name one of that region, or use spec.privateNetworkName to have one made there"
                ),
                MINUTE,
            ),
            Self::NetworkAmbiguous { network, ids } => wrong(
                linux::PRIVATE_NETWORK_AMBIGUOUS,
                format!(
                    "{} Private Networks are named {network} ({}); rename all but one, or name one by spec.privateNetworkID",
                    ids.len(),
                    ids.join(", ")
                ),
                MINUTE,
            ),
            Self::NetworkBeingMade { network } => going_on(
                linux::PRIVATE_NETWORK_PENDING,
                &format!("another machine makes the Private Network {network}; this one waits for it"),
                Retry::After(Duration::from_secs(5)),
            ),
            Self::NetworkPending => going_on(
                linux::PRIVATE_NETWORK_PENDING,
                "the server is being put on its Private Network; nothing to do, this ends by itself",
                SOON,
            ),
            Self::NetworkFailed => wrong(
                linux::PRIVATE_NETWORK_PENDING,
                "Scaleway could not put the server on its Private Network; detach it in the console and it is tried again, or open a ticket".to_owned(),
                MINUTE,
            ),
            Self::Ordered => report(
                Phase::Ordered,
                concern,
                linux::ORDERED,
                Severity::Info,
                "the server is ordered and not delivered yet; this takes up to an hour",
                MINUTE,
            ),
            Self::Installing => report(
                Phase::Installing,
                concern,
                linux::INSTALLING,
                Severity::Info,
                "the operating system is being installed; this takes 30 to 60 minutes",
                MINUTE,
            ),
            Self::Starting => going_on(
                linux::POWERING_ON,
                "the server is starting; nothing to do, this ends by itself",
                SOON,
            ),
            Self::Busy { word } => going_on(
                more::HOST_BUSY,
                &format!("the server is {word}; nothing to do, this ends by itself"),
                SOON,
            ),
            Self::NoAddress => report(
                phase,
                concern,
                linux::NO_PUBLIC_ADDRESS,
                Severity::Warning,
                "the server runs and has no public IPv4 address yet, without which it can install nothing; if this stays, look at its addresses in the console",
                SOON,
            ),
            Self::ServerFailed { word } if word == OUT_OF_STOCK => report(
                Phase::Failed,
                concern,
                linux::OUT_OF_STOCK,
                Severity::Error,
                "Scaleway took the order and has none left to deliver; delete the Machine and a new one is ordered when there is one, or choose another type or zone in a new template",
                SELDOM,
            ),
            Self::ServerFailed { word } => report(
                Phase::Failed,
                concern,
                linux::INSTALL_FAILED,
                Severity::Error,
                format!("Scaleway says the server is in {word}; install it again in the console, or delete the Machine and a new one takes its place"),
                SELDOM,
            ),
            Self::Locked => wrong(
                linux::SERVER_LOCKED,
                "Scaleway has locked the server; open a ticket with Scaleway support".to_owned(),
                SELDOM,
            ),
            Self::ServerGone => wrong(
                more::HOST_GONE,
                "the server was deleted at Scaleway; delete the Machine and a new one takes its place".to_owned(),
                SELDOM,
            ),
            Self::ForeignProject => wrong(
                more::FOREIGN_PROJECT,
                "the server belongs to another project and is left alone; check SCW_DEFAULT_PROJECT_ID".to_owned(),
                SELDOM,
            ),
            Self::ServerTaken { why } => wrong(
                more::HOST_CLAIMED_BY_ANOTHER,
                format!("{why}; it is left alone: correct its tags, or delete the Machine"),
                SELDOM,
            ),
            Self::Stopped => wrong(
                linux::SERVER_STOPPED,
                "somebody switched the server off; switch it on in the console, or delete the Machine".to_owned(),
                MINUTE,
            ),
            Self::WaitingForNode { until } => report(
                Phase::Bootstrapping,
                types::BOOTSTRAPPED,
                linux::WAITING_FOR_NODE,
                Severity::Info,
                "the server is up and sets itself up; its Node comes when the kubelet has started",
                Retry::At(*until),
            ),
            Self::NodeTaken { provider_id } => report(
                None,
                types::BOOTSTRAPPED,
                linux::NODE_TAKEN,
                Severity::Error,
                format!("a Node of this name is there and belongs to something else ({provider_id}); delete it if it is left over"),
                MINUTE,
            ),
            Self::NodeMissing => report(
                Phase::Bootstrapping,
                types::NODE_READY,
                linux::NODE_MISSING,
                Severity::Warning,
                "the Node is gone although the server runs; restart the kubelet on it, or delete the Machine to have another take its place",
                SELDOM,
            ),
            Self::WaitingForPrivateAddress => report(
                Phase::Bootstrapping,
                types::BOOTSTRAPPED,
                linux::WAITING_FOR_PRIVATE_ADDRESS,
                Severity::Info,
                "the Node is there; its label tuist.dev/pn-ipv4 waits for IPAM to know the server's address on the Private Network",
                SOON,
            ),
            Self::Stopping => going_on(
                linux::STOPPING,
                "the server is being stopped, so that it can be deleted",
                SOON,
            ),
            Self::Leaving => going_on(linux::DELETING_SERVER, "the server is being deleted", SOON),
            Self::Stuck { at, since } => at.stuck(*since, deleting),
            Self::Wiping => going_on(
                more::WIPING,
                "the server is being wiped before it is free again; this takes 30 to 60 minutes",
                MINUTE,
            ),
        }
    }

    /// What to write when this should have ended long ago.
    fn stuck(&self, since: Timestamp, deleting: bool) -> Report {
        let calm = self.report(deleting);
        let (what, help) = match self {
            Self::Starting => (
                "the server is starting",
                "restart it in the console, or delete the Machine and a new one takes its place",
            ),
            Self::Ordered => (
                "the server is ordered and not delivered",
                "ask Scaleway support about the order, or delete the Machine to give it up",
            ),
            Self::Installing => (
                "its operating system is being installed",
                "install it again in the console, or delete the Machine and a new one takes its place",
            ),
            Self::NetworkPending => (
                "it is being put on its Private Network",
                "detach it in the console and it is tried again, or delete the Machine",
            ),
            Self::NoAddress => (
                "it runs without a public IPv4 address",
                "look at its addresses in the console, or delete the Machine",
            ),
            Self::Stopping => (
                "the server is being stopped",
                "switch it off in the console, or open a ticket with Scaleway support",
            ),
            Self::Leaving => (
                "the server is being deleted",
                "open a ticket with Scaleway support: it is paid for until it is gone",
            ),
            Self::Wiping => (
                "the server is being wiped",
                "install it again in the console: it is free when that has ended",
            ),
            _ => ("the server is busy", "look at it in the console"),
        };
        report(
            calm.phase,
            &calm.condition.type_,
            reasons::linux::TAKES_TOO_LONG,
            Severity::Warning,
            format!("{what} since {since}, which is longer than that should take; {help}"),
            calm.retry,
        )
    }
}

impl SpecProblem {
    fn report(&self, deleting: bool) -> Report {
        let phase = if deleting { Phase::Deleting } else { Phase::Failed };
        let concern = if deleting { types::DELETING } else { types::PROVISIONED };
        let (reason, why) = match self {
            Self::Zone { why } => (reasons::linux::INVALID_ZONE, why),
            Self::Field { why } => (reasons::INVALID_SPEC, why),
        };
        report(
            phase,
            concern,
            reason,
            Severity::Error,
            format!("{why}; correct the template under a new name"),
            // A zone that is unknown today may be opened, or misread; it is asked about again, seldom.
            SELDOM,
        )
    }
}

fn not_offered(catalog: &Catalog, wanted: &Wanted) -> Report {
    use reasons::linux;
    let some = |others: &[String]| {
        if others.is_empty() {
            "none".to_owned()
        } else {
            others.join(", ")
        }
    };
    let (reason, severity, message) = match catalog {
        Catalog::Available { .. } => (reasons::INTERNAL_ERROR, Severity::Info, String::new()),
        Catalog::NoSuchType { others } => (
            linux::UNKNOWN_OFFER,
            Severity::Error,
            format!(
                "{} is not offered in this zone; there are {}. Correct the template under a new name",
                wanted.type_,
                some(others)
            ),
        ),
        Catalog::NoSuchImage { others } => (
            linux::IMAGE_UNAVAILABLE,
            Severity::Error,
            format!(
                "there is no {} for {} in this zone; there are {}. Images are retired without notice: name another in a new template",
                wanted.image,
                wanted.type_,
                some(others)
            ),
        ),
        Catalog::OutOfStock { .. } => (
            linux::OUT_OF_STOCK,
            Severity::Warning,
            format!(
                "{} is out of stock in this zone; it is ordered when there is one, or choose another type or zone",
                wanted.type_
            ),
        ),
    };
    report(Phase::Pending, types::PROVISIONED, reason, severity, message, MINUTE)
}

fn unreadable(error: &russet_scaleway::Error, phase: Phase, concern: &str) -> Report {
    let severity = if error.is_transient() {
        Severity::Warning
    } else {
        Severity::Error
    };
    report(
        phase,
        concern,
        error.reason(),
        severity,
        error.to_string(),
        Retry::After(retry_after(error)),
    )
}

/// When the same may go well.
pub fn retry_after(error: &russet_scaleway::Error) -> Duration {
    use russet_scaleway::Kind;
    match &error.kind {
        Kind::RateLimited { after, .. } => *after,
        Kind::PermissionDenied { .. }
        | Kind::Unauthenticated { .. }
        | Kind::QuotaExceeded { .. }
        | Kind::Locked { .. }
        | Kind::InvalidArguments { .. }
        | Kind::Unexpected { .. } => Duration::from_mins(5),
        Kind::OutOfStock { .. } => Duration::from_mins(1),
        Kind::TransientState { .. } | Kind::PreconditionFailed { .. } | Kind::Conflict { .. } => {
            Duration::from_secs(10)
        }
        _ => Duration::from_secs(15),
    }
}
