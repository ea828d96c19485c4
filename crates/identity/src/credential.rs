//! The secret a caller presents, and the digest by which it is remembered.
//!
//! Accepted forms of an `Authorization` value:
//! - `Bearer <token>`, in any case;
//! - `<token>` alone, since some tools are configured with the whole header value;
//! - `Basic <base64 of user:token>`, since Bazel, Gradle and curl know user and password: the password is the token and
//!   the user name is ignored.
//!
//! All three forms of one token are one credential. Parsing the first two allocates nothing.

use std::borrow::Cow;
use std::fmt;

use aws_lc_rs::constant_time::verify_slices_are_equal;
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
use russet_telemetry::Secret;
use sha2::{Digest as _, Sha256};

use crate::denial::{Denial, Refusal};

/// Longest token anyone will look at. Real ones are below 4 KiB; longer ones would buy hashing and parsing for nothing.
pub const MAX_TOKEN_BYTES: usize = 16 * 1024;

/// SHA-256 of a token. Finding the memory of one token by another's would need a collision.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Fingerprint([u8; 32]);

impl Fingerprint {
    pub(crate) fn of(token: &str) -> Self {
        Self(Sha256::digest(token.as_bytes()).into())
    }

    pub(crate) const fn from_digest(digest: [u8; 32]) -> Self {
        Self(digest)
    }

    pub(crate) const fn bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

/// A digest of a weak token could be searched for, so it is not printed either.
impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[fingerprint]")
    }
}

/// A token someone presented. Nothing prints it; the digest is computed once, so keep the value if several decisions
/// are needed for one request.
#[derive(Clone)]
pub struct Credential<'h> {
    token: Token<'h>,
    fingerprint: Fingerprint,
}

#[derive(Clone)]
enum Token<'h> {
    Borrowed(&'h str),
    Owned(Secret<String>),
}

impl<'h> Credential<'h> {
    /// Reads the values of all `Authorization` headers of a request. None is `Ok(None)`; two are 400, since the part of
    /// the system in front of us may have looked at the other one.
    pub fn from_headers(values: impl IntoIterator<Item = &'h [u8]>) -> Result<Option<Self>, Denial> {
        let mut values = values.into_iter();
        let Some(first) = values.next() else {
            return Ok(None);
        };
        if values.next().is_some() {
            return Err(Denial::fixed(Refusal::BadRequest, "More than one Authorization header"));
        }
        Self::from_header(first).map(Some)
    }

    /// Reads the value of an `Authorization` header.
    pub fn from_header(value: &'h [u8]) -> Result<Self, Denial> {
        let malformed = || Denial::fixed(Refusal::Unauthenticated, "Malformed Authorization header");
        // base64 of Basic is a third longer than what it holds.
        if value.len() > MAX_TOKEN_BYTES * 4 / 3 + 64 {
            return Err(too_long());
        }
        let value = std::str::from_utf8(value)
            .map_err(|_| malformed())?
            .trim_matches([' ', '\t']);
        if let Some(token) = after_scheme(value, "bearer") {
            return Self::borrowed(token);
        }
        if let Some(encoded) = after_scheme(value, "basic") {
            return Self::basic(encoded);
        }
        Self::borrowed(value)
    }

    fn borrowed(token: &'h str) -> Result<Self, Denial> {
        check(token)?;
        Ok(Self {
            fingerprint: Fingerprint::of(token),
            token: Token::Borrowed(token),
        })
    }

    fn basic(encoded: &str) -> Result<Self, Denial> {
        let malformed = || Denial::fixed(Refusal::Unauthenticated, "Malformed Authorization header");
        let decoded = if encoded.ends_with('=') {
            STANDARD.decode(encoded)
        } else {
            STANDARD_NO_PAD.decode(encoded)
        };
        let pair = String::from_utf8(decoded.map_err(|_| malformed())?).map_err(|_| malformed())?;
        let pair = Secret::new(pair);
        let (_, token) = pair.expose().split_once(':').ok_or_else(malformed)?;
        Credential::from_token(&Secret::new(token.to_owned()))
    }

    /// Keeps the token beyond the life of the request.
    pub fn into_owned(self) -> Credential<'static> {
        Credential {
            token: Token::Owned(match self.token {
                Token::Borrowed(token) => Secret::from(token),
                Token::Owned(token) => token,
            }),
            fingerprint: self.fingerprint,
        }
    }

    pub(crate) fn token(&self) -> &str {
        match &self.token {
            Token::Borrowed(token) => token,
            Token::Owned(token) => token.expose(),
        }
    }

    pub(crate) const fn fingerprint(&self) -> &Fingerprint {
        &self.fingerprint
    }
}

impl Credential<'static> {
    /// A bare token, from a place that is not a header.
    pub fn from_token(token: &Secret<String>) -> Result<Self, Denial> {
        check(token.expose())?;
        Ok(Self {
            fingerprint: Fingerprint::of(token.expose()),
            token: Token::Owned(token.clone()),
        })
    }
}

impl fmt::Debug for Credential<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Credential([redacted])")
    }
}

/// The credential of the previous request on a connection. Clients repeat their header with every request; comparing it
/// is several times cheaper than digesting it again.
#[derive(Debug, Default)]
pub struct Remembered(Option<(Secret<Vec<u8>>, Credential<'static>)>);

impl Remembered {
    /// Reads the value of an `Authorization` header. The comparison takes constant time, since a proxy may put requests
    /// of several callers on one connection.
    pub fn read(&mut self, value: &[u8]) -> Result<&Credential<'static>, Denial> {
        let same = |(header, _): &(Secret<Vec<u8>>, _)| verify_slices_are_equal(header.expose(), value).is_ok();
        let held = self.0.take().filter(same);
        let read = || Credential::from_header(value).map(|c| (Secret::new(value.to_vec()), c.into_owned()));
        let (_, credential) = self.0.insert(held.map_or_else(read, Ok)?);
        Ok(credential)
    }
}

fn too_long() -> Denial {
    Denial::fixed(Refusal::Unauthenticated, "The token is too long")
}

/// What follows a scheme and at least one space.
fn after_scheme<'v>(value: &'v str, scheme: &str) -> Option<&'v str> {
    let (name, rest) = value.split_once([' ', '\t'])?;
    name.eq_ignore_ascii_case(scheme)
        .then(|| rest.trim_start_matches([' ', '\t']))
}

/// A token is visible ASCII without spaces: anything else is another scheme, or an attempt to smuggle a header into the
/// request we make with it.
fn check(token: &str) -> Result<(), Denial> {
    let refuse = |message: &'static str| Err(Denial::new(Refusal::Unauthenticated, Cow::Borrowed(message)));
    if token.is_empty() || token.eq_ignore_ascii_case("bearer") || token.eq_ignore_ascii_case("basic") {
        return refuse("The Authorization header holds no token");
    }
    if token.len() > MAX_TOKEN_BYTES {
        return Err(too_long());
    }
    if !token.bytes().all(|c| c.is_ascii_graphic()) {
        return refuse("Unsupported Authorization scheme: use Bearer, or Basic with the token as password");
    }
    Ok(())
}

#[cfg(test)]
mod tests;
