//! `ScalewayAppleSiliconMachine`: one Mac mini, and the template that makes them.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::conditions::Condition;
use crate::machine::{Intent, MachineAddress, MachineInitialization, Phase, Step, TemplateMeta, TemplateStatus};
use crate::schema;
use crate::values::{FleetName, Invalid, PoolPrefix, ProviderId, ProviderKind, Zone, non_empty};

/// A Mac mini that joins the cluster as a Node.
///
/// The controller never orders Macs: it takes a ready one from a pool of hosts whose names begin with a prefix, sets it up
/// over SSH, and gives it back, reinstalled, when the machine is deleted. Normally written by Cluster API from a template;
/// scale the MachineDeployment instead of creating machines by hand.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "infrastructure.cluster.x-k8s.io",
    version = "v1alpha1",
    kind = "ScalewayAppleSiliconMachine",
    plural = "scalewayapplesiliconmachines",
    shortname = "samm",
    category = "cluster-api",
    namespaced,
    status = "ScalewayAppleSiliconMachineStatus",
    derive = "PartialEq",
    doc = "A Mac mini that joins the cluster as a Node. Normally made by Cluster API from a ScalewayAppleSiliconMachineTemplate: scale the MachineDeployment instead of creating machines by hand.",
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "ProviderID", type_ = "string", json_path = ".spec.providerID"),
    printcolumn(name = "Ready", type_ = "boolean", json_path = ".status.ready"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(name = "Fleet", type_ = "string", json_path = ".spec.fleetName", priority = 1),
    printcolumn(name = "Zone", type_ = "string", json_path = ".spec.zone", priority = 1),
    printcolumn(
        name = "Failure",
        type_ = "string",
        json_path = ".status.failureReason",
        priority = 1
    )
)]
#[serde(rename_all = "camelCase")]
pub struct ScalewayAppleSiliconMachineSpec {
    /// Identity of the host, `scw-applesilicon://<zone>/<server id>`. Set by the controller once a host is claimed;
    /// Cluster API finds the Node by it. It cannot be rewritten.
    #[serde(rename = "providerID", default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = schema::PROVIDER_ID_MAX), extend("x-kubernetes-validations" = schema::provider_id(ProviderKind::AppleSilicon.scheme())))]
    pub provider_id: Option<String>,
    /// Scaleway's name of the hardware, such as `M2-L` or `M4-S`. Default `M2-L`.
    #[serde(rename = "type", default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = Self::DEFAULT_TYPE))]
    pub type_: Option<String>,
    /// Scaleway zone the host is in. Default `fr-par-1`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63), extend("default" = Zone::DEFAULT, "x-kubernetes-validations" = schema::zone()))]
    pub zone: Option<String>,
    /// macOS family the host runs: `Tahoe`, `Sequoia`, `Sonoma`. Default `Tahoe`. Name the family, not an image:
    /// Scaleway retires images without notice, so a value with a digit is not used to claim a host (condition
    /// Provisioned, reason InvalidOSPin), although such a machine can still be deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = Self::DEFAULT_OS))]
    pub os: Option<String>,
    /// Fleet of the host: machines of a fleet share one SSH key (Secret `<fleet>-ssh`) and the Node label
    /// `tuist.dev/fleet`, by which Pods select them. Default: a fleet of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fleet_name: Option<String>,
    /// Beginning of the names of pool hosts this machine may claim, such as `tuist-pool-`. Default: the provider's
    /// `--default-adopt-pool-prefix`. Without either no host is claimed (reason NoAdoptPoolPrefix).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub adopt_pool_prefix: Option<String>,
    /// CPU cores the Node offers. Default, also for 0: the provider's `--tartkubelet-host-cpu`.
    #[serde(rename = "hostCPU", default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub host_cpu: Option<i64>,
    /// Memory the Node offers, in MB. Leave some 2 GB of the hardware to macOS. Default, also for 0: the provider's
    /// `--tartkubelet-host-memory-mb`.
    #[serde(rename = "hostMemoryMB", default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub host_memory_mb: Option<i64>,
    /// Makes the host a GitHub Actions runner as well, for jobs that need bare metal, such as building VM images.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gh_actions_runner: Option<GhActionsRunner>,
    /// Not used: every host runs the tart-kubelet that belongs to the provider. Kept for older objects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kubelet_version: Option<String>,
}

