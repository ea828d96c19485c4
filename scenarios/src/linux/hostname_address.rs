//! The API server dialled a host name that resolves nowhere: no logs, no exec, no port-forward.

use anyhow::{Result, ensure};
use futures::FutureExt;
use futures::future::LocalBoxFuture;
use k8s_openapi::api::core::v1::Node;
use russet_testkit::wait::{self, Look};

use crate::mac::vms::{IMAGE, Mac, PATIENCE};
use crate::{Play, Scenario, Stage, promise};

pub(crate) const SCENARIO: Scenario = Scenario {
    name: "hostname-address",
    from: "S4",
    what_happened: "the API server dialled nodes by their host names, which no resolver knows",
    must_hold: "the Node of a Mac publishes its InternalIP, on the tailnet, and by it kubectl reaches into VMs there",
    without: Some(include_str!("hostname_address.without.patch")),
    play: Play::Mac(run),
};

fn addresses(node: &Node, kind: &str) -> Vec<String> {
    let all = node.status.iter().flat_map(|status| status.addresses.iter().flatten());
    all.filter(|address| address.type_ == kind)
        .map(|address| address.address.clone())
        .collect()
}

fn run<'a>(stage: &'a mut Stage<'_, Mac>) -> LocalBoxFuture<'a, Result<()>> {
    async move {
        let mac = &stage.world;
        let resolved = tokio::net::lookup_host((mac.node.as_str(), 10250)).await;
        ensure!(resolved.is_err(), "a resolver knows {}", mac.node);
        let node = mac.nodes().get(&mac.node).await?;
        let tailnet = mac.tailnet_address().await?.to_string();
        let published = addresses(&node, "InternalIP");
        promise!(
            "a-node-publishes-its-internal-ip",
            published == [tailnet.clone()],
            "{} is at {tailnet}, and its Node is ready with {:?}",
            mac.node,
            node.status.map(|status| status.addresses)
        );
        stage.narrator.holds(&format!(
            "no resolver knows {}, and its Node says that it is at {tailnet}",
            mac.node
        ));

        stage.narrator.step("a Pod runs there");
        mac.run("job", IMAGE, Some("echo hello from a Mac; sleep 100000"))
            .await?;
        mac.until_running("job").await?;
        wait::until("the log of the Pod", PATIENCE, || async {
            let said = mac.kubectl(&["logs", "job"]).await?;
            Ok(if said == "hello from a Mac\n" {
                Look::Done(())
            } else {
                Look::NotYet(said)
            })
        })
        .await?;
        let said = mac.kubectl(&["exec", "job", "--", "echo", "hello", "inside"]).await?;
        promise!("kubectl-reaches-into-vms", said == "hello inside\n", "kubectl exec said {said:?}");
        stage
            .narrator
            .holds("kubectl logs and kubectl exec reach into its VM; the provider approved the certificate that the agent serves with");
        Ok(())
    }
    .boxed_local()
}
