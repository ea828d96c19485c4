//! A caller that goes away.

use crate::server::Script;
use crate::{PROJECT, World, mac, mac_id, zone};

#[tokio::test]
async fn a_dropped_call_leaves_the_client_usable() {
    const GET: &str = "GET /apple-silicon/v1alpha1/zones/fr-par-1/servers/2f1c7a50-9f3b-4f5e-8a53-0f6a0e1d2c3b";
    let script = Script::new()
        .hang(GET)
        .answer(GET, 200, mac(mac_id().as_str(), "tuist-pool-1", PROJECT));
    let world = World::new(script).await;
    let client = world.client.clone();
    let waiting = tokio::spawn(async move { client.get_mac(&zone(), &mac_id()).await.map(drop) });
    world.server.hanging().await;
    waiting.abort();
    assert!(waiting.await.unwrap_err().is_cancelled());
    world.client.get_mac(&zone(), &mac_id()).await.unwrap();
    world.finish();
}
