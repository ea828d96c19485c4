//! Pods that a node does not take on.

use serde_json::json;

use super::super::Case;
use super::STAY;

pub(super) fn cases() -> Vec<Case> {
    let refused = |name, shows, more| Case::new(name, shows, STAY).spec(more);
    let limited = |resources| json!({"containers": [{"resources": resources}]});
    let folder = json!({"volumes": [{}, {"name": "folder", "hostPath": {"path": "/usr/lib"}}]});
    let privileged = json!({"containers": [{"securityContext": {"privileged": true}}]});
    let cores = limited(json!({"requests": {"cpu": "1000"}}));
    let device = limited(json!({"limits": {"example.com/device": "1"}}));
    let selector = json!({"nodeSelector": {"example.com/no": "such"}});
    let windows = json!({"os": {"name": "windows"}});
    let port = json!({"containers": [{"ports": [{"containerPort": 8080, "hostPort": 18_080}]}]});
    let mut conflict = refused("host-port", "a port of the host that is taken", port.clone());
    conflict.before = Some(refused("", "", port).pod);
    vec![
        conflict.goes("over"),
        refused("selector", "a label that the Node has not", selector).goes("over"),
        refused("too-big", "more cores than the Node has", cores).goes("over"),
        refused("unknown-resource", "a device that the Node has not", device).goes("settled"),
        refused("wrong-os", "an operating system that the Node has not", windows).goes("over"),
        refused("host-network", "the network of the host", json!({"hostNetwork": true})).goes("settled"),
        refused("host-path", "a folder of the host", folder).goes("settled"),
        refused("privileged", "rights on the host", privileged).goes("settled"),
    ]
}
