//! The steps, as data.

use super::{Data, Join, PrivateNet};

/// One step: a name for reports, and the body of a bash function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    pub name: &'static str,
    pub body: &'static str,
}

macro_rules! step {
    ($name:literal) => {
        Step {
            name: $name,
            body: include_str!(concat!("steps/", $name, ".sh")),
        }
    };
}

/// The steps of a join, in order. The order matters:
/// quotas are switched on before anything is bound onto `/data`, folders are bound before anything writes into them, and
/// the kubelet's files are there before its package is, which starts it.
pub fn steps(join: &Join) -> Vec<Step> {
    let mut steps = vec![step!("packages"), step!("swap"), step!("kernel")];
    match join.data {
        Data::None => {}
        Data::Nvme { .. } => steps.push(step!("data")),
    }
    match join.private_network {
        PrivateNet::None => {}
        PrivateNet::Nic { .. } | PrivateNet::Vlan { .. } => steps.push(step!("private-network")),
    }
    steps.extend([
        step!("containerd"),
        step!("kubelet-files"),
        step!("kubelet-package"),
        step!("watchdog"),
        step!("kubelet"),
        step!("joined"),
    ]);
    steps
}

impl Step {
    /// The name of its function.
    pub(super) fn function(&self) -> String {
        format!("step_{}", self.name.replace('-', "_"))
    }
}
