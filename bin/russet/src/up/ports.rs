//! Which ports the parts were given. The cluster library remembers them in `ports.json` and replaces those that were taken
//! meanwhile; here they are read to show them, and to say when one had to move.

use crate::state::Layout;
use russet_cluster::capi;
use russet_cluster::control_plane::name;
use std::collections::{BTreeMap, HashMap};
use std::path::Path;

/// Ports by the name the library gave them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Ports(BTreeMap<String, u16>);

/// Part, the name of the port it is reached at, and the scheme spoken there.
const PARTS: [(&str, &str, &str); 7] = [
    (name::ETCD, name::ETCD, "https"),
    (name::APISERVER, name::APISERVER, "https"),
    (name::CONTROLLER_MANAGER, name::CONTROLLER_MANAGER, "https"),
    (name::SCHEDULER, name::SCHEDULER, "https"),
    (capi::NAME, "capi-webhook", "https"),
    (super::cache::NAME, super::cache::NAME, "http"),
    (super::fleet::SCALEWAY, super::fleet::SCALEWAY, "http"),
];

impl Ports {
    /// What the last start remembered. A damaged file counts as empty, for the library too: it picks anew.
    pub(super) fn remembered(layout: &Layout) -> Self {
        let read = |dir: &Path| -> BTreeMap<String, u16> {
            let bytes = std::fs::read(dir.join("ports.json")).unwrap_or_default();
            serde_json::from_slice(&bytes).unwrap_or_default()
        };
        let mut all = read(&layout.cluster());
        all.extend(read(&layout.capi()));
        all.extend(read(&layout.cache()));
        all.extend(read(&layout.fleet()));
        Self(all)
    }

    /// Where each part listens: on loopback, but for the API server, which may have to be where nodes are.
    pub(super) fn addresses(&self, server: &str) -> HashMap<String, String> {
        let loopback = PARTS.into_iter().filter_map(|(part, port, scheme)| {
            Some((part.to_owned(), format!("{scheme}://127.0.0.1:{}", self.0.get(port)?)))
        });
        loopback
            .chain([(name::APISERVER.to_owned(), server.to_owned())])
            .collect()
    }

    /// One remark per port that is not where it was.
    pub(super) fn moved_since(&self, before: &Self) -> Vec<String> {
        let moved = |(name, port): (&String, &u16)| {
            let old = before.0.get(name).filter(|old| *old != port)?;
            Some(format!(
                "port {old} of {name} was taken by another process; it now uses {port}"
            ))
        };
        self.0.iter().filter_map(moved).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ports(pairs: &[(&str, u16)]) -> Ports {
        Ports(pairs.iter().map(|(name, port)| ((*name).to_owned(), *port)).collect())
    }

    #[test]
    fn only_a_port_that_moved_is_worth_a_word() {
        let before = ports(&[("etcd", 1), ("kube-apiserver", 2)]);
        let after = ports(&[("etcd", 1), ("kube-apiserver", 3), ("capi-webhook", 4)]);
        assert_eq!(
            after.moved_since(&before),
            ["port 2 of kube-apiserver was taken by another process; it now uses 3"]
        );
        assert_eq!(after.moved_since(&Ports::default()), [""; 0]);
    }

    #[test]
    fn every_part_with_a_known_port_has_an_address() {
        let addresses = ports(&[("kube-apiserver", 6443), ("capi-webhook", 9443)]).addresses("https://10.77.0.1:6443");
        assert_eq!(addresses.get("kube-apiserver").unwrap(), "https://10.77.0.1:6443");
        assert_eq!(addresses.get("capi-core").unwrap(), "https://127.0.0.1:9443");
        assert_eq!(addresses.len(), 2);
    }
}
