//! `RunnerPool`: a warm pool of CI runners of one shape.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::conditions::Condition;
use crate::values::{FleetName, Invalid};

/// Operating system of a runner.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum RunnerOs {
    #[default]
    Darwin,
    Linux,
}

/// A warm pool of CI runners of one shape.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "tuist.dev",
    version = "v1alpha1",
    kind = "RunnerPool",
    plural = "runnerpools",
    shortname = "rpool",
    namespaced,
    status = "RunnerPoolStatus",
    derive = "PartialEq",
    doc = "A warm pool of CI runners of one shape: Pods that wait for a job, run it, and are replaced.",
    scale(
        spec_replicas_path = ".spec.replicas",
        status_replicas_path = ".status.observedReplicas",
        label_selector_path = ".status.selector"
    ),
    printcolumn(name = "Replicas", type_ = "integer", json_path = ".spec.replicas"),
    printcolumn(name = "Observed", type_ = "integer", json_path = ".status.observedReplicas"),
    printcolumn(name = "DispatchLabel", type_ = "string", json_path = ".spec.dispatchLabel"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(name = "Fleet", type_ = "string", json_path = ".spec.fleetSelector", priority = 1),
    printcolumn(name = "Image", type_ = "string", json_path = ".spec.image", priority = 1)
)]
#[serde(rename_all = "camelCase")]
pub struct RunnerPoolSpec {
    /// Not used. Kept for older objects.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub labels: Vec<String>,
    /// Runners to keep. With autoscaling the controller writes this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0), extend("default" = 0))]
    pub replicas: Option<i64>,
    /// Image of the runner, best with a digest. A change replaces idle runners a few at a time.
    pub image: String,
    /// Fleet whose hosts run this pool: the value of their label `tuist.dev/fleet`.
    pub fleet_selector: String,
    /// The label jobs ask for in `runs-on`.
    pub dispatch_label: String,
    /// Further labels of the runner on GitHub. Default `self-hosted`, `macOS`, `ARM64`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub runner_labels: Vec<String>,
    /// darwin (default) or linux.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "darwin"))]
    pub os: Option<RunnerOs>,
    /// CPU of a runner in thousandths of a core. Default 8000.
    #[serde(rename = "podCPUMilli", default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = Self::DEFAULT_POD_CPU_MILLI))]
    pub pod_cpu_milli: Option<i64>,
    /// Memory of a runner in MB. Default 14336.
    #[serde(rename = "podMemoryMB", default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = Self::DEFAULT_POD_MEMORY_MB))]
    pub pod_memory_mb: Option<i64>,
    /// Replace a runner that waited this long without a job. Default: never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_timeout_seconds: Option<i64>,
    /// RuntimeClass of the runner Pods. Linux only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runtime_class: Option<String>,
    /// How many runners may start at once, and for how long. Linux only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provisioning: Option<Provisioning>,
    /// Follow the demand.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub autoscaling: Option<Autoscaling>,
    /// How fast a new image is rolled out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rollout: Option<Rollout>,
}

impl RunnerPoolSpec {
    /// CPU when `spec.podCPUMilli` is absent.
    pub const DEFAULT_POD_CPU_MILLI: i64 = 8000;
    /// Memory when `spec.podMemoryMB` is absent.
    pub const DEFAULT_POD_MEMORY_MB: i64 = 14336;
    /// Labels when `spec.runnerLabels` is empty.
    pub const DEFAULT_RUNNER_LABELS: [&'static str; 3] = ["self-hosted", "macOS", "ARM64"];

    /// `spec.replicas`, or 0.
    pub fn replicas_or_default(&self) -> i64 {
        self.replicas.unwrap_or(0)
    }

    /// `spec.os`, or darwin.
    pub fn os_or_default(&self) -> RunnerOs {
        self.os.unwrap_or_default()
    }

    /// `spec.podCPUMilli`, or the default.
    pub fn pod_cpu_milli_or_default(&self) -> i64 {
        self.pod_cpu_milli
            .filter(|m| *m > 0)
            .unwrap_or(Self::DEFAULT_POD_CPU_MILLI)
    }

    /// `spec.podMemoryMB`, or the default.
    pub fn pod_memory_mb_or_default(&self) -> i64 {
        self.pod_memory_mb
            .filter(|m| *m > 0)
            .unwrap_or(Self::DEFAULT_POD_MEMORY_MB)
    }

    /// `spec.runnerLabels`, or the default.
    pub fn runner_labels_or_default(&self) -> Vec<&str> {
        if self.runner_labels.is_empty() {
            Self::DEFAULT_RUNNER_LABELS.to_vec()
        } else {
            self.runner_labels.iter().map(String::as_str).collect()
        }
    }

    /// `spec.fleetSelector`, parsed.
    pub fn fleet(&self) -> Result<FleetName, Invalid> {
        FleetName::try_from(self.fleet_selector.as_str())
    }
}

/// How runners start.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Provisioning {
    /// Runners of one fleet that may start at the same time. Default 4.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_concurrent_per_fleet_selector: Option<i64>,
    /// Replace a runner that did not start within this time. Default 300.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_timeout_seconds: Option<i64>,
}

impl Provisioning {
    /// `maxConcurrentPerFleetSelector`, or 4.
    pub fn max_concurrent_or_default(&self) -> i64 {
        self.max_concurrent_per_fleet_selector.unwrap_or(4)
    }

