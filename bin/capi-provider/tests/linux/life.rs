//! The whole life of a cache node of each kind.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim, Pod};
use kube::ResourceExt as _;
use kube::api::{Api, DeleteParams, ListParams, LogParams, PostParams};
use russet_sim_scaleway::LinuxBox;
use russet_stages::linux::{self, Site};
use russet_stages::macs::Yard;
use russet_testkit::program::built;
use russet_testkit::wait::{self, Look, PATIENCE};
use serde_json::json;

use crate::{left, roaming};

const METALS: &str = "kura-metals";
const INSTANCES: &str = "kura-instances";
const FLEETS: [&str; 2] = [METALS, INSTANCES];

/// Two servers boot, install and join on a busy machine.
pub(crate) const LONG: Duration = Duration::from_mins(5);

/// `kubelet-rbac`, `provisioner-rbac`, `no-public-ip`, `hostname-address`: what each of them broke is used here.
#[tokio::test(flavor = "multi_thread")]
async fn cache_nodes_of_both_kinds_are_ordered_join_keep_volumes_and_leave_nothing() {
    if !linux::can_run(russet_skip::test_name!()).await {
        return;
    }
    built("sim-linux", "russet-sim-linux").unwrap();
    let site = Site::start().await.unwrap();
    if let Err(error) = live(&site).await {
        let log = site.fleet.provider_log();
        let lines: Vec<&str> = log.lines().collect();
        let tail = lines[lines.len().saturating_sub(40)..].join("\n");
        panic!("{error:?}\n--- the provider\n{tail}\n{}", site.consoles());
    }
}

async fn live(site: &Site) -> Result<()> {
    let yard = site.fleet.yard("kura", 0).await?;
    site.install(&yard, METALS, INSTANCES).await?;
    let provider = site.start_provider().await?;
    let provisioner = site.start_provisioner().await?;
    for fleet in FLEETS {
        yard.available_within(fleet, 1, LONG).await?;
    }

    let handle = site.fleet.sim.handle();
    ensure!(handle.bill().running().count() >= 2, "two servers cost nothing");
    let mut nodes = Vec::new();
    for (fleet, product) in [(METALS, "baremetal"), (INSTANCES, "instance")] {
        let node = joined(site, &yard, fleet, product).await?;
        runs_a_pod_with_a_volume(site, &yard, fleet, &node).await?;
        nodes.push(node);
    }

    let names: Vec<String> = nodes.iter().map(kube::ResourceExt::name_any).collect();
    let before = left::traces(site, &yard, &names).await?;

    // A volume that nobody wants any more is removed from the disk, and one that is in use is no reason for a node to stay.
    forgets_a_volume(site, &yard, &nodes).await?;
    // A cache that kept its data on a server which is given up begins anew on another.
    let (from, to) = (names[0].as_str(), names[1].as_str());
    let cache = roaming::start(&yard, METALS, from).await?;
    yard.scale(METALS, 0).await?;
    cache.moves_to(&yard, to).await?;
    yard.available_within(METALS, 0, LONG).await?;
    cache.stop(&yard).await?;
    yard.scale(INSTANCES, 0).await?;
    yard.available_within(INSTANCES, 0, LONG).await?;
    nothing_is_left(site, &yard, &nodes, &before).await?;

    let audit = site.fleet.cluster.audit()?;
    let remote = linux::user(&yard.namespace, "capi-remote");
    let evicted = audit.of_user(&remote)?;
    ensure!(
        evicted
            .iter()
            .any(|entry| entry.object().subresource == "eviction" && entry.object().name == METALS),
        "the Pod that was there was not drained"
    );
    for user in [provider, provisioner, remote] {
        let denials = audit.denials(&user)?;
        ensure!(denials.is_empty(), "{user} was refused: {denials:?}");
    }
    Ok(())
}

/// The only server of a fleet, by the id that its Machine has.
fn server_of(site: &Site, provider_id: &str) -> Result<LinuxBox> {
    let rows = site.fleet.sim.handle().boxes();
    let found = rows
        .into_iter()
        .find(|row| provider_id.ends_with(row.server_id.as_str()));
    found.with_context(|| format!("no server is {provider_id}"))
}

