//! The boilerplate of a newtype around checked text.

/// Declares a newtype around a `String` that only `check` can let through.
macro_rules! checked_text {
    (
        $(#[$meta:meta])*
        $name:ident: $what:literal, $rule:expr, $check:expr
    ) => {
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

        impl TryFrom<&str> for $name {
            type Error = $crate::values::Invalid;

            fn try_from(text: &str) -> Result<Self, Self::Error> {
                let check: fn(&str) -> bool = $check;
                if check(text) {
                    Ok(Self(text.to_owned()))
                } else {
                    Err($crate::values::Invalid::new($what, text, $rule))
                }
            }
        }

        impl TryFrom<String> for $name {
            type Error = $crate::values::Invalid;

            fn try_from(text: String) -> Result<Self, Self::Error> {
                Self::try_from(text.as_str())
            }
        }

        impl std::str::FromStr for $name {
            type Err = $crate::values::Invalid;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                Self::try_from(text)
            }
        }

        impl From<$name> for String {
            fn from(value: $name) -> Self {
                value.0
            }
        }

        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

pub(crate) use checked_text;
