//! The disk: images go before it is full, then Pods; and Pods go that use more of it than they may.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, Pod};
use kube::ResourceExt as _;
use russet_pod::evict::{self, Shortage, Usage};
use russet_pod::facts::Why;
use russet_pod::quantity::Amount;
use russet_pod::spec::Kind;
use russet_pod::volumes::{self, Hidden};
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
    let (mut found, mut counted) = (Vec::new(), Vec::new());
    for shown in &pods {
        let mut look = measure(host, shown).await;
        for (container, instance) in &shown.instances {
            let size = sizes.iter().find(|(vm, _)| *vm == VmName::from(instance.vm.clone()));
            look.used
                .disks
                .insert(container.clone(), size.map_or(0, |(_, bytes)| *bytes));
        }
        counted.push((shown.pod.as_ref(), look.counted(disk.total)));
        found.push(look);
    }
    if let Some((pod, _)) = evict::first(&counted) {
        let chosen = counted.iter().position(|(other, _)| std::ptr::eq(*other, *pod));
        let Some(look) = chosen.and_then(|chosen| found.get(chosen)) else {
            return;
        };
        let message = evict::message(pod, &look.used, shortage) + &look.words();
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
        let look = measure(host, &shown).await;
        if let Some(message) = evict::exceeded(&shown.pod, &look.used).or_else(|| look.exceeded(&shown.pod)) {
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

/// What was found of a Pod on the host.
#[derive(Debug, Default)]
struct Look {
    used: Usage,
    /// Volumes that could not be measured to the end.
    volumes: BTreeMap<String, Hidden>,
    /// Containers whose logs, or what they left for the host, could not be.
    logs: BTreeMap<String, Hidden>,
}

impl Look {
    /// What the Pod is compared with others by. Who hides something has it count as all there is, or hiding it would have another
    /// Pod go.
    fn counted(&self, all: u64) -> Usage {
        let mut used = self.used.clone();
        let hidden =
            |names: &BTreeMap<String, Hidden>| names.keys().map(|name| (name.clone(), all)).collect::<Vec<_>>();
        used.volumes.extend(hidden(&self.volumes));
        used.logs.extend(hidden(&self.logs));
        used
    }

    /// What could not be measured.
    fn words(&self) -> String {
        let volumes = self.volumes.iter().map(|(name, why)| {
            format!("Usage of EmptyDir volume \"{name}\" cannot be measured, which counts as the whole disk: {why}. ")
        });
        let logs = self.logs.iter().map(|(name, why)| {
            format!("Usage of container {name} cannot be measured, which counts as the whole disk: {why}. ")
        });
        volumes.chain(logs).collect()
    }

    /// Why a Pod has to go that hides what it uses, if it is one that has a limit for that.
    fn exceeded(&self, pod: &Pod) -> Option<String> {
        let volumes = pod.spec.as_ref()?.volumes.iter().flatten();
        let sized = volumes.filter_map(|volume| Some((&volume.name, volume.empty_dir.as_ref()?.size_limit.as_ref()?)));
        let mut sized = sized.filter(|(_, limit)| Amount::of(limit).value() > 0);
        if let Some((name, why, limit)) = sized.find_map(|(name, limit)| Some((name, self.volumes.get(name)?, limit))) {
            return Some(format!(
                "Usage of EmptyDir volume \"{name}\" cannot be measured, which counts as more than the limit \"{}\": {why}. ",
                limit.0
            ));
        }
        let limited = |container: &Container| {
            let limits = container
                .resources
                .as_ref()
                .and_then(|resources| resources.limits.as_ref());
            limits.is_some_and(|limits| limits.contains_key("ephemeral-storage"))
        };
        let containers = || russet_pod::spec::containers(pod).filter(|(_, container)| limited(container));
        if containers().any(|(kind, _)| kind != Kind::Init) {
            let volumes = self
                .volumes
                .iter()
                .map(|(name, why)| (format!("EmptyDir volume \"{name}\""), why));
            let logs = self.logs.iter().map(|(name, why)| (format!("container {name}"), why));
            let (what, why) = volumes.chain(logs).next()?;
            return Some(format!(
                "Pod ephemeral local storage usage cannot be measured, which counts as more than the total limit of \
                 containers: {what}: {why}. "
            ));
        }
        let mut own = containers().filter_map(|(_, container)| self.logs.get_key_value(&container.name));
        let (name, why) = own.next()?;
        Some(format!(
            "Local ephemeral storage usage of container {name} cannot be measured, which counts as more than its limit: {why}. "
        ))
    }
}

/// What a Pod has on the host beside its VMs. Folders can be deep, so it is done where nobody waits.
async fn measure(host: &Host, shown: &Shown) -> Look {
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
        let mut look = Look::default();
        (look.used.volumes, look.volumes) = sized(volumes);
        (look.used.logs, look.logs) = sized(containers);
        look
    });
    measured.await.unwrap_or_default()
}

