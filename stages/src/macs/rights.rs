//! The rights that the provider's chart gives, in a sandbox: for tests that run parts of the provider or its controllers by themselves.

use std::collections::BTreeMap;

use anyhow::Result;
use k8s_openapi::api::rbac::v1::PolicyRule;
use kube::Client;
use russet_testkit::Sandbox;
use russet_testkit::chart::{Helm, Release};
use russet_testkit::identity::{Granted, Identity};
use russet_testkit::object::create;
use serde_json::{Value, json};
use tokio::sync::OnceCell;

/// Stands for the namespace of a sandbox in what is rendered once for all of them.
const HERE: &str = "the-namespace-of-a-sandbox";

/// One template of the chart, as it is for a release in this namespace, whose objects are named after it.
async fn rendered(cell: &OnceCell<String>, template: &str, scope: &str, namespace: &str) -> Result<Vec<Value>> {
    let text = cell.get_or_try_init(|| async {
        let values = json!({
            "fullnameOverride": HERE, "rbac": {"scope": scope}, "cluster": {"enabled": true},
            // What is on the disks of Linux servers is the provider's to delete.
            "kuraFleet": {"enabled": true},
        });
        let release = Release {
            name: "macs",
            chart: "capi-provider",
            namespace: HERE,
            values: &values,
        };
        let objects = Helm::new().await?.template(release, template).await?;
        anyhow::Ok(serde_json::to_string(&objects)?)
    });
    Ok(serde_json::from_str(&text.await?.replace(HERE, namespace))?)
}

fn namespace_of(object: &Value) -> Option<&str> {
    object.pointer("/metadata/namespace").and_then(Value::as_str)
}

/// The provider's account, as the chart makes it for a release in the sandbox's namespace, which is that of a fleet, too.
pub async fn provider<'a>(sandbox: &'a Sandbox<'_>) -> Result<Identity<'a>> {
    provider_without(sandbox, &[]).await
}

/// The same but for these resources.
pub async fn provider_without<'a>(sandbox: &'a Sandbox<'_>, missing: &[&str]) -> Result<Identity<'a>> {
    static RBAC: OnceCell<String> = OnceCell::const_new();
    let objects = rendered(&RBAC, "templates/rbac.yaml", "Namespaced", sandbox.namespace()).await?;
    let mut granted = BTreeMap::<String, Vec<PolicyRule>>::new();
    for role in objects.iter().filter(|object| object.get("rules").is_some()) {
        let rules: Vec<PolicyRule> = serde_json::from_value(role.get("rules").cloned().unwrap_or_default())?;
        let namespace = namespace_of(role).unwrap_or_default();
        granted.entry(namespace.to_owned()).or_default().extend(rules);
    }
    let may = |rule: &PolicyRule| {
        let mut resources = rule.resources.iter().flatten();
        !resources.any(|resource| missing.contains(&resource.as_str()))
    };
    let identity = sandbox.identity("capi-provider");
    Ok(granted.into_iter().fold(identity, |identity, (namespace, rules)| {
        let rules = rules.into_iter().filter(may).collect();
        if namespace.is_empty() {
            identity.everywhere(rules)
        } else {
            identity.in_namespace(&namespace, rules)
        }
    }))
}

/// Makes the account that core works with, and what it may do.
pub async fn core(client: &Client, namespace: &str) -> Result<()> {
    static REMOTE: OnceCell<String> = OnceCell::const_new();
    for object in rendered(&REMOTE, "templates/capi-remote.yaml", "Cluster", namespace).await? {
        let namespace = namespace_of(&object).map(ToOwned::to_owned);
        create(client, namespace.as_deref(), object).await?;
    }
    Ok(())
}

/// A client with these rights.
pub async fn client_of(who: &Granted) -> Result<Client> {
    Ok(russet_cluster::kubeconfig::client(&who.kubeconfig).await?)
}
