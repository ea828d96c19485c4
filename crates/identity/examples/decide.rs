//! How long a decision takes once the credential is known: `cargo run --release -p russet-identity --example decide`.
//!
//! A program, not a test: the figure depends on the machine, and a test that measures time fails on a busy one.
#![expect(
    clippy::expect_used,
    clippy::print_stdout,
    reason = "a program for a terminal whose only user can read a panic"
)]

use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use russet_identity::config::{Config, HmacAlgorithm, Jwt, JwtKeys, TokenSource};
use russet_identity::credential::Remembered;
use russet_identity::{
    Access, Anonymous, Authorizer, Clock as _, Credential, Deaf, Decision, Grants, Scope, StaticToken, SystemClock,
};

const ROUNDS: u32 = 1_000_000;

fn main() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let mut config = Config::open(Anonymous::Nothing);
    config.jwt = Some(Jwt::new(JwtKeys::Hmac {
        algorithm: HmacAlgorithm::Hs256,
        secret: "an example of a secret, thirty-two bytes".into(),
    }));
    let grants = Grants::everything(Access::Read);
    let token = StaticToken::new("ci", &"0123456789abcdef".into(), grants).expect("a token");
    config.tokens = Some(TokenSource::List(vec![token]));
    let authorizer =
        Authorizer::new(config, Arc::new(SystemClock), Arc::new(Deaf), runtime.handle().clone()).expect("a config");
    let scope = Scope::parse("acme", "project-25").expect("a scope");
    let now = SystemClock.now();

    let header = format!("Bearer {}", signed(now.unix_seconds + 3600));
    let credential = Credential::from_header(header.as_bytes()).expect("a credential");
    println!("a signed token of {} bytes with 50 projects", header.len());
    measure("decide_now, known token", || {
        authorizer.decide_now(Some(&credential), &scope, Access::Write, now)
    });
    measure("digest of the header, scope, decide_now", || {
        let credential = Credential::from_header(black_box(header.as_bytes())).expect("a credential");
        let scope = Scope::parse(black_box("acme"), black_box("project-25")).expect("a scope");
        authorizer.decide_now(Some(&credential), &scope, Access::Write, now)
    });
    let mut remembered = Remembered::default();
    measure("header as before, scope, decide_now", || {
        let credential = remembered.read(black_box(header.as_bytes())).expect("a credential");
        let scope = Scope::parse(black_box("acme"), black_box("project-25")).expect("a scope");
        authorizer.decide_now(Some(credential), &scope, Access::Write, now)
    });
    let fixed = Credential::from_header(b"0123456789abcdef").expect("a credential");
    measure("decide_now, static token", || {
        authorizer.decide_now(Some(&fixed), &scope, Access::Read, now)
    });
    let started = Instant::now();
    for _ in 0..1000 {
        authorizer.forget();
        let _ = black_box(authorizer.decide_now(Some(&credential), &scope, Access::Write, now));
    }
    println!(
        "{:>8.1} ns  first sight of the token (HS256)",
        started.elapsed().as_secs_f64() * 1e9 / 1000.0
    );
}

fn measure(what: &str, mut decide: impl FnMut() -> Decision) {
    assert_eq!(decide(), Decision::Allow);
    let started = Instant::now();
    for _ in 0..ROUNDS {
        let _ = black_box(decide());
    }
    println!(
        "{:>8.1} ns  {what}",
        started.elapsed().as_secs_f64() * 1e9 / f64::from(ROUNDS)
    );
}

fn signed(exp: u64) -> String {
    use aws_lc_rs::hmac;
    use base64::Engine as _;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;
    let projects: Vec<String> = (0..50).map(|n| format!("acme/project-{n}")).collect();
    let claims = serde_json::json!({"exp": exp, "cache_grants": {"project": {"write": projects}}});
    let text = format!(
        "{}.{}",
        URL_SAFE_NO_PAD.encode(r#"{"alg":"HS256"}"#),
        URL_SAFE_NO_PAD.encode(claims.to_string())
    );
    let key = hmac::Key::new(hmac::HMAC_SHA256, b"an example of a secret, thirty-two bytes");
    format!("{text}.{}", URL_SAFE_NO_PAD.encode(hmac::sign(&key, text.as_bytes())))
}
