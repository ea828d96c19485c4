//! Provider ids: what binds a Cluster API Machine to its Node.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::{Invalid, ServerId, Zone};

const RULE: &str = "use scw-applesilicon://<zone>/<server id>, scaleway://baremetal/<zone>/<server id> or scaleway://instance/<zone>/<server id>";

/// Which product a server belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ProviderKind {
    /// Mac mini.
    AppleSilicon,
    /// Elastic Metal.
    ElasticMetal,
    /// Instance.
    Instance,
}

impl ProviderKind {
    const ALL: [Self; 3] = [Self::AppleSilicon, Self::ElasticMetal, Self::Instance];

    /// What provider ids of this product begin with.
    pub const fn scheme(self) -> &'static str {
        match self {
            Self::AppleSilicon => "scw-applesilicon://",
            Self::ElasticMetal => "scaleway://baremetal/",
            Self::Instance => "scaleway://instance/",
        }
    }
}

/// Identity of a server across Cluster API, the Node and Scaleway.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ProviderId {
    kind: ProviderKind,
    zone: Zone,
    server: ServerId,
}

impl ProviderId {
    /// The id of a server.
    pub fn new(kind: ProviderKind, zone: Zone, server: ServerId) -> Self {
        Self { kind, zone, server }
    }

    /// Which product the server belongs to.
    pub fn kind(&self) -> ProviderKind {
        self.kind
    }

    /// Zone of the server.
    pub fn zone(&self) -> &Zone {
        &self.zone
    }

    /// Scaleway's id of the server.
    pub fn server(&self) -> &ServerId {
        &self.server
    }

    /// The id in a spec; absent and empty both mean that there is none yet.
    pub fn parse_optional(text: Option<&str>) -> Result<Option<Self>, Invalid> {
        text.filter(|t| !t.is_empty()).map(str::parse).transpose()
    }
}

impl FromStr for ProviderId {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        let invalid = || Invalid::new("provider id", text, RULE);
        let (kind, rest) = ProviderKind::ALL
            .into_iter()
            .find_map(|kind| text.strip_prefix(kind.scheme()).map(|rest| (kind, rest)))
            .ok_or_else(invalid)?;
        let (zone, server) = rest.split_once('/').ok_or_else(invalid)?;
        Ok(Self {
            kind,
            zone: zone.parse().map_err(|_| invalid())?,
            server: server.parse().map_err(|_| invalid())?,
        })
    }
}

impl TryFrom<&str> for ProviderId {
    type Error = Invalid;

    fn try_from(text: &str) -> Result<Self, Invalid> {
        text.parse()
    }
}

impl TryFrom<String> for ProviderId {
    type Error = Invalid;

    fn try_from(text: String) -> Result<Self, Invalid> {
        text.parse()
    }
}

impl From<ProviderId> for String {
    fn from(value: ProviderId) -> Self {
        value.to_string()
    }
}

impl fmt::Display for ProviderId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}/{}", self.kind.scheme(), self.zone, self.server)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn each_product_has_its_own_scheme() {
        let id: ProviderId = "scw-applesilicon://fr-par-1/abc-1".parse().unwrap();
        assert_eq!(
            (id.kind(), id.zone().as_str(), id.server().as_str()),
            (ProviderKind::AppleSilicon, "fr-par-1", "abc-1")
        );
        let id: ProviderId = "scaleway://baremetal/fr-par-2/abc".parse().unwrap();
        assert_eq!(id.kind(), ProviderKind::ElasticMetal);
        let id: ProviderId = "scaleway://instance/nl-ams-1/abc".parse().unwrap();
        assert_eq!(id.kind(), ProviderKind::Instance);
    }

    #[test]
    fn foreign_and_broken_ids_are_refused() {
        for bad in [
            "",
            "abc",
            "hcloud://123",
            "scw-applesilicon://",
            "scw-applesilicon://fr-par-1",
            "scw-applesilicon://fr-par-1/",
            "scw-applesilicon:///abc",
            "scw-applesilicon://fr-par-1/abc/def",
            "scaleway://fr-par-1/abc",
        ] {
            let error = bad.parse::<ProviderId>().unwrap_err();
            assert_eq!(error.value, bad);
        }
        assert_eq!(ProviderId::parse_optional(Some("")).unwrap(), None);
        assert!(ProviderId::parse_optional(Some("abc")).is_err());
    }

    proptest! {
        #[test]
        fn an_id_survives_text_and_json(
            kind in prop::sample::select(ProviderKind::ALL.to_vec()),
            zone in "[a-z]{2}-[a-z]{3}-[1-9]",
            server in "[a-f0-9]{8}-[a-f0-9]{4}",
        ) {
            let id = ProviderId::new(kind, zone.parse().unwrap(), server.parse().unwrap());
            prop_assert_eq!(id.to_string().parse::<ProviderId>().unwrap(), id.clone());
            let json = serde_json::to_string(&id).unwrap();
            prop_assert_eq!(serde_json::from_str::<ProviderId>(&json).unwrap(), id);
        }

        #[test]
        fn parsing_never_panics(text in "\\PC*") {
            let _ = text.parse::<ProviderId>();
        }
    }
}
