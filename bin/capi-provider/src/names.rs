//! What the name of a Mac says about whose it is.

use russet_api::values::PoolPrefix;

/// A host somebody is taking from a pool; an id follows.
pub const CLAIM_MARKER: &str = "tuist-claim-pending-";
/// A host on its way back to a pool, to be wiped; an id follows.
pub const RELEASE_MARKER: &str = "tuist-releasing-";

/// Name of a host that is being taken under this id.
pub fn claim_marker(id: &str) -> String {
    format!("{CLAIM_MARKER}{id}")
}

/// Name of a host that is being given back under this id.
pub fn release_marker(id: &str) -> String {
    format!("{RELEASE_MARKER}{id}")
}

/// Whether a name is one of ours for hosts in transit.
pub fn is_marker(name: &str) -> bool {
    name.starts_with(CLAIM_MARKER) || name.starts_with(RELEASE_MARKER)
}

/// Whether a host of this name is free in this pool. A short prefix such as `tuist-` must not make free hosts of those in
/// transit.
pub fn is_pooled(pool: &PoolPrefix, name: &str) -> bool {
    pool.matches(name) && !is_marker(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_prefix_does_not_free_hosts_in_transit() {
        let pool: PoolPrefix = "tuist-".parse().unwrap();
        assert!(is_pooled(&pool, "tuist-pool-1"));
        assert!(!is_pooled(&pool, &claim_marker("x")));
        assert!(!is_pooled(&pool, &release_marker("x")));
    }
}
