//! Streaming sessions after the upgrade: a command's streams, or forwarded ports, over SPDY or WebSocket.

mod forward;
mod outcome;
mod remote;
mod version;
mod websocket;

use std::time::Duration;

pub(crate) use self::forward::{forward_spdy, forward_websocket};
pub(crate) use self::outcome::run as run_to_end;
pub(crate) use self::remote::{Action, Command, Wanted, remote_spdy, remote_websocket};
pub(crate) use self::version::{choose_port_forward, choose_spdy, choose_websocket};

use crate::spdy::{Broken, Rules};

/// How long and how much, for one session.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pace {
    /// Between the upgrade and the last stream that was announced.
    pub(crate) creation: Duration,
    /// Without a byte in either direction.
    pub(crate) idle: Duration,
    /// Between questions whether the peer is there.
    pub(crate) ping: Duration,
    /// A forwarded connection that is not read, while others may wait behind it.
    pub(crate) stall: Duration,
    /// Received and not yet read, per connection.
    pub(crate) memory: usize,
    /// Streams of one port-forward; two per forwarded connection.
    pub(crate) forwards: usize,
}

impl Pace {
    fn command(&self) -> Rules {
        Rules {
            streams: 8,
            memory: self.memory,
            stall: None,
            ping: self.ping,
        }
    }

    fn ports(&self) -> Rules {
        Rules {
            streams: self.forwards,
            memory: self.memory,
            stall: Some(self.stall),
            ping: self.ping,
        }
    }
}

/// The last words of a session. A peer that has stopped reading must not keep it for ever.
async fn farewell(pace: Pace, words: impl Future<Output = Result<(), Broken>>) -> Result<(), Broken> {
    let late = |_| Err(Broken::Io(std::io::ErrorKind::TimedOut.into()));
    tokio::time::timeout(pace.idle, words).await.unwrap_or_else(late)
}