    /// `startTimeoutSeconds`, or 300.
    pub fn start_timeout_seconds_or_default(&self) -> i64 {
        self.start_timeout_seconds.unwrap_or(300)
    }
}

/// How a pool follows the demand.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = json!([{
    "rule": "!has(self.maxReplicas) || self.maxReplicas <= 0 || !has(self.minWarmPoolFloor) || self.minWarmPoolFloor <= self.maxReplicas",
    "message": "minWarmPoolFloor must not be above maxReplicas: the pool could never keep that many runners warm"
}])))]
pub struct Autoscaling {
    /// Whether the controller writes `spec.replicas`. Default false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = false))]
    pub enabled: Option<bool>,
    /// Runners to keep warm beyond those at work. Default 1; 0 keeps none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0), extend("default" = Self::DEFAULT_MIN_WARM_POOL_FLOOR))]
    pub min_warm_pool_floor: Option<i64>,
    /// Most runners the pool may have. Default 0, which leaves the size as it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0), extend("default" = 0))]
    pub max_replicas: Option<i64>,
    /// Shrink only after the demand was low for this long. Default 300; 0 shrinks at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0), extend("default" = Self::DEFAULT_SCALE_DOWN_COOLDOWN_SECONDS))]
    pub scale_down_cooldown_seconds: Option<i64>,
}

impl Autoscaling {
    /// Floor when `minWarmPoolFloor` is absent.
    pub const DEFAULT_MIN_WARM_POOL_FLOOR: i64 = 1;
    /// Cooldown when `scaleDownCooldownSeconds` is absent.
    pub const DEFAULT_SCALE_DOWN_COOLDOWN_SECONDS: i64 = 300;

    /// Whether the controller may change the size of the pool.
    pub fn is_active(&self) -> bool {
        self.enabled.unwrap_or(false) && self.max_replicas_or_default() > 0
    }

    /// `minWarmPoolFloor`, or the default. An explicit 0 stays 0.
    pub fn min_warm_pool_floor_or_default(&self) -> i64 {
        self.min_warm_pool_floor.unwrap_or(Self::DEFAULT_MIN_WARM_POOL_FLOOR)
    }

    /// `maxReplicas`, or 0.
    pub fn max_replicas_or_default(&self) -> i64 {
        self.max_replicas.unwrap_or(0)
    }

    /// `scaleDownCooldownSeconds`, or the default. An explicit 0 stays 0.
    pub fn scale_down_cooldown_seconds_or_default(&self) -> i64 {
        self.scale_down_cooldown_seconds
            .unwrap_or(Self::DEFAULT_SCALE_DOWN_COOLDOWN_SECONDS)
    }
}

/// How fast a new image is rolled out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Rollout {
    /// Share of the pool that may be replaced at once, in percent. Default 5; at least one runner.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 100))]
    pub max_concurrent_percent: Option<i64>,
}

impl Rollout {
    /// `maxConcurrentPercent`, or 5.
    pub fn max_concurrent_percent_or_default(&self) -> i64 {
        self.max_concurrent_percent.unwrap_or(5)
    }
}

/// What is known about a pool.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RunnerPoolStatus {
    /// Runners there are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_replicas: Option<i64>,
    /// Labels of the runner Pods, for the scale subresource.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selector: Option<String>,
    /// When the controller last looked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_reconcile: Option<Time>,
    /// When the pool last shrank.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_scale_down_at: Option<Time>,
    /// Image the pool moves to, or has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_image: Option<String>,
    /// When that image was first seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image_rolled_at: Option<Time>,
    /// What was observed: Ready, Scaled, FieldsStored.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
    /// The `metadata.generation` this status is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_explicit_zero_is_not_a_default() {
        let text = r#"{"enabled":true,"minWarmPoolFloor":0,"maxReplicas":3,"scaleDownCooldownSeconds":0}"#;
        let autoscaling: Autoscaling = serde_json::from_str(text).unwrap();
        assert_eq!(autoscaling.min_warm_pool_floor_or_default(), 0);
        assert_eq!(autoscaling.scale_down_cooldown_seconds_or_default(), 0);
        assert_eq!(serde_json::to_string(&autoscaling).unwrap(), text);
    }

    #[test]
    fn autoscaling_needs_a_ceiling_to_be_active() {
        assert!(
            !Autoscaling {
                enabled: Some(true),
                ..Default::default()
            }
            .is_active()
        );
        assert!(
            !Autoscaling {
                max_replicas: Some(2),
                ..Default::default()
            }
            .is_active()
        );
        assert!(
            Autoscaling {
                enabled: Some(true),
                max_replicas: Some(2),
                ..Default::default()
            }
            .is_active()
        );
    }

    #[test]
    fn the_documented_defaults_hold() {
        let spec = RunnerPoolSpec::default();
        assert_eq!(spec.os_or_default(), RunnerOs::Darwin);
        assert_eq!(spec.pod_cpu_milli_or_default(), 8000);
        assert_eq!(spec.pod_memory_mb_or_default(), 14336);
        assert_eq!(spec.runner_labels_or_default(), ["self-hosted", "macOS", "ARM64"]);
        assert_eq!(Provisioning::default().max_concurrent_or_default(), 4);
        assert_eq!(Provisioning::default().start_timeout_seconds_or_default(), 300);
        assert_eq!(Rollout::default().max_concurrent_percent_or_default(), 5);
    }
}
