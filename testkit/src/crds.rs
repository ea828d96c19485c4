//! Installs CRDs for a test, and makes the older or stricter ones that incidents were made of.

use anyhow::{Context, Result, bail, ensure};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{CustomResourceDefinition, JSONSchemaProps};
use kube::ResourceExt;
use kube::api::{Api, DynamicObject, Patch, PatchParams, ValidationDirective};
use kube::core::GroupVersionKind;
use kube::discovery::ApiResource;
use serde_json::{Value, json};

use crate::wait::{self, Look, PATIENCE};

include!(concat!(env!("OUT_DIR"), "/fixtures.rs"));

const MANAGER: &str = "russet-tests";

/// Applies CRDs and waits until each is Established, so that the next request cannot race the apiserver.
pub async fn install(client: &kube::Client, crds: &[CustomResourceDefinition]) -> Result<()> {
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    for crd in crds {
        let name = crd.name_any();
        api.patch(&name, &PatchParams::apply(MANAGER).force(), &Patch::Apply(crd))
            .await
            .with_context(|| format!("failed to apply CRD {name}"))?;
    }
    established(client, crds).await
}

/// Waits until each of these CRDs is Established.
pub async fn established(client: &kube::Client, crds: &[CustomResourceDefinition]) -> Result<()> {
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    for crd in crds {
        let name = crd.name_any();
        wait::until(&format!("CRD {name} to be Established"), PATIENCE, || async {
            let live = api.get(&name).await?;
            let conditions = live.status.and_then(|status| status.conditions).unwrap_or_default();
            let established = conditions
                .iter()
                .any(|c| c.type_ == "Established" && c.status == "True");
            Ok(if established {
                Look::Done(())
            } else {
                Look::not_yet(conditions)
            })
        })
        .await?;
    }
    Ok(())
}

/// The CRD of one kind out of the API crate.
pub fn of_kind(kind: &str) -> Result<CustomResourceDefinition> {
    russet_api::all_crds()
        .into_iter()
        .find(|crd| crd.spec.names.kind == kind)
        .with_context(|| format!("no CRD of kind {kind}"))
}

/// The same CRD as it was before a field existed.
pub fn without_property(
    mut crd: CustomResourceDefinition,
    parent: &[&str],
    field: &str,
) -> Result<CustomResourceDefinition> {
    let schema = schema_at(&mut crd, parent)?;
    let removed = schema
        .properties
        .as_mut()
        .and_then(|properties| properties.remove(field));
    if removed.is_none() {
        bail!("the schema has no {}.{field} to remove", parent.join("."));
    }
    // A rule that names the field would not compile without it.
    schema.x_kubernetes_validations = None;
    Ok(crd)
}

/// The same CRD with a field made required: the mistake of `rollback-trap`.
pub fn requiring(mut crd: CustomResourceDefinition, parent: &[&str], field: &str) -> Result<CustomResourceDefinition> {
    let schema = schema_at(&mut crd, parent)?;
    schema.required.get_or_insert_default().push(field.to_owned());
    // An empty default would lack the field too, and the apiserver refuses such a CRD.
    schema.default = None;
    Ok(crd)
}

fn schema_at<'a>(crd: &'a mut CustomResourceDefinition, path: &[&str]) -> Result<&'a mut JSONSchemaProps> {
    let mut schema = crd
        .spec
        .versions
        .first_mut()
        .and_then(|version| version.schema.as_mut())
        .and_then(|validation| validation.open_api_v3_schema.as_mut())
        .context("the CRD has no schema")?;
    for step in path {
        schema = schema
            .properties
            .as_mut()
            .and_then(|properties| properties.get_mut(*step))
            .with_context(|| format!("the schema has no property {step}"))?;
    }
    Ok(schema)
}

/// Creates an object as `kubectl create --validate=strict` does: an unknown or repeated field is an error. (The client library offers
/// field validation for patches only, and server-side apply words its refusals differently.)
pub async fn create_strictly(
    client: &kube::Client,
    object: &DynamicObject,
    resource: &ApiResource,
) -> Result<DynamicObject, kube::Error> {
    let namespace = object.metadata.namespace.as_deref().unwrap_or("default");
    let url = format!(
        "/apis/{}/{}/namespaces/{namespace}/{}?fieldValidation=Strict&fieldManager={MANAGER}",
        resource.group, resource.version, resource.plural
    );
    let body = serde_json::to_vec(object).map_err(kube::Error::SerdeError)?;
    let request = http::Request::post(url)
        .header(http::header::CONTENT_TYPE, "application/json")
        .body(body);
    client.request(request.map_err(kube::Error::HttpError)?).await
}

/// Parses one YAML document into an object and the API it belongs to (plural by the rule of our CRDs: lower-case kind plus `s`).
pub fn parse(yaml: &str) -> Result<(DynamicObject, ApiResource)> {
    let object: DynamicObject = serde_yaml_ng::from_str(yaml).context("the document is not a Kubernetes object")?;
    let types = object.types.as_ref().context("apiVersion and kind are missing")?;
    let gvk = GroupVersionKind::try_from(types).context("apiVersion does not parse")?;
    let resource = ApiResource::from_gvk(&gvk);
    Ok((object, resource))
}

/// Creates the object and then writes its status, as a restore does; fails when any field that was sent is not stored as it was.
pub async fn restore(client: &kube::Client, yaml: &str) -> Result<DynamicObject> {
    let (object, resource) = parse(yaml)?;
    let sent = serde_json::to_value(&object)?;
    let mut fresh = object;
    let name = fresh.name_any();
    let namespace = fresh.metadata.namespace.get_or_insert_with(|| "default".to_owned());
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &resource);
    let strict = PatchParams {
        field_validation: Some(ValidationDirective::Strict),
        ..PatchParams::default()
    };
    let mut stored = match create_strictly(client, &fresh, &resource).await {
        Err(kube::Error::Api(status)) if status.code == 409 => api.patch(&name, &strict, &Patch::Merge(&sent)).await?,
        other => other?,
    };
    if let Some(status) = sent.get("status") {
        let status = Patch::Merge(json!({"status": status}));
        stored = api.patch_status(&name, &strict, &status).await?;
    }
    let mut differing = Vec::new();
    for part in ["spec", "status"] {
        if let Some(sent) = sent.get(part) {
            differences(part, sent, stored.data.get(part), &mut differing);
        }
    }
    ensure!(differing.is_empty(), "fields were dropped or changed: {differing:?}");
    Ok(stored)
}

/// The paths at which a custom resource is not stored as it was sent. What the apiserver adds is none.
fn differences(path: &str, sent: &Value, stored: Option<&Value>, found: &mut Vec<String>) {
    match (sent, stored) {
        (Value::Object(sent), Some(Value::Object(stored))) => {
            for (key, value) in sent {
                differences(&format!("{path}.{key}"), value, stored.get(key), found);
            }
        }
        (Value::Array(sent), Some(Value::Array(stored))) if sent.len() == stored.len() => {
            for (index, (sent, stored)) in sent.iter().zip(stored).enumerate() {
                differences(&format!("{path}[{index}]"), sent, Some(stored), found);
            }
        }
        (sent, stored) if stored == Some(sent) => {}
        _ => found.push(path.to_owned()),
    }
}
