//! Nodes without a providerID, which Cluster API never bound to their Machines.
//!
//! Taken out to see it fail: the agent did not fill a `providerID` that was empty. The story ended with "waited 90s for the Node to get the
//! providerID of its machine". Without the look at whose Node it is, the agent joined as the other machine, and the story ended with
//! "waited 90s for the agent to say that the Node is another machine's".

use std::os::unix::fs::PermissionsExt as _;

use anyhow::{Context, Result, ensure};
use futures::FutureExt;
use futures::future::LocalBoxFuture;
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt as _;
use kube::api::{DeleteParams, PostParams};
use russet_api::ScalewayAppleSiliconMachine;
use russet_stages::macs::{Yard, condition};
use russet_testkit::wait::{self, Look, PATIENCE};
use serde_json::{Value, json};

use super::Mini;
use super::program::agent;
use super::under_provider::{Image, look_again, mini_of, set_up};
use crate::{Play, Scenario, Stage};

pub(crate) const SCENARIO: Scenario = Scenario {
    name: "provider-id",
    from: "S2",
    what_happened: "nodes without providerID never bound to their Machines; each had to be patched by hand",
    must_hold: "it is set on create, filled when empty, never overwritten, also after the Node is deleted and comes back",
    without: None,
    play: Play::Own(run),
};

/// Where the agent of before finds the real one.
const BESIDE: &str = "usr/local/libexec/tart-kubelet";
/// The agent of before: the same in all but one flag.
const BEFORE: &str = r#"#!/bin/bash
for word in "$@"; do
  shift
  case $word in --provider-id=*) ;; *) set -- "$@" "$word" ;; esac
done
exec /usr/local/libexec/tart-kubelet "$@"
"#;
/// A `tart` that has nothing to list.
const TART: &str = "#!/bin/bash\n[ \"$1\" = list ] && echo '[]'\nexit 0\n";
const FOREIGN: &str = "scw-applesilicon://fr-par-3/00000000-0000-4000-8000-000000000000";

fn run<'a>(stage: &'a mut Stage<'_, ()>) -> LocalBoxFuture<'a, Result<()>> {
    async move {
        stage.step(
            "a real control plane with Cluster API core and the provider, which sets up an emulated Mac over SSH",
        );
        let image = Image::with(BEFORE.as_bytes())?;
        // Nothing in a story listens where others can dial.
        let fleet = image.fleet(&image.tailnet()?).await?;
        let yard = fleet.yard("provider-id", 1).await?;
        let mini = mini_of(&yard).await?;
        let beside = mini.mac().await?.root().join(BESIDE);
        // A host without it is not ready, and says so.
        let tart = mini.mac().await?.root().join("usr/local/bin/tart");
        for folder in [beside.parent(), tart.parent()].into_iter().flatten() {
            std::fs::create_dir_all(folder)?;
        }
        std::fs::copy(agent()?, &beside)?;
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
        place.naive(stage).await?;
        place.fills(stage, &image).await?;
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

    /// An agent as it was before: it registers, serves, and never belongs to anybody.
    async fn naive(&self, stage: &mut Stage<'_, ()>) -> Result<()> {
        stage.step("launchd runs an agent as it was before, which does not say which machine it is on");
        let node = self
            .until_node("the Node to be ready", |node| {
                let conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
                let mut ready = conditions.filter(|condition| condition.type_ == "Ready");
                ready.any(|condition| condition.status == "True")
            })
            .await?;
        ensure!(
            provider_id(&node).is_none(),
            "the staged fault did not bite: {:?}",
            node.spec
        );
        let said = wait::until("core to say what it waits for", PATIENCE, || async {
            let machines = self.yard.machines_of("macos").await?;
            let machine = machines.first().context("there is no Machine")?;
            let bound = machine.data.pointer("/status/nodeRef/name");
            ensure!(bound.is_none(), "the staged fault did not bite: bound to {bound:?}");
            let said = condition(machine, "NodeReady").and_then(|condition| condition["message"].as_str());
            Ok(match said {
                Some(said) if said.contains(&self.wanted) => Look::Done(said.to_owned()),
                _ => Look::not_yet(machine.data.get("status")),
            })
        })
        .await?;
        stage.bites(format!(
            "Node {} is Ready and its Machine stays unbound: {said}",
            self.name
        ));
        Ok(())
    }

    async fn fills(&self, stage: &mut Stage<'_, ()>, image: &Image) -> Result<()> {
        stage.step("the provider rolls the agent of today, on the Mac as it is");
        let before = self.node().await?;
        let program = agent()?;
        image.put(
            "agent",
            &std::fs::read(&program).with_context(|| format!("failed to read {}", program.display()))?,
        )?;
        look_again(self.yard, "the agent of today").await?;
        let what = "the Node to get the providerID of its machine";
        let node = self
            .until_node(what, |node| provider_id(node) == Some(self.wanted.as_str()))
            .await?;
        ensure!(node.uid() == before.uid(), "it is another Node");
        self.yard.available("macos", 1).await?;
        stage.holds(format!(
            "the Node that was there has {}, and its MachineDeployment is available: nobody patched anything",
            self.wanted
        ));
        Ok(())
    }

    /// A Node of the same name that is another machine's.
    async fn leaves_alone(&self, stage: &mut Stage<'_, ()>, mini: &Mini) -> Result<()> {
        stage.step("while the Mac is off its Node is deleted, and one of the same name is made for another machine");
        let mac = mini.mac().await?;
        mac.cut_power().await;
        let nodes = self.yard.nodes();
        nodes.delete(&self.name, &DeleteParams::default()).await?;
        let foreign: Node = serde_json::from_value(json!({
            "metadata": {"name": self.name}, "spec": {"providerID": FOREIGN},
        }))?;
        wait::until("the other Node to be made", PATIENCE, || async {
            Ok(match nodes.create(&PostParams::default(), &foreign).await {
                Ok(_) => Look::Done(()),
                Err(error) => Look::NotYet(error.to_string()),
            })
        })
        .await?;
        mac.restore_power().await;
        wait::until(
            "the agent to say that the Node is another machine's",
            PATIENCE,
            || async {
                let log = mini.root("cat /var/log/tart-kubelet.log").await?;
                Ok(if log.contains(FOREIGN) {
                    Look::Done(())
                } else {
                    Look::NotYet(log.lines().last().unwrap_or_default().to_owned())
                })
            },
        )
        .await?;
        let node = self.node().await?;
        ensure!(
            provider_id(&node) == Some(FOREIGN),
            "the agent took over a Node: {:?}",
            node.spec
        );
        ensure!(
            node.labels().get("tuist.dev/fleet").is_none(),
            "the agent labelled a foreign Node"
        );
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
        ensure!(
            provider_id(&back) == Some(self.wanted.as_str()),
            "it came back with {:?}",
            provider_id(&back)
        );
        self.yard.available("macos", 1).await?;
        let machine = self.yard.machines_of("macos").await?;
        let bound = machine
            .first()
            .and_then(|machine| machine.data.pointer("/status/nodeRef/name"))
            .and_then(Value::as_str);
        ensure!(bound == Some(self.name.as_str()), "the Machine is bound to {bound:?}");
        stage.holds("the Node comes back with its providerID from the start, and its Machine is bound to it");
        Ok(())
    }
}
