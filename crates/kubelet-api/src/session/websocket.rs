//! Channels over WebSocket: the first byte of a message says which.
//!
//! Today's apiservers pass this on only for clients of their own (browsers, scripts); kubectl's reach a kubelet as SPDY.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::{BufMut, Bytes, BytesMut};
use futures::stream::{SplitSink, SplitStream};
use futures::{SinkExt as _, StreamExt as _};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, MissedTickBehavior, interval_at, timeout};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Role, WebSocketConfig};
use tokio_tungstenite::tungstenite::{self, Message};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::Pace;
use super::version::{Version, WebSocketFlavour};
use crate::spdy::{Broken, MAX_PIECE};
use crate::stream::{Feed, Out, Piece, Reader, Writer};

const QUEUED: usize = 16;
/// Clients cut their input to pieces far smaller than this.
const MAX_MESSAGE: usize = 1024 * 1024;
/// In version 5, `255 <channel>` closes a channel.
const CLOSE_CHANNEL: u8 = 255;
const LINGER: Duration = Duration::from_secs(5);

/// One connection. Dropping it closes the socket at once.
#[derive(Debug)]
pub(super) struct Channels {
    readers: HashMap<u8, Reader>,
    out: mpsc::Sender<Out>,
    gone: CancellationToken,
    active: watch::Receiver<Instant>,
    reader: AbortOnDropHandle<()>,
    writer: AbortOnDropHandle<Result<(), tungstenite::Error>>,
}

impl Channels {
    pub(super) async fn start<T>(io: T, flavour: WebSocketFlavour, readable: &[u8], pace: Pace) -> Self
    where
        T: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let config = WebSocketConfig::default()
            .max_message_size(Some(MAX_MESSAGE))
            .max_frame_size(Some(MAX_MESSAGE));
        let socket = WebSocketStream::from_raw_socket(io, Role::Server, Some(config)).await;
        let (sink, stream) = socket.split();
        let (out, outs) = mpsc::channel(QUEUED);
        let (touch, active) = watch::channel(Instant::now());
        let touch = Arc::new(touch);
        let gone = CancellationToken::new();
        let (feeds, readers): (HashMap<_, _>, HashMap<_, _>) = readable
            .iter()
            .map(|channel| {
                let (feed, reader) = Reader::new();
                ((*channel, feed), (*channel, reader))
            })
            .unzip();
        let (guard, touching) = (gone.clone().drop_guard(), touch.clone());
        let reader = tokio::spawn(async move {
            let _guard = guard;
            if let Err(error) = receive(stream, flavour, feeds, &touching).await {
                tracing::debug!(%error, "a WebSocket ended");
            }
        });
        let failed = gone.clone();
        let writer = tokio::spawn(async move {
            let result = send(sink, outs, flavour, pace.ping, &touch).await;
            if result.is_err() {
                failed.cancel();
            }
            result
        });
        Self {
            readers,
            out,
            gone,
            active,
            reader: AbortOnDropHandle::new(reader),
            writer: AbortOnDropHandle::new(writer),
        }
    }

    /// What the caller sends on a channel; once.
    pub(super) fn reader(&mut self, channel: u8) -> Option<Reader> {
        self.readers.remove(&channel)
    }

    pub(super) fn writer(&self, channel: u8) -> Writer {
        Writer::new(u32::from(channel), self.out.clone(), Arc::default())
    }

    pub(super) async fn send(&self, channel: u8, bytes: Bytes) {
        let (id, fin) = (u32::from(channel), false);
        let _ = self.out.send(Out::Data { id, bytes, fin }).await;
    }

    pub(super) fn gone(&self) -> CancellationToken {
        self.gone.clone()
    }

    pub(super) fn idle(&self, limit: Duration) -> impl Future<Output = ()> + Send + use<> {
        crate::spdy::idle(self.active.clone(), limit)
    }

    pub(super) async fn close(self) -> Result<(), Broken> {
        let _ = self.out.send(Out::Close).await;
        drop((self.out, self.readers));
        if let Ok(Err(error)) = self.writer.await {
            return Err(Broken::Io(io::Error::other(error)));
        }
        // The caller's own goodbye; without it a reset could overtake our last message.
        let _ = timeout(LINGER, self.reader).await;
        Ok(())
    }
}

