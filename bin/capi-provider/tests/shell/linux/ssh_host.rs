//! A server that is logged in to over SSH, on which the very script runs: in a root of its own, where nothing is changed in earnest.

use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};

use anyhow::Result;
use russet_bootstrap::linux::SSH_COMMAND;
use russet_linux_box::LinuxBox;
use russh::keys::{Algorithm, PrivateKey, PublicKey};
use russh::server::{self, Auth, ChannelOpenHandle, Handler, Msg, Session};
use russh::{Channel, ChannelId};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

/// What is seen of it, and how it behaves.
#[derive(Default)]
struct State {
    /// What the last script ran in.
    node: Option<Arc<LinuxBox>>,
    /// A script runs on a new system and breaks down at this command of it.
    fails_at: Option<usize>,
    /// The last script.
    script: String,
    /// Whose keys were let in.
    keys: Vec<PublicKey>,
}

pub(crate) struct SshHost {
    pub(crate) port: u16,
    state: Arc<Mutex<State>>,
    task: JoinHandle<()>,
}

impl Drop for SshHost {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl SshHost {
    pub(crate) async fn start(address: IpAddr) -> Result<Self> {
        let listener = TcpListener::bind((address, 0)).await?;
        let port = listener.local_addr()?.port();
        let key = PrivateKey::random(&mut russh::keys::key::safe_rng(), Algorithm::Ed25519)?;
        let config = Arc::new(server::Config {
            keys: vec![key],
            ..server::Config::default()
        });
        let state = Arc::new(Mutex::new(State {
            fails_at: Some(1),
            ..State::default()
        }));
        let shared = Arc::clone(&state);
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let door = Door {
                    state: Arc::clone(&shared),
                    inputs: BTreeMap::new(),
                };
                let config = Arc::clone(&config);
                tokio::spawn(async move {
                    if let Ok(session) = server::run_stream(config, stream, door).await {
                        let _ = session.await;
                    }
                });
            }
        });
        Ok(Self { port, state, task })
    }

    /// From now on scripts break down at this command, or not at all.
    pub(crate) fn fails_at(&self, command: Option<usize>) {
        self.state.lock().unwrap().fails_at = command;
    }

    /// The last script that was run, and the token in it.
    pub(crate) fn script(&self) -> (String, String) {
        let script = self.state.lock().unwrap().script.clone();
        let token = token(&script);
        (script, token)
    }

    /// Where it ran.
    pub(crate) fn node(&self) -> Arc<LinuxBox> {
        self.state.lock().unwrap().node.clone().expect("a script has run")
    }

    /// Whose keys were let in.
    pub(crate) fn keys(&self) -> Vec<PublicKey> {
        self.state.lock().unwrap().keys.clone()
    }
}

/// What the server joins with.
fn token(script: &str) -> String {
    let rest = script.split("token: ").nth(1).unwrap_or_default();
    rest.split(|c: char| !c.is_ascii_alphanumeric() && c != '.')
        .next()
        .unwrap_or_default()
        .to_owned()
}

struct Door {
    state: Arc<Mutex<State>>,
    inputs: BTreeMap<ChannelId, Vec<u8>>,
}

fn failed(error: impl std::fmt::Debug) -> russh::Error {
    russh::Error::IO(io::Error::other(format!("{error:?}")))
}

impl Door {
    /// Where the next script runs: a system that breaks down is not one to go on with.
    fn prepare(&self, script: &str) {
        let mut state = self.state.lock().unwrap();
        script.clone_into(&mut state.script);
        let node = match (&state.node, state.fails_at) {
            (Some(node), None) if !node.exists("var/shim/fail-at") => Arc::clone(node),
            (_, fails_at) => {
                let node = LinuxBox::new(&token(script));
                if let Some(command) = fails_at {
                    node.write("var/shim/fail-at", &command.to_string());
                }
                Arc::new(node)
            }
        };
        state.node = Some(node);
    }

    fn run(&self, channel: ChannelId, words: Vec<String>, input: Vec<u8>, session: &Session) {
        let handle = session.handle();
        let node = self.state.lock().unwrap().node.clone();
        tokio::spawn(async move {
            let Some(node) = node else {
                // Nothing has run, and there is no report.
                return end(&handle, channel, 0).await;
            };
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            let mut command = tokio::process::Command::from(node.command(&words));
            let mut child = command
                .stdin(std::process::Stdio::piped())
                .kill_on_drop(true)
                .spawn()
                .map_err(failed)?;
            if let Some(mut stdin) = child.stdin.take() {
                stdin.write_all(&input).await.map_err(failed)?;
            }
            let output = child.wait_with_output().await.map_err(failed)?;
            handle.data(channel, output.stdout).await.map_err(failed)?;
            handle.extended_data(channel, 1, output.stderr).await.map_err(failed)?;
            let code = output.status.code().and_then(|code| u32::try_from(code).ok());
            end(&handle, channel, code.unwrap_or(255)).await
        });
    }
}

async fn end(handle: &server::Handle, channel: ChannelId, code: u32) -> Result<(), russh::Error> {
    handle.exit_status_request(channel, code).await.map_err(failed)?;
    handle.eof(channel).await.map_err(failed)?;
    handle.close(channel).await.map_err(failed)
}

impl Handler for Door {
    type Error = russh::Error;

    async fn auth_publickey(&mut self, _: &str, key: server::VerifiedPublicKey<'_>) -> Result<Auth, Self::Error> {
        self.state.lock().unwrap().keys.push(key.public_key.clone());
        Ok(Auth::Accept)
    }

    async fn channel_open_session(
        &mut self,
        _: Channel<Msg>,
        reply: ChannelOpenHandle,
        _: &mut Session,
    ) -> Result<(), Self::Error> {
        reply.accept().await;
        Ok(())
    }

    async fn exec_request(
        &mut self,
        channel: ChannelId,
        data: &[u8],
        session: &mut Session,
    ) -> Result<(), Self::Error> {
        let command = String::from_utf8_lossy(data).into_owned();
        session.channel_success(channel)?;
        if command == SSH_COMMAND {
            self.inputs.insert(channel, Vec::new());
        } else {
            let words = ["bash".to_owned(), "-c".to_owned(), command];
            self.run(channel, words.into(), Vec::new(), session);
        }
        Ok(())
    }

    async fn data(&mut self, channel: ChannelId, data: &[u8], _: &mut Session) -> Result<(), Self::Error> {
        if let Some(input) = self.inputs.get_mut(&channel) {
            input.extend_from_slice(data);
        }
        Ok(())
    }

    async fn channel_eof(&mut self, channel: ChannelId, session: &mut Session) -> Result<(), Self::Error> {
        let Some(input) = self.inputs.remove(&channel) else {
            return Ok(());
        };
        self.prepare(&String::from_utf8_lossy(&input));
        // It is root already.
        self.run(channel, vec!["bash".to_owned(), "-s".to_owned()], input, session);
        Ok(())
    }
}
