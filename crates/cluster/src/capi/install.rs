//! Puts the objects into the cluster, once.
//!
//! Applying a megabyte of CRDs takes seconds, so what was applied is recorded in the cluster as a hash, beside the objects it describes: a
//! restored or wiped etcd can never disagree with it. The hash covers ports and certificates too, so a changed webhook port is applied
//! like any other change.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::time::Duration;

use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::api::rbac::v1::ClusterRole;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams};
use kube::core::gvk::ParseGroupVersionError;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tokio::time::{Instant, sleep};

use super::manifests::{AGGREGATED_ROLE, text};
use super::{Error, NAMESPACE};

const FIELD_MANAGER: &str = "russet";
const RECORD: &str = "russet-install";
const PARALLEL: usize = 8;
const LIMIT: Duration = Duration::from_mins(1);
const PAUSE: Duration = Duration::from_millis(50);

/// Makes the cluster hold `objects`, and waits until they are in effect.
pub(super) async fn ensure(client: &kube::Client, objects: &[Value]) -> Result<(), Error> {
    let hash = hash(objects);
    let wanted = crd_names(objects);
    if recorded(client).await?.as_deref() == Some(&hash) && wanted.is_subset(&established(client).await?) {
        tracing::debug!("Cluster API is installed already");
        return Ok(());
    }
    let (namespaces, rest): (Vec<&Value>, Vec<&Value>) = objects
        .iter()
        .partition(|object| text(object, "/kind") == Some("Namespace"));
    for object in namespaces {
        apply(client, object).await?;
    }
    // The largest first: they decide how long it takes.
    let mut rest = rest;
    rest.sort_by_key(|object| std::cmp::Reverse(object.to_string().len()));
    stream::iter(rest)
        .map(|object| apply(client, object))
        .buffer_unordered(PARALLEL)
        .try_collect::<()>()
        .await?;
    wait_for("the CRDs of Cluster API being served", async || {
        Ok(wanted.is_subset(&established(client).await?))
    })
    .await?;
    wait_for("the rights of Cluster API core being aggregated", async || {
        has_rights(client).await
    })
    .await?;
    record(client, &hash).await
}

fn hash(objects: &[Value]) -> String {
    let mut hash = Sha256::new();
    for object in objects {
        hash.update(object.to_string().as_bytes());
        hash.update([0]);
    }
    hash.finalize().iter().fold(String::new(), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn crd_names(objects: &[Value]) -> BTreeSet<String> {
    objects
        .iter()
        .filter(|object| text(object, "/kind") == Some("CustomResourceDefinition"))
        .filter_map(|object| text(object, "/metadata/name").map(str::to_owned))
        .collect()
}

async fn apply(client: &kube::Client, object: &Value) -> Result<(), Error> {
    let kind = text(object, "/kind").unwrap_or_default();
    let name = text(object, "/metadata/name").unwrap_or_default();
    let failed = |source| Error::Apply {
        object: format!("{kind} {name}"),
        source: Box::new(source),
    };
    let resource = resource(object).map_err(|error| Error::Config {
        path: format!("{kind} {name}").into(),
        reason: error.to_string(),
    })?;
    let api: Api<DynamicObject> = match text(object, "/metadata/namespace") {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    };
    api.patch(name, &PatchParams::apply(FIELD_MANAGER).force(), &Patch::Apply(object))
        .await
        .map_err(failed)?;
    Ok(())
}

fn resource(object: &Value) -> Result<ApiResource, ParseGroupVersionError> {
    let version = text(object, "/apiVersion")
        .unwrap_or_default()
        .parse::<kube::core::GroupVersion>()?;
    let kind = text(object, "/kind").unwrap_or_default();
    Ok(ApiResource::from_gvk(&GroupVersionKind::gvk(
        &version.group,
        &version.version,
        kind,
    )))
}

fn records(client: &kube::Client) -> Api<ConfigMap> {
    Api::namespaced(client.clone(), NAMESPACE)
}

async fn recorded(client: &kube::Client) -> Result<Option<String>, Error> {
    let record = records(client).get_opt(RECORD).await.map_err(inspect)?;
    Ok(record
        .and_then(|record| record.data)
        .and_then(|mut data| data.remove("hash")))
}

async fn record(client: &kube::Client, hash: &str) -> Result<(), Error> {
    let record = json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": { "name": RECORD, "namespace": NAMESPACE },
        "data": { "hash": hash },
    });
    apply(client, &record).await
}

/// The CRDs of Cluster API that are served.
async fn established(client: &kube::Client) -> Result<BTreeSet<String>, Error> {
    let crds: Api<CustomResourceDefinition> = Api::all(client.clone());
    let provided = ListParams::default().labels("cluster.x-k8s.io/provider=cluster-api");
    let found = crds.list(&provided).await.map_err(inspect)?;
    Ok(found
        .items
        .into_iter()
        .filter(is_established)
        .filter_map(|crd| crd.metadata.name)
        .collect())
}

fn is_established(crd: &CustomResourceDefinition) -> bool {
    let conditions = crd
        .status
        .as_ref()
        .and_then(|status| status.conditions.as_deref())
        .unwrap_or_default();
    conditions
        .iter()
        .any(|condition| condition.type_ == "Established" && condition.status == "True")
}

async fn has_rights(client: &kube::Client) -> Result<bool, Error> {
    let roles: Api<ClusterRole> = Api::all(client.clone());
    let role = roles.get_opt(AGGREGATED_ROLE).await.map_err(inspect)?;
    Ok(role.and_then(|role| role.rules).is_some_and(|rules| !rules.is_empty()))
}

fn inspect(error: kube::Error) -> Error {
    Error::Inspect(Box::new(error))
}

async fn wait_for(what: &str, happened: impl AsyncFn() -> Result<bool, Error>) -> Result<(), Error> {
    let deadline = Instant::now() + LIMIT;
    while !happened().await? {
        if Instant::now() >= deadline {
            return Err(Error::NotInEffect {
                what: what.to_owned(),
                seconds: LIMIT.as_secs(),
            });
        }
        sleep(PAUSE).await;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_notices_a_changed_port() {
        let one = json!({ "webhooks": [{ "clientConfig": { "url": "https://127.0.0.1:1/x" } }] });
        let two = json!({ "webhooks": [{ "clientConfig": { "url": "https://127.0.0.1:2/x" } }] });
        assert_ne!(hash(std::slice::from_ref(&one)), hash(&[two]));
        assert_eq!(hash(std::slice::from_ref(&one)), hash(&[one]));
    }

    #[test]
    fn kinds_become_resources() {
        let crd = json!({ "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition" });
        assert_eq!(resource(&crd).unwrap().plural, "customresourcedefinitions");
        let account = json!({ "apiVersion": "v1", "kind": "ServiceAccount" });
        assert_eq!(resource(&account).unwrap().plural, "serviceaccounts");
    }
}
