//! Tokens signed by someone whose key we hold.
//!
//! The key decides the algorithm. A token that names another one is not checked with this key at all, so a public key can
//! never become an HMAC secret, and `alg: none` is refused by name. Keys named or embedded by the token (`kid`, `jwk`,
//! `x5c`, `jku`) are ignored: every configured key is tried, and there are few. A repeated member in header or claims
//! makes the token invalid, since two readers could disagree about it.

use aws_lc_rs::hmac;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED, ParsedPublicKey};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use rustls_pki_types::pem::{PemObject as _, SectionKind};
use serde::{Deserialize, Deserializer, de::IgnoredAny};

use crate::config::{Error, HmacAlgorithm, Jwt};
use crate::denial::{Denial, Refusal};
use crate::grants::{CacheGrants, Grants, ProjectName, Unpaid, full_access};

/// Most keys in a bundle; each may cost one signature check per unknown token.
const MAX_KEYS: usize = 16;

pub(crate) const EXPIRED: Denial = Denial::fixed(Refusal::Unauthenticated, "The token has expired");
const UNSIGNED: Denial = Denial::fixed(Refusal::Unauthenticated, "The token is not signed");
const CLAIMS: Denial = Denial::fixed(Refusal::Unauthenticated, "The claims of the token are not valid");
const NOT_YET: Denial = Denial::fixed(Refusal::Unauthenticated, "The token is not valid yet");
const ISSUER: Denial = Denial::fixed(Refusal::Unauthenticated, "The token has another issuer");
const AUDIENCE: Denial = Denial::fixed(Refusal::Unauthenticated, "The token is for another audience");

/// What our own keys have to say about a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Signed {
    /// Nothing: it is opaque, or someone else signed it. If it says when it ends (leeway included), it will not be
    /// believed beyond that.
    Unknown { until: Option<u64> },
    /// It is good until then, leeway included (seconds since 1970).
    Valid { grants: Grants, until: u64 },
    /// It is bad, whoever else is asked.
    Refused(Denial),
}

/// Checks signatures and claims.
pub(crate) struct Verifier {
    keys: Keys,
    issuer: Option<String>,
    audiences: Vec<String>,
    leeway: u64,
}

enum Keys {
    /// We hold none: every token is for others to judge.
    None,
    Es256(Vec<ParsedPublicKey>),
    Hmac(HmacAlgorithm, Box<hmac::Key>),
}

/// Key material stays out of every output.
impl std::fmt::Debug for Verifier {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Verifier")
            .field("algorithm", &self.keys.algorithm())
            .field("issuer", &self.issuer)
            .field("audiences", &self.audiences)
            .finish_non_exhaustive()
    }
}

impl Keys {
    fn algorithm(&self) -> &'static str {
        match self {
            Self::None => "no algorithm",
            Self::Es256(_) => "ES256",
            Self::Hmac(algorithm, _) => algorithm.as_str(),
        }
    }

    fn verify(&self, message: &[u8], signature: &[u8]) -> bool {
        match self {
            Self::None => false,
            Self::Es256(keys) => keys.iter().any(|key| key.verify_sig(message, signature).is_ok()),
            // Compares in constant time.
            Self::Hmac(_, key) => hmac::verify(key, message, signature).is_ok(),
        }
    }
}

impl Verifier {
    /// Knows no key, and still knows an expired or unsigned token when it sees one.
    pub(crate) fn keyless() -> Self {
        Self {
            keys: Keys::None,
            issuer: None,
            audiences: Vec::new(),
            leeway: Jwt::LEEWAY.as_secs(),
        }
    }

