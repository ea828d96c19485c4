//! The provider under the rights of its chart; those of `rbac.scope: Namespaced` are played by scenario `nodes-in-a-role`.

use russet_stages::macs::{Fleet, Manner};

/// Fleets in namespaces that nobody knew when the chart was installed.
#[tokio::test]
async fn with_rights_for_the_whole_cluster_machines_of_any_namespace_are_adopted_and_given_back() {
    let fleet = Fleet::start_in(Manner::Test, &[]).await.unwrap();
    let yards = [fleet.yard("one", 1).await.unwrap(), fleet.yard("two", 1).await.unwrap()];
    for yard in &yards {
        yard.running(1).await.unwrap();
    }
    for yard in &yards {
        yard.scale("macos", 0).await.unwrap();
        yard.available("macos", 0).await.unwrap();
        yard.all_pooled(1).await.unwrap();
    }
    let audit = fleet.cluster.audit().unwrap();
    let asked = audit.of_user(&fleet.provider_user).unwrap();
    for yard in &yards {
        let there = |resource: &str| {
            asked.iter().any(|entry| {
                let object = entry.object();
                object.resource == resource && object.namespace == yard.namespace && entry.code() < 300
            })
        };
        assert!(
            there("secrets") && there("scalewayapplesiliconmachines"),
            "{}",
            yard.namespace
        );
    }
    let denials = audit.denials(&fleet.provider_user).unwrap();
    assert!(denials.is_empty(), "{denials:?}");
}
