//! What `tart list --format json` prints.

use serde::{Deserialize, Deserializer};

/// One row. Keys that are not needed may come and go between versions.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Row {
    pub(super) source: String,
    pub(super) name: String,
    #[serde(default, deserialize_with = "gigabytes")]
    pub(super) size: f64,
    #[serde(default)]
    pub(super) accessed: Option<jiff::Timestamp>,
    #[serde(default)]
    running: bool,
    #[serde(default)]
    state: String,
}

impl Row {
    /// What the lock says. A VM that lost it runs all the same.
    pub(super) fn claims_to_run(&self) -> bool {
        self.running || self.state == "running"
    }

    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "sizes of disks")]
    pub(super) fn bytes(&self) -> u64 {
        (self.size * 1e9) as u64
    }
}

/// A number in one command, a quoted decimal in another; being strict about it once broke every warm start.
fn gigabytes<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Either {
        Number(f64),
        Text(String),
    }
    match Either::deserialize(deserializer)? {
        Either::Number(number) => Ok(number),
        Either::Text(text) => text.parse().map_err(serde::de::Error::custom),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_is_a_number_or_a_text() {
        for (size, bytes) in [("72", 72_000_000_000), ("\"72.5\"", 72_500_000_000)] {
            let row = format!(r#"{{"Source":"OCI","Name":"x","Size":{size},"State":"running","New":1}}"#);
            let row: Row = serde_json::from_str(&row).unwrap();
            assert_eq!(row.bytes(), bytes);
            assert!(row.claims_to_run());
        }
        assert!(serde_json::from_str::<Row>(r#"{"Source":"OCI","Name":"x","Size":"big"}"#).is_err());
    }
}
