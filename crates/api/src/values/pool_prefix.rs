//! Prefixes of pool hosts.

use super::text::checked_text;

const RULE: &str = "use 1 to 60 letters, digits, dots, dashes and underscores (for example tuist-pool-)";

/// A prefix of nothing would match, and so adopt, every server of the project.
fn is_pool_prefix(text: &str) -> bool {
    (1..=60).contains(&text.len())
        && text
            .bytes()
            .all(|c| c.is_ascii_alphanumeric() || matches!(c, b'.' | b'-' | b'_'))
}

checked_text! {
    /// Beginning of the names of the hosts in a pool.
    PoolPrefix: "pool prefix", RULE, is_pool_prefix
}

impl PoolPrefix {
    /// Whether a host of this name is in the pool.
    pub fn matches(&self, name: &str) -> bool {
        name.starts_with(&self.0)
    }

    /// Name of a host in the pool.
    pub fn name(&self, suffix: &str) -> String {
        format!("{}{suffix}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_prefix_that_would_match_everything_is_refused() {
        for bad in ["", "has space-", "a/b/c"] {
            assert!(PoolPrefix::try_from(bad).is_err(), "{bad:?}");
        }
    }

    proptest! {
        #[test]
        fn a_name_made_from_the_prefix_is_in_the_pool(prefix in "[a-z][a-z0-9-]{2,20}", suffix in "[a-z0-9-]{0,36}") {
            let prefix: PoolPrefix = prefix.parse().unwrap();
            prop_assert!(prefix.matches(&prefix.name(&suffix)));
        }
    }
}
