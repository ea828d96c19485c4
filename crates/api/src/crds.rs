//! The CRDs of all our kinds, as they are installed.
//!
//! What `kube` derives from the Rust types is nearly right. Three things are put straight here, for all kinds at once:
//!
//! - optional fields are absent, never `null`, as in the schemas of all earlier releases;
//! - an object may leave out a `spec` in which every field is optional; the API server fills in an empty one, so that
//!   readers always find it;
//! - infrastructure kinds carry the labels by which Cluster API core learns that we follow both of its contracts.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSON, JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use kube::CustomResourceExt;
use serde_json::json;

use crate::groups;
use crate::labels::cluster_api as capi_labels;
use crate::{
    KuraInstance, RunnerPool, ScalewayAppleSiliconCluster, ScalewayAppleSiliconMachine,
    ScalewayAppleSiliconMachineTemplate, ScalewayElasticMetalMachine, ScalewayElasticMetalMachineTemplate,
    ScalewayInstanceMachine, ScalewayInstanceMachineTemplate,
};

/// The CRDs of all our kinds, always in the same order.
pub fn all_crds() -> Vec<CustomResourceDefinition> {
    const MACHINE: &[&str] = &["spec"];
    const TEMPLATE: &[&str] = &["spec", "template", "spec"];
    vec![
        finish(ScalewayAppleSiliconCluster::crd(), MACHINE),
        finish(ScalewayAppleSiliconMachine::crd(), MACHINE),
        finish(ScalewayAppleSiliconMachineTemplate::crd(), TEMPLATE),
        finish(ScalewayElasticMetalMachine::crd(), MACHINE),
        finish(ScalewayElasticMetalMachineTemplate::crd(), TEMPLATE),
        finish(ScalewayInstanceMachine::crd(), MACHINE),
        finish(ScalewayInstanceMachineTemplate::crd(), TEMPLATE),
        finish(KuraInstance::crd(), &[]),
        finish(RunnerPool::crd(), &[]),
    ]
}

/// `optional` is the path of objects that may be left out, each inside the one before.
fn finish(mut crd: CustomResourceDefinition, optional: &[&str]) -> CustomResourceDefinition {
    if crd.spec.group == groups::INFRASTRUCTURE {
        let labels = crd.metadata.labels.get_or_insert_default();
        labels.insert(capi_labels::CONTRACT_V1BETA1.into(), groups::V1ALPHA1.into());
        labels.insert(capi_labels::CONTRACT_V1BETA2.into(), groups::V1ALPHA1.into());
        labels.insert(capi_labels::PROVIDER.into(), capi_labels::PROVIDER_NAME.into());
    }
    for version in &mut crd.spec.versions {
        let Some(schema) = version.schema.as_mut().and_then(|s| s.open_api_v3_schema.as_mut()) else {
            continue;
        };
        tidy(schema);
        make_optional(schema, optional);
    }
    crd
}

fn make_optional(schema: &mut JSONSchemaProps, path: &[&str]) {
    let Some((name, rest)) = path.split_first() else {
        return;
    };
    if let Some(required) = &mut schema.required {
        required.retain(|r| r != name);
        if required.is_empty() {
            schema.required = None;
        }
    }
    if let Some(child) = schema.properties.as_mut().and_then(|p| p.get_mut(*name)) {
        child.default = Some(JSON(json!({})));
        make_optional(child, rest);
    }
}