async fn receive<T>(
    mut stream: SplitStream<WebSocketStream<T>>,
    flavour: WebSocketFlavour,
    mut feeds: HashMap<u8, Feed>,
    touch: &watch::Sender<Instant>,
) -> Result<(), tungstenite::Error>
where
    T: AsyncRead + AsyncWrite + Unpin,
{
    while let Some(message) = stream.next().await {
        let bytes = match message? {
            Message::Binary(bytes) if !flavour.base64 => bytes,
            Message::Text(text) if flavour.base64 => {
                let Some(bytes) = unwrap_base64(text.as_str()) else {
                    tracing::debug!("a message of the base64 protocol is not base64; ending the connection");
                    return Ok(());
                };
                bytes
            }
            Message::Close(_) => return Ok(()),
            _ => continue,
        };
        touch.send_replace(Instant::now());
        let Some((&channel, rest)) = bytes.split_first() else {
            continue;
        };
        if channel == CLOSE_CHANNEL && flavour.version >= Version::V5 {
            if let Some(feed) = rest.first().and_then(|channel| feeds.remove(channel)) {
                feed.fate.finish();
            }
        } else if let Some(feed) = feeds.get(&channel) {
            for piece in rest.chunks(MAX_PIECE) {
                let bytes = Bytes::copy_from_slice(piece);
                // A channel whose reader is gone wants none of it.
                let _ = feed.queue.send(Piece { bytes, share: None }).await;
            }
        }
    }
    Ok(())
}

async fn send<T>(
    mut sink: SplitSink<WebSocketStream<T>, Message>,
    mut outs: mpsc::Receiver<Out>,
    flavour: WebSocketFlavour,
    ping: Duration,
    touch: &watch::Sender<Instant>,
) -> Result<(), tungstenite::Error>
where
    T: AsyncRead + AsyncWrite + Unpin,
{
    let mut pings = interval_at(Instant::now() + ping, ping);
    pings.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let out = tokio::select! {
            out = outs.recv() => out.unwrap_or(Out::Close),
            _ = pings.tick() => {
                sink.send(Message::Ping(Bytes::new())).await?;
                continue;
            }
        };
        match out {
            Out::Data { bytes, fin: true, .. } if bytes.is_empty() => {}
            Out::Data { id, bytes, .. } => {
                touch.send_replace(Instant::now());
                let channel = u8::try_from(id).unwrap_or(CLOSE_CHANNEL);
                sink.send(wrap(flavour, channel, &bytes)).await?;
            }
            Out::Reset { .. } => {}
            Out::Close => {
                let goodbye = CloseFrame {
                    code: CloseCode::Normal,
                    reason: "".into(),
                };
                return sink.send(Message::Close(Some(goodbye))).await;
            }
        }
    }
}

fn wrap(flavour: WebSocketFlavour, channel: u8, bytes: &[u8]) -> Message {
    if flavour.base64 {
        // Channels of this form are digits; there are never ten of them.
        let digit = char::from_digit(u32::from(channel), 10).unwrap_or('9');
        return Message::text(format!("{digit}{}", STANDARD.encode(bytes)));
    }
    let mut message = BytesMut::with_capacity(1 + bytes.len());
    message.put_u8(channel);
    message.put_slice(bytes);
    Message::binary(message.freeze())
}

fn unwrap_base64(text: &str) -> Option<Bytes> {
    let mut characters = text.chars();
    let channel = u8::try_from(characters.next()?.to_digit(10)?).ok()?;
    let content = STANDARD.decode(characters.as_str()).ok()?;
    let mut bytes = BytesMut::with_capacity(1 + content.len());
    bytes.put_u8(channel);
    bytes.put_slice(&content);
    Some(bytes.freeze())
}
