//! The API server dialled a host name that resolves nowhere: no logs, no exec, no port-forward.
//!
//! With `Hostname` before `InternalIP` it ends with `no such host`, although there is an address.

use anyhow::{Context, Result, ensure};
use futures::FutureExt;
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, LogParams, PostParams};
use russet_testkit::TestCluster;
use russet_testkit::wait::{self, Look, PATIENCE};
use serde_json::{Value, json};
use tokio::net::TcpListener;

use super::paper_node;
use crate::pods::mac::{IMAGE, Mac};
use crate::{Play, Scenario, Stage};

pub(crate) const SCENARIO: Scenario = Scenario {
    name: "hostname-address",
    from: "S4",
    what_happened: "the API server dialled nodes by their host names, which no resolver knows",
    must_hold: "nodes publish an InternalIP, the API server dials that before it tries a name, and kubectl reaches into them",
    without: None,
    play: Play::Cluster(run),
};

fn run<'a>(stage: &'a mut Stage<'_, TestCluster>) -> BoxFuture<'a, Result<()>> {
    async move {
        stage.step("a Node that publishes only its name, as a server without a name in DNS does");
        let address = |kind: &str, address: &str| json!({"type": kind, "address": address});
        let name = json!([address("Hostname", "cache-1.invalid")]);
        let said = log_of(&stage.world, "by-name", name, 10250).await?;
        let said = said.context("the staged fault did not bite: there is a log")?;
        ensure!(said.contains("lookup"), "the staged fault did not bite: {said}");
        stage.bites(format!("the API server cannot show a log: {said}"));

        stage.step("a Node that publishes its InternalIP too, as the join program has the kubelet do");
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let port = listener.local_addr()?.port();
        let both = json!([
            address("Hostname", "cache-2.invalid"),
            address("InternalIP", "127.0.0.1")
        ]);
        let asked = async {
            tokio::select! {
                dialled = listener.accept() => anyhow::Ok(dialled.is_ok()),
                said = log_of(&stage.world, "by-address", both, port) => anyhow::bail!("it was not dialled: {said:?}"),
            }
        };
        ensure!(
            tokio::time::timeout(PATIENCE, asked)
                .await
                .context("nobody dialled")??
        );
        stage.holds("the API server dials the InternalIP, although there is a name as well");
        on_a_mac(stage).await
    }
    .boxed()
}

/// The same with the agent of Macs, from its registration to what kubectl shows.
async fn on_a_mac(stage: &mut Stage<'_, TestCluster>) -> Result<()> {
    let mac = Mac::new(&stage.world, "127.77.20.5").await?;
    stage
        .narrator
        .step("a Mac whose name no resolver knows; our agent makes it a Node and runs a Pod");
    let resolved = tokio::net::lookup_host((mac.node.as_str(), 10250)).await;
    ensure!(
        resolved.is_err(),
        "the staged fault does not bite: {} has an address",
        mac.node
    );
    let _agent = mac.start()?;
    mac.approve_serving().await?;
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
    ensure!(said == "hello inside\n", "kubectl exec said {said:?}");
    stage
        .narrator
        .holds("kubectl logs and kubectl exec reach into its VM, by its InternalIP");
    Ok(())
}

/// Asks for the log of a Pod on a Node with these addresses; what was said instead, if there is none.
async fn log_of(cluster: &TestCluster, name: &str, addresses: Value, port: u16) -> Result<Option<String>> {
    let sandbox = cluster.sandbox(name).await?;
    let client = sandbox.client().await?;
    paper_node(&client, name, json!({}), addresses, port).await?;
    let pods: Api<Pod> = Api::namespaced(client, sandbox.namespace());
    let pod: Pod = serde_json::from_value(json!({
        "metadata": {"name": "cache"},
        "spec": {
            "nodeName": name, "automountServiceAccountToken": false,
            "tolerations": [{"operator": "Exists"}],
            "containers": [{"name": "cache", "image": "cache"}],
        },
    }))?;
    wait::until("the Pod to be admitted", PATIENCE, || async {
        pods.create(&PostParams::default(), &pod).await?;
        Ok(Look::Done(()))
    })
    .await?;
    Ok(match pods.logs("cache", &LogParams::default()).await {
        Ok(_) => None,
        Err(error) => Some(error.to_string()),
    })
}
