//! Static tokens: for a team with one cache and no control plane.
//!
//! The file is TOML. A token is given as itself, or as its SHA-256 so that the file holds no secret:
//!
//! ```toml
//! [[token]]
//! name = "ci"
//! sha256 = "…64 hexadecimal digits…"   # or: secret = "…at least 16 characters…"
//! write = ["acme", "acme/ios"]          # accounts and projects; write implies read
//! read = ["acme/android"]
//!
//! [[token]]
//! name = "admin"
//! secret = "…"
//! everything = "write"                  # or "read"
//! ```
//!
//! Tokens are found by digest and then compared in constant time. Timing can say something about the digest of a guess
//! at most, which does not help to find the token.

use std::collections::HashMap;

use aws_lc_rs::constant_time::verify_slices_are_equal;
use russet_telemetry::Secret;
use serde::Deserialize;

use crate::config::Error;
use crate::credential::Fingerprint;
use crate::grants::Grants;
use crate::scope::{Access, Scope};

/// Shortest token someone may write down; shorter ones can be guessed over the network.
pub(crate) const MIN_TOKEN_BYTES: usize = 16;

/// A token and its rights. Holds the digest of the token only.
#[derive(Clone, Debug)]
pub struct StaticToken {
    name: String,
    fingerprint: Fingerprint,
    grants: Grants,
}

impl StaticToken {
    /// A token of at least 16 visible characters.
    pub fn new(name: impl Into<String>, token: &Secret<String>, grants: Grants) -> Result<Self, Error> {
        let name = name.into();
        let text = token.expose();
        if text.len() < MIN_TOKEN_BYTES || !text.bytes().all(|c| c.is_ascii_graphic()) {
            let problem =
                format!("the secret must be at least {MIN_TOKEN_BYTES} visible ASCII characters without spaces");
            return Err(Error::Token { name, problem });
        }
        Ok(Self {
            fingerprint: Fingerprint::of(text),
            name,
            grants,
        })
    }

    /// A token known by the SHA-256 of its text.
    pub fn from_sha256(name: impl Into<String>, digest: [u8; 32], grants: Grants) -> Self {
        Self {
            name: name.into(),
            fingerprint: Fingerprint::from_digest(digest),
            grants,
        }
    }
}

/// All static tokens in force.
#[derive(Debug, Default)]
pub(crate) struct StaticTokens(HashMap<Fingerprint, StaticToken>);

impl StaticTokens {
    pub(crate) fn new(tokens: Vec<StaticToken>) -> Result<Self, Error> {
        let mut map = HashMap::with_capacity(tokens.len());
        for token in tokens {
            if let Some(other) = map.insert(token.fingerprint, token.clone()) {
                let problem = format!("has the same secret as {:?}", other.name);
                return Err(Error::Token {
                    name: token.name,
                    problem,
                });
            }
        }
        Ok(Self(map))
    }

    pub(crate) fn find(&self, fingerprint: &Fingerprint) -> Option<&Grants> {
        let token = self.0.get(fingerprint)?;
        verify_slices_are_equal(token.fingerprint.bytes(), fingerprint.bytes())
            .ok()
            .map(|()| &token.grants)
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    token: Vec<Entry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    name: String,
    secret: Option<Secret<String>>,
    sha256: Option<String>,
    #[serde(default)]
    read: Vec<String>,
    #[serde(default)]
    write: Vec<String>,
    everything: Option<Everything>,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Everything {
    Read,
    Write,
}

/// Reads the text of a token file. Errors name the line or the token but never quote the file.
pub(crate) fn parse(text: &str) -> Result<Vec<StaticToken>, Error> {
    let file: File = toml::from_str(text).map_err(|error| Error::TokenFile {
        // The library's own message may quote the value it stumbled over.
        line: error.span().map_or(0, |span| {
            1 + text.bytes().take(span.start).filter(|c| *c == b'\n').count()
        }),
        problem: "expected [[token]] tables with name, secret or sha256, and read, write or everything",
    })?;
    file.token.into_iter().map(Entry::into_token).collect()
}

impl Entry {
    fn into_token(self) -> Result<StaticToken, Error> {
        let refuse = |problem: &str| Error::Token {
            name: self.name.clone(),
            problem: problem.to_owned(),
        };
        let grants = match self.everything {
            Some(_) if !self.read.is_empty() || !self.write.is_empty() => {
                return Err(refuse("everything goes without read and write"));
            }
            Some(Everything::Read) => Grants::everything(Access::Read),
            Some(Everything::Write) => Grants::everything(Access::Write),
            None => {
                let mut rights = Vec::new();
                for (list, access) in [(&self.read, Access::Read), (&self.write, Access::Write)] {
                    for handle in list {
                        let scope = if handle.contains('/') {
                            Scope::from_full_handle(handle)
                        } else {
                            Scope::from_account_handle(handle)
                        };
                        rights.push((scope.map_err(|error| refuse(&error.to_string()))?.into_owned(), access));
                    }
                }
                Grants::of(rights)
            }
        };
        if grants.is_empty() {
            return Err(refuse("grants nothing: set read, write or everything"));
        }
        match (&self.secret, &self.sha256) {
            (Some(secret), None) => StaticToken::new(self.name.clone(), secret, grants),
            (None, Some(digest)) => {
                let digest = digest_of_hex(digest).ok_or_else(|| refuse("sha256 is 64 hexadecimal digits"))?;
                Ok(StaticToken::from_sha256(self.name.clone(), digest, grants))
            }
            _ => Err(refuse("give either secret or sha256")),
        }
    }
}

fn digest_of_hex(text: &str) -> Option<[u8; 32]> {
    if text.len() != 64 || !text.bytes().all(|c| c.is_ascii_hexdigit()) {
        return None;
    }
    let mut digest = [0; 32];
    for (byte, at) in digest.iter_mut().zip((0..).step_by(2)) {
        *byte = u8::from_str_radix(text.get(at..at + 2)?, 16).ok()?;
    }
    Some(digest)
}

#[cfg(test)]
mod tests;
