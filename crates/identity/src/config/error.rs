//! What can be wrong with a config.

use std::path::PathBuf;

/// A config that cannot work. No variant quotes a secret or the content of a file.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// See message.
    #[error(
        "nobody could use this cache: allow anonymous access (read or read-write), or configure static tokens, a JWT key or secret, or a control plane"
    )]
    NobodyMayEnter,
    /// See message.
    #[error("anonymous access is none, read or read-write")]
    Anonymous,
    /// See message.
    #[error("the JWT secret is empty")]
    EmptySecret,
    /// See message.
    #[error("the JWT secret is a PEM key, and a public key is no secret: configure it as the JWT public key (ES256)")]
    SecretIsPem,
    /// See message.
    #[error("both a JWT secret and a JWT public key are set; choose one")]
    SecretAndPublicKey,
    /// See message.
    #[error("the JWT algorithm does not fit: ES256 goes with a public key; HS256, HS384 and HS512 go with a secret")]
    Algorithm,
    /// See message.
    #[error("the JWT settings ({0}) need a JWT key or secret to go with them")]
    JwtWithoutKey(&'static str),
    /// See message.
    #[error("the leeway for JWT times is at most 300 s")]
    Leeway,
    /// See message.
    #[error("introspection of signed tokens needs a control plane with client id and secret")]
    IntrospectWithoutClient,
    /// See message.
    #[error("client id and client secret of the control plane go together, and with its URL")]
    HalfClient,
    /// See message.
    #[error(
        "authentication is switched on but there is nothing to check credentials with: set the control plane URL, a JWT key or secret, or a token file"
    )]
    EnabledWithoutMeans,
    /// See message.
    #[error(
        "authentication is switched off but there are means to check credentials with: remove the control plane URL, JWT key or secret and token file, or the switch"
    )]
    DisabledWithMeans,
    /// See message.
    #[error("the URL of the control plane must be http(s)://host[:port][/path] without query")]
    Url,
    /// See message.
    #[error("the URL of the control plane holds a user name or password; use client id and client secret instead")]
    UrlHoldsPassword,
    /// See message.
    #[error("timeouts for the control plane are from 1 ms to 60 s")]
    Timeout,
    /// See message.
    #[error("at least one request to the control plane must be possible at a time")]
    Concurrency,
    /// See message.
    #[error("at least one credential must be remembered")]
    Entries,
    /// See message.
    #[error("an allow is refreshed before it ends, and ends after at most 60 s")]
    Revocation,
    /// See message.
    #[error("a refusal and a back-off last from 100 ms to 60 s")]
    Pause,
    /// See message.
    #[error("failed to read {what} {}", path.display())]
    Read {
        /// What the file holds.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// See message.
    #[error("the JWT public key is not valid PEM: {0}")]
    Pem(&'static str),
    /// See message.
    #[error("key {0} of the JWT public keys is not a P-256 public key, which ES256 needs")]
    NotP256(usize),
    /// See message.
    #[error("the token file has a mistake in line {line}: {problem}")]
    TokenFile {
        /// Line, from 1; 0 if unknown.
        line: usize,
        /// What is wrong, without the text.
        problem: &'static str,
    },
    /// See message.
    #[error("static token {name:?}: {problem}")]
    Token {
        /// Its name.
        name: String,
        /// What is wrong.
        problem: String,
    },
    /// See message.
    #[error("failed to set up the HTTP client for the control plane")]
    Client(#[source] reqwest::Error),
}
