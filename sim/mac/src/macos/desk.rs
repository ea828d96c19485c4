//! Where the tools of a Mac call: a Unix socket in its tree, a task for each call.

use super::call::{Answer, Call, More, Reply};
use super::frame;
use super::mac::Inner;
use super::tools;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use tokio::net::{UnixListener, UnixStream};

/// The line to one tool.
#[derive(Debug)]
pub(super) struct Line {
    socket: UnixStream,
    /// Standard input, output and error of the tool, until somebody takes them.
    pub(super) files: Vec<OwnedFd>,
}

impl Line {
    pub(super) async fn send(&mut self, answer: &Answer) -> io::Result<()> {
        frame::post(&mut self.socket, answer, &[]).await
    }

    /// What the tool says next; none when it hung up.
    pub(super) async fn hear(&mut self) -> Option<More> {
        frame::take(&mut self.socket).await.ok().flatten().map(|(more, _)| more)
    }

    /// Returns when the tool hung up. It says nothing unasked.
    pub(super) async fn hung_up(&mut self) {
        while self.hear().await.is_some() {}
    }
}

/// Opens the socket of a Mac. The path is looked up below an open folder: paths of sockets must be short, and folders need not be.
pub(super) fn open(mac: &Inner) -> io::Result<UnixListener> {
    use std::os::fd::AsRawFd as _;
    use std::os::unix::fs::PermissionsExt as _;
    let folder = std::fs::File::open(mac.tree.root().join(".sim"))?;
    let path = format!("/proc/self/fd/{}/socket", folder.as_raw_fd());
    match std::fs::remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = UnixListener::bind(&path)?;
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o777))?;
    Ok(listener)
}

/// Takes calls for ever.
pub(super) async fn serve(mac: Arc<Inner>, listener: UnixListener) {
    loop {
        match listener.accept().await {
            Ok((socket, _)) => {
                let mac = Arc::clone(&mac);
                let task = Arc::clone(&mac);
                task.spawn(async move {
                    if let Err(error) = take(&mac, socket).await {
                        tracing::debug!(%error, "a tool of an emulated Mac hung up");
                    }
                })
                .await;
            }
            Err(error) => {
                tracing::warn!(%error, "a tool of an emulated Mac cannot be answered");
                tokio::time::sleep(std::time::Duration::from_millis(100)).await;
            }
        }
    }
}

async fn take(mac: &Arc<Inner>, mut socket: UnixStream) -> io::Result<()> {
    let Some((mut call, files)) = frame::take::<Call>(&mut socket).await? else {
        return Ok(());
    };
    // Inside a user namespace everybody is one user of the kernel, and the caller says who it is.
    call.uid = if mac.tree.has_owners() {
        socket.peer_cred()?.uid()
    } else {
        call.claimed_uid
    };
    let mut line = Line { socket, files };
    let number = mac.state().called(&call.tool, &call.args, call.uid);
    if let Some(unexpected) = &call.unexpected {
        mac.state().noted(number, unexpected);
        return line.send(&Answer::Exit(0)).await;
    }
    mac.count_command().await;
    let last = tools::answer(mac, &call, &mut line).await;
    if let Answer::Exit(code) = &last {
        mac.state().ended(number, *code);
    }
    line.send(&last).await
}

/// Prints a reply and ends the tool.
pub(super) async fn finish(mac: &Inner, call: &Call, line: &mut Line, reply: Reply) -> Answer {
    if reply.unexpected {
        let words = call.args.join(" ");
        mac.state().unexpected.push(format!("{} {words}", call.tool));
    }
    // A caller that is gone reads nothing.
    if !reply.out.is_empty() {
        let _ = line.send(&Answer::Out(reply.out)).await;
    }
    if !reply.err.is_empty() {
        let _ = line.send(&Answer::Err(reply.err)).await;
    }
    Answer::Exit(reply.code)
}
