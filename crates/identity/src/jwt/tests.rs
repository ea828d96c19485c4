//! Parsing under fire. What valid and forged tokens do is in `tests/it/jwt.rs`, with real keys.

use proptest::prelude::*;
use russet_telemetry::Secret;

use super::*;
use crate::config::JwtKeys;
use crate::scope::{Access, Scope};

fn verifier() -> Verifier {
    let config = Jwt::new(JwtKeys::Hmac {
        algorithm: HmacAlgorithm::Hs256,
        secret: Secret::from("0123456789abcdef0123456789abcdef"),
    });
    Verifier::hmac(&config, HmacAlgorithm::Hs256, "0123456789abcdef0123456789abcdef")
}

/// Signs any text as header and claims, to get past the signature.
fn signed(header: &str, claims: impl AsRef<[u8]>) -> String {
    let key = hmac::Key::new(hmac::HMAC_SHA256, b"0123456789abcdef0123456789abcdef");
    let text = format!("{}.{}", URL_SAFE_NO_PAD.encode(header), URL_SAFE_NO_PAD.encode(claims));
    let signature = URL_SAFE_NO_PAD.encode(hmac::sign(&key, text.as_bytes()));
    format!("{text}.{signature}")
}

const HEADER: &str = r#"{"alg":"HS256"}"#;

#[test]
fn tokens_that_are_no_jwt_are_for_others_to_judge() {
    let dotted = ["", ".", "..", "...", "a.b", "a.b.c.d", "e30.e30.e30", "!.!.!"];
    for token in dotted.into_iter().chain(["opaque", "tuist_01_abc"]) {
        let verified = verifier().verify(token, 100);
        assert_eq!(verified, Signed::Unknown { until: None }, "{token:?}");
    }
}

