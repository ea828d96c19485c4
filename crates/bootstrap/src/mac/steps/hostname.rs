//! The host is called what its Node is called.

use russet_telemetry::Secret;

use crate::mac::config::Host;
use crate::mac::resource::Resource;
use crate::mac::step::Step;

const CHECK: &str = r#"
for name in HostName LocalHostName ComputerName; do
  [ "$(scutil --get "$name" 2>/dev/null)" = "$NODE" ] || exit 1
done
"#;

const CHANGE: &str = r#"
for name in HostName LocalHostName ComputerName; do
  scutil --set "$name" "$NODE" || exit 1
done
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
