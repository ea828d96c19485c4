//! How callers are told apart, as typed values.
//!
//! The four ways add up: a node may let everyone read and let the holders of static tokens write, or check signatures
//! itself and ask the control plane about the rest. A config that would let nobody in, or more people than someone asked
//! for, is refused with an error that says what to set.

mod error;

use std::path::PathBuf;
use std::time::Duration;

use reqwest::Url;
use russet_api::values::AccountHandle;
use russet_telemetry::Secret;

pub use self::error::Error;
use crate::scope::Access;
use crate::tokens::StaticToken;

/// Longest time an answer of the control plane is believed.
pub const MAX_REVOCATION: Duration = Duration::from_mins(1);

/// Everything the authoriser needs to know.
#[derive(Clone, Debug)]
pub struct Config {
    /// The one account this node serves. Requests for another are 403 whenever credentials are checked.
    pub tenant: Option<AccountHandle>,
    /// What callers without a credential may do. A credential that is not valid is 401 all the same, so that nobody
    /// believes in a token that does nothing; with nothing to check credentials with they are ignored.
    pub anonymous: Anonymous,
    /// Tokens written down on this machine.
    pub tokens: Option<TokenSource>,
    /// Tokens signed by someone we hold a key of.
    pub jwt: Option<Jwt>,
    /// Whom to ask about everything else.
    pub control_plane: Option<ControlPlane>,
    /// How long and how much to remember.
    pub memory: Memory,
}

impl Config {
    /// No credentials are checked; everyone may do this much. For one machine, or behind something that checks.
    pub fn open(anonymous: Anonymous) -> Self {
        Self {
            tenant: None,
            anonymous,
            tokens: None,
            jwt: None,
            control_plane: None,
            memory: Memory::default(),
        }
    }

    /// Whether credentials are looked at.
    pub fn checks_credentials(&self) -> bool {
        self.tokens.is_some() || self.jwt.is_some() || self.control_plane.is_some()
    }

    /// What is wrong with the values taken together. Files and keys are looked at by [`crate::Authorizer::new`].
    pub fn validate(&self) -> Result<(), Error> {
        if !self.checks_credentials() && self.anonymous == Anonymous::Nothing {
            return Err(Error::NobodyMayEnter);
        }
        self.memory.validate()?;
        if let Some(jwt) = &self.jwt {
            jwt.validate(self.control_plane.as_ref())?;
        }
        if let Some(control_plane) = &self.control_plane {
            control_plane.validate()?;
        }
        Ok(())
    }
}

/// What callers without a credential may do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Anonymous {
    /// Nothing: 401.
    #[default]
    Nothing,
    /// Read. A poisoned entry needs a writer, so this is the most that is given without being asked for.
    Read,
    /// Read and write. Whoever can connect can decide what the next build is made of; only by explicit wish.
    ReadWrite,
}

impl Anonymous {
    /// Whether this much is allowed.
    pub fn permits(self, access: Access) -> bool {
        match self {
            Self::Nothing => false,
            Self::Read => access == Access::Read,
            Self::ReadWrite => true,
        }
    }

    /// `none`, `read` or `read-write`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Nothing => "none",
            Self::Read => "read",
            Self::ReadWrite => "read-write",
        }
    }
}

impl std::str::FromStr for Anonymous {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        [Self::Nothing, Self::Read, Self::ReadWrite]
            .into_iter()
            .find(|choice| choice.as_str() == text)
            .ok_or(Error::Anonymous)
    }
}

/// Where static tokens are written down.
#[derive(Clone, Debug)]
pub enum TokenSource {
    /// In the config itself.
    List(Vec<StaticToken>),
    /// In a TOML file that is read again when it changes.
    File(PathBuf),
}

/// How tokens signed by others are checked.
#[derive(Clone, Debug)]
pub struct Jwt {
    /// What signatures are checked with. Its kind fixes the algorithm; the token has no say.
    pub keys: JwtKeys,
    /// Required value of `iss`.
    pub issuer: Option<String>,
    /// One of these must be in `aud`. Empty: not checked.
    pub audiences: Vec<String>,
    /// How far the clocks may differ.
    pub leeway: Duration,
    /// Whether a good signature is enough.
    pub signed_tokens: SignedTokens,
}

impl Jwt {
    /// Leeway of the contract.
    pub const LEEWAY: Duration = Duration::from_mins(1);

    /// Checks signatures, and nothing else that is optional.
    pub fn new(keys: JwtKeys) -> Self {
        Self {
            keys,
            issuer: None,
            audiences: Vec::new(),
            leeway: Self::LEEWAY,
            signed_tokens: SignedTokens::TrustUntilExpiry,
        }
    }

    fn validate(&self, control_plane: Option<&ControlPlane>) -> Result<(), Error> {
        if let JwtKeys::Hmac { secret, .. } = &self.keys {
            if secret.expose().is_empty() {
                return Err(Error::EmptySecret);
            }
            // Whoever does this has built the classic hole: the "secret" is public, and anyone can sign with it.
            if secret.expose().contains("-----BEGIN") {
                return Err(Error::SecretIsPem);
            }
        }
        if self.leeway > Duration::from_mins(5) {
            return Err(Error::Leeway);
        }
        if self.signed_tokens == SignedTokens::AlsoIntrospect && control_plane.is_none_or(|c| c.client.is_none()) {
            return Err(Error::IntrospectWithoutClient);
        }
        Ok(())
    }
}

