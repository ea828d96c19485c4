//! sshd of a Mac: a real SSH server whose sessions run inside the namespaces. [facts 5]
//!
//! As with OpenSSH without a terminal, a command outlives its connection: when the connection is cut, its input ends and its output
//! goes nowhere, and nobody kills it. A script that takes the end of its input for the end of an upload is wrong on a Mac, and here.

use super::error::MacError;
use super::mac::Inner;
use super::ssh_command;
use super::sshd_config;
use super::wire::Wire;
use base64::Engine as _;
use russet_sim_scaleway::Host;
use russh::keys::ssh_key::private::{EcdsaKeypair, EcdsaPrivateKey, Ed25519Keypair};
use russh::keys::ssh_key::public::EcdsaPublicKey;
use russh::keys::{PrivateKey, PublicKey};
use russh::server::{Auth, ChannelOpenHandle, Config, Handle, Handler, Msg, Session, VerifiedPublicKey};
use russh::{Channel, ChannelId, MethodKind, MethodSet};
use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio_util::sync::CancellationToken;

const LISTEN_AGAIN: Duration = Duration::from_millis(200);
/// What OpenSSH allows on one connection unless told otherwise. (sshd_config(5), MaxSessions)
const MAX_SESSIONS: usize = 10;
/// What sshd gives every session; nothing of Homebrew, nothing of /usr/local. [facts 5]
pub(super) const PATH: &str = "/usr/bin:/bin:/usr/sbin:/sbin";

/// The keys of an installation: the one Scaleway knows, and an ECDSA key made from it, since macOS has both.
pub(super) fn host_keys(host: &Host) -> Result<Vec<PrivateKey>, MacError> {
    let bad = |error: &dyn std::fmt::Display| MacError::HostKey(error.to_string());
    let seed = base64::engine::general_purpose::STANDARD
        .decode(host.host_key.seed_base64())
        .map_err(|error| bad(&error))?;
    let seed: [u8; 32] = seed.as_slice().try_into().map_err(|error| bad(&error))?;
    let second = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, &[b"ecdsa".as_slice(), &seed].concat());
    let scalar: [u8; 32] = second.as_ref().try_into().map_err(|error| bad(&error))?;
    let point = aws_lc_rs::agreement::PrivateKey::from_private_key(&aws_lc_rs::agreement::ECDH_P256, &scalar)
        .map_err(|error| bad(&error))?
        .compute_public_key()
        .map_err(|error| bad(&error))?;
    let mut keys = vec![PrivateKey::from(Ed25519Keypair::from_seed(&seed))];
    if let EcdsaPublicKey::NistP256(public) =
        EcdsaPublicKey::from_sec1_bytes(point.as_ref()).map_err(|error| bad(&error))?
    {
        keys.push(PrivateKey::from(EcdsaKeypair::NistP256 {
            public,
            private: EcdsaPrivateKey::from(scalar),
        }));
    }
    Ok(keys)
}

pub(super) fn config(keys: Vec<PrivateKey>) -> Arc<Config> {
    Arc::new(Config {
        server_id: russh::SshId::Standard("SSH-2.0-OpenSSH_10.0".into()),
        methods: MethodSet::from([MethodKind::PublicKey, MethodKind::Password].as_slice()),
        auth_rejection_time: Duration::ZERO,
        auth_rejection_time_initial: Some(Duration::ZERO),
        keys,
        inactivity_timeout: None,
        max_auth_attempts: 6,
        nodelay: true,
        ..Config::default()
    })
}

/// Listens while it may, and serves at most as many connections as launchd would; more of them wait to be accepted.
pub(super) async fn serve(mac: Arc<Inner>, mut listener: Option<TcpListener>, cut: CancellationToken) {
    let mut door = mac.door.subscribe();
    loop {
        if !*door.borrow_and_update() {
            drop(listener.take());
            if door.changed().await.is_err() {
                return;
            }
            continue;
        }
        let Some(open) = &listener else {
            listener = mac.listen().await;
            if listener.is_none() {
                tokio::time::sleep(LISTEN_AGAIN).await;
            }
            continue;
        };
        let accepted = async {
            let slot = Arc::clone(&mac.slots).acquire_owned().await;
            (slot, open.accept().await)
        };
        tokio::select! {
            _ = door.changed() => {}
            (slot, accepted) = accepted => match (slot, accepted) {
                (Ok(slot), Ok((stream, from))) => {
                    tokio::spawn(connection(Arc::clone(&mac), stream, from, slot, cut.clone()));
                }
                (_, Err(error)) => {
                    tracing::warn!(%error, "an emulated Mac could not accept a connection");
                    tokio::time::sleep(LISTEN_AGAIN).await;
                }
                (Err(_), _) => return,
            },
        }
    }
}