/// The Node of a fleet's only Machine: what Cluster API, schedulers and caches find it by.
async fn joined(site: &Site, yard: &Yard<'_>, fleet: &str, product: &str) -> Result<Node> {
    let machines = yard
        .machines()
        .list(&ListParams::default().labels(&format!("tuist.dev/fleet={fleet}")))
        .await?;
    let machine = machines.items.into_iter().next().context("no Machine")?;
    let provider_id = machine.data["spec"]["providerID"]
        .as_str()
        .context("no providerID")?
        .to_owned();
    let row = server_of(site, &provider_id)?;
    assert_eq!(provider_id, format!("scaleway://{product}/fr-par-1/{}", row.server_id));

    let node = wait::until("the labels of the Machine on its Node", PATIENCE, || async {
        let node = yard.nodes().get(&machine.name_any()).await?;
        let labelled = node.labels().contains_key("node.cluster.x-k8s.io/pool");
        Ok(if labelled {
            Look::Done(node)
        } else {
            Look::not_yet(node.labels())
        })
    })
    .await?;
    let spec = node.spec.clone().unwrap_or_default();
    assert_eq!(spec.provider_id.as_ref(), Some(&provider_id));
    let leg = row.private.as_ref().context("no private network")?;
    let address = leg.address.split('/').next().unwrap_or_default();
    let label = |key: &str| node.labels().get(key).map(String::as_str);
    assert_eq!(label("tuist.dev/pn-ipv4"), Some(address));
    assert_eq!(label("tuist.dev/fleet"), Some(fleet));
    assert_eq!(label("node.cluster.x-k8s.io/instance-type"), Some("scaleway"));
    assert_eq!(label("node.cluster.x-k8s.io/pool"), Some("kura-scw-fr-par"));
    assert!(node.annotations().contains_key("tuist.dev/kubelet-config-hash"));
    let taints: Vec<String> = spec
        .taints
        .unwrap_or_default()
        .into_iter()
        .map(|taint| taint.key)
        .collect();
    assert!(taints.contains(&"tuist.dev/runner-cache".to_owned()), "{taints:?}");
    assert!(
        !taints.contains(&"node.cluster.x-k8s.io/uninitialized".to_owned()),
        "{taints:?}"
    );
    let status = node.status.clone().unwrap_or_default();
    let internal: Vec<String> = status
        .addresses
        .unwrap_or_default()
        .into_iter()
        .filter(|address| address.type_ == "InternalIP")
        .map(|address| address.address)
        .collect();
    assert_eq!(internal, [address], "the API server reaches the kubelet there");
    wait::until(
        "the script with the token to leave the metadata service",
        PATIENCE,
        || async {
            let left = server_of(site, &provider_id)?.user_data;
            Ok(Look::done_if(left.is_none(), "it is there"))
        },
    )
    .await?;
    Ok(node)
}

/// A Pod named after its fleet that writes to a volume of the node's own disk; its log comes through the API server.
async fn runs_a_pod_with_a_volume(site: &Site, yard: &Yard<'_>, fleet: &str, node: &Node) -> Result<()> {
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(yard.client.clone(), &yard.namespace);
    let pods: Api<Pod> = Api::namespaced(yard.client.clone(), &yard.namespace);
    let claim: PersistentVolumeClaim = serde_json::from_value(json!({
        "metadata": {"name": fleet},
        "spec": {
            "storageClassName": "scw-local-nvme", "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "64Mi"}},
        },
    }))?;
    let pod: Pod = serde_json::from_value(json!({
        "metadata": {"name": fleet},
        "spec": {
            "nodeSelector": {"tuist.dev/fleet": fleet},
            "tolerations": [{"key": "tuist.dev/runner-cache", "operator": "Exists"}],
            "terminationGracePeriodSeconds": 1,
            "containers": [{
                "name": "cache", "image": "localhost/busybox:1", "imagePullPolicy": "Never",
                "command": ["/bin/busybox", "sh", "-c", "echo kept >/data/proof && echo written && exec sleep 36000"],
                "volumeMounts": [{"name": "data", "mountPath": "/data"}],
                "readinessProbe": {"exec": {"command": ["/bin/busybox", "test", "-s", "/data/proof"]}, "periodSeconds": 1},
            }],
            "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": fleet}}],
        },
    }))?;
    claims.create(&PostParams::default(), &claim).await?;
    wait::until("the Pod to be admitted", PATIENCE, || async {
        pods.create(&PostParams::default(), &pod).await?;
        Ok(Look::Done(()))
    })
    .await?;
    wait::until(&format!("the Pod of {fleet} to be ready"), LONG, || async {
        let status = pods.get(fleet).await?.status.unwrap_or_default();
        let conditions = status.conditions.clone().unwrap_or_default();
        let ready = conditions.iter().any(|c| c.type_ == "Ready" && c.status == "True");
        Ok(Look::done_if(ready, status))
    })
    .await?;
    let running = pods.get(fleet).await?.spec.and_then(|spec| spec.node_name);
    assert_eq!(running, Some(node.name_any()));
    let log = wait::until("the log of the Pod", PATIENCE, || async {
        Ok(Look::Done(pods.logs(fleet, &LogParams::default()).await?))
    })
    .await?;
    assert_eq!(log.trim(), "written");

    let folder = folder_of(yard, fleet).await?;
    let provider_id = node
        .spec
        .as_ref()
        .and_then(|spec| spec.provider_id.clone())
        .unwrap_or_default();
    let server = server_of(site, &provider_id)?.server_id.to_string();
    let proof = format!("{folder}/proof");
    assert_eq!(site.servers.run(&server, "cat", &[&proof]).await?.trim(), "kept");
    if fleet == METALS {
        let disk = proof.replacen("/opt/", "/data/", 1);
        assert_eq!(
            site.servers.run(&server, "cat", &[&disk]).await?.trim(),
            "kept",
            "on the NVMe disk"
        );
    }
    Ok(())
}

