//! `ScalewayInstanceMachine`, from a MachineDeployment to nothing left.

use anyhow::Result;
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt as _;
use kube::api::{Api, ListParams};
use russet_api::ScalewayInstanceMachine as Instance;
use russet_testkit::wait::{self, Look, PATIENCE};
use serde_json::json;

use super::support::Trial;

#[tokio::test]
async fn an_instance_is_made_joins_serves_and_leaves_nothing() -> Result<()> {
    let spec = json!({
        "fleetName": "kura", "privateNetworkName": "tuist-runner-cache", "privateNetworkCIDR": "172.16.0.0/22",
        "nodeTaints": [{"key": "tuist.dev/runner-cache", "value": "true", "effect": "NoSchedule"}],
    });
    let trial: Trial<Instance> = Trial::begin("instance", spec, &[], |_| {}).await?;
    let machine = trial.serves().await?;
    let (sim, fleet, client) = (&trial.sim, &trial.fleet, trial.client.clone());

    // The Node is what core and the caches look for.
    let row = sim.handle().boxes().pop().unwrap();
    let expected = format!("scaleway://instance/fr-par-1/{}", row.server_id);
    assert_eq!(machine.spec.provider_id.as_deref(), Some(expected.as_str()));
    let node = fleet.nodes().get(&machine.name_any()).await?;
    let leg = row.private.clone().unwrap();
    let address = leg.address.split('/').next().unwrap().to_owned();
    assert_eq!(node.labels().get("tuist.dev/pn-ipv4"), Some(&address));
    assert!(node.annotations().contains_key("tuist.dev/kubelet-config-hash"));
    let status = machine.status.clone().unwrap();
    let addresses: Vec<String> = status.addresses.iter().map(|known| known.address.clone()).collect();
    assert_eq!(addresses, [row.public_ip.unwrap().to_string(), address]);
    assert!(row.user_data.is_none(), "the script with the token is gone");
    assert!(status.intent.is_none());
    wait::until("core to see it running", PATIENCE, || async {
        let phases = fleet.machine_phases().await?;
        Ok(Look::done_if(phases == ["Running"], phases))
    })
    .await?;

    // One server, one volume, tagged; a machine that serves costs no write.
    assert_eq!(sim.handle().instances().len(), 1);
    assert_eq!(sim.handle().volumes().len(), 1);
    let tags = sim.handle().instances()[0]["tags"].to_string();
    let uid = machine.uid().unwrap();
    assert!(tags.contains(&format!("machine-uid={uid}")), "{tags}");
    let posts = sim.handle().calls("POST", "/instance/v1/zones/*/servers");
    assert_eq!(posts, 1, "it was ordered once");

    trial.goes().await?;
    assert!(sim.handle().instances().is_empty(), "{:?}", sim.handle().instances());
    assert!(sim.handle().addresses().is_empty(), "{:?}", sim.handle().addresses());
    wait::until("the volume to be gone", PATIENCE, || async {
        let left = sim.handle().volumes();
        Ok(Look::done_if(left.is_empty(), left))
    })
    .await?;
    assert_eq!(sim.handle().bill().running().count(), 0, "the bill stops");
    assert!(
        fleet.nodes().get_opt(&machine.name_any()).await?.is_none(),
        "the Node is gone"
    );
    let tokens: Api<Secret> = Api::namespaced(client.clone(), "kube-system");
    let left = tokens
        .list(&ListParams::default().labels(&format!("tuist.dev/owner-uid={uid}")))
        .await?;
    assert!(left.items.is_empty(), "its identity is revoked");
    trial.leaves().await
}
