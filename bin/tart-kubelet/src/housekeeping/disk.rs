//! The disk: images go before it is full, then Pods; and Pods go that use more of it than they may.

use std::path::PathBuf;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use russet_pod::evict::{self, Shortage, Usage};
use russet_pod::facts::Why;
use russet_pod::volumes::usage;
use russet_vm::{Owner, VmName};

use crate::host::disk::{PRESSURE, SHORT};
use crate::pods::Host;
use crate::pods::directory::Shown;

/// How long a look at the host may take.
const LIST: Duration = Duration::from_secs(30);

/// Looks how full the disk is, and does something about it.
pub(super) async fn watch(host: &Host) {
    let keeping = &host.options.keeping;
    let Some(mut disk) = keeping.disk.look() else { return };
    if !disk.has_free(SHORT) {
        host.images().make_room(false).await;
        let Some(after) = keeping.disk.look() else { return };
        disk = after;
    }
    let before = keeping.board.is_pressed();
    let pressed = disk.is_pressed(before.unwrap_or_default());
    if before.unwrap_or_default() != pressed {
        tracing::warn!(pressed, free = disk.free, "the disk changed");
    }
    keeping.board.set_pressed(pressed);
    // The pressure lasts longer than what Pods have to go for.
    if disk.has_free(PRESSURE) {
        return;
    }
    let pods = running(host);
    if pods.iter().any(|shown| host.evictions.pending(&uid(&shown.pod))) {
        // One at a time: what it leaves may be enough.
        return;
    }
    let sizes = sizes(host).await;
    let shortage = Shortage {
        threshold: disk.percent(PRESSURE),
        available: disk.free,
    };
    let mut measured = Vec::new();
    for shown in &pods {
        let mut used = measure(host, shown).await;
        for (container, instance) in &shown.instances {
            let size = sizes.iter().find(|(vm, _)| *vm == VmName::from(instance.vm.clone()));
            used.disks
                .insert(container.clone(), size.map_or(0, |(_, bytes)| *bytes));
        }
        measured.push((shown.pod.as_ref(), used));
    }
    if let Some((pod, used)) = evict::first(&measured) {
        let message = evict::message(pod, used, shortage);
        tracing::warn!(
            pod = pod.name_any(),
            message,
            "a Pod has to go, the disk is nearly full"
        );
        host.evictions.evict(&uid(pod), Why::Evicted { message });
    }
}

/// Looks whether a Pod uses more than it may.
pub(super) async fn limits(host: &Host) {
    for shown in running(host) {
        if !is_limited(&shown.pod) || host.evictions.pending(&uid(&shown.pod)) {
            continue;
        }
        let used = measure(host, &shown).await;
        if let Some(message) = evict::exceeded(&shown.pod, &used) {
            tracing::info!(pod = shown.pod.name_any(), message, "a Pod has to go");
            host.evictions.evict(&uid(&shown.pod), Why::Exceeded { message });
        }
    }
}

fn uid(pod: &Pod) -> String {
    pod.uid().unwrap_or_default()
}

/// Pods that have VMs.
fn running(host: &Host) -> Vec<Shown> {
    let mut all = host.directory.list();
    all.retain(|shown| !shown.instances.is_empty());
    all
}

/// Whether anything can be too much for a Pod; the others need not be measured.
fn is_limited(pod: &Pod) -> bool {
    let Some(spec) = &pod.spec else { return false };
    let volumes = spec.volumes.iter().flatten();
    let mut sized = volumes.filter_map(|volume| volume.empty_dir.as_ref()?.size_limit.as_ref());
    let mut limits = russet_pod::spec::containers(pod)
        .filter_map(|(_, container)| container.resources.as_ref()?.limits.as_ref()?.get("ephemeral-storage"));
    sized.next().is_some() || limits.next().is_some()
}

async fn sizes(host: &Host) -> Vec<(VmName, u64)> {
    let listing = tokio::time::timeout(LIST, host.shop.runtime.list()).await;
    let vms = listing.ok().and_then(Result::ok).unwrap_or_default().vms;
    vms.into_iter()
        .filter_map(|listed| match listed.owner {
            Owner::Ours(name) => Some((name, listed.bytes)),
            Owner::Foreign(_) => None,
        })
        .collect()
}

/// What a Pod has on the host beside its VMs. Folders can be deep, so it is done where nobody waits.
async fn measure(host: &Host, shown: &Shown) -> Usage {
    let uid = uid(&shown.pod);
    let of_pod = host.folders.pod(&uid);
    let spec = shown.pod.spec.as_ref();
    let volumes = spec.and_then(|spec| spec.volumes.as_ref()).into_iter().flatten();
    let volumes: Vec<(String, PathBuf)> = volumes
        .filter(|volume| volume.empty_dir.is_some())
        .map(|volume| (volume.name.clone(), host.folders.volumes(&uid).join(&volume.name)))
        .collect();
    let containers: Vec<(String, PathBuf)> = russet_pod::spec::containers(&shown.pod)
        .map(|(_, container)| (container.name.clone(), of_pod.join("containers").join(&container.name)))
        .collect();
    let measured = tokio::task::spawn_blocking(move || {
        let sized = |list: Vec<(String, PathBuf)>| list.into_iter().map(|(name, path)| (name, usage(&path))).collect();
        Usage {
            volumes: sized(volumes),
            logs: sized(containers),
            disks: std::collections::BTreeMap::new(),
        }
    });
    measured.await.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn only_pods_with_a_limit_are_measured_all_the_time() {
        let pod = |spec| -> Pod { serde_json::from_value(json!({"spec": spec})).unwrap() };
        assert!(!is_limited(&pod(json!({
            "containers": [{"name": "a"}], "volumes": [{"name": "v", "emptyDir": {}}],
        }))));
        assert!(is_limited(&pod(json!({
            "containers": [{"name": "a"}], "volumes": [{"name": "v", "emptyDir": {"sizeLimit": "1Mi"}}],
        }))));
        assert!(is_limited(&pod(json!({
            "containers": [{"name": "a", "resources": {"limits": {"ephemeral-storage": "1Mi"}}}],
        }))));
    }
}
