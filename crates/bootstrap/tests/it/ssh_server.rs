//! An SSH server in this process that can refuse, stall and drop.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use russh::keys::{Algorithm, EcdsaCurve, PrivateKey, PublicKey};
use russh::server::{self, Auth, ChannelOpenHandle, Handler, Msg, Session};
use russh::{Channel, ChannelId, MethodKind, MethodSet, Sig};
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

pub(crate) const USER: &str = "ubuntu";
pub(crate) const PASSWORD: &str = "canary-password";

/// What the server saw and how it is to behave.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    pub(crate) connections: usize,
    /// Commands that have begun.
    pub(crate) commands: Vec<String>,
    pub(crate) signals: Vec<String>,
    pub(crate) closed: usize,
}

#[derive(Clone, Default)]
pub(crate) struct Behaviour {
    pub(crate) stall_in_auth: bool,
    pub(crate) drop_in_auth: bool,
    pub(crate) refuse_channels: bool,
}

pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    pub(crate) seen: Arc<Mutex<Seen>>,
    task: JoinHandle<()>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A key of its own for every call.
pub(crate) fn key(algorithm: Algorithm) -> PrivateKey {
    PrivateKey::random(&mut russh::keys::key::safe_rng(), algorithm).unwrap()
}

pub(crate) fn ed25519() -> PrivateKey {
    key(Algorithm::Ed25519)
}

pub(crate) fn ecdsa() -> PrivateKey {
    key(Algorithm::Ecdsa {
        curve: EcdsaCurve::NistP256,
    })
}

impl Server {
    /// One that lets [`USER`] in with [`PASSWORD`].
    pub(crate) async fn behaving(change: impl FnOnce(&mut Behaviour)) -> Self {
        let mut behaviour = Behaviour::default();
        change(&mut behaviour);
        Self::start(vec![ed25519()], None, behaviour).await
    }

    /// Whether a command of this name has begun.
    pub(crate) fn runs(&self, command: &str) -> bool {
        self.seen.lock().unwrap().commands.iter().any(|seen| seen == command)
    }

    pub(crate) async fn start(host_keys: Vec<PrivateKey>, user_key: Option<PublicKey>, behaviour: Behaviour) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let seen = Arc::new(Mutex::new(Seen::default()));
        let config = Arc::new(server::Config {
            keys: host_keys,
            methods: MethodSet::from(&[MethodKind::PublicKey, MethodKind::Password][..]),
            auth_rejection_time: Duration::ZERO,
            ..server::Config::default()
        });
        let noted = Arc::clone(&seen);
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                noted.lock().unwrap().connections += 1;
                let (wire, cut) = Wire::through(stream);
                let host = Host {
                    user_key: user_key.clone(),
                    behaviour: behaviour.clone(),
                    seen: Arc::clone(&noted),
                    cut,
                    inputs: BTreeMap::new(),
                };
                if let Ok(session) = server::run_stream(Arc::clone(&config), wire, host).await {
                    tokio::spawn(session);
                }
            }
        });
        Self { address, seen, task }
    }
}

/// What becomes of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Whole,
    Cut,
    /// It stays, and nothing comes through any more.
    Frozen,
}

/// A connection that can be cut in the middle of anything.
struct Wire;

impl Wire {
    fn through(stream: TcpStream) -> (tokio::io::DuplexStream, tokio::sync::watch::Sender<Fate>) {
        let (ours, theirs) = tokio::io::duplex(64 * 1024);
        let (cut, mut is_cut) = tokio::sync::watch::channel(Fate::Whole);
        tokio::spawn(async move {
            let (mut stream, mut theirs) = (stream, theirs);
            tokio::select! {
                _ = tokio::io::copy_bidirectional(&mut stream, &mut theirs) => {}
                _ = is_cut.wait_for(|fate| *fate != Fate::Whole) => {}
            }
            if *is_cut.borrow() == Fate::Frozen {
                std::future::pending::<()>().await;
            }
            let _ = stream.shutdown().await;
        });
        (ours, cut)
    }
}

struct Host {
    user_key: Option<PublicKey>,
    behaviour: Behaviour,
    seen: Arc<Mutex<Seen>>,
    cut: tokio::sync::watch::Sender<Fate>,
    inputs: BTreeMap<ChannelId, (String, Vec<u8>)>,
}

impl Host {
    async fn trouble(&self) {
        if self.behaviour.stall_in_auth {
            std::future::pending::<()>().await;
        }
        if self.behaviour.drop_in_auth {
            let _ = self.cut.send(Fate::Cut);
            std::future::pending::<()>().await;
        }
    }
}

