//! Which Pod has to go: one that uses more of the disk than it may, or, on a disk that is nearly full, the first in the order of a
//! kubelet. Pure; the words are those of the v1.35 kubelet.
//!
//! What a Pod may use counts what it leaves on the host: emptyDir volumes and logs. The disk of a VM is a file of a fixed size that
//! shares its blocks with its base, so nobody can say how much of it is the Pod's own; it counts where Pods are compared, not
//! against a limit.

use crate::quantity::Amount;
use crate::spec;
use k8s_openapi::api::core::v1::{Container, Pod, Volume};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

const STORAGE: &str = "ephemeral-storage";
/// A Pod from this priority on keeps the cluster alive, and is never evicted.
const CRITICAL: i32 = 2_000_000_000;
/// How long the containers of such a Pod may take to end: as good as nothing, since the disk is full.
pub const GRACE: Duration = Duration::from_secs(1);

/// What a Pod takes on the disk of the host, in bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// By the volume's name.
    pub volumes: BTreeMap<String, u64>,
    /// Logs and what guests left for the host, by the container's name.
    pub logs: BTreeMap<String, u64>,
    /// Disks of VMs, by the container's name.
    pub disks: BTreeMap<String, u64>,
}

impl Usage {
    /// What counts against limits.
    fn limited(&self) -> u64 {
        self.volumes.values().chain(self.logs.values()).sum()
    }

    /// Everything.
    fn total(&self) -> u64 {
        self.limited().saturating_add(self.disks.values().sum())
    }
}

/// How full the disk is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shortage {
    /// So much must be free.
    pub threshold: u64,
    /// So much is.
    pub available: u64,
}

/// Why a Pod has to go because of itself alone, if it has.
pub fn exceeded(pod: &Pod, usage: &Usage) -> Option<String> {
    volume_exceeded(pod, usage)
        .or_else(|| pod_exceeded(pod, usage))
        .or_else(|| container_exceeded(pod, usage))
}

fn volume_exceeded(pod: &Pod, usage: &Usage) -> Option<String> {
    let volumes = pod.spec.as_ref()?.volumes.iter().flatten();
    let mut limited =
        volumes.filter_map(|volume: &Volume| Some((volume, volume.empty_dir.as_ref()?.size_limit.as_ref()?)));
    let (volume, limit) = limited.find(|(volume, limit)| {
        let most = Amount::of(limit).value();
        most > 0 && over(usage.volumes.get(&volume.name).copied().unwrap_or(0), most)
    })?;
    Some(format!(
        "Usage of EmptyDir volume \"{}\" exceeds the limit \"{}\". ",
        volume.name, limit.0
    ))
}

fn pod_exceeded(pod: &Pod, usage: &Usage) -> Option<String> {
    let limits: Vec<&Quantity> = main(pod).filter_map(limit).collect();
    let (first, rest) = limits.split_first()?;
    let most = rest
        .iter()
        .fold(Amount::of(first), |sum, limit| sum.plus(Amount::of(limit)))
        .value();
    let shown = if rest.is_empty() {
        first.0.clone()
    } else {
        shown(u64::try_from(most).unwrap_or(0))
    };
    over(usage.limited(), most)
        .then(|| format!("Pod ephemeral local storage usage exceeds the total limit of containers {shown}. "))
}

fn container_exceeded(pod: &Pod, usage: &Usage) -> Option<String> {
    let mut limited = spec::containers(pod).filter_map(|(_, container)| Some((container, limit(container)?)));
    let (container, limit) = limited.find(|(container, limit)| {
        let used = usage.logs.get(&container.name).copied().unwrap_or(0);
        over(used, Amount::of(limit).value())
    })?;
    Some(format!(
        "Container {} exceeded its local ephemeral storage limit \"{}\". ",
        container.name, limit.0
    ))
}

fn over(used: u64, most: i64) -> bool {
    i64::try_from(used).unwrap_or(i64::MAX) > most
}

fn main(pod: &Pod) -> impl Iterator<Item = &Container> {
    spec::containers(pod)
        .filter(|(kind, _)| *kind != spec::Kind::Init)
        .map(|(_, container)| container)
}

