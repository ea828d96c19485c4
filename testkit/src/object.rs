//! Objects of any kind, as tests write them.

use anyhow::{Context, Result};
use kube::Client;
use kube::api::{Api, DynamicObject, PostParams};
use kube::core::{GroupVersionKind, TypeMeta};
use kube::discovery::ApiResource;
use serde_json::Value;

/// The API of a kind, in a namespace or for the whole cluster.
pub fn api(client: &Client, namespace: Option<&str>, api_version: &str, kind: &str) -> Api<DynamicObject> {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
    match namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    }
}

/// Creates an object that says of which kind it is.
pub async fn create(client: &Client, namespace: Option<&str>, object: Value) -> Result<DynamicObject> {
    let object: DynamicObject = serde_json::from_value(object)?;
    let TypeMeta { api_version, kind } = object.types.as_ref().context("the object has no kind")?;
    let api = api(client, namespace, api_version, kind);
    let created = api.create(&PostParams::default(), &object).await;
    created.with_context(|| format!("failed to create {kind} {:?}", object.metadata.name))
}