fn failed(error: impl std::fmt::Debug) -> russh::Error {
    russh::Error::IO(io::Error::other(format!("{error:?}")))
}

impl Handler for Host {
    type Error = russh::Error;

    async fn auth_password(&mut self, user: &str, password: &str) -> Result<Auth, Self::Error> {
        self.trouble().await;
        Ok(if user == USER && password == PASSWORD {
            Auth::Accept
        } else {
            Auth::reject()
        })
    }

    async fn auth_publickey(&mut self, user: &str, key: server::VerifiedPublicKey<'_>) -> Result<Auth, Self::Error> {
        self.trouble().await;
        let known = self
            .user_key
            .as_ref()
            .is_some_and(|known| known.key_data() == key.public_key.key_data());
        Ok(if user == USER && known {
            Auth::Accept
        } else {
            Auth::reject()
        })
    }

    async fn channel_open_session(
        &mut self,
        _channel: Channel<Msg>,
        reply: ChannelOpenHandle,
        _session: &mut Session,
    ) -> Result<(), Self::Error> {
        if self.behaviour.refuse_channels {
            return Ok(());
        }
        reply.accept().await;
        Ok(())
    }

    /// The command is the name of what to do.
    async fn exec_request(
        &mut self,
        channel: ChannelId,
        data: &[u8],
        session: &mut Session,
    ) -> Result<(), Self::Error> {
        let command = String::from_utf8_lossy(data).into_owned();
        if command == "refuse" {
            return session.channel_failure(channel);
        }
        session.channel_success(channel)?;
        self.inputs.insert(channel, (command.clone(), Vec::new()));
        self.seen.lock().unwrap().commands.push(command.clone());
        let handle = session.handle();
        match command.as_str() {
            "flood" => {
                tokio::spawn(async move {
                    for number in 0..2000 {
                        let line = format!("{number:04} {}\n", "x".repeat(1000));
                        handle.data(channel, line.into_bytes()).await.map_err(failed)?;
                    }
                    end(&handle, channel, 0).await
                });
            }
            "drop" => {
                let cut = self.cut.clone();
                tokio::spawn(async move {
                    handle
                        .data(channel, "half of i".as_bytes().to_vec())
                        .await
                        .map_err(failed)?;
                    cut.send(Fate::Cut).map_err(failed)
                });
            }
            "freeze" => {
                let _ = self.cut.send(Fate::Frozen);
            }
            "vanish" => session.close(channel)?,
            // "cat", "fail" and "stall" wait for their input to end.
            _ => {}
        }
        Ok(())
    }

    async fn data(&mut self, channel: ChannelId, data: &[u8], _session: &mut Session) -> Result<(), Self::Error> {
        if let Some((_, input)) = self.inputs.get_mut(&channel) {
            input.extend_from_slice(data);
        }
        Ok(())
    }

    async fn channel_eof(&mut self, channel: ChannelId, session: &mut Session) -> Result<(), Self::Error> {
        let Some((command, input)) = self.inputs.remove(&channel) else {
            return Ok(());
        };
        let handle = session.handle();
        tokio::spawn(async move {
            match command.as_str() {
                "cat" => {
                    for piece in input.chunks(16 * 1024) {
                        handle.data(channel, piece.to_vec()).await.map_err(failed)?;
                    }
                    end(&handle, channel, 0).await
                }
                "fail" => {
                    handle
                        .extended_data(channel, 1, "broken\n".as_bytes().to_vec())
                        .await
                        .map_err(failed)?;
                    end(&handle, channel, 7).await
                }
                _ => Ok(()),
            }
        });
        Ok(())
    }

    async fn signal(&mut self, _channel: ChannelId, signal: Sig, _session: &mut Session) -> Result<(), Self::Error> {
        self.seen.lock().unwrap().signals.push(format!("{signal:?}"));
        Ok(())
    }

    async fn channel_close(&mut self, _channel: ChannelId, _session: &mut Session) -> Result<(), Self::Error> {
        self.seen.lock().unwrap().closed += 1;
        Ok(())
    }
}

async fn end(handle: &server::Handle, channel: ChannelId, code: u32) -> Result<(), russh::Error> {
    handle.exit_status_request(channel, code).await.map_err(failed)?;
    handle.eof(channel).await.map_err(failed)?;
    handle.close(channel).await.map_err(failed)
}
