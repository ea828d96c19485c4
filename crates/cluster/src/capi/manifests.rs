//! Cluster API's own configuration folder, turned into the objects of an installation outside the cluster.
//!
//! This does by hand what its kustomization does (namespace, `capi-` prefix, labels, the aggregated role), with one difference:
//! webhooks are called by URL instead of through a Service. Pure, except for reading the folder.

use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize as _;
use serde_json::{Map, Value, json};

use super::{Error, NAMESPACE};
use crate::files;

const PREFIX: &str = "capi-";
/// What its files call the namespace before kustomize renames it.
const PLACEHOLDER_NAMESPACE: &str = "system";
const PROVIDER_LABEL: (&str, &str) = ("cluster.x-k8s.io/provider", "cluster-api");
const AGGREGATE_LABEL: (&str, &str) = ("cluster.x-k8s.io/aggregate-to-manager", "true");
pub(super) const AGGREGATED_ROLE: &str = "capi-aggregated-manager-role";

/// The files that matter, besides the CRDs.
const RBAC: [&str; 6] = [
    "rbac/service_account.yaml",
    "rbac/role.yaml",
    "rbac/aggregated_role.yaml",
    "rbac/role_binding.yaml",
    "rbac/leader_election_role.yaml",
    "rbac/leader_election_role_binding.yaml",
];
const WEBHOOKS: &str = "webhook/manifests.yaml";
const CRDS: &str = "crd/bases";

/// The longest that an apiserver accepts; it has one core of a laptop to share with a fleet.
const MAX_WEBHOOK_SECONDS: u32 = 30;

/// Where the apiserver reaches the webhooks.
pub(super) struct Webhooks {
    /// `https://address:port`, without a path.
    pub(super) base_url: String,
    /// Who signed their certificate.
    pub(super) ca_pem: String,
}

/// All objects, the namespace first.
pub(super) fn load(config: &Path, webhooks: &Webhooks) -> Result<Vec<Value>, Error> {
    let mut objects = vec![json!({
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": { "name": NAMESPACE, "labels": { "control-plane": "controller-manager" } },
    })];
    let crds = crd_files(&config.join(CRDS))?;
    let rest = RBAC.iter().chain([&WEBHOOKS]).map(|file| config.join(file));
    for path in crds.into_iter().chain(rest) {
        for document in read_documents(&path)? {
            objects.push(document);
        }
    }
    for object in &mut objects {
        adapt(object, webhooks);
    }
    Ok(objects)
}

fn crd_files(dir: &Path) -> Result<Vec<PathBuf>, Error> {
    let unusable = |reason: String| Error::Config {
        path: dir.to_owned(),
        reason,
    };
    let entries = std::fs::read_dir(dir).map_err(|error| unusable(error.to_string()))?;
    let mut files: Vec<PathBuf> = entries
        .filter_map(|entry| entry.ok().map(|entry| entry.path()))
        .filter(|path| path.extension().is_some_and(|extension| extension == "yaml"))
        .collect();
    if files.is_empty() {
        return Err(unusable("it holds no CRDs".to_owned()));
    }
    // The order of a folder is arbitrary; the hash of an installation must not be.
    files.sort();
    Ok(files)
}

fn read_documents(path: &Path) -> Result<Vec<Value>, Error> {
    let unusable = |reason: String| Error::Config {
        path: path.to_owned(),
        reason,
    };
    let text = files::read_text(path)?.ok_or_else(|| unusable("it is missing".to_owned()))?;
    serde_yaml_ng::Deserializer::from_str(&text)
        .map(Value::deserialize)
        .filter(|document| !matches!(document, Ok(Value::Null)))
        .collect::<Result<_, _>>()
        .map_err(|error| unusable(error.to_string()))
}

/// Turns one object of the folder into one of an installation.
fn adapt(object: &mut Value, webhooks: &Webhooks) {
    let kind = text(object, "/kind").unwrap_or_default().to_owned();
    label(object, PROVIDER_LABEL);
    match kind.as_str() {
        "Namespace" => {}
        "CustomResourceDefinition" => {
            let conversion = json!({
                "strategy": "Webhook",
                "webhook": {
                    "conversionReviewVersions": ["v1"],
                    "clientConfig": webhooks.client_config("/convert"),
                },
            });
            if let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) {
                spec.insert("conversion".to_owned(), conversion);
            }
        }
        "MutatingWebhookConfiguration" | "ValidatingWebhookConfiguration" => {
            prefix(object, "/metadata/name");
            call_by_url(object, webhooks);
        }
        _ => adapt_rbac(object, &kind),
    }
}

fn adapt_rbac(object: &mut Value, kind: &str) {
    if kind == "ClusterRole" && text(object, "/metadata/name") == Some("manager-role") {
        label(object, AGGREGATE_LABEL);
    }
    prefix(object, "/metadata/name");
    if matches!(kind, "ServiceAccount" | "Role" | "RoleBinding")
        && let Some(metadata) = metadata(object)
    {
        metadata.insert("namespace".to_owned(), NAMESPACE.into());
    }
    if kind == "ClusterRoleBinding" && text(object, "/roleRef/name") == Some("manager-role") {
        set(object, "/roleRef/name", AGGREGATED_ROLE.to_owned());
    } else {
        prefix(object, "/roleRef/name");
    }
    for subject in object
        .pointer_mut("/subjects")
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten()
    {
        prefix(subject, "/name");
        if text(subject, "/namespace") == Some(PLACEHOLDER_NAMESPACE) {
            set(subject, "/namespace", NAMESPACE.to_owned());
        }
    }
}

