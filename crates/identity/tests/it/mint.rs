//! Makes keys and tokens, good and forged.

use aws_lc_rs::encoding::{AsDer as _, PublicKeyX509Der};
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _,
};
use aws_lc_rs::{hmac, signature};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use serde_json::{Value, json};

use crate::world::START;

pub(crate) struct Es256(EcdsaKeyPair);

impl Es256 {
    pub(crate) fn new() -> Self {
        Self::on(&ECDSA_P256_SHA256_FIXED_SIGNING)
    }

    /// A key on a curve that ES256 does not use.
    pub(crate) fn p384() -> Self {
        Self::on(&ECDSA_P384_SHA384_FIXED_SIGNING)
    }

    fn on(algorithm: &'static signature::EcdsaSigningAlgorithm) -> Self {
        Self(EcdsaKeyPair::generate(algorithm).unwrap())
    }

    pub(crate) fn public_pem(&self) -> String {
        let der: PublicKeyX509Der<'_> = self.0.public_key().as_der().unwrap();
        pem("PUBLIC KEY", der.as_ref())
    }

    pub(crate) fn private_pem(&self) -> String {
        pem("PRIVATE KEY", self.0.to_pkcs8v1().unwrap().as_ref())
    }

    pub(crate) fn sign(&self, claims: &Value) -> String {
        self.sign_with(&json!({"alg": "ES256", "typ": "JWT"}), claims)
    }

    pub(crate) fn sign_with(&self, header: &Value, claims: &Value) -> String {
        let text = unsigned(header, claims);
        let signature = self.0.sign(&SystemRandom::new(), text.as_bytes()).unwrap();
        format!("{text}.{}", URL_SAFE_NO_PAD.encode(signature))
    }
}

pub(crate) fn hs(algorithm: &str, secret: &[u8], claims: &Value) -> String {
    let kind = match algorithm {
        "HS256" => hmac::HMAC_SHA256,
        "HS384" => hmac::HMAC_SHA384,
        _ => hmac::HMAC_SHA512,
    };
    let text = unsigned(&json!({"alg": algorithm}), claims);
    let tag = hmac::sign(&hmac::Key::new(kind, secret), text.as_bytes());
    format!("{text}.{}", URL_SAFE_NO_PAD.encode(tag))
}

/// Header and claims, without a signature.
pub(crate) fn unsigned(header: &Value, claims: &Value) -> String {
    let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
    format!("{}.{}", part(header), part(claims))
}

/// Claims of a token that lives for an hour.
pub(crate) fn claims(grants: &Value) -> Value {
    json!({"exp": START + 3600, "iss": "tuist", "aud": "tuist", "typ": "cache", "cache_grants": grants})
}

/// Claims of a token that may read and write the project `acme/app`.
pub(crate) fn writer() -> Value {
    claims(&json!({"project": {"write": ["acme/app"]}}))
}

/// The same claims with one member changed, or removed if null.
pub(crate) fn with(mut claims: Value, member: &str, value: Value) -> Value {
    let members = claims.as_object_mut().unwrap();
    if value.is_null() {
        members.remove(member);
    } else {
        members.insert(member.to_owned(), value);
    }
    claims
}

fn pem(label: &str, der: &[u8]) -> String {
    let text = STANDARD.encode(der);
    let lines: Vec<&str> = text
        .as_bytes()
        .chunks(64)
        .map(|line| std::str::from_utf8(line).unwrap())
        .collect();
    format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", lines.join("\n"))
}