#[test]
fn an_exact_token_has_its_rights_until_leeway_after_its_end() {
    let token = signed(HEADER, r#"{"exp":1000,"cache_grants":{"account":{"read":["acme"]}}}"#);
    for now in [0, 1000, 1059] {
        let verified = verifier().verify(&token, now);
        assert!(matches!(verified, Signed::Valid { until: 1060, .. }));
    }
    assert_eq!(verifier().verify(&token, 1060), Signed::Refused(EXPIRED));
}

#[test]
fn dates_may_have_fractions_and_nonsense_does_not_panic() {
    for (exp, until) in [("1000.9", 1060), ("1e300", u64::MAX), ("1e3", 1060)] {
        let token = signed(HEADER, format!("{{\"exp\":{exp}}}"));
        let verified = verifier().verify(&token, 5);
        let held = matches!(verified, Signed::Valid { until: u, .. } if u == until);
        assert!(held, "{exp}");
    }
    for exp in ["-5", "0", "-1e300"] {
        let token = signed(HEADER, format!("{{\"exp\":{exp}}}"));
        assert_eq!(verifier().verify(&token, 100), Signed::Refused(EXPIRED), "{exp}");
    }
    let mistyped = [r#"{"exp":null}"#, r#"{"exp":"1000"}"#, r#"{"exp":[1000]}"#];
    for claims in mistyped.into_iter().chain(["{}", "[]", "1", "nonsense", ""]) {
        let verified = verifier().verify(&signed(HEADER, claims), 5);
        assert_eq!(verified, Signed::Refused(CLAIMS), "{claims}");
    }
}

#[test]
fn a_member_given_twice_makes_claims_invalid_and_a_header_unknown() {
    for claims in [
        r#"{"exp":1,"exp":1000}"#,
        r#"{"exp":1000,"cache_grants":{},"cache_grants":{"account":{"write":["acme"]}}}"#,
        r#"{"exp":1000,"cache_grants":{"account":{"read":[]},"account":{"write":["acme"]}}}"#,
        r#"{"exp":1000,"cache_grants":{"account":{"write":[],"write":["acme"]}}}"#,
        r#"{"exp":1000,"aud":"a","aud":"b"}"#,
        r#"{"exp":1000,"projects":[],"projects":["acme/app"]}"#,
    ] {
        let verified = verifier().verify(&signed(HEADER, claims), 5);
        assert_eq!(verified, Signed::Refused(CLAIMS), "{claims}");
    }
    let token = signed(r#"{"alg":"HS256","alg":"HS256"}"#, r#"{"exp":1000}"#);
    assert_eq!(verifier().verify(&token, 5), Signed::Unknown { until: None });
}

/// Found by fuzzing: bytes that are not UTF-8 were accepted inside members nobody looks at.
#[test]
fn claims_are_utf8_also_where_nobody_looks() {
    let token = signed(HEADER, b"{\"exp\":1000,\"projects\":[\"acme/app\"],\"x\":\"\x8d\"}");
    assert!(!matches!(verifier().verify(&token, 100), Signed::Valid { .. }));
}

#[test]
fn a_critical_extension_is_not_ignored() {
    for header in [
        r#"{"alg":"HS256","crit":["b64"],"b64":false}"#,
        r#"{"alg":"HS256","crit":null}"#,
    ] {
        let token = signed(header, r#"{"exp":1000}"#);
        let verified = verifier().verify(&token, 5);
        assert!(matches!(verified, Signed::Unknown { .. }), "{header}");
    }
}

#[test]
fn the_older_list_of_projects_counts_only_when_nothing_more_exact_is_said() {
    let scope = Scope::parse("acme", "app").unwrap();
    let may = |claims: &str| match verifier().verify(&signed(HEADER, claims), 5) {
        Signed::Valid { grants, .. } => grants.permit(&scope, Access::Write),
        other => panic!("{other:?}"),
    };
    assert!(may(r#"{"exp":1000,"projects":["Acme/App"]}"#));
    assert!(may(r#"{"exp":1000,"projects":[{"full_name":"acme/app"}]}"#));
    assert!(!may(r#"{"exp":1000,"projects":["acme/app"],"scopes":[]}"#));
    assert!(!may(r#"{"exp":1000,"projects":["acme/app"],"scopes":null}"#));
    let exact = r#"{"exp":1000,"projects":["acme/app"],"cache_grants":{"project":{"read":["acme/app"]}}}"#;
    assert!(!may(exact));
}

#[test]
fn deep_nesting_overflows_no_stack() {
    let deep = format!("{}{}", "[".repeat(6000), "]".repeat(6000));
    let ignored = signed(HEADER, format!("{{\"exp\":1000,\"x\":{deep}}}"));
    assert!(matches!(verifier().verify(&ignored, 5), Signed::Valid { .. }));
    for member in ["cache_grants", "projects", "aud", "cache_payment_required"] {
        let claims = format!("{{\"exp\":1000,\"{member}\":{deep}}}");
        let verified = verifier().verify(&signed(HEADER, &claims), 5);
        assert_eq!(verified, Signed::Refused(CLAIMS), "{member}");
    }
}

proptest! {
    #[test]
    fn verifying_any_text_never_panics_and_never_succeeds(token in "[A-Za-z0-9._-]{0,300}") {
        prop_assert!(!matches!(verifier().verify(&token, 5), Signed::Valid { .. }), "forged");
    }

    #[test]
    fn signed_but_arbitrary_json_never_panics(header in "\\PC{0,60}", claims in "\\PC{0,200}") {
        let _ = verifier().verify(&signed(&header, &claims), 5);
        let _ = verifier().verify(&signed(HEADER, &claims), 5);
    }

    /// One flipped character anywhere: the token is not what was signed.
    #[test]
    fn any_change_to_a_token_voids_it(at: prop::sample::Index, to in "[A-Za-z0-9._-]") {
        let token = signed(HEADER, r#"{"exp":1000,"cache_grants":{"account":{"read":["acme"]}}}"#);
        let at = at.index(token.len());
        let mut changed = token.clone();
        changed.replace_range(at..=at, &to);
        prop_assume!(changed != token);
        prop_assert!(!matches!(verifier().verify(&changed, 5), Signed::Valid { .. }), "forged");
    }

    #[test]
    fn claims_of_any_shape_grant_only_what_they_name(json in arbitrary_json()) {
        let claims = format!("{{\"exp\":1000,\"cache_grants\":{json}}}");
        if let Signed::Valid { grants, .. } = verifier().verify(&signed(HEADER, &claims), 5) {
            let scope = Scope::parse("not-named-anywhere", "").unwrap();
            prop_assert!(!grants.permit(&scope, Access::Read));
        }
    }
}

fn arbitrary_json() -> impl Strategy<Value = serde_json::Value> {
    use serde_json::Value;
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        "(acme|acme/app|\\*|/|\\PC{0,6})".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 32, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map("(account|project|read|write|x)", inner, 0..4)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}
