//! One command on a connection.

use std::path::Path;
use std::time::Duration;

use russet_telemetry::Secret;
use russh::client::Msg;
use russh::{ChannelMsg, ChannelReadHalf, ChannelWriteHalf, Sig};
use tokio::io::AsyncSeekExt as _;
use tokio::time::timeout;

use super::{During, Error, Session, tail::Tail};

/// Number of the stream that carries standard error.
const STDERR: u32 = 1;

/// A command to run.
#[derive(Debug)]
pub struct Exec<'a> {
    /// For the login shell of the user. Other users of the host can read it.
    pub command: &'a str,
    /// Given to the command, then closed.
    pub stdin: Option<Secret<Vec<u8>>>,
    /// From now to the end of the command's output.
    pub deadline: Duration,
}

/// What a command reads.
enum Input<'a> {
    Nothing,
    Bytes(&'a Secret<Vec<u8>>),
    File(tokio::fs::File),
}

/// How a command ended and what it said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Output {
    pub status: Exit,
    /// The end of it, see [`super::Limits::output`].
    pub stdout: String,
    /// The end of it, see [`super::Limits::output`].
    pub stderr: String,
    /// Whether the beginning of one of them is missing.
    pub cut: bool,
}

/// How a command ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Exit {
    Code(u32),
    /// By a signal, such as `KILL`.
    Signal(String),
}

impl Exit {
    /// Whether the command says that it did its work.
    pub fn is_success(&self) -> bool {
        *self == Self::Code(0)
    }
}

impl Session {
    /// Runs a command to its end. Many may run at once. Dropping the future, and the deadline, stop the command: it gets a
    /// signal, then its streams are closed. OpenSSH passes no signal on to a session of root, where a command that says
    /// nothing goes on; give such a command a deadline of its own.
    pub async fn run(&self, exec: Exec<'_>) -> Result<Output, Error> {
        let after = exec.deadline;
        let input = match &exec.stdin {
            Some(bytes) => Input::Bytes(bytes),
            None => Input::Nothing,
        };
        timeout(after, self.execute(exec.command, input))
            .await
            .unwrap_or(Err(Error::Deadline {
                address: self.address,
                after,
            }))
    }

    /// Runs a command whose standard input is a file from this byte on. The file is never in memory as a whole.
    pub async fn send_file(&self, command: &str, file: &Path, from: u64, deadline: Duration) -> Result<Output, Error> {
        let unreadable = |source| Error::Unreadable {
            path: file.to_owned(),
            source,
        };
        let mut opened = tokio::fs::File::open(file).await.map_err(unreadable)?;
        opened.seek(std::io::SeekFrom::Start(from)).await.map_err(unreadable)?;
        timeout(deadline, self.execute(command, Input::File(opened)))
            .await
            .unwrap_or(Err(Error::Deadline {
                address: self.address,
                after: deadline,
            }))
    }

    async fn execute(&self, command: &str, input: Input<'_>) -> Result<Output, Error> {
        let address = self.address;
        let channel = self.handle.channel_open_session().await.map_err(|error| match error {
            russh::Error::ChannelOpenFailure(_) => Error::TooManyCommands { address },
            _ => self.dropped(During::Command),
        })?;
        let (mut reader, writer) = channel.split();
        let mut stop = Stop(Some(writer));
        let outcome = match &stop.0 {
            Some(writer) => self.converse(writer, &mut reader, command, input).await,
            None => Err(self.dropped(During::Command)),
        };
        if outcome.is_ok() {
            stop.0 = None;
        }
        outcome
    }

    async fn converse(
        &self,
        writer: &ChannelWriteHalf<Msg>,
        reader: &mut ChannelReadHalf,
        command: &str,
        input: Input<'_>,
    ) -> Result<Output, Error> {
        writer
            .exec(true, command)
            .await
            .map_err(|_| self.dropped(During::Command))?;
        let stdin = async {
            // A command may end without having read everything; how it ended is what counts.
            match input {
                Input::Nothing => {}
                Input::Bytes(bytes) => drop(writer.data(bytes.expose().as_slice()).await),
                Input::File(file) => drop(writer.data(file).await),
            }
            let _ = writer.eof().await;
        };
        let output = self.listen(reader);
        tokio::pin!(stdin, output);
        tokio::select! {
            outcome = &mut output => outcome,
            () = &mut stdin => output.await,
        }
    }

    async fn listen(&self, reader: &mut ChannelReadHalf) -> Result<Output, Error> {
        let (mut stdout, mut stderr) = (Tail::new(self.output), Tail::new(self.output));
        let mut status = None;
        while let Some(message) = reader.wait().await {
            match message {
                ChannelMsg::Data { data } => stdout.push(&data),
                ChannelMsg::ExtendedData { data, ext: STDERR } => stderr.push(&data),
                ChannelMsg::ExitStatus { exit_status } => status = Some(Exit::Code(exit_status)),
                ChannelMsg::ExitSignal { signal_name, .. } => status = Some(Exit::Signal(name(&signal_name))),
                ChannelMsg::Failure => return Err(Error::CommandRefused { address: self.address }),
                ChannelMsg::Close => break,
                _ => {}
            }
        }
        match status {
            Some(status) => Ok(Output {
                status,
                cut: stdout.cut() || stderr.cut(),
                stdout: stdout.into_text(),
                stderr: stderr.into_text(),
            }),
            None if self.is_closed() => Err(self.dropped(During::Command)),
            None => Err(Error::NoStatus { address: self.address }),
        }
    }
}

pub(super) fn name(signal: &Sig) -> String {
    match signal {
        Sig::Custom(name) => name.chars().take(32).collect(),
        known => format!("{known:?}"),
    }
}

/// Stops the command when its future is dropped.
pub(super) struct Stop(pub(super) Option<ChannelWriteHalf<Msg>>);

impl Drop for Stop {
    fn drop(&mut self) {
        let (Some(writer), Ok(runtime)) = (self.0.take(), tokio::runtime::Handle::try_current()) else {
            return;
        };
        // Ends by itself: the connection either takes both messages or is gone.
        runtime.spawn(async move {
            let _ = writer.signal(Sig::TERM).await;
            let _ = writer.close().await;
        });
    }
}
