//! From an address to an authenticated connection.

use std::borrow::Cow;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use russh::client::{self, AuthResult, DisconnectReason, Handle};
use russh::keys::{Algorithm, PrivateKey, PrivateKeyWithHashAlg, PublicKeyOrCertificate, decode_secret_key};
use russh::{Disconnect, Preferred, SshId};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::{Auth, During, Error, HostKeyPin, Limits, Target, pin};

/// Keepalives a host may leave unanswered.
const UNANSWERED: u32 = 3;

/// A connection to a host that knows us.
pub struct Session {
    pub(super) handle: Handle<Witness>,
    pub(super) notes: Notes,
    pub(super) address: SocketAddr,
    pub(super) output: usize,
    host_key: HostKeyPin,
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session")
            .field("address", &self.address)
            .field("host_key", &self.host_key)
            .finish_non_exhaustive()
    }
}

impl Session {
    /// The key the host proved to have.
    pub fn host_key(&self) -> &HostKeyPin {
        &self.host_key
    }

    /// Whether the connection is gone, so that a new one is needed.
    pub fn is_closed(&self) -> bool {
        self.handle.is_closed()
    }

    /// Says goodbye. Dropping a session closes the connection too, less politely.
    pub async fn close(self) {
        let _ = self.handle.disconnect(Disconnect::ByApplication, "", "").await;
    }

    pub(super) fn dropped(&self, during: During) -> Error {
        self.notes.dropped(self.address, during)
    }
}

/// Connects and authenticates, once. Safe to drop at any point.
pub async fn connect(target: &Target, limits: &Limits) -> Result<Session, Error> {
    // A key that cannot be read should not cost the host a connection.
    let credential = Credential::read(&target.auth)?;
    let (mut handle, notes, host_key) = reach(target, limits).await?;
    let address = target.address;
    let outcome = timeout(limits.auth, credential.show(&mut handle, &target.user)).await;
    match outcome {
        Err(_) => Err(Error::Timeout {
            address,
            during: During::Authentication,
            after: limits.auth,
            host_key: Some(host_key),
        }),
        Ok(Ok(AuthResult::Success)) => Ok(Session {
            handle,
            notes,
            address,
            output: limits.output,
            host_key,
        }),
        // russh reports a lost connection as a rejection.
        Ok(Ok(AuthResult::Failure { .. })) if handle.is_closed() => Err(notes.dropped(address, During::Authentication)),
        Ok(Ok(AuthResult::Failure { remaining_methods, .. })) => Err(Error::AuthRejected {
            address,
            user: target.user.clone(),
            method: credential.method(),
            accepts: remaining_methods.iter().map(String::from).collect(),
            host_key,
        }),
        Ok(Err(_)) => Err(notes.dropped(address, During::Authentication)),
    }
}

/// A connection to the host that is pinned, or to whoever answers if none is.
async fn reach(target: &Target, limits: &Limits) -> Result<(Handle<Witness>, Notes, HostKeyPin), Error> {
    let mut changed = None;
    for algorithms in pin::attempts(target.pin.as_ref()) {
        match dial(target, limits, algorithms).await {
            Err(error @ Error::HostKeyChanged { .. }) => {
                changed.get_or_insert(error);
            }
            // The host has no key of the algorithm that was asked for after another one did not match.
            Err(error @ Error::Handshake { .. }) => match changed {
                Some(_) if no_common_key(&error) => {}
                _ => return Err(error),
            },
            other => return other,
        }
    }
    // There is at least one attempt, and each that does not return leaves its error here.
    Err(changed.unwrap_or(Error::BadKey {
        problem: "no algorithm for host keys is left to try",
    }))
}

fn no_common_key(error: &Error) -> bool {
    matches!(error, Error::Handshake { source, .. } if matches!(**source, russh::Error::NoCommonAlgo { .. }))
}

async fn dial(
    target: &Target,
    limits: &Limits,
    algorithms: Vec<Algorithm>,
) -> Result<(Handle<Witness>, Notes, HostKeyPin), Error> {
    let address = target.address;
    let notes = Notes::default();
    let witness = Witness {
        pin: target.pin.clone(),
        notes: notes.clone(),
    };
    let config = Arc::new(config(limits, algorithms));
    let dialled = timeout(limits.dial, async {
        let stream = TcpStream::connect(address)
            .await
            .map_err(|error| unreachable(address, error))?;
        // Small messages, each waited for.
        let _ = stream.set_nodelay(true);
        client::connect_stream(config, stream, witness)
            .await
            .map_err(|Failed(error)| handshake(address, error))
    })
    .await;
    let seen = notes.seen();
    match (dialled, &target.pin, seen) {
        // Whatever else went wrong, this is why.
        (_, Some(expected), Some(found)) if !expected.matches(&found) => Err(Error::HostKeyChanged {
            address,
            expected: expected.clone(),
            found,
        }),
        (Err(_), _, host_key) => Err(Error::Timeout {
            address,
            during: During::Dial,
            after: limits.dial,
            host_key,
        }),
        (Ok(Err(error)), _, _) => Err(error),
        (Ok(Ok(handle)), _, Some(host_key)) => Ok((handle, notes, host_key)),
        (Ok(Ok(_)), _, None) => Err(handshake(address, russh::Error::UnknownKey)),
    }
}