impl ScalewayAppleSiliconMachineSpec {
    /// Hardware when `spec.type` is absent.
    pub const DEFAULT_TYPE: &'static str = "M2-L";
    /// macOS family when `spec.os` is absent.
    pub const DEFAULT_OS: &'static str = "Tahoe";

    /// `spec.type`, or the default.
    pub fn type_or_default(&self) -> &str {
        non_empty(self.type_.as_deref()).unwrap_or(Self::DEFAULT_TYPE)
    }

    /// `spec.os`, or the default.
    pub fn os_or_default(&self) -> &str {
        non_empty(self.os.as_deref()).unwrap_or(Self::DEFAULT_OS)
    }

    /// `spec.zone`, or the default.
    pub fn zone_or_default(&self) -> Result<Zone, Invalid> {
        Zone::or_default(self.zone.as_deref())
    }

    /// `spec.providerID`, parsed.
    pub fn provider_id(&self) -> Result<Option<ProviderId>, Invalid> {
        ProviderId::parse_optional(self.provider_id.as_deref())
    }

    /// `spec.fleetName`, parsed.
    pub fn fleet_name(&self) -> Result<Option<FleetName>, Invalid> {
        non_empty(self.fleet_name.as_deref())
            .map(FleetName::try_from)
            .transpose()
    }

    /// `spec.adoptPoolPrefix`, parsed.
    pub fn adopt_pool_prefix(&self) -> Result<Option<PoolPrefix>, Invalid> {
        non_empty(self.adopt_pool_prefix.as_deref())
            .map(PoolPrefix::try_from)
            .transpose()
    }
}

/// The GitHub Actions runner of a builder host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GhActionsRunner {
    /// GitHub organisation the runner belongs to. Default `tuist`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = Self::DEFAULT_ORG))]
    pub gh_org: Option<String>,
    /// Labels of the runner, separated by commas. Jobs find it by them.
    /// Default `self-hosted,macos,bare-metal,vm-image-builder`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = Self::DEFAULT_LABELS))]
    pub gh_runner_labels: Option<String>,
    /// Release of actions/runner to install first; it then updates itself. There is no default, because GitHub retires
    /// releases.
    #[schemars(length(min = 1))]
    pub gh_runner_version: String,
    /// Secret in the same namespace with the GitHub App: keys `app-id`, `installation-id`, `private-key`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gh_app_secret_name: Option<String>,
}

impl GhActionsRunner {
    /// Organisation when `ghOrg` is absent.
    pub const DEFAULT_ORG: &'static str = "tuist";
    /// Labels when `ghRunnerLabels` is absent.
    pub const DEFAULT_LABELS: &'static str = "self-hosted,macos,bare-metal,vm-image-builder";

    /// `ghOrg`, or the default.
    pub fn org_or_default(&self) -> &str {
        non_empty(self.gh_org.as_deref()).unwrap_or(Self::DEFAULT_ORG)
    }

    /// `ghRunnerLabels`, or the default, one by one.
    pub fn labels_or_default(&self) -> impl Iterator<Item = &str> {
        let labels = non_empty(self.gh_runner_labels.as_deref()).unwrap_or(Self::DEFAULT_LABELS);
        labels.split(',').map(str::trim).filter(|l| !l.is_empty())
    }
}

