//! Frames of SPDY/3.1: bytes in, frames out, and back. No I/O.
//!
//! ```text
//! control  1|version 3 (15)|type (16)   flags (8)|length (24)   body
//! data     0|stream id (31)             flags (8)|length (24)   bytes
//! ```
//!
//! A data frame may be 16 MiB long, so its bytes are handed on as they come, in pieces; everything else is small and waits until
//! it is whole.

use bytes::{Buf, BufMut, Bytes, BytesMut};

use super::headers::{Deflater, HeaderError, Headers, Inflater};

const HEAD: usize = 8;
const VERSION: u16 = 3;
const CONTROL: u32 = 1 << 31;
const FIN: u8 = 0x01;
/// A control frame is a handful of short headers; anything larger is an attack or another protocol.
const MAX_CONTROL: usize = 16 * 1024;
/// The largest piece of data handed on, and the largest data frame we write.
pub const MAX_PIECE: usize = 32 * 1024;

mod kind {
    pub(super) const SYN_STREAM: u16 = 1;
    pub(super) const SYN_REPLY: u16 = 2;
    pub(super) const RST_STREAM: u16 = 3;
    pub(super) const PING: u16 = 6;
    pub(super) const GOAWAY: u16 = 7;
    pub(super) const HEADERS: u16 = 8;
}

/// Status codes of RST_STREAM.
pub mod rst {
    /// Bytes that make no sense.
    pub const PROTOCOL_ERROR: u32 = 1;
    /// A frame for a stream that is not open.
    pub const INVALID_STREAM: u32 = 2;
    /// Not accepted; nothing was done.
    pub const REFUSED_STREAM: u32 = 3;
    /// No longer wanted.
    pub const CANCEL: u32 = 5;
}

/// One frame, or a piece of a data frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Frame {
    /// A new stream.
    SynStream {
        /// Its id: odd for clients, rising.
        id: u32,
        /// The opener will send nothing.
        fin: bool,
        /// What it is for.
        headers: Headers,
    },
    /// A stream was accepted.
    SynReply {
        /// Which.
        id: u32,
        /// The accepter will send nothing.
        fin: bool,
        /// Usually empty.
        headers: Headers,
    },
    /// A stream ends at once.
    RstStream {
        /// Which.
        id: u32,
        /// Why; see [`rst`].
        status: u32,
    },
    /// Are you there? Answered with the same id.
    Ping {
        /// Odd when the client asks.
        id: u32,
    },
    /// No further streams.
    GoAway {
        /// The last stream that was looked at.
        last: u32,
        /// 0 is an orderly end.
        status: u32,
    },
    /// Further headers of a stream.
    Headers {
        /// Which.
        id: u32,
        /// The sender will send nothing more.
        fin: bool,
        /// The headers.
        headers: Headers,
    },
    /// Bytes of a stream.
    Data {
        /// Which.
        id: u32,
        /// The sender will send nothing more.
        fin: bool,
        /// At most [`MAX_PIECE`] of them.
        bytes: Bytes,
    },
    /// SETTINGS, WINDOW_UPDATE and whatever else may come: Kubernetes peers neither send nor heed them.
    Ignored {
        /// Its type.
        kind: u16,
    },
}

/// Why bytes were refused. Each ends the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FrameError {
    /// Another version, or another protocol.
    #[error("a control frame of SPDY version {0} came where 3 is spoken")]
    Version(u16),
    /// Larger than any control frame needs to be.
    #[error("a control frame of {0} bytes came; {MAX_CONTROL} are allowed")]
    TooLarge(usize),
    /// Too short for its type.
    #[error("a control frame of type {0} is too short")]
    Short(u16),
    /// Stream 0 does not exist.
    #[error("a frame for stream 0 came")]
    StreamZero,
    /// The header block.
    #[error(transparent)]
    Headers(#[from] HeaderError),
}

/// The data frame whose bytes are still coming.
#[derive(Debug, Clone, Copy)]
struct Open {
    id: u32,
    fin: bool,
    left: usize,
}

/// Reads the frames of one direction.
#[derive(Debug)]
pub struct Decoder {
    inflater: Inflater,
    open: Option<Open>,
}

impl Default for Decoder {
    fn default() -> Self {
        Self::new()
    }
}

impl Decoder {
    /// For a new connection.
    pub fn new() -> Self {
        Self {
            inflater: Inflater::new(),
            open: None,
        }
    }

    /// Nothing of an unfinished data frame is awaited.
    pub fn between_frames(&self) -> bool {
        self.open.is_none()
    }

    /// The next frame, if enough of it is there. After an error the connection is beyond repair.
    pub fn decode(&mut self, input: &mut BytesMut) -> Result<Option<Frame>, FrameError> {
        if let Some(open) = self.open {
            return Ok(self.piece(open, input));
        }
        let mut head: &[u8] = input;
        let (Ok(first), Ok(second)) = (head.try_get_u32(), head.try_get_u32()) else {
            return Ok(None);
        };
        let fin = second.to_be_bytes()[0] & FIN != 0;
        let length = usize::try_from(second & 0x00ff_ffff).unwrap_or(usize::MAX);
        if first & CONTROL == 0 {
            if first == 0 {
                return Err(FrameError::StreamZero);
            }
            input.advance(HEAD);
            let open = Open {
                id: first,
                fin,
                left: length,
            };
            return Ok(self.piece(open, input));
        }
        let [high, low, kind_high, kind_low] = first.to_be_bytes();
        let version = u16::from_be_bytes([high & 0x7f, low]);
        let kind = u16::from_be_bytes([kind_high, kind_low]);
        if version != VERSION {
            return Err(FrameError::Version(version));
        }
        if length > MAX_CONTROL {
            return Err(FrameError::TooLarge(length));
        }
        if input.len() < HEAD + length {
            return Ok(None);
        }
        input.advance(HEAD);
        let body = input.split_to(length);
        self.control(kind, fin, &body).map(Some)
    }

