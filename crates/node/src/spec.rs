//! What a Node is, as its owner wants it.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Taint;
use russet_api::{labels, taints};

/// What a Node is, as its owner wants it.
#[derive(Clone, Debug, PartialEq)]
pub struct Spec {
    /// Name of the Node.
    pub name: String,
    /// Which machine it is; empty where nobody asks.
    pub provider_id: String,
    /// Labels besides those a Mac has by itself.
    pub labels: BTreeMap<String, String>,
    /// Taints besides the one every Mac has. They count at registration only.
    pub taints: Vec<Taint>,
    /// What it offers to Pods.
    pub capacity: Capacity,
    /// What it says its kubelet is.
    pub kubelet_version: String,
}

/// What a machine offers to Pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capacity {
    /// Cores.
    pub cpu: u32,
    /// Memory, in MiB.
    pub memory_mib: u32,
    /// Pods; macOS runs two VMs at a time, and one more Pod may wait.
    pub pods: u32,
}

impl Default for Capacity {
    fn default() -> Self {
        Self {
            cpu: 8,
            memory_mib: 14_336,
            pods: 3,
        }
    }
}

/// Labels every Mac has by itself, the host name apart.
pub(crate) const OWN_LABELS: [(&str, &str); 3] = [
    (labels::OS, labels::OS_DARWIN),
    (labels::ARCH, labels::ARCH_ARM64),
    (labels::RUNTIME, labels::RUNTIME_TART),
];
pub(crate) const HOSTNAME: &str = "kubernetes.io/hostname";

impl Spec {
    /// The labels of the Node: those that are wanted and those a Mac has by itself.
    pub(crate) fn all_labels(&self) -> BTreeMap<String, String> {
        let own = OWN_LABELS.map(|(key, value)| (key.to_owned(), value.to_owned()));
        let mut labels = self.labels.clone();
        labels.extend(own);
        labels.extend([(HOSTNAME.to_owned(), self.name.clone())]);
        labels
    }

    /// The taints it registers with. Ordinary Pods stay off a Mac whatever its owner says.
    pub(crate) fn all_taints(&self) -> Vec<Taint> {
        let mut all = self.taints.clone();
        let is_own = |taint: &Taint| taint.key == taints::MACOS && taint.effect == taints::NO_SCHEDULE;
        if !all.iter().any(is_own) {
            all.push(Taint {
                key: taints::MACOS.to_owned(),
                value: Some(taints::TRUE.to_owned()),
                effect: taints::NO_SCHEDULE.to_owned(),
                time_added: None,
            });
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec() -> Spec {
        Spec {
            name: "mac-1".to_owned(),
            provider_id: String::new(),
            labels: BTreeMap::from([("tuist.dev/fleet".to_owned(), "runners".to_owned())]),
            taints: Vec::new(),
            capacity: Capacity::default(),
            kubelet_version: "v1.35.4".to_owned(),
        }
    }

    #[test]
    fn a_mac_is_a_mac_whatever_its_owner_says() {
        let mut spec = spec();
        spec.labels.insert(labels::OS.to_owned(), "linux".to_owned());
        let all = spec.all_labels();
        assert_eq!(all[labels::OS], "darwin");
        assert_eq!(all[HOSTNAME], "mac-1");
        assert_eq!(all["tuist.dev/fleet"], "runners");
    }

    #[test]
    fn ordinary_pods_stay_away_and_no_taint_comes_twice() {
        let mut spec = spec();
        assert_eq!(spec.all_taints().len(), 1);
        spec.taints = spec.all_taints();
        assert_eq!(spec.all_taints().len(), 1);
    }
}