/// What is known about a Mac mini.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ScalewayAppleSiliconMachineStatus {
    /// First-time set-up, as Cluster API reads it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub initialization: Option<MachineInitialization>,
    /// The host is set up. The same news as `initialization.provisioned` for Cluster API before 1.11.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready: Option<bool>,
    /// Pending, Adopting, Bootstrapping, Ready, Deleting or Failed. For people; programs read conditions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<Phase>,
    /// Scaleway's id of the host.
    #[serde(rename = "serverID", default, skip_serializing_if = "Option::is_none")]
    pub server_id: Option<String>,
    /// Addresses of the host.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<MachineAddress>,
    /// Failure domain the host is in: its zone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256))]
    pub failure_domain: Option<String>,
    /// The host may be taken away at any time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interruptible: Option<bool>,
    /// What was observed: Ready, Provisioned, Bootstrapped, UpToDate, NodeReady, Paused, Deleting.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
    /// Why the machine gave up, in one word.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure_reason: Option<String>,
    /// Why the machine gave up, in a sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure_message: Option<String>,
    /// SHA-256 of the tart-kubelet on the host.
    #[serde(rename = "tartKubeletBinarySHA", default, skip_serializing_if = "Option::is_none")]
    pub tart_kubelet_binary_sha: Option<String>,
    /// Hash of everything the host was last set up with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_config_hash: Option<String>,
    /// Hash that could not be rolled out; it is not tried again until it changes or some time has passed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed_host_config_hash: Option<String>,
    /// Failed attempts to update the host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tart_kubelet_update_attempts: Option<i32>,
    /// When an update last failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_update_failure_time: Option<Time>,
    /// Failed attempts to set up this host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bootstrap_attempts: Option<i32>,
    /// This host was already rebooted once because setting it up kept failing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bootstrap_reboot_issued: Option<bool>,
    /// Hosts this machine gave back because they could not be set up, the last one last. It takes them again only when no other is
    /// free.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub given_back: Vec<String>,
    /// Steps of setting up the host, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub steps: Vec<Step>,
    /// What the controller is about to do to the host, while it does it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub intent: Option<Intent>,
    /// The `metadata.generation` this status is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
}

/// The pattern of the Macs of a MachineDeployment.
///
/// Editing a template changes no running machine. Make a new one under a new name and point the MachineDeployment at it.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "infrastructure.cluster.x-k8s.io",
    version = "v1alpha1",
    kind = "ScalewayAppleSiliconMachineTemplate",
    plural = "scalewayapplesiliconmachinetemplates",
    shortname = "sammt",
    category = "cluster-api",
    namespaced,
    status = "TemplateStatus",
    derive = "PartialEq",
    doc = "The pattern of the Macs of a MachineDeployment. Editing a template changes no running machine: make a new one under a new name and point the MachineDeployment at it.",
    printcolumn(name = "Type", type_ = "string", json_path = ".spec.template.spec.type"),
    printcolumn(name = "Zone", type_ = "string", json_path = ".spec.template.spec.zone"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct ScalewayAppleSiliconMachineTemplateSpec {
    /// What each machine is made from.
    #[serde(default)]
    pub template: ScalewayAppleSiliconMachineTemplateResource,
}

/// What each machine is made from.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ScalewayAppleSiliconMachineTemplateResource {
    /// Labels and annotations of each machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<TemplateMeta>,
    /// Spec of each machine.
    #[serde(default)]
    pub spec: ScalewayAppleSiliconMachineSpec,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_spec_has_the_documented_defaults() {
        let spec = ScalewayAppleSiliconMachineSpec::default();
        assert_eq!(spec.type_or_default(), "M2-L");
        assert_eq!(spec.os_or_default(), "Tahoe");
        assert_eq!(spec.zone_or_default().unwrap().as_str(), "fr-par-1");
        assert_eq!(spec.provider_id().unwrap(), None);
        assert_eq!(spec.adopt_pool_prefix().unwrap(), None);
        assert_eq!(spec.fleet_name().unwrap(), None);
    }

    #[test]
    fn an_empty_text_means_not_set() {
        let spec = ScalewayAppleSiliconMachineSpec {
            zone: Some(String::new()),
            fleet_name: Some(String::new()),
            provider_id: Some(String::new()),
            ..Default::default()
        };
        assert_eq!(spec.zone_or_default().unwrap().as_str(), "fr-par-1");
        assert_eq!(spec.fleet_name().unwrap(), None);
        assert_eq!(spec.provider_id().unwrap(), None);
    }

    #[test]
    fn runner_labels_are_split_at_commas() {
        let runner = GhActionsRunner {
            gh_runner_labels: Some("a, b,,c ".into()),
            ..Default::default()
        };
        assert_eq!(runner.labels_or_default().collect::<Vec<_>>(), ["a", "b", "c"]);
        assert_eq!(GhActionsRunner::default().labels_or_default().count(), 4);
        assert_eq!(GhActionsRunner::default().org_or_default(), "tuist");
    }
}
