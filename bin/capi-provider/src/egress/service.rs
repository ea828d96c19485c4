//! What of a Service is ours.

use k8s_openapi::api::core::v1::{Service, ServicePort};
use kube::ResourceExt as _;
use kube::api::ObjectMeta;
use russet_api::annotations::{TAILSCALE_PROXY_GROUP, TAILSCALE_TAILNET_FQDN};
use russet_api::labels::{
    APP_COMPONENT, APP_MANAGED_BY, COMPONENT_MACMINI_EGRESS, FLEET, MACMINI_EGRESS, MACMINI_MACHINE, MANAGED_BY_CAPI,
    OWNER_UID,
};
use russet_api::ports::{self, names};

use crate::machine_ref::MachineRef;

/// The tailnet and how it is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Tailnet {
    pub(super) proxy_group: String,
    pub(super) namespace: String,
    pub(super) suffix: String,
}

const PORTS: [(&str, u16); 5] = [
    (names::NODE_EXPORTER, ports::NODE_EXPORTER),
    (names::TART_KUBELET, ports::METRICS),
    (names::POD_METRICS, ports::POD_METRICS),
    (names::VNC_RELAY, ports::VNC),
    (names::SSH, ports::SSH),
];

/// Longest label value.
const LABEL: usize = 63;

/// The Service of a machine, still without content.
pub(super) fn named(tailnet: &Tailnet, machine: &MachineRef) -> Service {
    Service {
        metadata: ObjectMeta {
            name: Some(machine.name.clone()),
            namespace: Some(tailnet.namespace.clone()),
            ..ObjectMeta::default()
        },
        ..Service::default()
    }
}

/// Whether we made it.
pub(super) fn is_ours(service: &Service) -> bool {
    service
        .labels()
        .get(APP_MANAGED_BY)
        .is_some_and(|by| by == MANAGED_BY_CAPI)
}

/// Whether it is of this very machine. Those of older releases do not name a uid.
pub(super) fn belongs(service: &Service, machine: &MachineRef) -> bool {
    is_ours(service) && service.labels().get(OWNER_UID).is_none_or(|uid| *uid == machine.uid)
}

/// Puts our part into it and leaves the rest alone.
pub(super) fn shape(service: &mut Service, tailnet: &Tailnet, machine: &MachineRef, fleet: Option<&str>) {
    let labels = service.labels_mut();
    for (key, value) in [
        (APP_MANAGED_BY, MANAGED_BY_CAPI),
        (APP_COMPONENT, COMPONENT_MACMINI_EGRESS),
        (MACMINI_EGRESS, "true"),
        (OWNER_UID, &machine.uid),
    ] {
        labels.insert(key.to_owned(), value.to_owned());
    }
    for (key, value) in [(MACMINI_MACHINE, Some(machine.name.as_str())), (FLEET, fleet)] {
        match value.filter(|value| !value.is_empty() && value.len() <= LABEL) {
            Some(value) => labels.insert(key.to_owned(), value.to_owned()),
            None => labels.remove(key),
        };
    }
    let annotations = service.annotations_mut();
    annotations.insert(
        TAILSCALE_TAILNET_FQDN.to_owned(),
        format!("{}.{}", machine.name, tailnet.suffix),
    );
    annotations.insert(TAILSCALE_PROXY_GROUP.to_owned(), tailnet.proxy_group.clone());

    let spec = service.spec.get_or_insert_default();
    spec.type_ = Some("ExternalName".to_owned());
    // The operator rewrites it; until then it must say something.
    if spec.external_name.as_deref().is_none_or(str::is_empty) {
        spec.external_name = Some(format!("placeholder.{}.svc.cluster.local", tailnet.namespace));
    }
    let live = spec.ports.take().unwrap_or_default();
    let port = |(name, number): (&str, u16)| {
        let known = live
            .iter()
            .find(|port| port.name.as_deref() == Some(name) && port.port == i32::from(number));
        known.cloned().unwrap_or_else(|| ServicePort {
            name: Some(name.to_owned()),
            port: i32::from(number),
            protocol: Some("TCP".to_owned()),
            ..ServicePort::default()
        })
    };
    spec.ports = Some(PORTS.into_iter().map(port).collect());
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn tailnet() -> Tailnet {
        Tailnet {
            proxy_group: "macmini-egress".into(),
            namespace: "tailscale-operator".into(),
            suffix: "tail1234.ts.net".into(),
        }
    }

    fn machine() -> MachineRef {
        MachineRef {
            namespace: "default".into(),
            name: "mac-1".into(),
            uid: "u1".into(),
        }
    }

    #[test]
    fn a_new_service_is_whole() {
        let mut service = named(&tailnet(), &machine());
        shape(&mut service, &tailnet(), &machine(), Some("runners"));
        assert_eq!(
            serde_json::to_value(&service).unwrap(),
            json!({
                "apiVersion": "v1", "kind": "Service",
                "metadata": {
                    "name": "mac-1", "namespace": "tailscale-operator",
                    "labels": {
                        "app.kubernetes.io/managed-by": "capi-scaleway-applesilicon",
                        "app.kubernetes.io/component": "macmini-egress",
                        "tuist.dev/macmini-egress": "true",
                        "tuist.dev/macmini-machine": "mac-1",
                        "tuist.dev/fleet": "runners",
                        "tuist.dev/owner-uid": "u1",
                    },
                    "annotations": {
                        "tailscale.com/tailnet-fqdn": "mac-1.tail1234.ts.net",
                        "tailscale.com/proxy-group": "macmini-egress",
                    },
                },
                "spec": {
                    "type": "ExternalName",
                    "externalName": "placeholder.tailscale-operator.svc.cluster.local",
                    "ports": [
                        {"name": "node-exporter", "port": 9100, "protocol": "TCP"},
                        {"name": "tart-kubelet", "port": 8080, "protocol": "TCP"},
                        {"name": "pod-metrics", "port": 9091, "protocol": "TCP"},
                        {"name": "vnc-relay", "port": 5900, "protocol": "TCP"},
                        {"name": "ssh", "port": 22, "protocol": "TCP"},
                    ],
                },
            })
        );
    }

    #[test]
    fn what_the_operator_and_the_server_wrote_stays() {
        let mut service = named(&tailnet(), &machine());
        shape(&mut service, &tailnet(), &machine(), None);
        let spec = service.spec.as_mut().unwrap();
        spec.external_name = Some("ts-mac-1-x.tailscale-operator.svc.cluster.local".into());
        for port in spec.ports.as_mut().unwrap() {
            port.target_port = Some(k8s_openapi::apimachinery::pkg::util::intstr::IntOrString::Int(
                port.port,
            ));
        }
        service.annotations_mut().insert("theirs".into(), "kept".into());
        let before = service.clone();
        shape(&mut service, &tailnet(), &machine(), None);
        assert_eq!(service, before);
    }

    #[test]
    fn a_service_of_another_machine_or_another_maker_is_not_ours_to_remove() {
        let mut service = named(&tailnet(), &machine());
        assert!(!belongs(&service, &machine()));
        shape(&mut service, &tailnet(), &machine(), None);
        assert!(belongs(&service, &machine()));
        let other = MachineRef {
            uid: "u2".into(),
            ..machine()
        };
        assert!(!belongs(&service, &other));
        service.labels_mut().remove(OWNER_UID);
        assert!(belongs(&service, &other), "releases before this one wrote no uid");
    }
}
