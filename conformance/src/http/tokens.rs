//! Tokens, good and bad: made with a key the server believes, or with none.

use std::sync::Arc;

use anyhow::{Context, Result};
use aws_lc_rs::encoding::AsDer as _;
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _};
use aws_lc_rs::{encoding, hmac};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use russet_telemetry::Secret;
use serde_json::{Value, json};

/// A key the server checks tokens with, and its secret half.
#[derive(Debug, Clone)]
pub enum Forge {
    /// HS256 with this secret.
    Hmac(Arc<Secret<String>>),
    Es256(Arc<Es256>),
}

/// A P-256 key pair.
#[derive(Debug)]
pub struct Es256 {
    pair: EcdsaKeyPair,
    /// `PUBLIC KEY`, as the server was given it.
    pub public_pem: String,
}

impl Es256 {
    pub fn generate() -> Result<Self> {
        let pair = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).context("failed to make a key")?;
        let der: encoding::PublicKeyX509Der<'_> = pair.public_key().as_der().context("failed to encode a key")?;
        let text = STANDARD.encode(der.as_ref());
        let lines: Vec<&str> = text
            .as_bytes()
            .chunks(64)
            .map(|line| std::str::from_utf8(line).unwrap_or_default())
            .collect();
        let public_pem = format!(
            "-----BEGIN PUBLIC KEY-----\n{}\n-----END PUBLIC KEY-----\n",
            lines.join("\n")
        );
        Ok(Self { pair, public_pem })
    }

    pub fn sign(&self, header: &Value, claims: &Value) -> Result<String> {
        self.sign_text(&header.to_string(), &claims.to_string())
    }

    fn sign_text(&self, header: &str, claims: &str) -> Result<String> {
        let text = unsigned(header, claims);
        let signature = self.pair.sign(&SystemRandom::new(), text.as_bytes());
        let signature = signature.context("failed to sign")?;
        Ok(format!("{text}.{}", URL_SAFE_NO_PAD.encode(signature)))
    }
}

impl Forge {
    /// A token the server has every reason to believe.
    pub fn sign(&self, claims: &Value) -> Result<String> {
        self.sign_with(&json!({"alg": self.algorithm(), "typ": "JWT"}), claims)
    }

    /// The same with a header of one's own.
    pub fn sign_with(&self, header: &Value, claims: &Value) -> Result<String> {
        self.signed(&header.to_string(), &claims.to_string())
    }

    /// The same with claims that are not a JSON value, such as repeated members.
    pub fn sign_text(&self, claims: &str) -> Result<String> {
        self.signed(&format!(r#"{{"alg":"{}"}}"#, self.algorithm()), claims)
    }

    fn signed(&self, header: &str, claims: &str) -> Result<String> {
        match self {
            Self::Hmac(secret) => Ok(hs256(header, claims, secret.expose())),
            Self::Es256(key) => key.sign_text(header, claims),
        }
    }

    pub fn algorithm(&self) -> &'static str {
        match self {
            Self::Hmac(_) => "HS256",
            Self::Es256(_) => "ES256",
        }
    }
}

/// Header and claims, without a signature.
pub fn unsigned(header: &str, claims: &str) -> String {
    format!("{}.{}", URL_SAFE_NO_PAD.encode(header), URL_SAFE_NO_PAD.encode(claims))
}

pub fn hs256(header: &str, claims: &str, secret: &str) -> String {
    let text = unsigned(header, claims);
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
    format!("{text}.{}", URL_SAFE_NO_PAD.encode(hmac::sign(&key, text.as_bytes())))
}

/// Claims that grant writing to projects (full handles) and accounts for ten minutes.
pub fn grants(accounts: &[&str], projects: &[&str]) -> Value {
    claims("write", accounts, projects)
}

/// Claims that grant reading only.
pub fn reading(accounts: &[&str], projects: &[&str]) -> Value {
    claims("read", accounts, projects)
}

fn claims(verb: &str, accounts: &[&str], projects: &[&str]) -> Value {
    json!({"exp": now() + 600, "cache_grants": {"account": {verb: accounts}, "project": {verb: projects}}})
}

/// Seconds since 1970.
pub fn now() -> u64 {
    std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap_or_default()
        .as_secs()
}
