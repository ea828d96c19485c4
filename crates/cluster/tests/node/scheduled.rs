//! The harness with a real Linux node: what a Pod needs is really there. (The node itself is tested in `crates/cluster`.)

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Api, PostParams};
use russet_testkit::wait::{self, Look, PATIENCE};
use russet_testkit::{Extras, TestCluster};
use serde_json::json;

/// The harness gives tests a node that is an ordinary member of the cluster: scheduled to by the real scheduler, run by a real kubelet.
#[tokio::test]
async fn a_pod_is_scheduled_to_the_real_node_and_finishes() -> Result<()> {
    if !russet_skip::needs_root(russet_skip::test_name!()) {
        return Ok(());
    }
    let cluster = TestCluster::start(Extras {
        linux_node: true,
        ..Extras::default()
    })
    .await?;
    let sandbox = cluster.sandbox("node").await?;
    let client = sandbox.client().await?;

    let nodes: Api<Node> = Api::all(client.clone());
    let node = nodes
        .list(&kube::api::ListParams::default())
        .await?
        .items
        .pop()
        .context("no Node registered")?;
    let info = node
        .status
        .and_then(|status| status.node_info)
        .context("the Node has no nodeInfo")?;
    assert_eq!(info.operating_system, "linux");
    assert!(
        info.container_runtime_version.starts_with("containerd://"),
        "{}",
        info.container_runtime_version
    );

    let accounts: Api<k8s_openapi::api::core::v1::ServiceAccount> =
        Api::namespaced(client.clone(), sandbox.namespace());
    wait::until_true("the default ServiceAccount", PATIENCE, || {
        let accounts = accounts.clone();
        async move { Ok(accounts.get_opt("default").await?.is_some()) }
    })
    .await?;
    let pods: Api<Pod> = Api::namespaced(client, sandbox.namespace());
    let pod: Pod = serde_json::from_value(json!({
        "metadata": {"name": "hello"},
        "spec": {
            "restartPolicy": "Never",
            "containers": [{
                "name": "hello",
                "image": "localhost/busybox:1",
                "imagePullPolicy": "Never",
                "command": ["/bin/busybox", "sh", "-c", "echo from inside; exit 7"],
            }],
        },
    }))?;
    pods.create(&PostParams::default(), &pod).await?;
    let exit = wait::until("the Pod to finish", PATIENCE, || async {
        let status = pods.get("hello").await?.status.unwrap_or_default();
        let terminated = status
            .container_statuses
            .iter()
            .flatten()
            .find_map(|container| container.state.as_ref()?.terminated.as_ref().map(|end| end.exit_code));
        Ok(terminated.map_or_else(
            || Look::not_yet((status.phase, status.reason, status.message)),
            Look::Done,
        ))
    })
    .await?;
    assert_eq!(exit, 7, "the exit code is the container's own");
    let log = pods.logs("hello", &kube::api::LogParams::default()).await?;
    assert_eq!(
        log.trim(),
        "from inside",
        "logs come through the apiserver from the kubelet"
    );
    Ok(())
}
