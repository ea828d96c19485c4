//! The forms values have on the wire.

use std::net::IpAddr;

use serde::{Deserialize, Deserializer};

use crate::mac_address::MacAddress;

/// Declares an enum of words of the API. A word we do not know is kept, because Scaleway adds states without notice and
/// one new word must not make a whole list unreadable.
macro_rules! words {
    (
        $(#[$meta:meta])*
        pub enum $name:ident { $( $(#[$vmeta:meta])* $variant:ident = $word:literal, )+ }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq, Eq, Hash, serde::Deserialize)]
        #[serde(from = "String")]
        pub enum $name {
            $( $(#[$vmeta])* $variant, )+
            /// A word this release does not know.
            Other(String),
        }

        impl $name {
            /// The word on the wire.
            pub fn as_str(&self) -> &str {
                match self {
                    $( Self::$variant => $word, )+
                    Self::Other(word) => word,
                }
            }
        }

        impl From<String> for $name {
            fn from(word: String) -> Self {
                match word.as_str() {
                    $( $word => Self::$variant, )+
                    _ => Self::Other(word),
                }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }
    };
}

/// Declares the answer of a list: its rows, and how many there are in all.
macro_rules! listing {
    ($name:ident { $field:ident: $row:ty }) => {
        #[derive(serde::Deserialize)]
        struct $name {
            #[serde(default, deserialize_with = "crate::wire::null_is_default")]
            $field: Vec<$row>,
            total_count: u64,
        }

        impl From<$name> for crate::pages::Page<$row> {
            fn from(page: $name) -> Self {
                Self {
                    rows: page.$field,
                    total: page.total_count,
                }
            }
        }
    };
}

/// Declares the answer of a list of the Instance API, which counts in a header.
macro_rules! counted_listing {
    ($name:ident { $field:ident: $row:ty }) => {
        #[derive(serde::Deserialize)]
        struct $name {
            #[serde(default, deserialize_with = "crate::wire::null_is_default")]
            $field: Vec<$row>,
        }

        impl From<$name> for Vec<$row> {
            fn from(page: $name) -> Self {
                page.$field
            }
        }
    };
}

/// Says which field of a row is its id.
macro_rules! row {
    ($($row:ty),+ $(,)?) => {
        $(
            impl crate::pages::Row for $row {
                fn id(&self) -> &str {
                    self.id.as_str()
                }
            }
        )+
    };
}

/// An address, or nothing for null and for the empty text, which Scaleway sends while a host has none.
pub(crate) fn optional_ip<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<IpAddr>, D::Error> {
    let text: Option<String> = Option::deserialize(deserializer)?;
    match text.as_deref() {
        None | Some("") => Ok(None),
        Some(text) => text.parse().map(Some).map_err(serde::de::Error::custom),
    }
}

/// A hardware address, or nothing for null and for the empty text, which an interface has while it is set up. Two interfaces
/// without one must not look alike.
pub(crate) fn optional_mac<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<MacAddress>, D::Error> {
    let text: Option<String> = Option::deserialize(deserializer)?;
    Ok(text.filter(|text| !text.is_empty()).map(MacAddress::from))
}

/// The default for null: Scaleway sends null for an empty list now and then.
pub(crate) fn null_is_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}
