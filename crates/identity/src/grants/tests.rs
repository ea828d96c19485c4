use proptest::prelude::*;

use super::*;

fn grants(json: serde_json::Value) -> Grants {
    serde_json::from_value::<CacheGrants>(json).unwrap().into_grants()
}

fn scope(text: &str) -> Scope<'_> {
    match text.split_once('/') {
        Some((account, project)) => Scope::parse(account, project).unwrap(),
        None => Scope::parse(text, "").unwrap(),
    }
}

#[test]
fn the_rules_of_the_contract_as_a_table() {
    let grants = grants(serde_json::json!({
        "account": {"read": ["Reads"], "write": ["writes"]},
        "project": {"read": ["Acme/iOS"], "write": ["acme/web"]},
    }));
    let table = [
        // (scope, read, write)
        ("reads", true, false),
        ("READS", true, false),
        ("writes", true, true),
        ("acme/ios", true, false),
        ("acme/IOS", true, false),
        ("acme/web", true, true),
        // The account does not cover its projects, nor a project its account.
        ("reads/ios", false, false),
        ("writes/ios", false, false),
        ("acme", false, false),
        // Others.
        ("acme/android", false, false),
        ("other", false, false),
        ("read", false, false),
        ("readss", false, false),
    ];
    for (text, read, write) in table {
        assert_eq!(grants.permit(&scope(text), Access::Read), read, "{text} read");
        assert_eq!(grants.permit(&scope(text), Access::Write), write, "{text} write");
    }
}

#[test]
fn names_that_can_be_no_scope_grant_nothing_and_spoil_nothing() {
    let grants = grants(serde_json::json!({
        "account": {"read": ["*", "", "acme/ios", "a b", "\u{212a}ura", "good"]},
        "project": {"write": ["*", "*/*", "acme", "acme/", "/x", "acme/../x", "acme/a/b", "acme/*", "acme/good"]},
    }));
    assert_eq!(grants.scopes.len(), 2);
    assert!(grants.permit(&scope("good"), Access::Read) && grants.permit(&scope("acme/good"), Access::Write));
}

#[test]
fn absent_and_null_parts_grant_nothing() {
    for json in [
        serde_json::json!({}),
        serde_json::json!({"account": null, "project": {"read": null}}),
        serde_json::json!({"unknown": {"write": ["acme"]}}),
    ] {
        assert!(grants(json).is_empty());
    }
}

#[test]
fn payment_is_known_by_account_or_for_whoever_asked() {
    let unpaid = |json: &str| Grants::default().with_unpaid(serde_json::from_str(json).unwrap());
    assert!(unpaid(r#"["Acme"]"#).payment_required("acme"));
    assert!(!unpaid(r#"["acme"]"#).payment_required("other"));
    assert!(unpaid("true").payment_required("acme"));
    assert!(!unpaid("false").payment_required("acme"));
    assert!(!unpaid("null").payment_required("acme"));
}

#[test]
fn everything_means_every_scope_up_to_its_access() {
    let reader = Grants::everything(Access::Read);
    assert!(reader.permit(&scope("any/thing"), Access::Read));
    assert!(!reader.permit(&scope("any"), Access::Write));
}

fn any_scope() -> impl Strategy<Value = Scope<'static>> {
    ("[ab]{1,2}", "[ab]{0,2}").prop_map(|(a, p)| Scope::parse(a, p).unwrap().into_owned())
}

proptest! {
    /// Against the plainest model: some grant names exactly this scope with at least this access.
    #[test]
    fn permits_exactly_what_some_grant_names(
        rights in prop::collection::vec((any_scope(), prop_oneof![Just(Access::Read), Just(Access::Write)]), 0..12),
        asked in any_scope(),
    ) {
        let grants = Grants::of(rights.clone());
        for access in [Access::Read, Access::Write] {
            let model = rights.iter().any(|(scope, held)| *scope == asked && *held >= access);
            prop_assert_eq!(grants.permit(&asked, access), model);
        }
        prop_assert!(!grants.permit(&asked, Access::Write) || grants.permit(&asked, Access::Read));
    }
}
