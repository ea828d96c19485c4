//! The JWT with which an App speaks for itself.

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::RSA_PKCS1_SHA256;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::Timestamp;
use russet_telemetry::Secret;

use crate::credentials::Credentials;

/// Our clock may run this far ahead of GitHub's, which refuses what was issued in its future.
const BEFORE: i64 = 30;
/// GitHub takes ten minutes at most; the tenth is for a clock of ours that runs ahead.
const AFTER: i64 = 9 * 60;

/// A JWT that is good around `now`; none if the key cannot sign, which no key does that was accepted.
pub(crate) fn sign(credentials: &Credentials, now: Timestamp) -> Option<Secret<String>> {
    let now = now.as_second();
    let claims = serde_json::json!({
        "iat": now.saturating_sub(BEFORE),
        "exp": now.saturating_add(AFTER),
        "iss": credentials.app.to_string(),
    });
    let head = URL_SAFE_NO_PAD.encode(r#"{"alg":"RS256","typ":"JWT"}"#);
    let message = format!("{head}.{}", URL_SAFE_NO_PAD.encode(claims.to_string()));
    let mut signature = vec![0; credentials.key.public_modulus_len()];
    credentials
        .key
        .sign(
            &RSA_PKCS1_SHA256,
            &SystemRandom::new(),
            message.as_bytes(),
            &mut signature,
        )
        .ok()?;
    Some(Secret::new(format!("{message}.{}", URL_SAFE_NO_PAD.encode(&signature))))
}
