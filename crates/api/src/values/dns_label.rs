//! Names that become part of object names, host names and label values: all of them DNS labels.

use super::text::checked_text;

const RULE: &str =
    "use 1 to 63 lower-case letters, digits and dashes, with a letter or digit at both ends (for example acme-2)";

fn is_dns_label(text: &str) -> bool {
    let edge = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit();
    let bytes = text.as_bytes();
    bytes.len() <= 63
        && bytes.first().copied().is_some_and(edge)
        && bytes.last().copied().is_some_and(edge)
        && bytes.iter().all(|c| edge(*c) || *c == b'-')
}

checked_text! {
    /// Handle of an account, such as `acme`. Isolation of caches and certificates goes by it.
    AccountHandle: "account handle", RULE, is_dns_label
}

checked_text! {
    /// Tenant under which a cache files what it stores.
    TenantId: "tenant id", RULE, is_dns_label
}

checked_text! {
    /// Region a cache serves, such as `scw-fr-par-runners`. Not a Scaleway region; see [`super::Region`].
    CacheRegion: "cache region", RULE, is_dns_label
}

checked_text! {
    /// Name of a fleet: value of the label `tuist.dev/fleet` and stem of the Secret `<fleet>-ssh`.
    FleetName: "fleet name", RULE, is_dns_label
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn names_that_kubernetes_would_refuse_are_refused_here() {
        for bad in ["", "-a", "a-", "A", "a_b", "a.b", "ä", &"a".repeat(64)] {
            let error = AccountHandle::try_from(bad).unwrap_err();
            assert_eq!(error.what, "account handle");
            assert_eq!(error.value, bad);
        }
        for good in ["a", "9", "acme", "a-b-c", &"a".repeat(63)] {
            assert_eq!(FleetName::try_from(good).unwrap().as_str(), good);
        }
    }

    proptest! {
        #[test]
        fn a_label_survives_display_and_json(text in "[a-z0-9]([a-z0-9-]{0,20}[a-z0-9])?") {
            let value: TenantId = text.parse().unwrap();
            prop_assert_eq!(value.to_string().parse::<TenantId>().unwrap(), value.clone());
            let json = serde_json::to_string(&value).unwrap();
            prop_assert_eq!(serde_json::from_str::<TenantId>(&json).unwrap(), value);
        }

        #[test]
        fn parsing_never_panics(text in "\\PC*") {
            let _ = CacheRegion::try_from(text.as_str());
        }
    }
}
