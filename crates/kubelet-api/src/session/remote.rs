//! exec and attach: the caller's streams are joined to a command, and its outcome goes back on a stream of its own.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite};
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::outcome::{self, Outcome};
use super::version::{Version, WebSocketFlavour};
use super::{Pace, farewell, websocket};
use crate::backend::{Backend, ContainerRef, Exec, Exit, Io};
use crate::refusal::Refusal;
use crate::spdy::{Broken, Connection, Headers, Incoming};
use crate::stream::{Reader, Resizes, Size};

/// More than any terminal size needs, less than a caller could hurt with.
const MAX_SIZE_TEXT: usize = 4096;

/// Which streams the caller asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "the four query parameters, each on its own"
)]
pub(crate) struct Wanted {
    pub(crate) stdin: bool,
    pub(crate) stdout: bool,
    pub(crate) stderr: bool,
    pub(crate) tty: bool,
}

/// What is done with them.
#[derive(Debug, Clone)]
pub(crate) enum Action {
    Exec(Vec<String>),
    Attach,
}

impl Action {
    /// What is said before the reason when it fails, as a stock kubelet says it.
    fn failing(&self) -> &'static str {
        match self {
            Self::Exec(_) => "error executing command in container",
            Self::Attach => "error attaching to container",
        }
    }
}

/// What a caller wants of a container, and who does it.
#[derive(Debug)]
pub(crate) struct Command<B> {
    pub(crate) backend: Arc<B>,
    pub(crate) container: ContainerRef,
    pub(crate) action: Action,
    pub(crate) wanted: Wanted,
    /// The agent stops.
    pub(crate) stop: CancellationToken,
}

impl<B: Backend> Command<B> {
    /// Until it ends or the agent does. The latter is a failure to be told: a caller that hears nothing at all takes the end of the
    /// connection for success.
    async fn perform(self, io: Io) -> Outcome {
        let Self {
            backend,
            container,
            action,
            wanted: Wanted { tty, .. },
            stop,
        } = self;
        let performed = async {
            match action {
                Action::Exec(command) => backend.exec(&container, Exec { command, tty }, io).await,
                Action::Attach => backend.attach(&container, tty, io).await.map(|()| Exit(0)),
            }
        };
        tokio::select! {
            // In this order, so that an agent that stops begins nothing.
            biased;
            () = stop.cancelled() => Err(Refusal::Failed("the agent of this node stops".to_owned())),
            outcome = performed => outcome,
        }
    }
}

/// The streams of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Error,
    Stdin,
    Stdout,
    Stderr,
    Resize,
}

impl Kind {
    fn of(headers: &Headers) -> Option<Self> {
        match headers.get("streamtype")? {
            "error" => Some(Self::Error),
            "stdin" => Some(Self::Stdin),
            "stdout" => Some(Self::Stdout),
            "stderr" => Some(Self::Stderr),
            "resize" => Some(Self::Resize),
            _ => None,
        }
    }
}

fn admit(headers: &Headers) -> bool {
    Kind::of(headers).is_some()
}

fn expected(wanted: Wanted, version: Version) -> Vec<Kind> {
    let mut kinds = vec![Kind::Error];
    kinds.extend(wanted.stdin.then_some(Kind::Stdin));
    kinds.extend(wanted.stdout.then_some(Kind::Stdout));
    kinds.extend((wanted.stderr && !wanted.tty).then_some(Kind::Stderr));
    kinds.extend((wanted.tty && version.resizes()).then_some(Kind::Resize));
    kinds
}

/// Waits for the streams that were announced. False when they did not come.
async fn collect(
    connection: &mut Connection,
    expected: &[Kind],
    limit: Duration,
    streams: &mut BTreeMap<Kind, Incoming>,
) -> bool {
    let all = async {
        while expected.iter().any(|kind| !streams.contains_key(kind)) {
            let Some(incoming) = connection.incoming.recv().await else {
                return false;
            };
            if let Some(kind) = Kind::of(&incoming.headers) {
                streams.insert(kind, incoming);
            }
        }
        true
    };
    timeout(limit, all).await.unwrap_or(false)
}

