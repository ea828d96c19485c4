//! Request bodies as they come from the socket.

use super::chunked::{Decoder, Step};
use super::parser::{Framing, Terms};
use super::wait::{Ended, Wire};
use crate::http::body::{Body, Error};
use bytes::{Buf as _, BytesMut};
use tokio::time::Instant;

/// What one read of a large body asks for.
const WINDOW: usize = 256 * 1024;
/// What is read and thrown away so that a connection can be kept.
pub const POLITE: u64 = 1024 * 1024;

#[derive(Debug)]
enum Left {
    Bytes(u64),
    Chunks { decoder: Decoder, ready: usize },
    Nothing,
}

/// The body of the request being served.
#[derive(Debug)]
pub struct SocketBody<'a> {
    wire: &'a mut Wire,
    left: Left,
    /// `100 Continue` is still owed.
    owed: bool,
    broken: bool,
    since: Instant,
    moved: u64,
}

/// What is to happen with a body that was not read to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rest {
    /// There is none.
    None,
    /// Few enough bytes to read and forget.
    Small,
    /// The connection ends after the answer.
    Large,
}

impl<'a> SocketBody<'a> {
    /// The body that follows the head just used up.
    pub fn new(wire: &'a mut Wire, terms: Terms, now: Instant) -> Self {
        let left = match terms.framing {
            Framing::None => Left::Nothing,
            Framing::Length(length) => Left::Bytes(length),
            Framing::Chunked => Left::Chunks {
                decoder: Decoder::default(),
                ready: 0,
            },
        };
        Self {
            wire,
            left,
            owed: terms.expects_continue,
            broken: false,
            since: now,
            moved: 0,
        }
    }

    /// The socket, to answer on.
    pub fn wire(&mut self) -> &mut Wire {
        self.wire
    }

    /// Decides what to do with what was not read. Chunked bodies say nothing about their size, so they are read first.
    pub async fn rest(&mut self) -> Rest {
        match self.left {
            _ if self.broken => Rest::Large,
            Left::Nothing | Left::Bytes(0) => Rest::None,
            // The client waits for our word; whether it will still send the body cannot be known.
            _ if self.owed => Rest::Large,
            Left::Bytes(left) if left <= POLITE => Rest::Small,
            Left::Bytes(_) => Rest::Large,
            Left::Chunks { .. } => {
                if self.discard(POLITE).await {
                    Rest::None
                } else {
                    Rest::Large
                }
            }
        }
    }

    /// Reads and forgets up to `limit` bytes; whether the end was reached.
    pub async fn discard(&mut self, limit: u64) -> bool {
        let mut seen = 0;
        loop {
            match self.chunk().await.map(<[u8]>::len) {
                Ok(0) => return true,
                Ok(count) => {
                    seen += count as u64;
                    self.consume(count);
                    if seen > limit {
                        return false;
                    }
                }
                Err(_) => return false,
            }
        }
    }

    async fn fill(&mut self, want: u64) -> Result<(), Error> {
        self.ask().await?;
        self.wire.until_progress(self.since, self.moved);
        let want = usize::try_from(want).unwrap_or(WINDOW).min(WINDOW);
        let before = self.wire.input.len();
        let result = self.wire.fill(want, || false).await;
        self.moved += (self.wire.input.len() - before) as u64;
        result.map_err(|ended| self.fail(&ended))
    }

    /// Tells a client that waits for our word, or for the acknowledgement of its header, to go on.
    async fn ask(&mut self) -> Result<(), Error> {
        if self.moved == 0 {
            self.wire.stream.acknowledge_at_once();
        }
        if std::mem::take(&mut self.owed) && self.wire.input.is_empty() {
            let sent = self.wire.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").await;
            sent.map_err(|ended| self.fail(&ended))?;
        }
        Ok(())
    }

    fn fail(&mut self, ended: &Ended) -> Error {
        self.broken = true;
        match ended {
            Ended::TimedOut => Error::Stalled,
            _ => Error::Gone,
        }
    }
}

impl Body for SocketBody<'_> {
    fn remaining(&self) -> Option<u64> {
        match self.left {
            Left::Bytes(left) => Some(left),
            Left::Nothing => Some(0),
            Left::Chunks { .. } => None,
        }
    }

    async fn chunk(&mut self) -> Result<&[u8], Error> {
        loop {
            match &mut self.left {
                Left::Nothing => return Ok(&[]),
                Left::Bytes(left) => {
                    let left = *left;
                    if left == 0 || !self.wire.input.is_empty() {
                        let count = usize::try_from(left).unwrap_or(usize::MAX).min(self.wire.input.len());
                        return Ok(self.wire.input.get(..count).unwrap_or_default());
                    }
                    self.fill(left).await?;
                }
                Left::Chunks { ready, .. } if *ready > 0 => {
                    let count = *ready;
                    return Ok(self.wire.input.get(..count).unwrap_or_default());
                }
                Left::Chunks { decoder, ready } => match decoder.step(&self.wire.input) {
                    Ok(Step::More(used)) => {
                        self.wire.input.advance(used);
                        self.fill(WINDOW as u64).await?;
                    }
                    Ok(Step::Data { skip, length }) => {
                        self.wire.input.advance(skip);
                        *ready = length;
                    }
                    Ok(Step::End(used)) => {
                        self.wire.input.advance(used);
                        self.left = Left::Nothing;
                    }
                    Err(_) => {
                        self.broken = true;
                        return Err(Error::Broken);
                    }
                },
            }
        }
    }

    fn consume(&mut self, count: usize) {
        let count = count.min(self.wire.input.len());
        self.wire.input.advance(count);
        match &mut self.left {
            Left::Bytes(left) => *left = left.saturating_sub(count as u64),
            Left::Chunks { ready, .. } => *ready = ready.saturating_sub(count),
            Left::Nothing => {}
        }
    }

    async fn collect(&mut self, into: &mut BytesMut, limit: usize) -> Result<bool, Error> {
        let Left::Bytes(total) = self.left else {
            return collect_chunks(self, into, limit).await;
        };
        let total = usize::try_from(total).unwrap_or(usize::MAX);
        if total > limit {
            return Ok(false);
        }
        into.reserve(total);
        let here = total.min(self.wire.input.len());
        into.extend_from_slice(self.wire.input.get(..here).unwrap_or_default());
        self.consume(here);
        let mut left = total - here;
        if left > 0 {
            self.ask().await?;
        }
        while left > 0 {
            self.wire.until_progress(self.since, self.moved);
            let count = self
                .wire
                .fill_into(into, left)
                .await
                .map_err(|ended| self.fail(&ended))?;
            self.moved += count as u64;
            left -= count;
            self.left = Left::Bytes(left as u64);
        }
        Ok(true)
    }
}

async fn collect_chunks(body: &mut SocketBody<'_>, into: &mut BytesMut, limit: usize) -> Result<bool, Error> {
    loop {
        let chunk = body.chunk().await?;
        let count = chunk.len();
        if count == 0 {
            return Ok(true);
        }
        if into.len() + count > limit {
            return Ok(false);
        }
        into.extend_from_slice(chunk);
        body.consume(count);
    }
}
