use proptest::prelude::*;

use super::*;

const CANARY: &str = "canary-canary-canary";

fn scope(account: &'static str, project: &'static str) -> Scope<'static> {
    Scope::parse(account, project).unwrap()
}

#[test]
fn a_file_grants_what_it_says_to_whom_it_says() {
    let text = r#"
        [[token]]
        name = "ci"
        secret = "0123456789abcdef"
        write = ["Acme", "acme/iOS"]
        read = ["acme/web"]

        [[token]]
        name = "hashed"  # printf %s fedcba9876543210 | sha256sum
        sha256 = "3465f6e6975baa864ca957f0914ecda9bf7eb601ac31ac20a5dc3d329279a843"
        everything = "read"
    "#;
    let tokens = StaticTokens::new(parse(text).unwrap()).unwrap();
    let ci = tokens.find(&Fingerprint::of("0123456789abcdef")).unwrap();
    assert!(ci.permit(&scope("acme", ""), Access::Write));
    assert!(ci.permit(&scope("acme", "ios"), Access::Write));
    assert!(ci.permit(&scope("acme", "web"), Access::Read));
    assert!(!ci.permit(&scope("acme", "web"), Access::Write));
    assert!(!ci.permit(&scope("other", ""), Access::Read));
    assert!(tokens.find(&Fingerprint::of("0123456789abcdeF")).is_none());
    let hashed = tokens.find(&Fingerprint::of("fedcba9876543210")).unwrap();
    assert!(hashed.permit(&scope("any", "thing"), Access::Read) && !hashed.permit(&scope("any", ""), Access::Write));
}

#[test]
fn a_digest_in_place_of_a_secret_lets_the_secret_in() {
    let digest = Fingerprint::of(CANARY)
        .bytes()
        .map(|byte| format!("{byte:02X}"))
        .concat();
    let text = format!("[[token]]\nname = \"x\"\nsha256 = \"{digest}\"\neverything = \"write\"\n");
    let tokens = StaticTokens::new(parse(&text).unwrap()).unwrap();
    let grants = tokens.find(&Fingerprint::of(CANARY)).unwrap();
    assert!(grants.permit(&scope("any", "thing"), Access::Write));
}

#[test]
fn mistakes_are_named_by_line_or_token_and_never_quoted() {
    let table = [
        ("secret = canary-canary-canary", "line 3"),
        ("secret = [\"canary-canary-canary\"]", "line 3"),
        ("secrt = \"canary-canary-canary\"", "line 3"),
        ("secret = \"canary\"\neverything = \"read\"", "\"x\""),
        ("secret = \"canary-canary-canary\"", "grants nothing"),
        ("everything = \"read\"", "either secret or sha256"),
        (
            "secret = \"canary-canary-canary\"\nread = [\"a/b/c\"]",
            "project handle",
        ),
        (
            "secret = \"canary-canary-canary\"\nread = [\"a\"]\neverything = \"read\"",
            "without read and write",
        ),
        ("sha256 = \"canary\"\neverything = \"read\"", "64 hexadecimal"),
    ];
    for (lines, expected) in table {
        let text = &format!("[[token]]\nname = \"x\"\n{lines}\n");
        let error = parse(text).unwrap_err();
        let shown = format!("{error} {error:?}");
        assert!(error.to_string().contains(expected), "{error}");
        assert!(!shown.contains("canary"), "{shown}");
    }
}

#[test]
fn one_secret_cannot_have_two_names() {
    let token = |name: &str| StaticToken::new(name, &Secret::from(CANARY), Grants::everything(Access::Read)).unwrap();
    let error = StaticTokens::new(vec![token("a"), token("b")]).unwrap_err().to_string();
    assert!(error.contains("\"a\"") && error.contains("\"b\""), "{error}");
    assert!(!error.contains("canary"), "{error}");
}

proptest! {
    #[test]
    fn parsing_any_text_never_panics(text in "\\PC{0,200}") {
        let _ = parse(&text);
    }
}
