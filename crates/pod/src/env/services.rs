//! Variables that tell of Services, as Docker links once did.

use k8s_openapi::api::core::v1::{Service, ServicePort};
use std::net::IpAddr;

/// Variables for the Services a Pod of this namespace sees: the API server always, the others if the Pod wants them.
pub(super) fn variables(services: &[Service], namespace: &str, links: bool) -> Vec<(String, String)> {
    let mut result = Vec::new();
    let is = |service: &Service, namespace: &str, name: Option<&str>| {
        service.metadata.namespace.as_deref() == Some(namespace)
            && name.is_none_or(|name| service.metadata.name.as_deref() == Some(name))
    };
    // The one of the namespace comes later and wins, should it bear the same name.
    let api = services
        .iter()
        .filter(|service| is(service, "default", Some("kubernetes")));
    let others = services.iter().filter(|service| links && is(service, namespace, None));
    for service in api.chain(others) {
        of_service(service, &mut result);
    }
    result
}

fn of_service(service: &Service, result: &mut Vec<(String, String)>) {
    let Some(spec) = &service.spec else { return };
    let address = spec
        .cluster_ip
        .as_deref()
        .and_then(|address| address.parse::<IpAddr>().ok());
    let (Some(address), Some(name)) = (address, service.metadata.name.as_deref()) else {
        return;
    };
    let prefix = shouted(name);
    let ports = spec.ports.as_deref().unwrap_or_default();
    let mut add = |name: String, value: String| result.push((name, value));
    add(format!("{prefix}_SERVICE_HOST"), address.to_string());
    if let Some(first) = ports.first() {
        add(format!("{prefix}_SERVICE_PORT"), first.port.to_string());
        add(format!("{prefix}_PORT"), url(address, first));
    }
    for port in ports {
        if let Some(name) = port.name.as_deref().filter(|name| !name.is_empty()) {
            add(
                format!("{prefix}_SERVICE_PORT_{}", shouted(name)),
                port.port.to_string(),
            );
        }
        let protocol = port.protocol.as_deref().unwrap_or("TCP");
        let link = format!("{prefix}_PORT_{}_{protocol}", port.port);
        add(link.clone(), url(address, port));
        add(format!("{link}_PROTO"), protocol.to_lowercase());
        add(format!("{link}_PORT"), port.port.to_string());
        add(format!("{link}_ADDR"), address.to_string());
    }
}

fn shouted(name: &str) -> String {
    name.to_uppercase().replace('-', "_")
}

fn url(address: IpAddr, port: &ServicePort) -> String {
    let protocol = port.protocol.as_deref().unwrap_or("TCP").to_lowercase();
    match address {
        IpAddr::V4(address) => format!("{protocol}://{address}:{}", port.port),
        IpAddr::V6(address) => format!("{protocol}://[{address}]:{}", port.port),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn service(namespace: &str, name: &str, address: &str) -> Service {
        serde_json::from_value(json!({
            "metadata": {"namespace": namespace, "name": name},
            "spec": {"clusterIP": address, "ports": [
                {"name": "http-web", "port": 80}, {"name": "dns", "port": 53, "protocol": "UDP"},
            ]},
        }))
        .unwrap()
    }

    #[test]
    fn a_service_is_told_as_in_kubernetes() {
        let told = variables(&[service("ci", "my-cache", "10.0.0.9")], "ci", true);
        let expected = [
            ("MY_CACHE_SERVICE_HOST", "10.0.0.9"),
            ("MY_CACHE_SERVICE_PORT", "80"),
            ("MY_CACHE_PORT", "tcp://10.0.0.9:80"),
            ("MY_CACHE_SERVICE_PORT_HTTP_WEB", "80"),
            ("MY_CACHE_PORT_80_TCP", "tcp://10.0.0.9:80"),
            ("MY_CACHE_PORT_80_TCP_PROTO", "tcp"),
            ("MY_CACHE_PORT_80_TCP_PORT", "80"),
            ("MY_CACHE_PORT_80_TCP_ADDR", "10.0.0.9"),
            ("MY_CACHE_SERVICE_PORT_DNS", "53"),
            ("MY_CACHE_PORT_53_UDP", "udp://10.0.0.9:53"),
            ("MY_CACHE_PORT_53_UDP_PROTO", "udp"),
            ("MY_CACHE_PORT_53_UDP_PORT", "53"),
            ("MY_CACHE_PORT_53_UDP_ADDR", "10.0.0.9"),
        ];
        let told: Vec<_> = told
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()))
            .collect();
        assert_eq!(told, expected);
    }

    #[test]
    fn only_the_api_server_is_told_to_a_pod_that_wants_no_links() {
        let all = [
            service("default", "kubernetes", "10.0.0.1"),
            service("ci", "cache", "10.0.0.9"),
        ];
        let names = |links| {
            let told = variables(&all, "ci", links);
            told.into_iter()
                .map(|(name, _)| name)
                .filter(|name| name.ends_with("_HOST"))
                .collect::<Vec<_>>()
        };
        assert_eq!(names(true), ["KUBERNETES_SERVICE_HOST", "CACHE_SERVICE_HOST"]);
        assert_eq!(names(false), ["KUBERNETES_SERVICE_HOST"]);
    }

    #[test]
    fn headless_services_and_those_of_other_namespaces_are_not_told() {
        let all = [
            service("ci", "headless", "None"),
            service("prod", "cache", "10.0.0.9"),
            service("ci", "v6", "fd00::9"),
        ];
        let told = variables(&all, "ci", true);
        assert!(told.iter().all(|(name, _)| name.starts_with("V6_")), "{told:?}");
        assert!(
            told.contains(&("V6_PORT".to_owned(), "tcp://[fd00::9]:80".to_owned())),
            "{told:?}"
        );
    }
}
