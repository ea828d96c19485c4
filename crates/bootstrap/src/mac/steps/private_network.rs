//! The private network: a VLAN named `pn` on the one network card a mini has.

use russet_telemetry::Secret;

use crate::mac::config::Host;
use crate::mac::resource::Resource;
use crate::mac::step::Step;

/// networksetup tells errors on standard output and ends with 0 in some versions: what counts is what it lists afterwards.
const CHECK: &str = r#"
now=$(networksetup -listVLANs | awk '/User Defined Name: / { mine = ($NF == "pn") } mine && $1 == "Tag:" { print $2 }')
[ "$now" = "$TAG" ]
"#;
const CHANGE: &str = r#"
now=$(networksetup -listVLANs | awk '/User Defined Name: / { mine = ($NF == "pn") } mine && $1 == "Tag:" { print $2 }')
for tag in $now; do networksetup -deleteVLAN pn en0 "$tag"; done
[ -n "$TAG" ] || exit 0
networksetup -createVLAN pn en0 "$TAG"
for service in 'pn Configuration' pn; do
  said=$(networksetup -setdhcp "$service")
  case $said in *rror* | *'not a recognized'*) ;; *) exit 0 ;; esac
done
say "$said" >&2
exit 1
"#;

/// The step.
pub(in crate::mac) fn step(host: &Host) -> Step {
    let tag = host.vlan.map(|vlan| vlan.to_string()).unwrap_or_default();
    Step::new(
        "private-network",
        vec![Resource::Script {
            upload: None,
            variables: vec![("TAG", Secret::new(tag))],
            check: CHECK,
            change: CHANGE,
        }],
    )
}
