//! The writing half of a connection: replies of the reader first, then what the users of streams have queued.

use std::time::Duration;

use bytes::BytesMut;
use tokio::io::{AsyncWrite, AsyncWriteExt as _, WriteHalf};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, MissedTickBehavior, interval_at};

use super::connection::Broken;
use super::frame::{Encoder, Frame, rst};
use super::headers::Headers;
use crate::stream::Out;

const WRITE_BUFFER: usize = 64 * 1024;

/// Small frames of the reader's own.
#[derive(Debug)]
pub(super) enum Reply {
    Accepted(u32),
    Reset(u32, u32),
    Pong(u32),
    /// Our last word to a peer that broke the protocol.
    Quit {
        last: u32,
    },
}

/// Writes until told to close. Flushes whenever nothing more waits.
pub(super) async fn send<T: AsyncWrite>(
    mut socket: WriteHalf<T>,
    mut outs: mpsc::Receiver<Out>,
    mut replies: mpsc::Receiver<Reply>,
    ping: Duration,
    touch: &watch::Sender<Instant>,
) -> Result<(), Broken> {
    let mut writing = Writing::default();
    let mut pings = interval_at(Instant::now() + ping, ping);
    pings.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut next_ping = 2_u32;
    loop {
        tokio::select! {
            biased;
            Some(reply) = replies.recv() => writing.reply(&reply)?,
            Some(out) = outs.recv() => writing.out(out)?,
            _ = pings.tick() => {
                writing.frame(&Frame::Ping { id: next_ping })?;
                next_ping = next_ping.wrapping_add(2);
            }
        }
        // What is queued behind it goes with it, replies first as ever.
        while !writing.last && writing.buffer.len() < WRITE_BUFFER {
            if let Ok(reply) = replies.try_recv() {
                writing.reply(&reply)?;
            } else if let Ok(out) = outs.try_recv() {
                writing.out(out)?;
            } else {
                break;
            }
        }
        if writing.moved {
            touch.send_replace(Instant::now());
            writing.moved = false;
        }
        socket.write_all_buf(&mut writing.buffer).await?;
        socket.flush().await?;
        if writing.last {
            socket.shutdown().await?;
            return Ok(());
        }
    }
}

/// Frames on their way into the socket.
#[derive(Default)]
struct Writing {
    encoder: Encoder,
    buffer: BytesMut,
    accepted: u32,
    moved: bool,
    last: bool,
}

impl Writing {
    fn frame(&mut self, frame: &Frame) -> Result<(), Broken> {
        Ok(self.encoder.encode(frame, &mut self.buffer)?)
    }

    fn reply(&mut self, reply: &Reply) -> Result<(), Broken> {
        match *reply {
            Reply::Accepted(id) => {
                self.accepted = id;
                self.frame(&Frame::SynReply {
                    id,
                    fin: false,
                    headers: Headers::default(),
                })
            }
            Reply::Reset(id, status) => self.frame(&Frame::RstStream { id, status }),
            Reply::Pong(id) => self.frame(&Frame::Ping { id }),
            Reply::Quit { last } => {
                self.last = true;
                self.frame(&Frame::GoAway {
                    last,
                    status: rst::PROTOCOL_ERROR,
                })
            }
        }
    }

    fn out(&mut self, out: Out) -> Result<(), Broken> {
        match out {
            Out::Data { id, bytes, fin } => {
                self.moved = true;
                self.frame(&Frame::Data { id, fin, bytes })
            }
            Out::Reset { id, status } => self.frame(&Frame::RstStream { id, status }),
            Out::Close => {
                self.last = true;
                self.frame(&Frame::GoAway {
                    last: self.accepted,
                    status: 0,
                })
            }
        }
    }
}
