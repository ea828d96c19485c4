//! What names mean on a host, and which local addresses its programs may dial.

use crate::mac::config::Fleet;
use crate::mac::resource::{Mode, Resource};
use crate::mac::step::Step;

/// Private ranges that programs reach without anybody clicking "Allow", by Apple's TN3179. macOS reads them from the preferences of
/// root, once, when it starts.
const ALLOW_CHECK: &str = r#"
for name in AllowedEthernetLocalNetworkAddresses AllowedWiFiLocalNetworkAddresses; do
  now=$(defaults read com.apple.network.local-network "$name" 2>/dev/null | tr -d '()", \n')
  [ "$now" = 10.0.0.0/8172.16.0.0/12192.168.0.0/16 ] || exit 1
done
"#;
const ALLOW_CHANGE: &str = r#"
for name in AllowedEthernetLocalNetworkAddresses AllowedWiFiLocalNetworkAddresses; do
  defaults write com.apple.network.local-network "$name" -array 10.0.0.0/8 172.16.0.0/12 192.168.0.0/16 || exit 1
done
"#;

/// Names of the tailnet, where hosts are on one.
pub(in crate::mac) fn resolver(fleet: &Fleet) -> Step {
    let path = "/etc/resolver/ts.net";
    let resource = match fleet.tailnet {
        Some(_) => Resource::text(path, Mode::TEXT, "nameserver 100.100.100.100\n"),
        None => Resource::Absent { path: path.to_owned() },
    };
    Step::new("resolver", vec![resource])
}

/// The exemption from asking.
pub(in crate::mac) fn local_network() -> Step {
    Step::new("local-network", vec![Resource::script(ALLOW_CHECK, ALLOW_CHANGE)])
}