    pub(crate) fn es256(config: &Jwt, pem: &str) -> Result<Self, Error> {
        let mut keys = Vec::new();
        for section in <(SectionKind, Vec<u8>)>::pem_slice_iter(pem.as_bytes()) {
            match section.map_err(|_| Error::Pem("a section is damaged"))? {
                (SectionKind::PublicKey, der) => {
                    let key = ParsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, der);
                    keys.push(key.map_err(|_| Error::NotP256(keys.len() + 1))?);
                }
                (SectionKind::PrivateKey | SectionKind::EcPrivateKey | SectionKind::RsaPrivateKey, _) => {
                    return Err(Error::Pem("it holds a private key, which must not be on a cache node"));
                }
                _ => return Err(Error::Pem("it holds something other than PUBLIC KEY sections")),
            }
        }
        match keys.len() {
            0 => Err(Error::Pem("it holds no PUBLIC KEY section")),
            1..=MAX_KEYS => Ok(Self::new(config, Keys::Es256(keys))),
            _ => Err(Error::Pem("it holds more than 16 keys")),
        }
    }

    pub(crate) fn hmac(config: &Jwt, algorithm: HmacAlgorithm, secret: &str) -> Self {
        let kind = match algorithm {
            HmacAlgorithm::Hs256 => hmac::HMAC_SHA256,
            HmacAlgorithm::Hs384 => hmac::HMAC_SHA384,
            HmacAlgorithm::Hs512 => hmac::HMAC_SHA512,
        };
        if secret.len() < kind.digest_algorithm().output_len() {
            tracing::warn!(
                algorithm = algorithm.as_str(),
                "the JWT secret is shorter than the output of its hash and easier to guess than it should be"
            );
        }
        Self::new(
            config,
            Keys::Hmac(algorithm, Box::new(hmac::Key::new(kind, secret.as_bytes()))),
        )
    }

    fn new(config: &Jwt, keys: Keys) -> Self {
        Self {
            keys,
            issuer: config.issuer.clone(),
            audiences: config.audiences.clone(),
            leeway: config.leeway.as_secs(),
        }
    }

    /// Judges a token.
    pub(crate) fn verify(&self, token: &str, unix_seconds: u64) -> Signed {
        let Some(parts) = Parts::split(token) else {
            return Signed::Unknown { until: None };
        };
        let Ok(header) = parts.header() else {
            return Signed::Unknown { until: None };
        };
        if header.alg.eq_ignore_ascii_case("none") {
            return Signed::Refused(UNSIGNED);
        }
        let claims = parts.claims();
        let until = claims.as_ref().ok().and_then(|c| c.until(self.leeway));
        // Saying "expired" about a token we cannot verify refuses only, and spares everyone the work.
        if until.is_some_and(|until| until <= unix_seconds) {
            return Signed::Refused(EXPIRED);
        }
        // RFC 7515: whoever does not understand an extension marked critical must refuse the token.
        let understood = !header.crit && header.alg == self.keys.algorithm();
        let signature = URL_SAFE_NO_PAD.decode(parts.signature);
        let verified = understood && signature.is_ok_and(|s| self.keys.verify(parts.signed.as_bytes(), &s));
        match (verified, claims, until) {
            (false, _, until) => Signed::Unknown { until },
            (true, Ok(claims), Some(until)) => self.judge(claims, until, unix_seconds),
            (true, ..) => Signed::Refused(CLAIMS),
        }
    }

    fn judge(&self, claims: Claims, until: u64, unix_seconds: u64) -> Signed {
        if claims
            .nbf
            .is_some_and(|nbf| whole_seconds(nbf) > unix_seconds.saturating_add(self.leeway))
        {
            return Signed::Refused(NOT_YET);
        }
        if self.issuer.is_some() && self.issuer != claims.iss {
            return Signed::Refused(ISSUER);
        }
        if !self.audiences.is_empty() && !claims.aud.as_ref().is_some_and(|aud| aud.meets(&self.audiences)) {
            return Signed::Refused(AUDIENCE);
        }
        Signed::Valid {
            until,
            grants: claims.into_grants(),
        }
    }
}

/// The three parts of a compact JWS.
struct Parts<'t> {
    header: &'t str,
    claims: &'t str,
    signature: &'t str,
    /// What the signature is about: header, dot, claims, as received.
    signed: &'t str,
}

impl<'t> Parts<'t> {
    fn split(token: &'t str) -> Option<Self> {
        let (signed, signature) = token.rsplit_once('.')?;
        let (header, claims) = signed.split_once('.')?;
        (!claims.contains('.')).then_some(Self {
            header,
            claims,
            signature,
            signed,
        })
    }

    fn header(&self) -> Result<Header, Malformed> {
        decode(self.header)
    }

    fn claims(&self) -> Result<Claims, Malformed> {
        decode(self.claims)
    }
}

/// Why does not matter: an error of the JSON library may quote the token, so it goes no further.
struct Malformed;

fn decode<T: for<'de> Deserialize<'de>>(part: &str) -> Result<T, Malformed> {
    let json = URL_SAFE_NO_PAD.decode(part).map_err(|_| Malformed)?;
    // The JSON library does not look into members it skips; another reader of the same token might.
    let json = std::str::from_utf8(&json).map_err(|_| Malformed)?;
    serde_json::from_str(json).map_err(|_| Malformed)
}

#[derive(Deserialize)]
struct Header {
    alg: String,
    #[serde(default, deserialize_with = "present")]
    crit: bool,
}

/// The members that matter; derived code refuses them when repeated.
#[derive(Deserialize)]
struct Claims {
    exp: Option<f64>,
    nbf: Option<f64>,
    iss: Option<String>,
    aud: Option<Audience>,
    cache_grants: Option<CacheGrants>,
    cache_payment_required: Option<Unpaid>,
    #[serde(default, deserialize_with = "present")]
    scopes: bool,
    projects: Option<Vec<ProjectName>>,
}

impl Claims {
    fn until(&self, leeway: u64) -> Option<u64> {
        self.exp.map(|exp| whole_seconds(exp).saturating_add(leeway))
    }

    /// Older tokens list projects only. The list counts when the token says nothing more exact: neither `cache_grants`
    /// nor `scopes`.
    fn into_grants(self) -> Grants {
        let grants = match (self.cache_grants, self.projects) {
            (Some(grants), _) => grants.into_grants(),
            (None, Some(projects)) if !self.scopes => full_access(&projects),
            (None, _) => Grants::default(),
        };
        grants.with_unpaid(self.cache_payment_required)
    }
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Audience {
    One(String),
    Several(Vec<String>),
}

impl Audience {
    fn meets(&self, accepted: &[String]) -> bool {
        match self {
            Self::One(audience) => accepted.contains(audience),
            Self::Several(audiences) => audiences.iter().any(|audience| accepted.contains(audience)),
        }
    }
}

/// True for a member that is there, whatever it is, null included.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    IgnoredAny::deserialize(deserializer).map(|_| true)
}

/// NumericDate may have a fraction. Below zero is 1970, and nonsense beyond any clock is the end of time.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "float to integer casts saturate, which is what is wanted"
)]
pub(crate) fn whole_seconds(date: f64) -> u64 {
    date as u64
}

#[cfg(test)]
mod tests;
