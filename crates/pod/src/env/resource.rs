//! Requests and limits of a container as text.

use super::Error;
use crate::objects::Context;
use crate::quantity::Amount;
use crate::spec;
use k8s_openapi::api::core::v1::{Container, ResourceFieldSelector};

/// The value of a resource, divided and rounded up. A limit that is not set is what the node can give.
pub(crate) fn resource(
    context: &Context<'_>,
    source: &ResourceFieldSelector,
    own: Option<&Container>,
) -> Result<String, Error> {
    let container = match source.container_name.as_deref().filter(|name| !name.is_empty()) {
        Some(name) => spec::container(context.pod, name).map(|(_, container)| container),
        None => own,
    };
    let missing = || Error::NoContainer(source.container_name.clone().unwrap_or_default());
    let resources = container.ok_or_else(missing)?.resources.as_ref();
    let unsupported = || Error::Resource(source.resource.clone());
    let (list, name) = source.resource.split_once('.').ok_or_else(unsupported)?;
    if !matches!(name, "cpu" | "memory" | "ephemeral-storage") && !name.starts_with("hugepages-") {
        return Err(unsupported());
    }
    let limit = resources
        .and_then(|resources| resources.limits.as_ref())
        .and_then(|list| list.get(name));
    let request = resources
        .and_then(|resources| resources.requests.as_ref())
        .and_then(|list| list.get(name));
    let amount = match list {
        "limits" => match limit {
            Some(limit) => Amount::of(limit),
            None => context.allocatable.get(name).copied().unwrap_or_default(),
        },
        "requests" => request.or(limit).map(Amount::of).unwrap_or_default(),
        _ => return Err(unsupported()),
    };
    let divisor = source
        .divisor
        .as_ref()
        .map(Amount::of)
        .filter(|divisor| *divisor > Amount::ZERO);
    let divisor = divisor.unwrap_or_else(|| Amount::units(1));
    let (value, by) = match name {
        "cpu" => (amount.milli(), divisor.milli()),
        _ => (amount.value(), divisor.value()),
    };
    let by = by.max(1);
    Ok((value / by + i64::from(value % by != 0)).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::pod_of;
    use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
    use serde_json::json;
    use std::collections::BTreeMap;

    fn told(resource_name: &str, divisor: Option<&str>) -> Result<String, Error> {
        let (pod, container) = pod_of(json!({"name": "a", "resources": {
            "requests": {"cpu": "1500m", "memory": "1Gi"}, "limits": {"cpu": "2"},
        }}));
        let allocatable = BTreeMap::from([("memory".to_owned(), Amount::parse("16Gi").unwrap())]);
        let context = Context {
            pod: &pod,
            host_ips: &[],
            pod_ips: &[],
            allocatable: &allocatable,
        };
        let divisor = divisor.map(|divisor| Quantity(divisor.to_owned()));
        let source = ResourceFieldSelector {
            container_name: None,
            divisor,
            resource: resource_name.to_owned(),
        };
        resource(&context, &source, Some(&container))
    }

    #[test]
    fn resources_are_divided_and_rounded_up() {
        assert_eq!(told("requests.cpu", None).unwrap(), "2");
        assert_eq!(told("requests.cpu", Some("1m")).unwrap(), "1500");
        assert_eq!(told("requests.memory", Some("1Mi")).unwrap(), "1024");
        assert_eq!(told("requests.memory", Some("1G")).unwrap(), "2");
        assert_eq!(told("requests.memory", Some("0")).unwrap(), "1073741824");
    }

    #[test]
    fn a_limit_that_is_not_set_is_what_the_node_can_give() {
        assert_eq!(told("limits.cpu", None).unwrap(), "2");
        assert_eq!(told("limits.memory", Some("1Gi")).unwrap(), "16");
        assert_eq!(told("requests.ephemeral-storage", None).unwrap(), "0");
    }

    #[test]
    fn a_resource_that_is_not_known_is_refused_in_words() {
        for name in ["limits.gpu", "cpu", "usage.cpu"] {
            let found = told(name, None).unwrap_err().to_string();
            assert_eq!(found, format!("unsupported container resource: {name}"));
        }
    }
}