/// Serves one command over SPDY, from the first stream to the last word.
pub(crate) async fn remote_spdy<B, T>(command: Command<B>, version: Version, io: T, pace: Pace) -> Result<(), Broken>
where
    B: Backend,
    T: AsyncRead + AsyncWrite + Send + 'static,
{
    let mut connection = Connection::start(io, pace.command(), admit);
    let expected = expected(command.wanted, version);
    let mut streams = BTreeMap::new();
    let complete = tokio::select! {
        complete = collect(&mut connection, &expected, pace.creation, &mut streams) => complete,
        // The command is not begun then, and the streams that did come are told why.
        () = command.stop.cancelled() => true,
    };
    if !complete {
        tracing::debug!(?expected, "the caller did not open the streams it announced");
        return farewell(pace, connection.close()).await;
    }
    let closers: Vec<_> = [Kind::Stdout, Kind::Stderr, Kind::Error, Kind::Stdin, Kind::Resize]
        .into_iter()
        .filter_map(|kind| Some((kind, streams.get(&kind)?.writer.closer()?)))
        .collect();
    let mut take = |kind| streams.remove(&kind);
    let (resize, _sizes) = match take(Kind::Resize).map(|stream| follow_sizes(stream.reader)) {
        Some((resizes, task)) => (Some(resizes), Some(task)),
        None => (None, None),
    };
    let io = Io {
        stdin: take(Kind::Stdin).map(|stream| stream.reader),
        stdout: take(Kind::Stdout).map(|stream| stream.writer),
        stderr: take(Kind::Stderr).map(|stream| stream.writer),
        resize,
    };
    // Streams nobody asked for, and further ones, are read and forgotten.
    drop(streams);
    connection.incoming.close();
    let gone = connection.gone();
    let failing = command.action.failing();
    let outcome = tokio::select! {
        // In this order: to a command whose caller has vanished its broken input must not look like an end.
        biased;
        () = gone.cancelled() => return Ok(()),
        outcome = command.perform(io) => outcome,
        () = connection.idle(pace.idle) => Err(idle(pace.idle)),
    };
    let words = async {
        for (kind, closer) in closers {
            let last = if kind == Kind::Error {
                outcome::report(&outcome, version, failing)
            } else {
                Bytes::new()
            };
            closer.finish(last).await;
        }
        connection.close().await
    };
    farewell(pace, words).await
}

/// The same over WebSocket.
pub(crate) async fn remote_websocket<B, T>(
    command: Command<B>,
    flavour: WebSocketFlavour,
    io: T,
    pace: Pace,
) -> Result<(), Broken>
where
    B: Backend,
    T: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    const STDIN: u8 = 0;
    const STDOUT: u8 = 1;
    const STDERR: u8 = 2;
    const ERROR: u8 = 3;
    const RESIZE: u8 = 4;

    let mut channels = websocket::Channels::start(io, flavour, &[STDIN, RESIZE], pace).await;
    let wanted = command.wanted;
    let stderr = wanted.stderr && !wanted.tty;
    // Some clients wait for a first message before they believe in the connection.
    let first = match (wanted.stdout, stderr) {
        (true, _) => STDOUT,
        (false, true) => STDERR,
        (false, false) => ERROR,
    };
    channels.send(first, Bytes::new()).await;
    let (resizes, _sizes) = match channels.reader(RESIZE).map(follow_sizes) {
        Some((resizes, task)) => (Some(resizes), Some(task)),
        None => (None, None),
    };
    let stdin = channels.reader(STDIN);
    let io = Io {
        stdin: stdin.filter(|_| wanted.stdin),
        stdout: wanted.stdout.then(|| channels.writer(STDOUT)),
        stderr: stderr.then(|| channels.writer(STDERR)),
        resize: resizes.filter(|_| wanted.tty),
    };
    let gone = channels.gone();
    let failing = command.action.failing();
    let outcome = tokio::select! {
        // In this order: to a command whose caller has vanished its broken input must not look like an end.
        biased;
        () = gone.cancelled() => return Ok(()),
        outcome = command.perform(io) => outcome,
        () = channels.idle(pace.idle) => Err(idle(pace.idle)),
    };
    let words = async {
        let report = outcome::report(&outcome, flavour.version, failing);
        if !report.is_empty() {
            channels.send(ERROR, report).await;
        }
        channels.close().await
    };
    farewell(pace, words).await
}

