//! What a Linux machine is waiting for, in words for people and programs: one table, as [`crate::situation`] is for Macs.

use std::fmt;
use std::time::Duration;

use jiff::Timestamp;
use russet_api::conditions::{Condition, ConditionStatus, Severity, reasons, types};
use russet_api::machine::Phase;
use russet_api::values::{PoolPrefix, Region};

use super::journal::Refusal;
use super::wanted::{Catalog, Wanted};
use crate::claims::Holder;
use crate::situation::{Report, Retry, more_reasons};

/// A spec that cannot be worked with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SpecProblem {
    /// The zone is none.
    Zone {
        /// The error, which names it.
        why: String,
    },
    /// A field that does not parse.
    Field {
        /// The error, which names it.
        why: String,
    },
}

/// Why there is no server to take: how many there are of the prefix, and what is wrong with them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shortage {
    /// Servers of the prefix.
    pub found: usize,
    /// Taken by other machines.
    pub taken: usize,
    /// Of another offer.
    pub other_type: usize,
    /// With another operating system.
    pub other_os: usize,
    /// Not ready, or not installed.
    pub busy: usize,
}

impl fmt::Display for Shortage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.found == 0 {
            return f.write_str("there is no server of that name");
        }
        let parts = [
            (self.taken, "taken by other machines"),
            (self.other_type, "of another offer"),
            (self.other_os, "with another operating system"),
            (self.busy, "not ready"),
        ];
        let parts: Vec<String> = parts
            .iter()
            .filter(|(count, _)| *count > 0)
            .map(|(count, what)| format!("{count} {what}"))
            .collect();
        write!(f, "of {} servers {}", self.found, parts.join(", "))
    }
}

/// Why nothing is done now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Situation {
    /// The machine, or its Cluster, is paused.
    Paused,
    /// It is being deleted and carries no finalizer of ours.
    Gone,
    /// No Machine owns it yet.
    WaitingForOwner,
    /// The Cluster is not provisioned.
    WaitingForCluster,
    /// There is no bootstrap data.
    WaitingForBootstrapData,
    /// The spec cannot be worked with.
    Spec(SpecProblem),
    /// A call may be on its way whose answer was lost.
    CallInFlight {
        /// Until when.
        until: Timestamp,
    },
    /// Scaleway said no; it is asked again later.
    Refused(Refusal),
    /// Scaleway could not be asked.
    Scaleway(Box<russet_scaleway::Error>),
    /// Scaleway does not offer what is wanted.
    NotOffered {
        /// Why not.
        catalog: Box<Catalog>,
        /// What is wanted.
        wanted: Box<Wanted>,
    },
    /// No server can be taken.
    NoAdoptableServer {
        /// What there is instead.
        shortage: Shortage,
        /// What is wanted.
        wanted: Box<Wanted>,
        /// Among these.
        prefix: PoolPrefix,
    },
    /// Another machine has the claim for the server.
    ClaimedByAnother {
        /// Which.
        holder: Holder,
    },
    /// The Private Network is in another region, or nowhere.
    NetworkElsewhere {
        /// Its id.
        network: String,
        /// Where it should be.
        region: Region,
    },
    /// Several networks have the name.
    NetworkAmbiguous {
        /// The name.
        network: String,
        /// Their ids.
        ids: Vec<String>,
    },
    /// Another machine makes the network.
    NetworkBeingMade {
        /// Its name.
        network: String,
    },
    /// The server is not on its network yet.
    NetworkPending,
    /// Scaleway could not put it there.
    NetworkFailed,
    /// The server is not delivered yet.
    Ordered,
    /// Its operating system is being installed.
    Installing,
    /// It is on its way up.
    Starting,
    /// It does something that ends by itself.
    Busy {
        /// What.
        word: String,
    },
    /// It has no public address yet.
    NoAddress,
    /// It does not get well by itself.
    ServerFailed {
        /// What Scaleway says.
        word: String,
    },
    /// Scaleway locked it.
    Locked,
    /// It does not exist any more.
    ServerGone,
    /// It belongs to another project.
    ForeignProject,
    /// It belongs to another machine.
    ServerTaken {
        /// How that shows.
        why: String,
    },
    /// Somebody switched it off.
    Stopped,
    /// Its Node is not there yet, and it is early.
    WaitingForNode {
        /// When it is looked into.
        until: Timestamp,
    },
    /// A Node of its name belongs to another server.
    NodeTaken {
        /// What the Node says.
        provider_id: String,
    },
    /// Its Node is gone.
    NodeMissing,
    /// IPAM does not know its private address yet.
    WaitingForPrivateAddress,
    /// All is well, but maybe for the Node's own health.
    Serving {
        /// The Node is ready.
        ready: bool,
    },
    /// It is being stopped to be deleted.
    Stopping,
    /// It is being deleted.
    Leaving,
    /// It is being wiped to be freed.
    Wiping,
}

const SOON: Retry = Retry::After(Duration::from_secs(15));
const MINUTE: Retry = Retry::After(Duration::from_mins(1));
const SELDOM: Retry = Retry::After(Duration::from_mins(5));

