//! What a machine sees of itself.

use std::collections::BTreeSet;
use std::future::Future;
use std::net::IpAddr;

/// A machine that is a Node.
pub trait Machine: Send + Sync {
    /// How it is now. Asked every few seconds; one that takes long is asked again later.
    fn look(&self) -> impl Future<Output = Sight> + Send;

    /// The machine is the node, as whom these clients speak: one whose answers come soon, and one for watches. Called again with
    /// each new certificate.
    fn joined(&self, _client: &kube::Client, _watching: &kube::Client) {}

    /// Ends when the machine sees that its Node was deleted, once for each time. One that watches its Node is a Node again at once;
    /// one that does not hears of it when its Lease is collected, which nobody does while the controller manager is away.
    fn deleted(&self) -> impl Future<Output = ()> + Send {
        std::future::pending()
    }
}

/// What a machine sees of itself at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sight {
    /// Where it is reached; none if it does not know.
    pub address: Option<IpAddr>,
    /// On which port its kubelet answers; none if it does not.
    pub port: Option<u16>,
    /// Size of its disk.
    pub storage_bytes: u64,
    /// What it is.
    pub system: System,
    /// How it is. All four that every Node has must be there: without one its Machine is never Ready.
    pub conditions: Vec<Condition>,
    /// What is there; none if that is not known yet, and then what was said before still stands.
    pub resident: Option<Resident>,
}

/// What is on a machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resident {
    /// Images, so that schedulers send Pods to where their image is.
    pub images: Vec<ResidentImage>,
    /// Labels that come and go with what is there, each with the value `true`.
    pub labels: BTreeSet<String>,
}

/// An image that is on a machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResidentImage {
    /// All names by which Pods may ask for it.
    pub names: Vec<String>,
    /// What it takes on the disk.
    pub bytes: u64,
}

/// What a machine is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct System {
    /// Stays the same as long as the installation.
    pub machine_id: String,
    /// Stays the same as long as the hardware.
    pub system_uuid: String,
    /// Changes with each start.
    pub boot_id: String,
    /// Version of Darwin.
    pub kernel_version: String,
    /// Such as `macOS 26.3`.
    pub os_image: String,
    /// Such as `tart://2.32.1`.
    pub runtime: String,
}

/// One thing that is so or not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    /// Such as `DiskPressure`.
    pub kind: &'static str,
    /// Whether it is so.
    pub holds: bool,
    /// One word why.
    pub reason: &'static str,
    /// A sentence.
    pub message: String,
    /// Nobody looked yet, so it is told only where nothing was said before.
    pub assumed: bool,
}

impl Condition {
    /// The Node takes Pods, or does not.
    pub fn ready(holds: bool, message: impl Into<String>) -> Self {
        let reason = if holds { "KubeletReady" } else { "KubeletNotReady" };
        Self::new("Ready", holds, reason, message)
    }

    /// Memory is short, or is not.
    pub fn memory_pressure(holds: bool, message: impl Into<String>) -> Self {
        let reason = if holds {
            "KubeletHasInsufficientMemory"
        } else {
            "KubeletHasSufficientMemory"
        };
        Self::new("MemoryPressure", holds, reason, message)
    }

    /// The disk is nearly full, or is not.
    pub fn disk_pressure(holds: bool, message: impl Into<String>) -> Self {
        let reason = if holds {
            "KubeletHasDiskPressure"
        } else {
            "KubeletHasNoDiskPressure"
        };
        Self::new("DiskPressure", holds, reason, message)
    }

    /// There are nearly too many processes, or there are not.
    pub fn pid_pressure(holds: bool, message: impl Into<String>) -> Self {
        let reason = if holds {
            "KubeletHasInsufficientPID"
        } else {
            "KubeletHasSufficientPID"
        };
        Self::new("PIDPressure", holds, reason, message)
    }

    /// Others cannot reach it, or can.
    pub fn network_unavailable(holds: bool, message: impl Into<String>) -> Self {
        let reason = if holds {
            "NodeNetworkUnavailable"
        } else {
            "NodeNetworkAvailable"
        };
        Self::new("NetworkUnavailable", holds, reason, message)
    }

    /// One that only machines of this kind have.
    pub fn own(kind: &'static str, holds: bool, reason: &'static str, message: impl Into<String>) -> Self {
        Self::new(kind, holds, reason, message)
    }

    /// The same as long as nobody looked: a Node that says something else already goes on saying that.
    #[must_use]
    pub fn assumed(self) -> Self {
        Self { assumed: true, ..self }
    }

    fn new(kind: &'static str, holds: bool, reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            kind,
            holds,
            reason,
            message: message.into(),
            assumed: false,
        }
    }

    pub(crate) fn status(&self) -> &'static str {
        if self.holds { "True" } else { "False" }
    }
}