fn call_by_url(object: &mut Value, webhooks: &Webhooks) {
    for webhook in object
        .pointer_mut("/webhooks")
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten()
    {
        let path = text(webhook, "/clientConfig/service/path").unwrap_or("/").to_owned();
        if let Some(webhook) = webhook.as_object_mut() {
            webhook.insert("clientConfig".to_owned(), webhooks.client_config(&path));
            // A write that a busy machine answers late is no error of the write.
            webhook.insert("timeoutSeconds".to_owned(), json!(MAX_WEBHOOK_SECONDS));
        }
    }
}

impl Webhooks {
    fn client_config(&self, path: &str) -> Value {
        json!({ "url": format!("{}{path}", self.base_url), "caBundle": STANDARD.encode(&self.ca_pem) })
    }
}

pub(super) fn text<'a>(object: &'a Value, pointer: &str) -> Option<&'a str> {
    object.pointer(pointer).and_then(Value::as_str)
}

fn set(object: &mut Value, pointer: &str, value: String) {
    if let Some(place) = object.pointer_mut(pointer) {
        *place = Value::String(value);
    }
}

fn prefix(object: &mut Value, pointer: &str) {
    if let Some(name) = text(object, pointer).map(|name| format!("{PREFIX}{name}")) {
        set(object, pointer, name);
    }
}

fn metadata(object: &mut Value) -> Option<&mut Map<String, Value>> {
    object.get_mut("metadata").and_then(Value::as_object_mut)
}

fn label(object: &mut Value, (key, value): (&str, &str)) {
    let Some(metadata) = metadata(object) else { return };
    let labels = metadata.entry("labels").or_insert_with(|| json!({}));
    if let Some(labels) = labels.as_object_mut() {
        labels.insert(key.to_owned(), value.into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn webhooks() -> Webhooks {
        Webhooks {
            base_url: "https://127.0.0.1:9443".to_owned(),
            ca_pem: "PEM".to_owned(),
        }
    }

    fn adapted(mut object: Value) -> Value {
        adapt(&mut object, &webhooks());
        object
    }

    #[test]
    fn a_crd_converts_through_the_url() {
        let mut crd = json!({
            "kind": "CustomResourceDefinition",
            "metadata": { "name": "machines.cluster.x-k8s.io" },
            "spec": { "group": "cluster.x-k8s.io" },
        });
        let converted = adapted(crd.clone());
        crd["metadata"]["labels"] = json!({ "cluster.x-k8s.io/provider": "cluster-api" });
        crd["spec"]["conversion"] = json!({
            "strategy": "Webhook",
            "webhook": {
                "conversionReviewVersions": ["v1"],
                "clientConfig": { "url": "https://127.0.0.1:9443/convert", "caBundle": "UEVN" },
            },
        });
        assert_eq!(converted, crd);
    }

    #[test]
    fn a_webhook_keeps_its_path_and_has_time() {
        let configuration = adapted(json!({
            "kind": "ValidatingWebhookConfiguration",
            "metadata": { "name": "validating-webhook-configuration" },
            "webhooks": [{ "clientConfig": { "service": { "name": "s", "namespace": "system", "path": "/validate-x" } } }],
        }));
        let name = text(&configuration, "/metadata/name");
        assert_eq!(name, Some("capi-validating-webhook-configuration"));
        let config = json!({ "url": "https://127.0.0.1:9443/validate-x", "caBundle": "UEVN" });
        assert_eq!(configuration["webhooks"][0]["clientConfig"], config);
        assert_eq!(configuration["webhooks"][0]["timeoutSeconds"], MAX_WEBHOOK_SECONDS);
    }

    #[test]
    fn the_manager_is_bound_to_the_aggregated_role() {
        let binding = adapted(json!({
            "kind": "ClusterRoleBinding",
            "metadata": { "name": "manager-rolebinding" },
            "roleRef": { "kind": "ClusterRole", "name": "manager-role" },
            "subjects": [{ "kind": "ServiceAccount", "name": "manager", "namespace": "system" }],
        }));
        assert_eq!(text(&binding, "/roleRef/name"), Some(AGGREGATED_ROLE));
        assert_eq!(text(&binding, "/subjects/0/name"), Some(super::super::SERVICE_ACCOUNT));
        assert_eq!(text(&binding, "/subjects/0/namespace"), Some(NAMESPACE));
        let role = adapted(json!({ "kind": "ClusterRole", "metadata": { "name": "manager-role" } }));
        let label = &role["metadata"]["labels"]["cluster.x-k8s.io/aggregate-to-manager"];
        assert_eq!(label, "true");
    }

    #[test]
    fn a_namespaced_role_gets_the_namespace() {
        let role = adapted(json!({ "kind": "Role", "metadata": { "name": "leader-election-role" } }));
        assert_eq!(text(&role, "/metadata/namespace"), Some(NAMESPACE));
        assert_eq!(text(&role, "/metadata/name"), Some("capi-leader-election-role"));
    }

    #[test]
    fn a_folder_without_crds_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let error = load(dir.path(), &webhooks()).unwrap_err();
        assert!(error.to_string().contains("russet parts fetch"), "{error}");
    }
}
