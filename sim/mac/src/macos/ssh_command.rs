//! A command that came over SSH: its process, and what goes in and out.

use super::boot::{Job, Process};
use super::error::MacError;
use super::image::UID;
use super::mac::Inner;
use super::orders::Ending;
use russh::server::Handle;
use russh::{ChannelId, Sig};
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::unix::pipe;
use tokio::sync::mpsc;

/// One command from its start to its end.
#[expect(
    clippy::too_many_arguments,
    reason = "one call, and a struct would only repeat the names"
)]
pub(super) async fn run(
    mac: Arc<Inner>,
    handle: Handle,
    channel: ChannelId,
    argv: Vec<String>,
    env: BTreeMap<String, String>,
    home: String,
    input: mpsc::UnboundedReceiver<Vec<u8>>,
    words: Vec<String>,
) {
    let number = mac.state().called("ssh", &words, UID);
    mac.count_command().await;
    let (process, pipes) = match begin(&mac, argv, env, home).await {
        Ok(begun) => begun,
        Err(error) => {
            tracing::error!(%error, "a command could not be started on an emulated Mac");
            let _ = handle
                .extended_data(channel, 1, format!("{error}\n").into_bytes())
                .await;
            let _ = handle.exit_status_request(channel, 255).await;
            let _ = handle.close(channel).await;
            return;
        }
    };
    let (stdin, stdout, stderr) = pipes;
    tokio::spawn(feed(stdin, input));
    let out = tokio::spawn(drain(stdout, handle.clone(), channel, None));
    let err = tokio::spawn(drain(stderr, handle.clone(), channel, Some(1)));
    if let Ok(ending) = process.ended.await {
        mac.state().ended(number, ending.as_code());
        // As sshd does, at the end of the process: what it wrote last may still be on its way.
        let _ = match ending {
            Ending::Code(code) => {
                handle
                    .exit_status_request(channel, u32::try_from(code).unwrap_or(255))
                    .await
            }
            Ending::Signal(signal) => {
                handle
                    .exit_signal_request(channel, signal_name(signal), false, String::new(), String::new())
                    .await
            }
        };
    }
    // Children in the background keep the channel open, as they do with sshd.
    let _ = (out.await, err.await);
    let _ = handle.eof(channel).await;
    let _ = handle.close(channel).await;
}

type Pipes = (pipe::Sender, pipe::Receiver, pipe::Receiver);

async fn begin(
    mac: &Inner,
    argv: Vec<String>,
    env: BTreeMap<String, String>,
    home: String,
) -> Result<(Process, Pipes), MacError> {
    let broken = |error: std::io::Error| MacError::Start {
        program: "/bin/zsh".to_owned(),
        error: error.to_string(),
    };
    let (stdin, feed) = std::io::pipe().map_err(broken)?;
    let (out, stdout) = std::io::pipe().map_err(broken)?;
    let (err, stderr) = std::io::pipe().map_err(broken)?;
    let process = mac
        .run(Job {
            program: super::system::ZSH.to_owned(),
            argv,
            env,
            folder: home,
            run_as: mac.run_as(UID),
            files: vec![OwnedFd::from(stdin), OwnedFd::from(stdout), OwnedFd::from(stderr)],
        })
        .await?;
    let pipes = (
        pipe::Sender::from_owned_fd(feed.into()).map_err(broken)?,
        pipe::Receiver::from_owned_fd(out.into()).map_err(broken)?,
        pipe::Receiver::from_owned_fd(err.into()).map_err(broken)?,
    );
    Ok((process, pipes))
}

async fn feed(mut stdin: pipe::Sender, mut input: mpsc::UnboundedReceiver<Vec<u8>>) {
    while let Some(chunk) = input.recv().await {
        if stdin.write_all(&chunk).await.is_err() {
            // The command reads no more; what is still sent is dropped.
            return;
        }
    }
}

async fn drain(mut stream: pipe::Receiver, handle: Handle, channel: ChannelId, kind: Option<u32>) {
    let mut buffer = vec![0; 32 << 10];
    while let Ok(count @ 1..) = stream.read(&mut buffer).await {
        let chunk = buffer.get(..count).unwrap_or_default().to_vec();
        let sent = match kind {
            None => handle.data(channel, chunk).await,
            Some(kind) => handle.extended_data(channel, kind, chunk).await,
        };
        if sent.is_err() {
            // The connection is gone: the command hears it when it writes again.
            return;
        }
    }
}

fn signal_name(signal: i32) -> Sig {
    match signal {
        1 => Sig::HUP,
        2 => Sig::INT,
        3 => Sig::QUIT,
        4 => Sig::ILL,
        6 => Sig::ABRT,
        8 => Sig::FPE,
        9 => Sig::KILL,
        11 => Sig::SEGV,
        13 => Sig::PIPE,
        14 => Sig::ALRM,
        15 => Sig::TERM,
        other => Sig::Custom(format!("SIG{other}")),
    }
}
