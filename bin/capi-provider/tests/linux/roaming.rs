//! A cache whose data is on the disk of one node, and goes on without it on another.
//!
//! Claims of a node that was gone stayed for ever, and their Pods waited for it.

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{Event, PersistentVolumeClaim, Pod};
use kube::ResourceExt as _;
use kube::api::{Api, DeleteParams, ListParams, PostParams};
use russet_stages::macs::Yard;
use russet_testkit::wait::{self, Look, PATIENCE};
use serde_json::json;

use crate::life::LONG;

const NAME: &str = "roaming";
const POD: &str = "roaming-0";
const CLAIM: &str = "data-roaming-0";

/// A cache that runs.
pub(crate) struct Cache {
    claim: String,
}

fn claims(yard: &Yard<'_>) -> Api<PersistentVolumeClaim> {
    Api::namespaced(yard.client.clone(), &yard.namespace)
}

fn sets(yard: &Yard<'_>) -> Api<StatefulSet> {
    Api::namespaced(yard.client.clone(), &yard.namespace)
}

/// Starts one in the pool of all cache nodes, which would rather be in this fleet, and waits until it is on this Node.
pub(crate) async fn start(yard: &Yard<'_>, fleet: &str, node: &str) -> Result<Cache> {
    let rather = json!([{
        "weight": 1,
        "preference": {"matchExpressions": [{"key": "tuist.dev/fleet", "operator": "In", "values": [fleet]}]},
    }]);
    let pod = json!({
        "nodeSelector": {"node.cluster.x-k8s.io/pool": "kura-scw-fr-par"},
        "affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": rather}},
        "tolerations": [{"key": "tuist.dev/runner-cache", "operator": "Exists"}],
        "terminationGracePeriodSeconds": 1,
        "containers": [{
            "name": "cache", "image": "localhost/busybox:1", "imagePullPolicy": "Never",
            "command": ["/bin/busybox", "sh", "-c", "echo here >/data/proof && exec sleep 36000"],
            "volumeMounts": [{"name": "data", "mountPath": "/data"}],
            "readinessProbe": {"exec": {"command": ["/bin/busybox", "test", "-s", "/data/proof"]}, "periodSeconds": 1},
        }],
    });
    let set = serde_json::from_value(json!({
        "metadata": {"name": NAME},
        "spec": {
            "serviceName": NAME, "replicas": 1, "selector": {"matchLabels": {"app": NAME}},
            "template": {"metadata": {"labels": {"app": NAME}}, "spec": pod},
            "volumeClaimTemplates": [{
                "metadata": {"name": "data"},
                "spec": {
                    "storageClassName": "scw-local-nvme", "accessModes": ["ReadWriteOnce"],
                    "resources": {"requests": {"storage": "64Mi"}},
                },
            }],
        },
    }))?;
    sets(yard).create(&PostParams::default(), &set).await?;
    ready_on(yard, node).await?;
    let claim = claims(yard).get(CLAIM).await?.uid().context("a claim without a uid")?;
    Ok(Cache { claim })
}

async fn ready_on(yard: &Yard<'_>, node: &str) -> Result<()> {
    let pods: Api<Pod> = Api::namespaced(yard.client.clone(), &yard.namespace);
    // A Pod that lost its claim may wait until the scheduler looks at all that wait, which is every five minutes.
    wait::until(&format!("the cache to be ready on {node}"), LONG * 2, || async {
        let Some(pod) = pods.get_opt(POD).await? else {
            return Ok(Look::not_yet("no Pod"));
        };
        let (spec, status) = (pod.spec.unwrap_or_default(), pod.status.unwrap_or_default());
        let conditions = status.conditions.iter().flatten();
        let ready = conditions
            .into_iter()
            .any(|condition| condition.type_ == "Ready" && condition.status == "True");
        Ok(Look::done_if(
            ready && spec.node_name.as_deref() == Some(node),
            (spec.node_name, status),
        ))
    })
    .await
}

impl Cache {
    /// Waits until it runs on this Node with a claim of its own, and people were told of the old one.
    pub(crate) async fn moves_to(&self, yard: &Yard<'_>, node: &str) -> Result<()> {
        ready_on(yard, node).await?;
        let claim = claims(yard).get(CLAIM).await?;
        ensure!(claim.uid().as_ref() != Some(&self.claim), "the claim is the old one");
        let events: Api<Event> = Api::namespaced(yard.client.clone(), &yard.namespace);
        let lost = ListParams::default().fields("reason=LocalVolumeLost");
        wait::until("an event about the old claim", PATIENCE, || async {
            let told: Vec<_> = events.list(&lost).await?.items;
            let about: Vec<_> = told.into_iter().map(|event| event.involved_object).collect();
            let old = about.iter().any(|object| object.uid.as_ref() == Some(&self.claim));
            Ok(Look::done_if(old, about))
        })
        .await
    }

    /// Ends it. Its claim stays, as that of any StatefulSet.
    pub(crate) async fn stop(&self, yard: &Yard<'_>) -> Result<()> {
        sets(yard).delete(NAME, &DeleteParams::foreground()).await?;
        wait::until("the cache to be gone", LONG, || async {
            Ok(match sets(yard).get_opt(NAME).await? {
                None => Look::Done(()),
                Some(left) => Look::not_yet(left.metadata),
            })
        })
        .await?;
        claims(yard)
            .get(CLAIM)
            .await
            .map(drop)
            .context("the claim went with it")
    }
}
