//! The host is called what its Node is called.

use russet_telemetry::Secret;

use crate::mac::config::Host;
use crate::mac::resource::Resource;
use crate::mac::step::Step;

/// The name on the local network is one label.
const CHECK: &str = r#"
for name in HostName ComputerName; do
  [ "$(scutil --get "$name" 2>/dev/null)" = "$NODE" ] || exit 1
done
[ "$(scutil --get LocalHostName 2>/dev/null)" = "${NODE//./-}" ]
"#;

const CHANGE: &str = r#"
for name in HostName ComputerName; do
  scutil --set "$name" "$NODE" || exit 1
done
scutil --set LocalHostName "${NODE//./-}"
"#;

/// The step.
pub(in crate::mac) fn step(host: &Host) -> Step {
    Step::new(
        "hostname",
        vec![Resource::Script {
            upload: None,
            variables: vec![("NODE", Secret::new(host.node_name.clone()))],
            check: CHECK,
            change: CHANGE,
        }],
    )
}
