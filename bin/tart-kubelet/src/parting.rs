//! The last words of an agent that is told to stop, for whoever looks at the Node and wonders.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Event;
use kube::Client;
use kube::api::{Api, PostParams};
use serde_json::json;

/// Nobody waits longer for an agent than launchd does.
const PATIENCE: Duration = Duration::from_secs(3);

/// Says that the VMs run on. The Node itself stays as it is: a restart for a new binary is no reason to move Pods.
pub(crate) async fn say(client: Option<Client>, node: &str, vms: usize) {
    tracing::info!(
        vms,
        "the agent ends; virtual machines run on, and the next agent goes on with them"
    );
    let Some(client) = client else { return };
    let now = Timestamp::now();
    let at = now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let machines = match vms {
        0 => "no virtual machines run".to_owned(),
        1 => "1 virtual machine runs on".to_owned(),
        more => format!("{more} virtual machines run on"),
    };
    let event = json!({
        "metadata": {"name": format!("{node}.{:x}", now.as_nanosecond()), "namespace": "default"},
        // As kubelets have it: a Node is known by its name.
        "involvedObject": {"kind": "Node", "name": node, "uid": node},
        "type": "Normal", "reason": "AgentStopped",
        "message": format!("tart-kubelet was told to stop; {machines}"),
        "source": {"component": "kubelet", "host": node},
        "reportingComponent": "kubelet", "reportingInstance": node,
        "firstTimestamp": at, "lastTimestamp": at, "count": 1,
    });
    let Ok(event) = serde_json::from_value::<Event>(event) else {
        return;
    };
    let events: Api<Event> = Api::namespaced(client, "default");
    let params = PostParams::default();
    match tokio::time::timeout(PATIENCE, events.create(&params, &event)).await {
        Ok(Ok(_)) => {}
        Ok(Err(error)) => tracing::debug!(%error, "the last words were not heard"),
        Err(_) => tracing::debug!("nobody heard the last words in time"),
    }
}
