//! What a machine of any kind waits for before something is done for it at all: people, Kubernetes and core.

use russet_api::conditions::{Condition, Severity, reasons, types};
use russet_api::machine::Phase;

use crate::decide::Standing;
use crate::situation::{Report, Retry, SELDOM, report};

/// What is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waiting {
    /// The machine, or its Cluster, is paused.
    Paused,
    /// It is being deleted and carries no finalizer of ours.
    Gone,
    /// No Machine owns it yet.
    ForOwner,
    /// The Cluster is not provisioned.
    ForCluster,
    /// There is no bootstrap data.
    ForBootstrapData,
}

/// What is to be done for a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// It moved to another management cluster, and what is left of it here goes.
    Finish,
    /// It is given up.
    Delete,
    /// It gets its finalizer.
    Protect,
    /// It gets what it wants, and keeps it.
    Serve,
}

impl Standing {
    /// Whether nothing may be done, not even about what is under way.
    pub(crate) fn is_held(self) -> Option<Waiting> {
        if self.paused {
            return Some(Waiting::Paused);
        }
        (self.deleting && !self.finalizer).then_some(Waiting::Gone)
    }

    /// What is to be done; else what comes first.
    pub(crate) fn turn(self) -> Result<Turn, Waiting> {
        if self.deleting {
            return Ok(if self.moved_away { Turn::Finish } else { Turn::Delete });
        }
        if !self.owned {
            return Err(Waiting::ForOwner);
        }
        if !self.finalizer {
            return Ok(Turn::Protect);
        }
        if !self.cluster_ready {
            return Err(Waiting::ForCluster);
        }
        if !self.bootstrap_data {
            return Err(Waiting::ForBootstrapData);
        }
        Ok(Turn::Serve)
    }
}

impl Waiting {
    /// What to write about it.
    pub fn report(self) -> Report {
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
            Self::ForOwner => waiting(
                reasons::WAITING_FOR_OWNER,
                "no Machine owns this object yet; create Machines or MachineDeployments instead of this kind",
            ),
            Self::ForCluster => waiting(
                reasons::WAITING_FOR_CLUSTER,
                "the Cluster's infrastructure is not provisioned; see the conditions of its ScalewayAppleSiliconCluster",
            ),
            Self::ForBootstrapData => waiting(
                reasons::WAITING_FOR_BOOTSTRAP_DATA,
                "the Machine has no bootstrap data; set spec.bootstrap.dataSecretName",
            ),
        }
    }
}
