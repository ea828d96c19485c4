//! Nodes without a providerID, which Cluster API never bound to their Machines.

use std::os::unix::fs::PermissionsExt as _;

use anyhow::{Context, Result, ensure};
use futures::FutureExt;
use futures::future::LocalBoxFuture;
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt as _;
use kube::api::{DeleteParams, PostParams};
use russet_api::ScalewayAppleSiliconMachine;
use russet_stages::macs::Yard;
use russet_testkit::wait::{self, Look, PATIENCE};
use serde_json::{Value, json};

use super::Mini;
use super::program::agent;
use super::under_provider::{Image, mini_of, set_up};
use crate::{Play, Scenario, Stage, promise, until};

pub(crate) const SCENARIO: Scenario = Scenario {
    name: "provider-id",
    from: "S2",
    what_happened: "nodes without providerID never bound to their Machines; each had to be patched by hand",
    must_hold: "it is set on create, filled when empty, never overwritten, also after the Node is deleted and comes back",
    without: Some(include_str!("provider_id.without.patch")),
    play: Play::Own(run),
};

/// A `tart` that has nothing to list.
const TART: &str = "#!/bin/bash\n[ \"$1\" = list ] && echo '[]'\nexit 0\n";
const FOREIGN: &str = "scw-applesilicon://fr-par-3/00000000-0000-4000-8000-000000000000";

fn run<'a>(stage: &'a mut Stage<'_, ()>) -> LocalBoxFuture<'a, Result<()>> {
    async move {
        stage.step(
            "a real control plane with Cluster API core and the provider, which sets up an emulated Mac over SSH",
        );
        let program = agent()?;
        let read = std::fs::read(&program);
        let image = Image::with(&read.with_context(|| format!("failed to read {}", program.display()))?)?;
        // Nothing in a story listens where others can dial.
        let fleet = image.fleet(&image.tailnet()?).await?;
        let yard = fleet.yard("provider-id", 1).await?;
        let mini = mini_of(&yard).await?;
        // A host without it is not ready, and says so.
        let tart = mini.mac().await?.root().join("usr/local/bin/tart");
        std::fs::create_dir_all(tart.parent().context("no folder")?)?;
        std::fs::write(&tart, TART)?;
        std::fs::set_permissions(&tart, std::fs::Permissions::from_mode(0o755))?;
        set_up(&yard, json!({})).await?;
        let has_one = |mac: &ScalewayAppleSiliconMachine| mac.spec.provider_id.is_some();
        let mac = yard.mac_until("the machine to have a providerID", has_one).await?;
        let place = Place {
            yard: &yard,
            name: mac.name_any(),
            wanted: mac.spec.provider_id.context("the machine has no providerID")?,
        };
        place.joins(stage).await?;
        place.fills(stage, &mini).await?;
        place.leaves_alone(stage, &mini).await?;
        place.sets(stage).await
    }
    .boxed_local()
}

struct Place<'a> {
    yard: &'a Yard<'a>,
    /// Of the machine and of its Node.
    name: String,
    /// The providerID of the machine.
    wanted: String,
}

fn provider_id(node: &Node) -> Option<&str> {
    let spec = node.spec.as_ref()?;
    spec.provider_id.as_deref().filter(|id| !id.is_empty())
}

fn is_ready(node: &Node) -> bool {
    let conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let mut ready = conditions.filter(|condition| condition.type_ == "Ready");
    ready.any(|condition| condition.status == "True")
}

