//! What an agent makes of its flags and its environment, before it does anything.

use std::process::Command;

/// Variables are set to nothing by hosts that mean nothing by them.
#[test]
fn flags_are_checked_and_those_without_an_effect_are_named() {
    let checked = Command::new(env!("CARGO_BIN_EXE_tart-kubelet"))
        .args([
            "--check-config",
            "--node-name=mac-1",
            "--runner-cache-root=/Volumes/tuist-runner-cache",
        ])
        .env_clear()
        .envs([
            ("TART_KUBELET_NODE_NAME", ""),
            ("TART_KUBELET_NODE_IP", ""),
            ("TART_KUBELET_NODE_IP_SOURCE", ""),
            ("TART_KUBELET_CACHE_VOLUME_CAP_GIB", ""),
            ("TART_KUBELET_VNC_RELAY_PORT", "5900"),
        ])
        .output()
        .unwrap();
    assert!(checked.status.success(), "{checked:?}");
    let said = String::from_utf8_lossy(&checked.stdout);
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(
        lines,
        [
            "configuration is valid: Node mac-1",
            "--vnc-relay-port has no effect yet: screens of virtual machines are not relayed",
            "--runner-cache-root has no effect yet: runners have no cache volumes",
        ]
    );
}
