//! What a machine remembers, in the form in which it is written down.

use super::{Identity, Memory};
use russet_telemetry::Secret;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fmt;

/// [`Memory`] for a file. It holds a key in plain text: whoever writes it lets nobody else read it.
///
/// Fields are added, never renamed: the next release reads what this one wrote.
#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
pub struct KeptMemory {
    identity: Option<Papers>,
    next: Option<Papers>,
    labels: BTreeSet<String>,
}

#[derive(Serialize, Deserialize)]
struct Papers {
    node_name: String,
    server: String,
    key_pem: String,
    certificate_pem: Option<String>,
}

impl fmt::Debug for KeptMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeptMemory")
            .field("labels", &self.labels)
            .finish_non_exhaustive()
    }
}

impl From<Papers> for Identity {
    fn from(papers: Papers) -> Self {
        Self {
            node_name: papers.node_name,
            server: papers.server,
            key_pem: Secret::new(papers.key_pem),
            certificate_pem: papers.certificate_pem,
        }
    }
}

impl From<&Identity> for Papers {
    fn from(identity: &Identity) -> Self {
        Self {
            node_name: identity.node_name.clone(),
            server: identity.server.clone(),
            key_pem: identity.key_pem.expose().clone(),
            certificate_pem: identity.certificate_pem.clone(),
        }
    }
}

impl From<KeptMemory> for Memory {
    fn from(kept: KeptMemory) -> Self {
        Self {
            identity: kept.identity.map(Identity::from),
            next: kept.next.map(Identity::from),
            labels: kept.labels,
        }
    }
}

impl From<&Memory> for KeptMemory {
    fn from(memory: &Memory) -> Self {
        Self {
            identity: memory.identity.as_ref().map(Papers::from),
            next: memory.next.as_ref().map(Papers::from),
            labels: memory.labels.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As the release before wrote it, without what has come since, and with what will come.
    const EARLIER: &str = r#"{
        "identity": {"node_name": "mac-1", "server": "https://a/", "key_pem": "canary", "certificate_pem": null},
        "labels": ["tuist.dev/fleet"], "later": true
    }"#;

    #[test]
    fn what_another_release_wrote_is_understood() {
        let memory = Memory::from(serde_json::from_str::<KeptMemory>(EARLIER).unwrap());
        let identity = memory.identity.unwrap();
        assert_eq!((identity.node_name.as_str(), identity.certificate_pem), ("mac-1", None));
        assert_eq!(identity.key_pem.expose(), "canary");
        assert!(memory.next.is_none() && memory.labels.contains("tuist.dev/fleet"));
    }

    #[test]
    fn a_key_is_written_and_never_printed() {
        let kept: KeptMemory = serde_json::from_str(EARLIER).unwrap();
        assert!(!format!("{kept:?}").contains("canary"));
        let again = KeptMemory::from(&Memory::from(kept));
        assert!(serde_json::to_string(&again).unwrap().contains("canary"));
    }
}
