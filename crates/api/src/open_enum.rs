//! Enums that are closed for us and open on the wire.
//!
//! A status written by an older or newer release may hold a word this build does not know. Refusing to read it would
//! hide the whole object from its controller, and dropping it would lose what the other release recorded. So an unknown
//! word is kept as it is, and the schema says only "text".

/// Declares an enum of known words plus `Other(String)`, which serialises to and from plain text.
macro_rules! open_enum {
    (
        $(#[$meta:meta])*
        pub enum $name:ident {
            $( $(#[$variant_meta:meta])* $variant:ident = $text:literal, )+
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
        #[serde(from = "String", into = "String")]
        pub enum $name {
            $( $(#[$variant_meta])* $variant, )+
            /// A word written by another release.
            Other(String),
        }

        impl $name {
            /// The words this release writes.
            pub const KNOWN: &'static [&'static str] = &[$($text),+];

            /// The word on the wire.
            pub fn as_str(&self) -> &str {
                match self {
                    $( Self::$variant => $text, )+
                    Self::Other(text) => text,
                }
            }
        }

        impl From<&str> for $name {
            fn from(text: &str) -> Self {
                match text {
                    $( $text => Self::$variant, )+
                    other => Self::Other(other.to_owned()),
                }
            }
        }

        impl From<String> for $name {
            fn from(text: String) -> Self {
                Self::from(text.as_str())
            }
        }

        impl From<$name> for String {
            fn from(value: $name) -> Self {
                value.as_str().to_owned()
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl schemars::JsonSchema for $name {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                schemars::json_schema!({ "type": "string" })
            }
        }
    };
}

pub(crate) use open_enum;

#[cfg(test)]
mod tests {
    open_enum! {
        /// Two words.
        pub enum Word {
            /// The first.
            Yes = "Yes",
            /// The second.
            No = "No",
        }
    }

    #[test]
    fn a_known_word_is_a_variant_and_an_unknown_one_survives() {
        assert_eq!(serde_json::from_str::<Word>("\"Yes\"").unwrap(), Word::Yes);
        let odd: Word = serde_json::from_str("\"Perhaps\"").unwrap();
        assert_eq!(odd, Word::Other("Perhaps".into()));
        assert_eq!(serde_json::to_string(&odd).unwrap(), "\"Perhaps\"");
        assert_eq!(Word::KNOWN, ["Yes", "No"]);
    }
}
