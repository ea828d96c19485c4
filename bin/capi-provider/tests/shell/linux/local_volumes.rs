//! Volumes on the disk of a server, when the server is given up.

use std::fmt::Debug;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::{Event, Node, PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Client, ResourceExt as _};
use russet_api::ScalewayInstanceMachine as Instance;
use russet_testkit::wait::{self, Look, PATIENCE};
use serde::de::DeserializeOwned;
use serde_json::json;

use super::support::{Trial, With, sim};

const OURS: &str = "scw-local-nvme";

/// Volumes that are there, with a claim each, in one namespace.
struct Shelf {
    client: Client,
    namespace: String,
}

impl Shelf {
    fn of(trial: &Trial<Instance>) -> Self {
        Self {
            client: trial.fleet.client.clone(),
            namespace: trial.fleet.namespace.clone(),
        }
    }

    fn claims(&self) -> Api<PersistentVolumeClaim> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    fn volumes(&self) -> Api<PersistentVolume> {
        Api::all(self.client.clone())
    }

    /// Volumes have no namespace, so their names must not repeat between tests.
    fn volume(&self, claim: &str) -> String {
        format!("{}-{claim}", self.namespace)
    }

    async fn claim(&self, name: &str, class: &str, volume: Option<&str>) -> Result<()> {
        let claim = serde_json::from_value(json!({
            "metadata": {"name": name},
            "spec": {
                "storageClassName": class, "volumeName": volume, "accessModes": ["ReadWriteOnce"],
                "resources": {"requests": {"storage": "1Gi"}},
            },
        }))?;
        self.claims().create(&PostParams::default(), &claim).await?;
        Ok(())
    }

    /// A claim that is bound to a volume on these Nodes.
    async fn bind(&self, name: &str, class: &str, nodes: &[&str]) -> Result<()> {
        let volume = self.volume(name);
        let term = json!({"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": nodes}]});
        let object = serde_json::from_value(json!({
            "metadata": {"name": volume},
            "spec": {
                "storageClassName": class, "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"},
                "persistentVolumeReclaimPolicy": "Retain", "local": {"path": "/opt/volume"},
                "claimRef": {"namespace": self.namespace, "name": name},
                "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}},
            },
        }))?;
        self.volumes().create(&PostParams::default(), &object).await?;
        self.claim(name, class, Some(&volume)).await?;
        wait::until("the claim to be bound", PATIENCE, || async {
            let status = self.claims().get(name).await?.status;
            let phase = status.and_then(|status| status.phase);
            Ok(Look::done_if(phase.as_deref() == Some("Bound"), phase))
        })
        .await
    }

    /// Neither the claim nor its volume was told to go.
    async fn is_kept(&self, name: &str) -> Result<()> {
        let claim = self.claims().get(name).await?;
        let volume = self.volumes().get(&self.volume(name)).await?;
        ensure!(
            claim.metadata.deletion_timestamp.is_none(),
            "the claim {name} was deleted"
        );
        ensure!(
            volume.metadata.deletion_timestamp.is_none(),
            "the volume {name} was deleted"
        );
        Ok(())
    }

    /// The messages of events about something.
    async fn told(&self, namespace: &str, kind: &str, name: &str) -> Result<Vec<String>> {
        let events: Api<Event> = Api::namespaced(self.client.clone(), namespace);
        let fields = format!("reason=LocalVolumeLost,involvedObject.kind={kind},involvedObject.name={name}");
        let found = events.list(&ListParams::default().fields(&fields)).await?;
        Ok(found.items.into_iter().filter_map(|event| event.message).collect())
    }
}

async fn gone<K>(api: &Api<K>, name: &str) -> Result<()>
where
    K: Clone + Debug + DeserializeOwned,
{
    wait::until(&format!("{name} to be gone"), PATIENCE, || async {
        Ok(match api.get_opt(name).await? {
            None => Look::Done(()),
            Some(left) => Look::not_yet(left),
        })
    })
    .await
}

/// The claims of a node that was deleted stayed for ever, and every Pod of theirs waited for it.
#[tokio::test]
async fn claims_and_volumes_on_the_disk_of_a_server_go_with_it_and_no_others() -> Result<()> {
    let trial: Trial<Instance> = Trial::begin("disk", json!({}), &[], |_| ()).await?;
    let node = trial.serves().await?.name_any();
    let shelf = Shelf::of(&trial);
    let another = format!("{node}-2");
    let (here, there, anywhere): (&[&str], &[&str], &[&str]) = (&[&node], &[&another], &[&node, &another]);
    futures::try_join!(
        shelf.bind("lost", OURS, here),
        shelf.bind("held", OURS, here),
        shelf.bind("anew", OURS, here),
        shelf.bind("other-class", "scw-bssd", here),
        shelf.bind("elsewhere", OURS, there),
        shelf.bind("both", OURS, anywhere),
    )?;
    // Its claim is gone, as after a crash half-way, and another has its name.
    shelf.claims().delete("anew", &DeleteParams::default()).await?;
    gone(&shelf.claims(), "anew").await?;
    shelf.claim("anew", OURS, None).await?;
    let anew = shelf.claims().get("anew").await?.uid();
    // Somebody still holds on to the claim; that is no reason for the machine to stay.
    let hold =
        |on: bool| json!({"metadata": {"finalizers": if on { json!(["test.russet.dev/hold"]) } else { json!([]) }}});
    let patch = PatchParams::default();
    shelf.claims().patch("held", &patch, &Patch::Merge(hold(true))).await?;

    trial.fleet.scale(0).await?;
    trial
        .fleet
        .until_of("the machine to be gone", 0, |_: &Instance| true)
        .await?;

    gone(&shelf.claims(), "lost").await?;
    gone(&shelf.volumes(), &shelf.volume("lost")).await?;
    gone(&shelf.volumes(), &shelf.volume("anew")).await?;
    for name in ["elsewhere", "both", "other-class"] {
        shelf.is_kept(name).await?;
    }
    let claim = shelf.claims().get("anew").await?;
    assert_eq!(claim.uid(), anew);
    assert!(claim.metadata.deletion_timestamp.is_none(), "the new claim stays");
    shelf.claims().patch("held", &patch, &Patch::Merge(hold(false))).await?;
    gone(&shelf.claims(), "held").await?;
    gone(&shelf.volumes(), &shelf.volume("held")).await?;

    let told = shelf.told(&shelf.namespace, "PersistentVolumeClaim", "lost").await?;
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(
        told[0].contains(&node) && told[0].contains(&shelf.volume("lost")),
        "{told:?}"
    );
    let told = shelf.told(&shelf.namespace, "PersistentVolumeClaim", "anew").await?;
    assert!(told.is_empty(), "{told:?}");
    let told = shelf.told("default", "PersistentVolume", &shelf.volume("lost")).await?;
    assert_eq!(told.len(), 1, "{told:?}");
    trial.leaves().await
}