fn tidy(schema: &mut JSONSchemaProps) {
    schema.nullable = None;
    schema.title = None;
    // Kubernetes knows only the signed widths and warns about the others.
    if schema.format.as_deref().is_some_and(|f| f.starts_with("uint")) {
        schema.format = None;
    }
    if let Some(text) = &mut schema.description {
        // The upstream text of this one type is a page of grammar, repeated at every use.
        if text.starts_with("Quantity is a fixed-point representation") {
            "A Kubernetes quantity, such as 500m, 16Gi or 10.".clone_into(text);
        }
    }
    for child in schema.properties.iter_mut().flat_map(|p| p.values_mut()) {
        tidy(child);
    }
    match &mut schema.items {
        Some(JSONSchemaPropsOrArray::Schema(item)) => tidy(item),
        Some(JSONSchemaPropsOrArray::Schemas(items)) => items.iter_mut().for_each(tidy),
        None => {}
    }
    if let Some(JSONSchemaPropsOrBool::Schema(value)) = &mut schema.additional_properties {
        tidy(value);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn schema(crd: &CustomResourceDefinition) -> &JSONSchemaProps {
        crd.spec.versions[0]
            .schema
            .as_ref()
            .unwrap()
            .open_api_v3_schema
            .as_ref()
            .unwrap()
    }

    fn walk<'a>(schema: &'a JSONSchemaProps, path: &str, visit: &mut dyn FnMut(&str, &'a JSONSchemaProps)) {
        visit(path, schema);
        for (name, child) in schema.properties.iter().flatten() {
            walk(child, &format!("{path}.{name}"), visit);
        }
        if let Some(JSONSchemaPropsOrArray::Schema(item)) = &schema.items {
            walk(item, &format!("{path}[]"), visit);
        }
        if let Some(JSONSchemaPropsOrBool::Schema(value)) = &schema.additional_properties {
            walk(value, &format!("{path}{{}}"), visit);
        }
    }

    #[test]
    fn every_kind_is_there_once_with_its_short_name() {
        let names: Vec<_> = all_crds()
            .into_iter()
            .map(|c| {
                (
                    c.metadata.name.unwrap(),
                    c.spec.names.short_names.unwrap_or_default().join(","),
                )
            })
            .collect();
        let expected = [
            ("scalewayapplesiliconclusters.infrastructure.cluster.x-k8s.io", "sasc"),
            ("scalewayapplesiliconmachines.infrastructure.cluster.x-k8s.io", "samm"),
            (
                "scalewayapplesiliconmachinetemplates.infrastructure.cluster.x-k8s.io",
                "sammt",
            ),
            ("scalewayelasticmetalmachines.infrastructure.cluster.x-k8s.io", "semm"),
            (
                "scalewayelasticmetalmachinetemplates.infrastructure.cluster.x-k8s.io",
                "semmt",
            ),
            ("scalewayinstancemachines.infrastructure.cluster.x-k8s.io", "sim"),
            (
                "scalewayinstancemachinetemplates.infrastructure.cluster.x-k8s.io",
                "simt",
            ),
            ("kurainstances.kura.tuist.dev", "kura"),
            ("runnerpools.tuist.dev", "rpool"),
        ];
        assert_eq!(names, expected.map(|(n, s)| (n.to_owned(), s.to_owned())));
    }

    #[test]
    fn infrastructure_kinds_follow_both_contracts_and_the_others_none() {
        for crd in all_crds() {
            let labels = crd.metadata.labels.clone().unwrap_or_default();
            let infrastructure = crd.spec.group == groups::INFRASTRUCTURE;
            for contract in [capi_labels::CONTRACT_V1BETA1, capi_labels::CONTRACT_V1BETA2] {
                assert_eq!(
                    labels.get(contract).map(String::as_str),
                    infrastructure.then_some("v1alpha1")
                );
            }
            let categories = crd.spec.names.categories.unwrap_or_default();
            assert_eq!(categories.contains(&"cluster-api".to_owned()), infrastructure);
            assert_eq!(crd.spec.scope, "Namespaced");
        }
    }

    /// Requiring a field that stored templates lack stops Cluster API from cloning them, and Helm from rolling back.
    #[test]
    fn only_fields_that_every_release_required_are_required() {
        let mut required = BTreeSet::new();
        for crd in all_crds() {
            let kind = crd.spec.names.kind.clone();
            walk(schema(&crd), &kind, &mut |path, schema| {
                let in_spec = path.split('.').nth(1).is_none_or(|part| part == "spec");
                // Entries of Kubernetes' own types keep Kubernetes' rules.
                if in_spec && !path.contains("[]") && !path.contains("valueFrom") {
                    required.extend(schema.required.iter().flatten().map(|r| format!("{path}.{r}")));
                }
            });
        }
        let expected = [
            "KuraInstance.spec",
            "KuraInstance.spec.accountHandle",
            "KuraInstance.spec.image",
            "KuraInstance.spec.region",
            "KuraInstance.spec.tenantID",
            "RunnerPool.spec",
            "RunnerPool.spec.dispatchLabel",
            "RunnerPool.spec.fleetSelector",
            "RunnerPool.spec.image",
            "ScalewayAppleSiliconMachine.spec.ghActionsRunner.ghRunnerVersion",
            "ScalewayAppleSiliconMachineTemplate.spec.template.spec.ghActionsRunner.ghRunnerVersion",
        ];
        assert_eq!(required.iter().map(String::as_str).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn every_field_of_ours_is_documented() {
        for crd in all_crds() {
            let kind = crd.spec.names.kind.clone();
            walk(schema(&crd), &kind, &mut |path, schema| {
                let exempt = path.ends_with("[]") || path.ends_with("{}") || path.ends_with(".metadata");
                let root = ["apiVersion", "kind", "spec", "status"]
                    .iter()
                    .any(|r| path.ends_with(&format!(".{r}")));
                assert!(
                    exempt || root || schema.description.is_some(),
                    "{path} has no description"
                );
            });
        }
    }

    #[test]
    fn schemas_have_no_null_and_no_width_that_kubernetes_does_not_know() {
        for crd in all_crds() {
            walk(schema(&crd), &crd.spec.names.kind, &mut |path, schema| {
                assert_eq!(schema.nullable, None, "{path}");
                let format = schema.format.as_deref();
                assert!(
                    matches!(format, None | Some("int32" | "int64" | "date-time")),
                    "{path}: {format:?}"
                );
            });
        }
    }

    #[test]
    fn cluster_api_finds_the_fields_of_its_contracts() {
        for crd in all_crds().iter().filter(|c| c.spec.group == groups::INFRASTRUCTURE) {
            let mut paths = BTreeSet::new();
            walk(schema(crd), "", &mut |path, _| {
                paths.insert(path.to_owned());
            });
            let kind = crd.spec.names.kind.as_str();
            let wanted: &[&str] = if kind.ends_with("Template") {
                &[
                    ".spec.template.metadata.labels",
                    ".spec.template.spec.zone",
                    ".status.capacity",
                    ".status.nodeInfo",
                ]
            } else if kind.ends_with("Cluster") {
                &[
                    ".spec.controlPlaneEndpoint.port",
                    ".status.initialization.provisioned",
                    ".status.initialization.controlPlaneInitialized",
                    ".status.externalManagedControlPlane",
                    ".status.failureDomains[].controlPlane",
                    ".status.conditions[].severity",
                    ".status.ready",
                ]
            } else {
                &[
                    ".spec.providerID",
                    ".status.initialization.provisioned",
                    ".status.ready",
                    ".status.addresses[].type",
                    ".status.failureDomain",
                    ".status.interruptible",
                    ".status.conditions[].observedGeneration",
                    ".status.steps[].outputTail",
                    ".status.intent.startedAt",
                ]
            };
            for path in wanted {
                assert!(paths.contains(*path), "{kind}{path}");
            }
        }
    }

    #[test]
    fn the_list_is_the_same_every_time() {
        assert_eq!(
            serde_json::to_string(&all_crds()).unwrap(),
            serde_json::to_string(&all_crds()).unwrap()
        );
    }
}
