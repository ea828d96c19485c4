//! Pods that a node does not take on.

use serde_json::json;

use super::super::{Case, Moment};
use super::STAY;

pub(super) fn cases() -> Vec<Case> {
    let refused = |name, shows, more| Case::new(name, shows, STAY).spec(more);
    let port = json!({"containers": [{"ports": [{"containerPort": 8080, "hostPort": 18_080}]}]});
    let mut conflict = refused("host-port", "a port of the host that is taken", port.clone());
    conflict.before = Some(refused("", "", port).pod);
    vec![
        conflict.until(Moment::Over),
        refused(
            "selector",
            "a label that the Node has not",
            json!({"nodeSelector": {"example.com/no": "such"}}),
        )
        .until(Moment::Over),
        refused(
            "too-big",
            "more cores than the Node has",
            json!({"containers": [{"resources": {"requests": {"cpu": "1000"}}}]}),
        )
        .until(Moment::Over),
        refused(
            "unknown-resource",
            "a device that the Node has not",
            json!({"containers": [{"resources": {"limits": {"example.com/device": "1"}}}]}),
        )
        .until(Moment::Settled),
        refused(
            "wrong-os",
            "an operating system that the Node has not",
            json!({"os": {"name": "windows"}}),
        )
        .until(Moment::Over),
        refused("host-network", "the network of the host", json!({"hostNetwork": true})).until(Moment::Settled),
        refused(
            "host-path",
            "a folder of the host",
            json!({"volumes": [{}, {"name": "folder", "hostPath": {"path": "/usr/lib"}}]}),
        )
        .until(Moment::Settled),
        refused(
            "privileged",
            "rights on the host",
            json!({"containers": [{"securityContext": {"privileged": true}}]}),
        )
        .until(Moment::Settled),
    ]
}