/// Whether a good signature is enough.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SignedTokens {
    /// Yes, until the token's own `exp`. The contract, and it works while the control plane is down; tokens should be
    /// short-lived.
    #[default]
    TrustUntilExpiry,
    /// No: the token must also be active according to introspection, so revocation takes effect within
    /// [`MAX_REVOCATION`]. Costs one request per credential and half minute, and 503 while the control plane is down.
    AlsoIntrospect,
}

/// What signatures are checked with.
#[derive(Clone, Debug)]
pub enum JwtKeys {
    /// ES256: one or more P-256 public keys in PEM, any of which may have signed (so keys can be rotated).
    Es256(PemSource),
    /// HS256, HS384 or HS512 with a shared secret.
    Hmac {
        /// Which of the three; no other is accepted.
        algorithm: HmacAlgorithm,
        /// The secret.
        secret: Secret<String>,
    },
}

/// Where public keys are.
#[derive(Clone, Debug)]
pub enum PemSource {
    /// In the config itself.
    Inline(String),
    /// In a file that is read again when it changes.
    File(PathBuf),
}

/// The HMAC algorithms of JWT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HmacAlgorithm {
    /// HS256
    Hs256,
    /// HS384
    Hs384,
    /// HS512
    Hs512,
}

impl HmacAlgorithm {
    /// Value of `alg`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Hs256 => "HS256",
            Self::Hs384 => "HS384",
            Self::Hs512 => "HS512",
        }
    }
}

/// Whom to ask about tokens.
#[derive(Clone, Debug)]
pub struct ControlPlane {
    /// Beginning of its addresses.
    pub url: Url,
    /// What this node introduces itself with. Without it there is no introspection, only `/api/cache/access`, which
    /// knows about projects alone.
    pub client: Option<Client>,
    /// Longest wait for a connection.
    pub connect_timeout: Duration,
    /// Longest wait for an answer.
    pub request_timeout: Duration,
    /// Most questions under way at once.
    pub concurrency: usize,
    /// Whether proxies of the environment are used.
    pub proxy: Proxy,
}

impl ControlPlane {
    /// With the timeouts of the contract.
    pub fn new(url: &str) -> Result<Self, Error> {
        let url = Url::parse(url).map_err(|_| Error::Url)?;
        let this = Self {
            url,
            client: None,
            connect_timeout: Duration::from_secs(3),
            request_timeout: Duration::from_secs(4),
            concurrency: 64,
            proxy: Proxy::Environment,
        };
        this.validate()?;
        Ok(this)
    }

    fn validate(&self) -> Result<(), Error> {
        if !matches!(self.url.scheme(), "http" | "https") || self.url.host_str().is_none() {
            return Err(Error::Url);
        }
        if !self.url.username().is_empty() || self.url.password().is_some() {
            return Err(Error::UrlHoldsPassword);
        }
        if self.url.query().is_some() || self.url.fragment().is_some() {
            return Err(Error::Url);
        }
        let sane = Duration::from_millis(1)..=Duration::from_mins(1);
        if !sane.contains(&self.connect_timeout) || !sane.contains(&self.request_timeout) {
            return Err(Error::Timeout);
        }
        if self.concurrency == 0 {
            return Err(Error::Concurrency);
        }
        Ok(())
    }
}

/// What a node introduces itself with.
#[derive(Clone, Debug)]
pub struct Client {
    /// Not secret.
    pub id: String,
    /// Secret.
    pub secret: Secret<String>,
}

/// Whether proxies of the environment are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Proxy {
    /// As `HTTPS_PROXY` and its kin say.
    Environment,
    /// Never.
    Never,
}

/// How long and how much to remember of what the control plane said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    /// Most credentials remembered.
    pub entries: usize,
    /// Age from which an allow is fetched anew in the background while it still counts.
    pub refresh_after: Duration,
    /// Age beyond which an allow does not count any more; at most [`MAX_REVOCATION`].
    pub revocation: Duration,
    /// How long a refusal is repeated without asking again.
    pub refusal: Duration,
    /// How long a credential waits after the control plane could not be reached for it.
    pub back_off: Duration,
}

impl Default for Memory {
    fn default() -> Self {
        Self {
            entries: 100_000,
            refresh_after: Duration::from_secs(30),
            revocation: MAX_REVOCATION,
            refusal: Duration::from_secs(3),
            back_off: Duration::from_secs(3),
        }
    }
}

impl Memory {
    fn validate(&self) -> Result<(), Error> {
        if self.entries == 0 {
            return Err(Error::Entries);
        }
        if self.revocation > MAX_REVOCATION || self.refresh_after >= self.revocation {
            return Err(Error::Revocation);
        }
        let pause = Duration::from_millis(100)..=MAX_REVOCATION;
        if !pause.contains(&self.refusal) || !pause.contains(&self.back_off) {
            return Err(Error::Pause);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