/// What is on a Node of this name is not lost while that Node is there, whoever it belongs to.
#[tokio::test]
async fn a_node_of_the_same_name_keeps_its_volumes() -> Result<()> {
    let trial: Trial<Instance> = Trial::begin("disk-namesake", json!({}), &[], |_| ()).await?;
    let name = trial.serves().await?.name_any();
    let shelf = Shelf::of(&trial);
    shelf.bind("kept", OURS, &[&name]).await?;
    let nodes: Api<Node> = Api::all(shelf.client.clone());
    let machine: Api<Instance> = Api::namespaced(shelf.client.clone(), &shelf.namespace);
    // The finalizer of the test lets us look before core deletes the Node by its name.
    let ours = machine.get(&name).await?.finalizers().to_vec();
    let held: Vec<String> = ours
        .iter()
        .cloned()
        .chain(["test.russet.dev/look".to_owned()])
        .collect();
    let patch = PatchParams::default();
    let finalizers = |all: &[String]| Patch::Merge(json!({"metadata": {"finalizers": all}}));
    machine.patch(&name, &patch, &finalizers(&held)).await?;
    // A machine is ready before its Node is there.
    let node = wait::until(&format!("the Node {name}"), PATIENCE, || async {
        let found = nodes.get_opt(&name).await?;
        Ok(found.map_or_else(|| Look::not_yet("it has not joined"), Look::Done))
    })
    .await?;
    let trial = trial.without_boots();
    nodes.delete(&name, &DeleteParams::default()).await?;
    gone(&nodes, &name).await?;
    let other = json!({
        "metadata": {"name": name, "labels": node.labels()},
        "spec": {"providerID": "scaleway://instance/fr-par-2/11111111-1111-4111-8111-111111111111"},
    });
    nodes
        .create(&PostParams::default(), &serde_json::from_value(other)?)
        .await?;

    trial.fleet.scale(0).await?;
    let done = |machine: &Instance| machine.finalizers().iter().all(|held| !ours.contains(held));
    trial.fleet.until_of("the provider to be done", 1, done).await?;
    shelf.is_kept("kept").await?;
    assert!(nodes.get_opt(&name).await?.is_some(), "the Node stays");
    machine
        .patch(&name, &patch, &finalizers(&[]))
        .await
        .context("let it go")?;
    trial.leaves().await
}

/// A provider that was upgraded without its chart says what it lacks, and goes on once it has it. The server is not paid for meanwhile.
#[tokio::test]
async fn without_the_right_to_delete_volumes_a_machine_says_so_and_waits() -> Result<()> {
    let missing = ["persistentvolumes"];
    let with = With {
        spec: json!({}),
        not: &missing,
        ..With::default()
    };
    let trial: Trial<Instance> = Trial::with(sim().await?, "disk-rights", with).await?;
    let name = trial.serves().await?.name_any();
    let shelf = Shelf::of(&trial);
    shelf.bind("lost", OURS, &[&name]).await?;
    trial.fleet.scale(0).await?;
    let events: Api<Event> = Api::namespaced(shelf.client.clone(), &shelf.namespace);
    let failed = ListParams::default().fields(&format!("reason=DeleteFailed,involvedObject.name={name}"));
    let said = wait::until("the machine to say what is missing", PATIENCE, || async {
        let told = events.list(&failed).await?.items;
        let said = told.into_iter().find_map(|event| event.message);
        Ok(said.map_or_else(|| Look::not_yet("nothing was said"), Look::Done))
    })
    .await?;
    assert!(
        said.contains("forbidden")
            && said.contains("persistentvolumes")
            && said.contains("--linux-local-storage-class"),
        "{said}"
    );
    trial.owns_nothing();
    shelf.is_kept("lost").await?;

    let namespace = &shelf.namespace;
    let role: ClusterRole = serde_json::from_value(json!({
        "metadata": {"name": namespace},
        "rules": [{"apiGroups": [""], "resources": missing, "verbs": ["list", "delete"]}],
    }))?;
    let binding: ClusterRoleBinding = serde_json::from_value(json!({
        "metadata": {"name": namespace},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": namespace},
        "subjects": [{"kind": "ServiceAccount", "name": "capi-provider", "namespace": namespace}],
    }))?;
    let post = PostParams::default();
    Api::all(shelf.client.clone()).create(&post, &role).await?;
    Api::all(shelf.client.clone()).create(&post, &binding).await?;
    gone(&shelf.claims(), "lost").await?;
    gone(&shelf.volumes(), &shelf.volume("lost")).await?;
    trial.leaves().await
}