fn report(
    phase: impl Into<Option<Phase>>,
    type_: &str,
    reason: &str,
    severity: Severity,
    message: impl Into<String>,
    retry: Retry,
) -> Report {
    Report {
        phase: phase.into(),
        condition: Condition::new(type_, ConditionStatus::False, reason)
            .message(message)
            .severity(severity),
        retry,
    }
}

impl Situation {
    /// Whether the machine is beyond what retrying can heal: `status.failureReason` names it until the cause goes.
    pub fn failure(&self) -> Option<&'static str> {
        match self {
            Self::Spec(SpecProblem::Zone { .. }) => Some(reasons::linux::INVALID_ZONE),
            Self::ServerFailed { .. } => Some(reasons::linux::INSTALL_FAILED),
            _ => None,
        }
    }

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
        let waiting = |reason: &str, message: &str| {
            report(
                Phase::Pending,
                types::PROVISIONED,
                reason,
                Severity::Info,
                message,
                Retry::OnEvent,
            )
        };
        let going_on =
            |reason: &str, message: &str, retry| report(phase.clone(), concern, reason, Severity::Info, message, retry);
        let wrong =
            |reason: &str, message: String, retry| report(None, concern, reason, Severity::Error, message, retry);
        match self {
            Self::Paused => Report {
                phase: None,
                condition: Condition::new(types::PAUSED, true, reasons::PAUSED).message(
                    "the machine or its Cluster is paused; remove the annotation cluster.x-k8s.io/paused or set spec.paused of the Cluster to false to go on",
                ),
                retry: Retry::OnEvent,
            },
            Self::Gone => Report {
                phase: None,
                condition: Condition::new(types::PROVISIONED, true, reasons::READY),
                retry: SELDOM,
            },
            Self::Serving { ready } => Report {
                phase: Some(if *ready { Phase::Ready } else { Phase::Bootstrapping }),
                condition: Condition::new(types::PROVISIONED, true, reasons::READY),
                retry: Retry::After(Duration::from_mins(10)),
            },
            Self::WaitingForOwner => waiting(
                reasons::WAITING_FOR_OWNER,
                "no Machine owns this object yet; create Machines or MachineDeployments instead of this kind",
            ),
            Self::WaitingForCluster => waiting(
                reasons::WAITING_FOR_CLUSTER,
                "the Cluster's infrastructure is not provisioned; see the conditions of its ScalewayAppleSiliconCluster",
            ),
            Self::WaitingForBootstrapData => waiting(
                reasons::WAITING_FOR_BOOTSTRAP_DATA,
                "the Machine has no bootstrap data; set spec.bootstrap.dataSecretName",
            ),
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
                if refusal.reason == super::plan::NOT_SENT {
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
            Self::Wiping => going_on(
                more::WIPING,
                "the server is being wiped before it is free again; this takes 30 to 60 minutes",
                MINUTE,
            ),
        }
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
        Catalog::OutOfStock => (
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::linux::server::Product;
    use crate::linux::wanted::Source;

    fn wanted() -> Box<Wanted> {
        Box::new(Wanted {
            product: Product::Metal,
            type_: "EM-B220E-NVME".into(),
            image: "ubuntu_noble".into(),
            root_volume_gb: 50,
            source: Source::Order,
            network: None,
        })
    }

    /// A sentence nobody can act on is as good as none.
    #[test]
    fn whatever_is_wrong_has_a_reason_and_a_sentence_that_names_what_is_meant() {
        let text = |situation: Situation| {
            let report = situation.report(false);
            let condition = report.condition;
            assert_ne!(condition.reason.as_deref(), Some(""));
            condition.message.unwrap_or_default()
        };
        let offered = |catalog| Situation::NotOffered {
            catalog: Box::new(catalog),
            wanted: wanted(),
        };
        assert!(text(offered(Catalog::OutOfStock)).contains("EM-B220E-NVME is out of stock"));
        let others = vec!["EM-A610R".to_owned()];
        assert!(text(offered(Catalog::NoSuchType { others })).contains("EM-A610R"));
        let shortage = Shortage {
            found: 2,
            other_os: 1,
            taken: 1,
            ..Shortage::default()
        };
        let none = Situation::NoAdoptableServer {
            shortage,
            wanted: wanted(),
            prefix: "tuist-kura-em-".parse().unwrap(),
        };
        let said = text(none);
        assert!(
            said.contains("1 taken by other machines, 1 with another operating system"),
            "{said}"
        );
        let elsewhere = Situation::NetworkElsewhere {
            network: "pn-1".into(),
            region: russet_api::values::Zone::default().region(),
        };
        assert!(text(elsewhere).contains("fr-par"));
    }

    #[test]
    fn a_deletion_is_told_as_one() {
        for situation in [Situation::Stopping, Situation::Wiping, Situation::Leaving] {
            let report = situation.report(true);
            assert_eq!(report.condition.type_, types::DELETING);
            assert_eq!(report.phase, Some(Phase::Deleting));
        }
    }
}