    fn piece(&mut self, mut open: Open, input: &mut BytesMut) -> Option<Frame> {
        let length = open.left.min(input.len()).min(MAX_PIECE);
        if length == 0 && open.left > 0 {
            self.open = Some(open);
            return None;
        }
        // A copy, so that a queue of small pieces holds no large read buffers alive.
        let bytes = Bytes::copy_from_slice(input.get(..length).unwrap_or_default());
        input.advance(length);
        open.left -= length;
        self.open = (open.left > 0).then_some(open);
        Some(Frame::Data {
            id: open.id,
            fin: open.fin && open.left == 0,
            bytes,
        })
    }

    fn control(&mut self, kind: u16, fin: bool, mut body: &[u8]) -> Result<Frame, FrameError> {
        let short = FrameError::Short(kind);
        let mut word = || body.try_get_u32().map_err(|_| short);
        let frame = match kind {
            kind::SYN_STREAM => {
                let id = stream(word()?)?;
                let _associated = word()?;
                body.try_get_u16().map_err(|_| short)?;
                let headers = self.inflater.read(body)?;
                Frame::SynStream { id, fin, headers }
            }
            kind::SYN_REPLY => {
                let id = stream(word()?)?;
                let headers = self.inflater.read(body)?;
                Frame::SynReply { id, fin, headers }
            }
            kind::HEADERS => {
                let id = stream(word()?)?;
                let headers = self.inflater.read(body)?;
                Frame::Headers { id, fin, headers }
            }
            kind::RST_STREAM => Frame::RstStream {
                id: stream(word()?)?,
                status: word()?,
            },
            kind::PING => Frame::Ping { id: word()? },
            kind::GOAWAY => Frame::GoAway {
                last: word()? & !CONTROL,
                status: word()?,
            },
            _ => Frame::Ignored { kind },
        };
        Ok(frame)
    }
}

fn stream(word: u32) -> Result<u32, FrameError> {
    match word & !CONTROL {
        0 => Err(FrameError::StreamZero),
        id => Ok(id),
    }
}

/// Writes the frames of one direction.
#[derive(Debug)]
pub struct Encoder {
    deflater: Deflater,
}

impl Default for Encoder {
    fn default() -> Self {
        Self::new()
    }
}

impl Encoder {
    /// For a new connection.
    pub fn new() -> Self {
        Self {
            deflater: Deflater::new(),
        }
    }

    /// Appends a frame. [`Frame::Ignored`] has no content of its own and is written without a body.
    pub fn encode(&mut self, frame: &Frame, out: &mut BytesMut) -> Result<(), HeaderError> {
        match frame {
            Frame::SynStream { id, fin, headers } => {
                let block = self.deflater.write(headers)?;
                control(out, kind::SYN_STREAM, *fin, 10 + block.len());
                out.put_u32(*id);
                out.put_u32(0);
                out.put_u16(0);
                out.put_slice(&block);
            }
            Frame::SynReply { id, fin, headers } => self.block(out, kind::SYN_REPLY, *id, *fin, headers)?,
            Frame::Headers { id, fin, headers } => self.block(out, kind::HEADERS, *id, *fin, headers)?,
            Frame::RstStream { id, status } => pair(out, kind::RST_STREAM, *id, *status),
            Frame::GoAway { last, status } => pair(out, kind::GOAWAY, *last, *status),
            Frame::Ping { id } => {
                control(out, kind::PING, false, 4);
                out.put_u32(*id);
            }
            Frame::Data { id, fin, bytes } => {
                out.put_u32(*id);
                put_flags(out, *fin, bytes.len());
                out.put_slice(bytes);
            }
            Frame::Ignored { kind } => control(out, *kind, false, 0),
        }
        Ok(())
    }

    fn block(
        &mut self,
        out: &mut BytesMut,
        kind: u16,
        id: u32,
        fin: bool,
        headers: &Headers,
    ) -> Result<(), HeaderError> {
        let block = self.deflater.write(headers)?;
        control(out, kind, fin, 4 + block.len());
        out.put_u32(id);
        out.put_slice(&block);
        Ok(())
    }
}

fn control(out: &mut BytesMut, kind: u16, fin: bool, length: usize) {
    out.put_u16(0x8000 | VERSION);
    out.put_u16(kind);
    put_flags(out, fin, length);
}

fn pair(out: &mut BytesMut, kind: u16, first: u32, second: u32) {
    control(out, kind, false, 8);
    out.put_u32(first);
    out.put_u32(second);
}

fn put_flags(out: &mut BytesMut, fin: bool, length: usize) {
    let flags = if fin { u32::from(FIN) << 24 } else { 0 };
    out.put_u32(flags | (u32::try_from(length).unwrap_or(u32::MAX) & 0x00ff_ffff));
}

#[cfg(test)]
mod tests;