async fn connection(
    mac: Arc<Inner>,
    stream: tokio::net::TcpStream,
    from: SocketAddr,
    slot: OwnedSemaphorePermit,
    cut: CancellationToken,
) {
    if mac.state().banned.contains(&from.ip()) {
        return;
    }
    // Small answers to many questions; a failure costs time only.
    let _ = stream.set_nodelay(true);
    let fault = mac.state().faults.ssh;
    let local = stream.local_addr().unwrap_or(from);
    let stream = Wire::new(stream, fault, cut, Arc::clone(&mac));
    let config = Arc::clone(&mac.ssh);
    let handler = Connection {
        mac,
        from,
        local,
        sessions: Sessions::default(),
    };
    match russh::server::run_stream(config, stream, handler).await {
        Ok(session) => {
            if let Err(error) = session.await {
                tracing::debug!(%error, "an SSH connection ended");
            }
        }
        Err(error) => tracing::debug!(%error, "an SSH connection did not begin"),
    }
    drop(slot);
}

struct Connection {
    mac: Arc<Inner>,
    from: SocketAddr,
    local: SocketAddr,
    /// Shared with the commands, which leave when they end.
    sessions: Sessions,
}

type Sessions = Arc<Mutex<HashMap<ChannelId, Channelled>>>;

#[derive(Default)]
struct Channelled {
    env: BTreeMap<String, String>,
    /// To the standard input of the command; dropped at its end.
    input: Option<mpsc::UnboundedSender<Vec<u8>>>,
}

impl Drop for Connection {
    /// The connection is gone: commands go on, and their input ends.
    fn drop(&mut self) {
        for session in self.sessions().values_mut() {
            session.input = None;
        }
    }
}

impl Connection {
    fn sessions(&self) -> MutexGuard<'_, HashMap<ChannelId, Channelled>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn judge(&self, right: bool) -> Auth {
        if right {
            return Auth::Accept;
        }
        let mut state = self.mac.state();
        state.failed_logins.push(self.from.ip());
        let limit = usize::try_from(state.quirks.fail2ban_after).unwrap_or(0);
        let failures = state.failed_logins.iter().filter(|ip| **ip == self.from.ip()).count();
        if limit > 0 && failures >= limit {
            state.banned.insert(self.from.ip());
        }
        Auth::reject()
    }

    fn knows(&self, user: &str, settings: &sshd_config::Settings) -> bool {
        let allowed = |users: &Vec<String>| users.iter().any(|allowed| allowed == user);
        user == self.mac.host.username && settings.allow_users.as_ref().is_none_or(allowed)
    }

    /// The keys of a user, as sshd finds them; files that others could write are not trusted.
    fn has_key(&self, settings: &sshd_config::Settings, offered: &PublicKey) -> bool {
        let home = format!("/Users/{}", self.mac.host.username);
        let tree = &self.mac.tree;
        settings.key_files.iter().any(|file| {
            let path = format!("{home}/{file}");
            let strict = [home.as_str(), &format!("{home}/.ssh"), &path]
                .iter()
                .all(|path| tree.meta(path).is_some_and(|meta| meta.mode & 0o022 == 0));
            strict
                && tree
                    .read_text(&path)
                    .unwrap_or_default()
                    .lines()
                    .any(|line| is_key(line, offered))
        })
    }

    fn start(&mut self, id: ChannelId, command: Option<&str>, handle: Handle) {
        let (sender, input) = mpsc::unbounded_channel();
        let mut env = {
            let mut sessions = self.sessions();
            let session = sessions.entry(id).or_default();
            session.input = Some(sender);
            session.env.clone()
        };
        let user = self.mac.host.username.clone();
        let home = format!("/Users/{user}");
        let (from, local) = (self.from, self.local);
        let client = format!("{} {}", from.ip(), from.port());
        for (key, value) in [
            ("USER", user.as_str()),
            ("LOGNAME", &user),
            ("HOME", &home),
            ("SHELL", "/bin/zsh"),
            ("PATH", PATH),
            ("SSH_CLIENT", &format!("{client} {}", local.port())),
            ("SSH_CONNECTION", &format!("{client} {} {}", local.ip(), local.port())),
        ] {
            env.insert(key.to_owned(), value.to_owned());
        }
        let argv = match command {
            Some(command) => vec!["zsh".to_owned(), "-c".to_owned(), command.to_owned()],
            // A login shell, which reads its commands from standard input.
            None => vec!["-zsh".to_owned()],
        };
        let words = command.map(str::to_owned).into_iter().collect();
        let (mac, sessions) = (Arc::clone(&self.mac), Arc::clone(&self.sessions));
        tokio::spawn(async move {
            let task = Arc::clone(&mac);
            task.spawn(async move {
                ssh_command::run(mac, handle, id, argv, env, home, input, words).await;
                sessions.lock().unwrap_or_else(PoisonError::into_inner).remove(&id);
            })
            .await;
        });
    }
}