fn limit(container: &Container) -> Option<&Quantity> {
    container.resources.as_ref()?.limits.as_ref()?.get(STORAGE)
}

fn request(container: &Container) -> u64 {
    let resources = container.resources.as_ref();
    let requested = resources.and_then(|resources| resources.requests.as_ref()?.get(STORAGE));
    let amount = requested.map(Amount::of).unwrap_or_default().value();
    u64::try_from(amount).unwrap_or(0)
}

/// Which Pod goes when the disk is nearly full: first those that use more than they asked for, then those that matter least,
/// then those that use most. None if all of them have to stay.
pub fn first<'a>(pods: &'a [(&'a Pod, Usage)]) -> Option<&'a (&'a Pod, Usage)> {
    let priority = |pod: &Pod| pod.spec.as_ref().and_then(|spec| spec.priority).unwrap_or(0);
    pods.iter()
        .filter(|(pod, _)| priority(pod) < CRITICAL)
        .min_by_key(|(pod, usage)| {
            let requested: u64 = main(pod).map(request).sum();
            let used = usage.total();
            (
                used <= requested,
                priority(pod),
                Reverse(used.saturating_sub(requested)),
                pod.metadata.uid.clone(),
            )
        })
}

/// What is said to a Pod that goes because the disk is nearly full.
pub fn message(pod: &Pod, usage: &Usage, shortage: Shortage) -> String {
    let mut text = format!(
        "The node was low on resource: {STORAGE}. Threshold quantity: {}, available: {}. ",
        shown(shortage.threshold),
        shown(shortage.available)
    );
    for container in main(pod) {
        let of = |map: &BTreeMap<String, u64>| map.get(&container.name).copied().unwrap_or(0);
        let (used, requested) = (of(&usage.logs).saturating_add(of(&usage.disks)), request(container));
        if used > requested {
            // Writing to a String does not fail.
            let _ = write!(
                text,
                "Container {} was using {}, request is {}, has larger consumption of {STORAGE}. ",
                container.name,
                shown(used),
                shown(requested)
            );
        }
    }
    text
}

/// Bytes as Kubernetes writes them: the largest unit that divides them.
fn shown(bytes: u64) -> String {
    let mut number = bytes;
    for unit in ["", "Ki", "Mi", "Gi", "Ti"] {
        if number == 0 || !number.is_multiple_of(1024) || unit == "Ti" {
            return format!("{number}{unit}");
        }
        number /= 1024;
    }
    number.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::pod;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    const MI: u64 = 1024 * 1024;

    fn usage(volumes: &[(&str, u64)], logs: &[(&str, u64)], disks: &[(&str, u64)]) -> Usage {
        let map = |list: &[(&str, u64)]| list.iter().map(|(name, bytes)| ((*name).to_owned(), *bytes)).collect();
        Usage {
            volumes: map(volumes),
            logs: map(logs),
            disks: map(disks),
        }
    }

    fn limited(storage: &str) -> Value {
        json!({"limits": {"ephemeral-storage": storage}})
    }

    #[test]
    fn a_volume_that_outgrew_its_limit_is_said_in_the_words_of_a_kubelet() {
        let pod = pod(json!({
            "containers": [{"name": "a"}],
            "volumes": [{"name": "free", "emptyDir": {}}, {"name": "cache", "emptyDir": {"sizeLimit": "1Mi"}}],
        }));
        let found = exceeded(&pod, &usage(&[("free", 9 * MI), ("cache", MI)], &[], &[]));
        assert_eq!(found, None);
        let found = exceeded(&pod, &usage(&[("cache", MI + 1)], &[], &[])).unwrap();
        assert_eq!(found, "Usage of EmptyDir volume \"cache\" exceeds the limit \"1Mi\". ");
    }

    #[test]
    fn volumes_and_logs_count_against_limits_and_disks_of_vms_do_not() {
        let both = pod(json!({"containers": [
            {"name": "a", "resources": limited("1Mi")}, {"name": "b", "resources": limited("2Mi")},
        ]}));
        let found = exceeded(&both, &usage(&[("v", 2 * MI)], &[("a", MI)], &[("a", 90 * MI)]));
        assert_eq!(found, None);
        assert_eq!(
            exceeded(&both, &usage(&[("v", 3 * MI)], &[("a", 1)], &[])).unwrap(),
            "Pod ephemeral local storage usage exceeds the total limit of containers 3Mi. "
        );
        assert_eq!(
            exceeded(&both, &usage(&[], &[("a", MI + 1)], &[])).unwrap(),
            "Container a exceeded its local ephemeral storage limit \"1Mi\". "
        );
        let alone = pod(json!({"containers": [{"name": "a", "resources": limited("1000000")}]}));
        assert_eq!(
            exceeded(&alone, &usage(&[("v", MI)], &[], &[])).unwrap(),
            "Pod ephemeral local storage usage exceeds the total limit of containers 1000000. "
        );
    }

    #[test]
    fn the_first_to_go_uses_more_than_it_asked_for_matters_least_and_uses_most() {
        let with = |name: &str, priority: i32, request: &str| {
            let mut pod = pod(json!({"priority": priority, "containers": [
                {"name": "a", "resources": {"requests": {"ephemeral-storage": request}}},
            ]}));
            pod.metadata.uid = Some(name.to_owned());
            pod
        };
        let used = |bytes| usage(&[], &[], &[("a", bytes)]);
        let modest = with("modest", 0, "9Mi");
        let small = with("small", 0, "0");
        let large = with("large", 0, "0");
        let important = with("important", 5, "0");
        let critical = with("critical", CRITICAL, "0");
        let mut all = vec![
            (&modest, used(9 * MI)),
            (&small, used(MI)),
            (&large, used(2 * MI)),
            (&important, used(99 * MI)),
            (&critical, used(99 * MI)),
        ];
        let mut order = Vec::new();
        while let Some((pod, _)) = first(&all) {
            let uid = pod.metadata.uid.clone().unwrap();
            all.retain(|(other, _)| other.metadata.uid.as_ref() != Some(&uid));
            order.push(uid);
        }
        assert_eq!(order, ["large", "small", "important", "modest"]);
    }

    #[test]
    fn a_pod_that_goes_for_the_disk_is_told_what_it_used() {
        let pod = pod(json!({"containers": [{"name": "main"}]}));
        let shortage = Shortage {
            threshold: 10 * 1024 * MI,
            available: 1000,
        };
        assert_eq!(
            message(&pod, &usage(&[], &[("main", 512)], &[("main", 3 * MI)]), shortage),
            "The node was low on resource: ephemeral-storage. Threshold quantity: 10Gi, available: 1000. \
             Container main was using 3146240, request is 0, has larger consumption of ephemeral-storage. "
        );
    }

    proptest! {
        #[test]
        fn a_size_means_what_it_says(bytes in any::<u64>(), shift in 0_u32..40) {
            let bytes = bytes >> shift;
            let value = Amount::parse(&shown(bytes)).unwrap().value();
            prop_assert_eq!(value, i64::try_from(bytes).unwrap_or(i64::MAX));
        }

        #[test]
        fn nobody_goes_before_one_that_uses_more_than_it_asked_for(
            sizes in proptest::collection::vec((0_u64..100, 0_u64..100, 0_i32..3), 1..6),
        ) {
            let pods: Vec<Pod> = sizes.iter().enumerate().map(|(index, (request, _, priority))| {
                let mut pod = pod(json!({"priority": priority, "containers": [
                    {"name": "a", "resources": {"requests": {"ephemeral-storage": request.to_string()}}},
                ]}));
                pod.metadata.uid = Some(index.to_string());
                pod
            }).collect();
            let all: Vec<_> = pods.iter().zip(&sizes).map(|(pod, (_, used, _))| {
                (pod, usage(&[], &[("a", *used)], &[]))
            }).collect();
            let chosen: usize = first(&all).unwrap().0.metadata.uid.as_ref().unwrap().parse().unwrap();
            let exceeds = |index: usize| sizes[index].1 > sizes[index].0;
            if (0..sizes.len()).any(exceeds) {
                prop_assert!(exceeds(chosen));
                let least = (0..sizes.len()).filter(|index| exceeds(*index)).map(|index| sizes[index].2).min();
                prop_assert_eq!(Some(sizes[chosen].2), least);
            }
        }
    }
}
