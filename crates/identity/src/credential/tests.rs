use proptest::prelude::*;

use super::*;

fn token(header: &str) -> Option<String> {
    Credential::from_header(header.as_bytes())
        .ok()
        .map(|c| c.token().to_owned())
}

#[test]
fn all_forms_of_one_token_are_one_credential() {
    let forms = [
        "Bearer s3cret",
        "bearer s3cret",
        "BEARER   s3cret",
        "s3cret",
        "  s3cret ",
        "Basic dXNlcjpzM2NyZXQ=",
        "basic dXNlcjpzM2NyZXQ",
        "Basic OnMzY3JldA==",
    ];
    for form in forms {
        let credential = Credential::from_header(form.as_bytes()).unwrap();
        assert_eq!(credential.token(), "s3cret", "{form}");
        assert_eq!(*credential.fingerprint(), Fingerprint::of("s3cret"), "{form}");
    }
}

#[test]
fn headers_without_a_usable_token_are_401() {
    let long = format!("Bearer {}", "a".repeat(MAX_TOKEN_BYTES + 1));
    let giant = "a".repeat(10 * MAX_TOKEN_BYTES);
    for bad in [
        "",
        " ",
        "Bearer",
        "bearer ",
        "Basic",
        "Basic !!!",
        "Basic bm9jb2xvbg==",
        "Basic dXNlcjo=",
        "Digest username=\"x\"",
        "Bearer a b",
        "Bearer Bearer x",
        "Bearer a\nX-Other: b",
        "Bearer t\u{f6}ken",
        "Bearer a\0b",
        &long,
        &giant,
    ] {
        assert_eq!(Credential::from_header(bad.as_bytes()).unwrap_err().http_status(), 401);
    }
    assert_eq!(Credential::from_header(b"Bearer \xff").unwrap_err().http_status(), 401);
}

#[test]
fn a_second_header_is_400_even_if_it_is_the_same() {
    let none: [&[u8]; 0] = [];
    assert!(Credential::from_headers(none).unwrap().is_none());
    assert!(Credential::from_headers([b"Bearer a".as_slice()]).unwrap().is_some());
    let denial = Credential::from_headers([b"Bearer a".as_slice(), b"Bearer a"]).unwrap_err();
    assert_eq!(denial.http_status(), 400);
}

#[test]
fn the_password_may_hold_colons() {
    // user:a:b
    assert_eq!(token("Basic dXNlcjphOmI=").as_deref(), Some("a:b"));
}

#[test]
fn a_remembered_header_gives_the_same_credential_and_another_one_replaces_it() {
    let mut remembered = Remembered::default();
    for header in ["Bearer one", "Bearer one", "Bearer two", "one", "Bearer one"] {
        let direct = Credential::from_header(header.as_bytes()).unwrap();
        let credential = remembered.read(header.as_bytes()).unwrap();
        assert_eq!(credential.fingerprint(), direct.fingerprint());
        assert_eq!(credential.token(), direct.token());
    }
    assert!(remembered.read(b"Bearer").is_err());
    assert_eq!(remembered.read(b"Bearer one").unwrap().token(), "one");
}

proptest! {
    #[test]
    fn reading_any_header_never_panics_and_tokens_are_clean(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        if let Ok(credential) = Credential::from_header(&bytes) {
            prop_assert!(credential.token().bytes().all(|c| c.is_ascii_graphic()));
        }
    }

    #[test]
    fn any_token_survives_every_form(text in "[!-~]{1,80}") {
        prop_assume!(!text.eq_ignore_ascii_case("bearer") && !text.eq_ignore_ascii_case("basic"));
        let basic = format!("Basic {}", STANDARD.encode(format!("u:{text}")));
        prop_assert_eq!(token(&format!("Bearer {text}")), Some(text.clone()));
        prop_assert_eq!(token(&text), Some(text.clone()));
        prop_assert_eq!(token(&basic), Some(text));
    }

    #[test]
    fn different_tokens_have_different_fingerprints(a in "[!-~]{1,40}", b in "[!-~]{1,40}") {
        prop_assert_eq!(a == b, Fingerprint::of(&a) == Fingerprint::of(&b));
    }
}
