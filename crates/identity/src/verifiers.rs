//! Static tokens and keys in force, and the files they come from.
//!
//! Write a new file beside the old one and rename it: a reader then sees the one or the other. Content that is not valid
//! changes nothing.

use std::path::Path;

use russet_telemetry::Secret;
use sha2::{Digest as _, Sha256};

use crate::config::{Config, Error, JwtKeys, PemSource, TokenSource};
use crate::jwt::Verifier;
use crate::tokens::{self, StaticTokens};

/// What can change while the process runs.
#[derive(Debug)]
pub(crate) struct Verifiers {
    pub(crate) tokens: StaticTokens,
    pub(crate) jwt: Verifier,
}

/// The texts of the files.
pub(crate) struct Files {
    tokens: Option<Secret<String>>,
    keys: Option<Secret<String>>,
}

impl Files {
    /// The files a config names.
    pub(crate) fn read(config: &Config) -> Result<Self, Error> {
        Ok(Self {
            tokens: token_file(config)
                .map(|path| read(path, "the token file"))
                .transpose()?,
            keys: key_file(config)
                .map(|path| read(path, "the JWT public keys"))
                .transpose()?,
        })
    }

    pub(crate) fn named_by(config: &Config) -> bool {
        token_file(config).is_some() || key_file(config).is_some()
    }

    pub(crate) fn digest(&self) -> [u8; 32] {
        let mut digest = Sha256::new();
        for text in [&self.tokens, &self.keys] {
            let text = text.as_ref().map_or("", |text| text.expose());
            // The length keeps text from moving between the two unnoticed.
            digest.update((text.len() as u64).to_le_bytes());
            digest.update(text);
        }
        digest.finalize().into()
    }
}

impl Verifiers {
    pub(crate) fn build(config: &Config, files: &Files) -> Result<Self, Error> {
        let tokens = match (&config.tokens, &files.tokens) {
            (Some(TokenSource::List(tokens)), _) => tokens.clone(),
            (Some(TokenSource::File(_)), Some(text)) => tokens::parse(text.expose())?,
            _ => Vec::new(),
        };
        let jwt = match &config.jwt {
            None => Verifier::keyless(),
            Some(jwt) => match &jwt.keys {
                JwtKeys::Es256(PemSource::Inline(pem)) => Verifier::es256(jwt, pem)?,
                JwtKeys::Es256(PemSource::File(_)) => {
                    Verifier::es256(jwt, files.keys.as_ref().map_or("", |text| text.expose()))?
                }
                JwtKeys::Hmac { algorithm, secret } => Verifier::hmac(jwt, *algorithm, secret.expose()),
            },
        };
        Ok(Self {
            tokens: StaticTokens::new(tokens)?,
            jwt,
        })
    }
}

fn token_file(config: &Config) -> Option<&Path> {
    match &config.tokens {
        Some(TokenSource::File(path)) => Some(path),
        _ => None,
    }
}

fn key_file(config: &Config) -> Option<&Path> {
    match config.jwt.as_ref().map(|jwt| &jwt.keys) {
        Some(JwtKeys::Es256(PemSource::File(path))) => Some(path),
        _ => None,
    }
}

fn read(path: &Path, what: &'static str) -> Result<Secret<String>, Error> {
    std::fs::read_to_string(path)
        .map(Secret::new)
        .map_err(|source| Error::Read {
            what,
            path: path.to_owned(),
            source,
        })
}