impl Place<'_> {
    async fn node(&self) -> Result<Node> {
        Ok(self.yard.nodes().get(&self.name).await?)
    }

    async fn until_node(&self, what: &str, holds: impl Fn(&Node) -> bool) -> Result<Node> {
        wait::until(what, PATIENCE, || async {
            let node = self.node().await?;
            Ok(if holds(&node) {
                Look::Done(node)
            } else {
                Look::NotYet(json!([node.metadata.uid, node.spec]).to_string())
            })
        })
        .await
    }

    async fn joins(&self, stage: &mut Stage<'_, ()>) -> Result<()> {
        let node = self.until_node("the Node to be ready", is_ready).await?;
        promise!(
            "set-on-create",
            provider_id(&node) == Some(self.wanted.as_str()),
            "{:?}",
            node.spec
        );
        stage.holds("the Node has the providerID of its machine");
        Ok(())
    }

    /// A Node of the same name in place of the one that is there, which the agent finds when the Mac is on again.
    async fn exchanged(&self, mini: &Mini, spec: Value) -> Result<()> {
        let mac = mini.mac().await?;
        mac.cut_power().await;
        let nodes = self.yard.nodes();
        nodes.delete(&self.name, &DeleteParams::default()).await?;
        let other: Node = serde_json::from_value(json!({"metadata": {"name": self.name}, "spec": spec}))?;
        wait::until("the other Node to be made", PATIENCE, || async {
            Ok(match nodes.create(&PostParams::default(), &other).await {
                Ok(_) => Look::Done(()),
                Err(error) => Look::NotYet(error.to_string()),
            })
        })
        .await?;
        mac.restore_power().await;
        Ok(())
    }

    async fn fills(&self, stage: &mut Stage<'_, ()>, mini: &Mini) -> Result<()> {
        stage.step("while the Mac is off its Node is deleted, and one without providerID is made, as agents of before made them");
        self.exchanged(mini, json!({})).await?;
        let before = self.node().await?;
        until("the agent to report its Node", PATIENCE, || async {
            let node = self.node().await?;
            let (id, ready) = (provider_id(&node), is_ready(&node));
            promise!(
                "filled-when-empty",
                !ready || id == Some(self.wanted.as_str()),
                "the agent reports Node {} as ready, and its providerID is {id:?}",
                self.name
            );
            Ok(if ready {
                Look::Done(())
            } else {
                Look::not_yet(&node.status)
            })
        })
        .await?;
        ensure!(self.node().await?.uid() == before.uid(), "it is another Node");
        self.yard.available("macos", 1).await?;
        stage.holds(format!(
            "the Node that was there has {}, and its MachineDeployment is available: nobody patched anything",
            self.wanted
        ));
        Ok(())
    }

    /// A Node of the same name that is another machine's.
    async fn leaves_alone(&self, stage: &mut Stage<'_, ()>, mini: &Mini) -> Result<()> {
        stage.step("the same with a Node of the same name that is another machine's");
        self.exchanged(mini, json!({"providerID": FOREIGN})).await?;
        until(
            "the agent to say that the Node is another machine's",
            PATIENCE,
            || async {
                let node = self.node().await?;
                let label = node.labels().get("tuist.dev/fleet");
                promise!(
                    "never-overwritten",
                    provider_id(&node) == Some(FOREIGN) && label.is_none(),
                    "the agent took over a Node: {:?} {label:?}",
                    node.spec
                );
                let log = mini.root("cat /var/log/tart-kubelet.log").await?;
                Ok(if log.contains(FOREIGN) {
                    Look::Done(())
                } else {
                    Look::NotYet(log.lines().last().unwrap_or_default().to_owned())
                })
            },
        )
        .await?;
        stage.holds("the agent says whose Node it is, and leaves it as it is");
        Ok(())
    }

    async fn sets(&self, stage: &mut Stage<'_, ()>) -> Result<()> {
        stage.step("that Node is deleted, too");
        let before = self.node().await?;
        self.yard.nodes().delete(&self.name, &DeleteParams::default()).await?;
        let back = self
            .until_node("the Node to come back", |node| node.uid() != before.uid())
            .await?;
        let id = provider_id(&back);
        promise!(
            "set-on-create",
            id == Some(self.wanted.as_str()),
            "it came back with {id:?}"
        );
        self.yard.available("macos", 1).await?;
        let machine = self.yard.machines_of("macos").await?;
        let bound = machine
            .first()
            .and_then(|machine| machine.data.pointer("/status/nodeRef/name"))
            .and_then(Value::as_str);
        promise!(
            "bound",
            bound == Some(self.name.as_str()),
            "the Machine is bound to {bound:?}"
        );
        stage.holds("the Node comes back with its providerID from the start, and its Machine is bound to it");
        Ok(())
    }
}
