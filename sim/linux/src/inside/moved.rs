//! An API server that moved while the machine was off: kubeconfigs on its disk are pointed to where it is now.
//!
//! A real one has a name, and DNS would say where it went.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use serde_yaml_ng::Value;

/// Who talks to the API server from here. Certificates are files of their own and stay.
const KUBECONFIGS: [&str; 3] = [
    "/var/lib/kubelet/kubeconfig",
    "/var/lib/kubelet/bootstrap-kubeconfig",
    "/etc/russet-box/kube-proxy.kubeconfig",
];

/// Points every kubeconfig there. What is not there yet is written by somebody who knows better.
pub(super) fn follow(server: &str) -> Result<(), String> {
    for path in KUBECONFIGS.map(Path::new) {
        let Ok(text) = std::fs::read_to_string(path) else {
            continue;
        };
        let said = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
        if let Some(text) = pointed(&text, server).map_err(|error| said(&error))? {
            let fresh = path.with_extension("moved");
            std::fs::write(&fresh, "")
                .and_then(|()| std::fs::set_permissions(&fresh, Permissions::from_mode(0o600)))
                .and_then(|()| std::fs::write(&fresh, text))
                .and_then(|()| std::fs::rename(&fresh, path))
                .map_err(|error| said(&error))?;
        }
    }
    Ok(())
}

/// The kubeconfig with another server; none if it is that already.
fn pointed(text: &str, server: &str) -> Result<Option<String>, serde_yaml_ng::Error> {
    let mut config: Value = serde_yaml_ng::from_str(text)?;
    let mut changed = false;
    let clusters = config.get_mut("clusters").and_then(Value::as_sequence_mut);
    for cluster in clusters.into_iter().flatten() {
        let place = cluster.get_mut("cluster").and_then(|cluster| cluster.get_mut("server"));
        if let Some(place) = place.filter(|place| place.as_str() != Some(server)) {
            *place = Value::from(server);
            changed = true;
        }
    }
    changed.then(|| serde_yaml_ng::to_string(&config)).transpose()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_server_of_a_kubeconfig_changes_and_only_if_it_moved() {
        let text = "clusters:\n- cluster:\n    server: https://10.77.1.1:1\n  name: a\nusers: []\n";
        let moved = pointed(text, "https://10.77.1.1:2").unwrap().unwrap();
        assert_eq!(moved, text.replace(":1\n", ":2\n"));
        assert_eq!(pointed(&moved, "https://10.77.1.1:2").unwrap(), None);
    }
}
