//! A value that can be used but not printed.
//!
//! Tokens reach logs by accident: a `{:?}` of a config struct, an error that quotes its input, an object serialised into
//! an event. [`Secret`] closes those doors by type. It has no `Display` and no `Serialize`; its `Debug` prints
//! `[redacted]`; the only way to the value is [`Secret::expose`], which is easy to search for in review.
//!
//! The memory is zeroed on drop. This covers the value itself, not copies a caller made with `expose().clone()` nor
//! buffers a `String` left behind when it grew, so build secrets from values that are already complete.
//!
//! ```compile_fail
//! let token = russet_telemetry::Secret::new("t0ken".to_owned());
//! println!("{token}"); // no Display
//! ```
//! ```compile_fail
//! let token = russet_telemetry::Secret::new("t0ken".to_owned());
//! serde_json::to_string(&token).unwrap(); // no Serialize
//! ```

use std::fmt;

use serde::{Deserialize, Deserializer};
use zeroize::Zeroize;

/// A value that is redacted when printed and zeroed when dropped.
pub struct Secret<T: Zeroize>(T);

impl<T: Zeroize> Secret<T> {
    /// Wraps a value. From here on it can only be read through [`Secret::expose`].
    pub fn new(value: T) -> Self {
        Self(value)
    }

    /// The value, for the one call that needs it: a header, a file with mode 0600, the stdin of a child.
    pub fn expose(&self) -> &T {
        &self.0
    }

    /// Makes a secret out of this one, say the base64 form of a key, without a detour through a plain value.
    pub fn map<U: Zeroize>(&self, make: impl FnOnce(&T) -> U) -> Secret<U> {
        Secret(make(&self.0))
    }
}

impl<T: Zeroize + AsRef<[u8]>> Secret<T> {
    /// Compares in time that depends on the lengths only, so a guess cannot be refined byte by byte.
    pub fn matches(&self, candidate: &[u8]) -> bool {
        let value = self.0.as_ref();
        let difference = value.iter().zip(candidate).fold(0_u8, |acc, (a, b)| acc | (a ^ b));
        value.len() == candidate.len() && std::hint::black_box(difference) == 0
    }
}

impl<T: Zeroize> Drop for Secret<T> {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl<T: Zeroize> fmt::Debug for Secret<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[redacted]")
    }
}

impl<T: Zeroize + Clone> Clone for Secret<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T: Zeroize + Default> Default for Secret<T> {
    fn default() -> Self {
        Self(T::default())
    }
}

impl<T: Zeroize> From<T> for Secret<T> {
    fn from(value: T) -> Self {
        Self(value)
    }
}

impl From<&str> for Secret<String> {
    fn from(value: &str) -> Self {
        Self(value.to_owned())
    }
}

impl<'de, T: Zeroize + Deserialize<'de>> Deserialize<'de> for Secret<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        T::deserialize(deserializer).map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_output_never_contains_the_value() {
        #[derive(Debug)]
        #[expect(dead_code, reason = "read through Debug only")]
        struct Config {
            user: &'static str,
            token: Secret<String>,
        }
        let config = Config {
            user: "ci",
            token: Secret::from("canary-7d1f"),
        };
        let text = format!("{config:?} {config:#?}");
        assert!(text.contains("[redacted]") && text.contains("ci"), "{text}");
        assert!(!text.contains("canary"), "{text}");
    }

    #[test]
    fn a_secret_can_be_read_from_config_and_exposed() {
        let secret: Secret<String> = serde_json::from_str("\"canary\"").unwrap();
        assert_eq!(secret.expose(), "canary");
        assert_eq!(secret.map(String::len).expose(), &6);
        assert_eq!(secret.clone().expose(), secret.expose());
    }

    #[test]
    fn matching_needs_the_same_bytes_and_length() {
        let secret = Secret::new(b"abc".to_vec());
        assert!(secret.matches(b"abc"));
        assert!(!secret.matches(b"abd"));
        assert!(!secret.matches(b"ab"));
        assert!(!secret.matches(b"abcd"));
        assert!(Secret::new(Vec::new()).matches(b""));
    }
}