/// Where on its node the volume of a claim is.
async fn folder_of(yard: &Yard<'_>, claim: &str) -> Result<String> {
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(yard.client.clone(), &yard.namespace);
    let volumes: Api<PersistentVolume> = Api::all(yard.client.clone());
    let name = claims.get(claim).await?.spec.and_then(|spec| spec.volume_name);
    let spec = volumes.get(&name.context("the claim is not bound")?).await?.spec;
    let spec = spec.context("a volume without a spec")?;
    let on_host = spec.host_path.map(|host| host.path);
    on_host
        .or(spec.local.map(|local| local.path))
        .context("the volume is no folder")
}

/// Deletes Pod and claim of the Instance: the provisioner's helper removes the folder under the chart's rights.
async fn forgets_a_volume(site: &Site, yard: &Yard<'_>, nodes: &[Node]) -> Result<()> {
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(yard.client.clone(), &yard.namespace);
    let pods: Api<Pod> = Api::namespaced(yard.client.clone(), &yard.namespace);
    let folder = folder_of(yard, INSTANCES).await?;
    let id = nodes.iter().filter_map(|node| node.spec.as_ref()?.provider_id.clone());
    let id = id
        .into_iter()
        .find(|id| id.contains("://instance/"))
        .context("no Instance")?;
    let server = server_of(site, &id)?.server_id.to_string();
    pods.delete(INSTANCES, &DeleteParams::default()).await?;
    claims.delete(INSTANCES, &DeleteParams::default()).await?;
    wait::until("the folder of the volume to be gone", LONG, || async {
        let listed = site
            .servers
            .run(&server, "ls", &["/opt/local-path-provisioner"])
            .await?;
        let name = folder.rsplit('/').next().unwrap_or_default();
        Ok(if listed.contains(name) {
            Look::NotYet(listed)
        } else {
            Look::Done(())
        })
    })
    .await
}

/// Whatever a node had is gone, and was seen before: a look in the wrong place finds nothing either.
async fn nothing_is_left(site: &Site, yard: &Yard<'_>, nodes: &[Node], before: &[String]) -> Result<()> {
    let names: Vec<String> = nodes.iter().map(kube::ResourceExt::name_any).collect();
    for kind in [
        "Machine",
        "Node",
        "PersistentVolume",
        "PersistentVolumeClaim",
        "ScalewayElasticMetalMachine",
        "ScalewayInstanceMachine",
        "attachment",
        "bill",
        "instance",
        "ipam",
        "machine",
        "metal",
        "token",
        "volume",
    ] {
        ensure!(
            left::kinds(before).contains(&kind),
            "no {kind} was seen among {before:#?}"
        );
    }
    wait::until("nothing to be left", LONG, || async {
        let traces = left::traces(site, yard, &names).await?;
        Ok(Look::done_if(traces.is_empty(), traces))
    })
    .await
}