fn config(limits: &Limits, algorithms: Vec<Algorithm>) -> client::Config {
    client::Config {
        client_id: SshId::Standard(Cow::Borrowed("SSH-2.0-russet")),
        preferred: Preferred {
            key: Cow::Owned(algorithms),
            ..Preferred::DEFAULT
        },
        keepalive_interval: Some(limits.keepalive),
        keepalive_max: UNANSWERED as usize,
        // Ends the connection's task if a host falls silent before keepalives begin.
        inactivity_timeout: Some(limits.dial.max(limits.keepalive * (UNANSWERED + 2))),
        nodelay: true,
        ..client::Config::default()
    }
}

fn unreachable(address: SocketAddr, source: io::Error) -> Error {
    match source.kind() {
        io::ErrorKind::ConnectionRefused => Error::Refused { address },
        _ => Error::Unreachable { address, source },
    }
}

fn handshake(address: SocketAddr, source: russh::Error) -> Error {
    match source {
        russh::Error::Disconnect | russh::Error::HUP | russh::Error::IO(_) | russh::Error::InactivityTimeout => {
            Error::Dropped {
                address,
                during: During::Dial,
                reason: Some(source.to_string()),
            }
        }
        source => Error::Handshake {
            address,
            source: Box::new(source),
        },
    }
}

/// What we show.
enum Credential<'a> {
    Key(Arc<PrivateKey>),
    Password(&'a str),
}

impl<'a> Credential<'a> {
    fn read(auth: &'a Auth) -> Result<Self, Error> {
        match auth {
            Auth::Password(password) => Ok(Self::Password(password.expose())),
            Auth::Key(text) => match decode_secret_key(text.expose(), None) {
                Ok(key) if key.is_encrypted() => Err(Error::BadKey {
                    problem: "it has a passphrase",
                }),
                Ok(key) if matches!(key.algorithm(), Algorithm::Ed25519 | Algorithm::Ecdsa { .. }) => {
                    Ok(Self::Key(Arc::new(key)))
                }
                Ok(_) => Err(Error::BadKey {
                    problem: "its algorithm is not supported",
                }),
                Err(russh::keys::Error::KeyIsEncrypted) => Err(Error::BadKey {
                    problem: "it has a passphrase",
                }),
                // The source might quote the key.
                Err(_) => Err(Error::BadKey {
                    problem: "it cannot be read",
                }),
            },
        }
    }

    fn method(&self) -> &'static str {
        match self {
            Self::Key(_) => "key",
            Self::Password(_) => "password",
        }
    }

    async fn show(&self, handle: &mut Handle<Witness>, user: &str) -> Result<AuthResult, russh::Error> {
        match self {
            Self::Key(key) => {
                let key = PrivateKeyWithHashAlg::new(Arc::clone(key), None);
                handle.authenticate_publickey(user, key).await
            }
            Self::Password(password) => handle.authenticate_password(user, *password).await,
        }
    }
}

/// What the connection's task saw, for us to read.
#[derive(Clone, Debug, Default)]
pub(super) struct Notes(Arc<Mutex<Noted>>);

#[derive(Debug, Default)]
struct Noted {
    host_key: Option<HostKeyPin>,
    end: Option<String>,
}

impl Notes {
    fn with<T>(&self, look: impl FnOnce(&mut Noted) -> T) -> T {
        look(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn seen(&self) -> Option<HostKeyPin> {
        self.with(|noted| noted.host_key.clone())
    }

    pub(super) fn dropped(&self, address: SocketAddr, during: During) -> Error {
        Error::Dropped {
            address,
            during,
            reason: self.with(|noted| noted.end.clone()),
        }
    }
}

/// Judges the host key and takes notes.
pub(super) struct Witness {
    pin: Option<HostKeyPin>,
    notes: Notes,
}

/// Only because the handler's error must be a type of ours.
#[derive(Debug)]
pub(super) struct Failed(russh::Error);

impl From<russh::Error> for Failed {
    fn from(error: russh::Error) -> Self {
        Self(error)
    }
}

impl client::Handler for Witness {
    type Error = Failed;

    async fn check_server_key(&mut self, key: &PublicKeyOrCertificate) -> Result<bool, Failed> {
        let PublicKeyOrCertificate::PublicKey { key, .. } = key else {
            // We never ask for a certificate.
            return Ok(false);
        };
        let seen = HostKeyPin::of(key);
        let trusted = self.pin.as_ref().is_none_or(|pin| pin.matches(&seen));
        self.notes.with(|noted| noted.host_key = Some(seen));
        Ok(trusted)
    }

    async fn disconnected(&mut self, reason: DisconnectReason<Failed>) -> Result<(), Failed> {
        let end = match &reason {
            DisconnectReason::ReceivedDisconnect(info) => format!("the host said {:?}", brief(&info.message)),
            DisconnectReason::Error(Failed(error)) => error.to_string(),
        };
        self.notes.with(|noted| noted.end = Some(end));
        match reason {
            DisconnectReason::ReceivedDisconnect(_) => Ok(()),
            DisconnectReason::Error(error) => Err(error),
        }
    }
}

/// A host is not trusted to be brief.
fn brief(text: &str) -> String {
    text.chars().take(200).collect()
}
