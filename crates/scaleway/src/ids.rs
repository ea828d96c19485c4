//! Ids that Scaleway gives to things. Ids of servers are [`russet_api::values::ServerId`].

macro_rules! id {
    ($(#[$meta:meta])* $name:ident: $what:literal) => {
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(String);

        impl $name {
            /// The text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl std::str::FromStr for $name {
            type Err = InvalidId;

            fn from_str(text: &str) -> Result<Self, InvalidId> {
                if is_id(text) {
                    Ok(Self(text.to_owned()))
                } else {
                    Err(InvalidId { what: $what, value: text.chars().take(80).collect() })
                }
            }
        }

        impl TryFrom<String> for $name {
            type Error = InvalidId;

            fn try_from(text: String) -> Result<Self, InvalidId> {
                text.parse()
            }
        }

        impl From<$name> for String {
            fn from(id: $name) -> Self {
                id.0
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

/// A text that cannot be an id.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{value:?} is not a valid {what}: use the id Scaleway gives, such as 2f1c7a50-9f3b-4f5e-8a53-0f6a0e1d2c3b")]
pub struct InvalidId {
    /// What the text should have been.
    pub what: &'static str,
    /// The text.
    pub value: String,
}

/// UUIDs today; only what makes them safe in a path is checked.
fn is_id(text: &str) -> bool {
    (1..=64).contains(&text.len()) && text.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'-')
}

id! {
    /// A project: the border of what we may see, use and pay for.
    ProjectId: "project id"
}
id! {
    /// A Private Network.
    PrivateNetworkId: "private network id"
}
id! {
    /// An operating system image of a Mac or an Elastic Metal server.
    OsId: "OS id"
}
id! {
    /// An SSH key registered with IAM.
    SshKeyId: "SSH key id"
}
id! {
    /// An address managed by IPAM.
    IpId: "IP id"
}
id! {
    /// A connectivity diagnostic of a Mac.
    DiagnosticId: "diagnostic id"
}
id! {
    /// An image an Instance starts from.
    ImageId: "image id"
}
id! {
    /// A volume, of the Instance or of the Block product.
    VolumeId: "volume id"
}
id! {
    /// A network interface of an Instance on a Private Network.
    PrivateNicId: "private NIC id"
}
id! {
    /// A public address of the Instance product.
    PublicIpId: "public IP id"
}
id! {
    /// An offer of Elastic Metal: hardware and how it is paid for.
    OfferId: "offer id"
}
id! {
    /// An option of an Elastic Metal server.
    OptionId: "option id"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_cannot_leave_its_place_in_a_path() {
        for bad in ["", "..", "a/b", "a b", "a?b", "é", &"x".repeat(65)] {
            assert!(bad.parse::<ProjectId>().is_err(), "{bad:?}");
        }
        let id: ProjectId = "2f1c7a50-9f3b-4f5e-8a53-0f6a0e1d2c3b".parse().unwrap();
        assert_eq!(
            serde_json::to_string(&id).unwrap(),
            "\"2f1c7a50-9f3b-4f5e-8a53-0f6a0e1d2c3b\""
        );
    }
}