fn idle(limit: Duration) -> Refusal {
    Refusal::Failed(format!("nothing was sent or received for {} s", limit.as_secs()))
}

fn follow_sizes(reader: Reader) -> (Resizes, AbortOnDropHandle<()>) {
    let (sender, resizes) = Resizes::new();
    let task = tokio::spawn(sizes(reader, sender));
    (resizes, AbortOnDropHandle::new(task))
}

/// JSON objects one after the other, cut anywhere.
async fn sizes(mut reader: Reader, sender: watch::Sender<Option<Size>>) {
    let mut text = BytesMut::new();
    while let Ok(1..) = reader.read_buf(&mut text).await {
        let used = {
            let mut objects = serde_json::Deserializer::from_slice(&text).into_iter::<Size>();
            let mut used = 0;
            while let Some(Ok(size)) = objects.next() {
                used = objects.byte_offset();
                sender.send_replace(Some(size));
            }
            used
        };
        text.advance(used);
        if text.len() > MAX_SIZE_TEXT {
            tracing::debug!("the resize stream is not a list of sizes; ignoring it");
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stream::Piece;

    #[test]
    fn a_terminal_has_sizes_and_no_error_output() {
        let wanted = Wanted {
            stdin: true,
            stdout: true,
            stderr: true,
            tty: true,
        };
        let found = expected(wanted, Version::V4);
        assert_eq!(found, [Kind::Error, Kind::Stdin, Kind::Stdout, Kind::Resize]);
        assert_eq!(expected(wanted, Version::V2), [Kind::Error, Kind::Stdin, Kind::Stdout]);
        let plain = Wanted { tty: false, ..wanted };
        let found = expected(plain, Version::V4);
        assert_eq!(found, [Kind::Error, Kind::Stdin, Kind::Stdout, Kind::Stderr]);
    }

    /// A caller that could not be attached was told that a command could not be executed.
    #[test]
    fn failures_say_what_was_tried() {
        let failed = Err(Refusal::Failed("it ended".to_owned()));
        let said = |action: Action| outcome::report(&failed, Version::V1, action.failing());
        assert_eq!(&said(Action::Attach)[..], b"error attaching to container: it ended");
        assert_eq!(
            &said(Action::Exec(vec!["true".to_owned()]))[..],
            b"error executing command in container: it ended"
        );
    }

    #[tokio::test]
    async fn sizes_are_read_however_they_are_cut() {
        let (feed, reader) = Reader::new();
        let (mut resizes, _task) = follow_sizes(reader);
        for piece in ["{\"Width\":101,", "\"Height\":33}\n"] {
            let bytes = Bytes::from_static(piece.as_bytes());
            feed.queue.send(Piece { bytes, share: None }).await.unwrap();
        }
        assert_eq!(resizes.next().await, Some(Size { width: 101, height: 33 }));
        let bytes = Bytes::from_static(b"{\"Width\":1,\"Height\":2}{\"Width\":80,\"Height\":24}");
        feed.queue.send(Piece { bytes, share: None }).await.unwrap();
        while resizes.next().await != Some(Size { width: 80, height: 24 }) {}
        drop(feed);
        assert_eq!(resizes.next().await, None);
    }
}
