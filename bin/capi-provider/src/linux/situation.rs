//! What a Linux machine is waiting for, in words for people and programs: one table, as [`crate::situation`] is for Macs.

mod words;

use std::fmt;

use jiff::Timestamp;
use russet_api::conditions::reasons;
use russet_api::values::{PoolPrefix, Region};

use super::journal::Refusal;
use super::wanted::{Catalog, Wanted};
use crate::claims::Holder;
use crate::waiting::Waiting;

pub use words::retry_after;

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
    /// It is not up to us.
    Waiting(Waiting),
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
    /// Something that ends by itself does not.
    Stuck {
        /// What.
        at: Box<Situation>,
        /// Since when nothing has moved.
        since: Timestamp,
    },
}

/// Who is at work, and how fast.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// Scaleway, for seconds.
    Quick,
    /// Scaleway, for up to an hour.
    Slow,
    /// We are, or people, or the server itself.
    Ours,
}

/// Scaleway's word for an order that it could not deliver.
const OUT_OF_STOCK: &str = "out_of_stock";

impl Situation {
    /// Whether the machine is beyond what retrying can heal: `status.failureReason` names it until the cause goes.
    pub fn failure(&self) -> Option<&'static str> {
        match self {
            Self::Spec(SpecProblem::Zone { .. }) => Some(reasons::linux::INVALID_ZONE),
            Self::ServerFailed { word } if word == OUT_OF_STOCK => Some(reasons::linux::OUT_OF_STOCK),
            Self::ServerFailed { .. } => Some(reasons::linux::INSTALL_FAILED),
            _ => None,
        }
    }

    /// Who is at work, and how fast.
    pub fn pace(&self) -> Pace {
        match self {
            Self::Starting
            | Self::NetworkPending
            | Self::NoAddress
            | Self::Busy { .. }
            | Self::Stopping
            | Self::Leaving => Pace::Quick,
            Self::Ordered | Self::Installing | Self::Wiping => Pace::Slow,
            _ => Pace::Ours,
        }
    }
}

#[cfg(test)]
mod tests {
    use russet_api::conditions::types;
    use russet_api::machine::Phase;

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
        assert!(text(offered(Catalog::OutOfStock { cloud_init: true })).contains("EM-B220E-NVME is out of stock"));
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

    /// Whoever waits for what ends by itself must not wait for ever, and must know what to do then.
    #[test]
    fn whatever_ends_by_itself_can_be_stuck_and_says_what_to_do() {
        let waits = [
            Situation::Starting,
            Situation::NetworkPending,
            Situation::NoAddress,
            Situation::Busy {
                word: "rebooting".into(),
            },
            Situation::Stopping,
            Situation::Leaving,
            Situation::Ordered,
            Situation::Installing,
            Situation::Wiping,
        ];
        for situation in waits {
            assert_ne!(situation.pace(), Pace::Ours);
            let calm = situation.report(false);
            let stuck = Situation::Stuck {
                at: Box::new(situation),
                since: Timestamp::UNIX_EPOCH,
            };
            assert_eq!(stuck.pace(), Pace::Ours, "it is said once");
            let report = stuck.report(false);
            assert_eq!(
                (&report.phase, report.retry),
                (&calm.phase, calm.retry),
                "it goes on all the same"
            );
            let (text, severity) = (report.condition.message.unwrap(), report.condition.severity);
            assert_eq!(severity.as_deref(), Some("Warning"));
            assert!(
                text.contains("since 1970-01-01T00:00:00Z") && text.contains("; "),
                "{text}"
            );
            assert!(!text.contains("nothing to do"), "{text}");
        }
    }
}