/// What folders take, and why that is not all of it.
fn sized(folders: Vec<(String, PathBuf)>) -> (BTreeMap<String, u64>, BTreeMap<String, Hidden>) {
    let (mut sizes, mut all_hidden) = (BTreeMap::new(), BTreeMap::new());
    for (name, path) in folders {
        let measured = volumes::usage(&path).unwrap_or_else(|error| {
            // No Pod goes for what the host lacks. It is measured again soon.
            tracing::warn!(folder = %path.display(), %error, "a folder of a Pod could not be measured");
            volumes::Measured::default()
        });
        sizes.insert(name.clone(), measured.bytes);
        if let Some(hidden) = measured.hidden {
            all_hidden.insert(name, hidden);
        }
    }
    (sizes, all_hidden)
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

    fn hiding(volumes: &[&str], logs: &[&str]) -> Look {
        let hidden = |names: &[&str]| names.iter().map(|name| ((*name).to_owned(), Hidden::Moving)).collect();
        Look {
            volumes: hidden(volumes),
            logs: hidden(logs),
            ..Look::default()
        }
    }

    /// A folder that could not be listed counted as nothing, so that a guest was below its limit by taking a right away.
    #[test]
    fn what_cannot_be_measured_is_more_than_any_limit() {
        let pod = |spec| -> Pod { serde_json::from_value(json!({"spec": spec})).unwrap() };
        let free = pod(json!({
            "containers": [{"name": "a"}], "volumes": [{"name": "v", "emptyDir": {}}],
        }));
        assert_eq!(hiding(&["v"], &["a"]).exceeded(&free), None);
        let sized = pod(json!({
            "containers": [{"name": "a"}],
            "volumes": [{"name": "v", "emptyDir": {}}, {"name": "w", "emptyDir": {"sizeLimit": "1Mi"}}],
        }));
        assert_eq!(hiding(&["v"], &["a"]).exceeded(&sized), None);
        assert_eq!(
            hiding(&["w"], &[]).exceeded(&sized).unwrap(),
            "Usage of EmptyDir volume \"w\" cannot be measured, which counts as more than the limit \"1Mi\": folders in it are \
             moved faster than they can be found. "
        );
        let limited = json!({"limits": {"ephemeral-storage": "1Mi"}});
        let whole = pod(json!({
            "containers": [{"name": "a"}, {"name": "b", "resources": limited}], "volumes": [{"name": "v", "emptyDir": {}}],
        }));
        assert_eq!(hiding(&[], &[]).exceeded(&whole), None);
        for (look, what) in [
            (hiding(&["v"], &["a"]), "EmptyDir volume \"v\""),
            (hiding(&[], &["a"]), "container a"),
        ] {
            assert_eq!(
                look.exceeded(&whole).unwrap(),
                format!(
                    "Pod ephemeral local storage usage cannot be measured, which counts as more than the total limit of \
                     containers: {what}: folders in it are moved faster than they can be found. "
                )
            );
        }
        let first = pod(json!({
            "initContainers": [{"name": "i", "resources": limited}], "containers": [{"name": "a"}],
        }));
        assert_eq!(hiding(&["v"], &["a"]).exceeded(&first), None);
        assert!(
            hiding(&[], &["i"])
                .exceeded(&first)
                .unwrap()
                .contains("of container i cannot be measured")
        );
    }

    /// On a full disk the Pod that hid what it used seemed to be the smallest, and another one went.
    #[test]
    fn who_hides_something_goes_before_who_uses_most() {
        let named = |uid: &str| -> Pod {
            serde_json::from_value(json!({"metadata": {"uid": uid}, "spec": {"containers": [{"name": "a"}]}})).unwrap()
        };
        let (honest, hider) = (named("honest"), named("hider"));
        let mut large = Look::default();
        large.used.volumes.insert("v".to_owned(), 500);
        let hidden = hiding(&["v"], &[]);
        let counted = [(&honest, large.counted(1000)), (&hider, hidden.counted(1000))];
        assert_eq!(evict::first(&counted).unwrap().0, &hider);
        assert_eq!(large.words(), "");
        assert!(
            hidden
                .words()
                .contains("\"v\" cannot be measured, which counts as the whole disk: ")
        );
    }
}