fn is_key(line: &str, offered: &PublicKey) -> bool {
    let line = line.trim();
    if line.is_empty() || line.starts_with('#') {
        return false;
    }
    // Options may come before the key.
    let start = ["ssh-", "ecdsa-", "sk-"]
        .iter()
        .filter_map(|kind| line.find(kind))
        .min();
    start
        .and_then(|start| line.get(start..))
        .and_then(|key| PublicKey::from_openssh(key).ok())
        .is_some_and(|key| key.key_data() == offered.key_data())
}

impl Handler for Connection {
    type Error = russh::Error;

    async fn auth_password(&mut self, user: &str, password: &str) -> Result<Auth, Self::Error> {
        let settings = sshd_config::read(&self.mac.tree);
        let allowed = settings.password || settings.keyboard_interactive;
        let right = allowed && self.knows(user, &settings) && self.mac.state().password == password;
        Ok(self.judge(right))
    }

    async fn auth_publickey(&mut self, user: &str, key: VerifiedPublicKey<'_>) -> Result<Auth, Self::Error> {
        let settings = sshd_config::read(&self.mac.tree);
        let right = settings.public_key && self.knows(user, &settings) && self.has_key(&settings, key.public_key);
        Ok(self.judge(right))
    }

    async fn channel_open_session(
        &mut self,
        channel: Channel<Msg>,
        reply: ChannelOpenHandle,
        _: &mut Session,
    ) -> Result<(), Self::Error> {
        let full = {
            let mut sessions = self.sessions();
            let full = sessions.len() >= MAX_SESSIONS;
            if !full {
                sessions.insert(channel.id(), Channelled::default());
            }
            full
        };
        if full {
            reply.reject(russh::ChannelOpenFailure::ConnectFailed).await;
            return Ok(());
        }
        reply.accept().await;
        Ok(())
    }

    async fn env_request(
        &mut self,
        channel: ChannelId,
        name: &str,
        value: &str,
        session: &mut Session,
    ) -> Result<(), Self::Error> {
        // AcceptEnv LANG LC_*
        if name != "LANG" && !name.starts_with("LC_") {
            return session.channel_failure(channel);
        }
        self.sessions()
            .entry(channel)
            .or_default()
            .env
            .insert(name.to_owned(), value.to_owned());
        session.channel_success(channel)
    }

    async fn exec_request(
        &mut self,
        channel: ChannelId,
        command: &[u8],
        session: &mut Session,
    ) -> Result<(), Self::Error> {
        let command = String::from_utf8_lossy(command).into_owned();
        session.channel_success(channel)?;
        self.start(channel, Some(&command), session.handle());
        Ok(())
    }

    async fn shell_request(&mut self, channel: ChannelId, session: &mut Session) -> Result<(), Self::Error> {
        session.channel_success(channel)?;
        self.start(channel, None, session.handle());
        Ok(())
    }

    async fn subsystem_request(
        &mut self,
        channel: ChannelId,
        name: &str,
        session: &mut Session,
    ) -> Result<(), Self::Error> {
        self.mac.state().unexpected.push(format!("ssh subsystem {name}"));
        session.channel_failure(channel)
    }

    async fn pty_request(
        &mut self,
        channel: ChannelId,
        _: &str,
        _: u32,
        _: u32,
        _: u32,
        _: u32,
        _: &[(russh::Pty, u32)],
        session: &mut Session,
    ) -> Result<(), Self::Error> {
        self.mac.state().unexpected.push("ssh pty-req".to_owned());
        session.channel_failure(channel)
    }

    async fn data(&mut self, channel: ChannelId, data: &[u8], _: &mut Session) -> Result<(), Self::Error> {
        if let Some(input) = self.sessions().get(&channel).and_then(|session| session.input.as_ref()) {
            // A command that ended reads nothing more.
            let _ = input.send(data.to_vec());
        }
        Ok(())
    }

    async fn channel_eof(&mut self, channel: ChannelId, _: &mut Session) -> Result<(), Self::Error> {
        if let Some(session) = self.sessions().get_mut(&channel) {
            session.input = None;
        }
        Ok(())
    }

    async fn channel_close(&mut self, channel: ChannelId, _: &mut Session) -> Result<(), Self::Error> {
        self.sessions().remove(&channel);
        Ok(())
    }
}
