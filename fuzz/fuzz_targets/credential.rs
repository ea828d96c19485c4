//! `Authorization`, and the tokens in it: nothing that is not signed is let in, and signed claims open what they name and nothing else.
#![no_main]

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use libfuzzer_sys::fuzz_target;
use russet_identity::config::{HmacAlgorithm, Jwt, JwtKeys};
use russet_identity::{Access, Authorizer, Clock as _, Config, Credential, Deaf, Decision, Scope, SystemClock};
use russet_telemetry::Secret;
use std::sync::{Arc, LazyLock};

const KEY: &str = "a secret that only the fuzzer and the server know";

static AUTHORIZER: LazyLock<(tokio::runtime::Runtime, Authorizer)> = LazyLock::new(|| {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    let mut config = Config::open(russet_identity::Anonymous::Nothing);
    config.jwt = Some(Jwt::new(JwtKeys::Hmac {
        algorithm: HmacAlgorithm::Hs256,
        secret: Secret::new(KEY.to_owned()),
    }));
    let authorizer = Authorizer::new(config, Arc::new(SystemClock), Arc::new(Deaf), runtime.handle().clone())
        .expect("an authoriser");
    (runtime, authorizer)
});

fn decide(header: &[u8], account: &str) -> Option<Decision> {
    let credential = Credential::from_header(header).ok()?;
    let scope = Scope::parse(account, "app").ok()?;
    Some(
        AUTHORIZER
            .1
            .decide_now(Some(&credential), &scope, Access::Write, SystemClock.now()),
    )
}

fuzz_target!(|data: &[u8]| {
    assert_ne!(
        decide(data, "acme"),
        Some(Decision::Allow),
        "an unsigned header was let in"
    );
    let (header, claims) = match data.iter().position(|byte| *byte == b'\n') {
        Some(at) => (&data[..at], &data[at + 1..]),
        None => (&br#"{"alg":"HS256"}"#[..], data),
    };
    let signed = format!("{}.{}", URL_SAFE_NO_PAD.encode(header), URL_SAFE_NO_PAD.encode(claims));
    let mut mac = Hmac::<sha2::Sha256>::new_from_slice(KEY.as_bytes()).expect("any length is a key");
    mac.update(signed.as_bytes());
    let token = format!(
        "Bearer {signed}.{}",
        URL_SAFE_NO_PAD.encode(mac.finalize().into_bytes())
    );
    if decide(token.as_bytes(), "acme") == Some(Decision::Allow) {
        // Only claims that name the project open it, and they are JSON that another reader reads too.
        match serde_json::from_slice::<serde_json::Value>(claims) {
            Ok(parsed) => assert!(parsed.to_string().to_lowercase().contains("acme/app"), "{parsed}"),
            // RFC 8259 sets no bound on numbers. One in a member nobody asked for is skipped unread, and this reader cannot hold it.
            Err(error) if error.to_string().starts_with("number out of range") => {}
            Err(error) => panic!("claims that are not JSON were let in: {error}"),
        }
    }
    assert_ne!(
        decide(token.as_bytes(), "nobody-has-this-handle"),
        Some(Decision::Allow)
    );
});
