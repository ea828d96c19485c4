//! Messages of requests: five bytes of prefix, then the message.

use super::status::Status;
use crate::budget::{Budget, Reservation};
use bytes::{Buf as _, Bytes, BytesMut};
use http_body::Body as _;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use std::time::Duration;

/// Bytes before a message.
pub(super) const PREFIX: usize = 5;
/// Memory is reserved in such steps while a message arrives: what is announced need not come.
const STEP: u64 = 1 << 20;

/// A message in memory, and the reservation for it.
#[derive(Debug)]
pub(super) struct Message {
    pub(super) bytes: Bytes,
    _held: Vec<Reservation>,
}

/// The next piece of a request's body; `None` at its end.
pub(super) async fn piece(incoming: &mut Incoming, stall: Duration) -> Result<Option<Bytes>, Status> {
    loop {
        let frame = tokio::time::timeout(stall, incoming.frame())
            .await
            .map_err(|_| Status::new(super::status::Code::DeadlineExceeded, "the request stalled"))?;
        match frame {
            None => return Ok(None),
            Some(Ok(frame)) => match frame.into_data() {
                Ok(data) if data.is_empty() => {}
                Ok(data) => return Ok(Some(data)),
                // Trailers of a request mean nothing to anyone.
                Err(_) => {}
            },
            Some(Err(_)) => return Err(Status::new(super::status::Code::Aborted, "the request was cut off")),
        }
    }
}

/// The one message of a call that has one.
pub(super) async fn only(
    mut incoming: Incoming,
    limit: usize,
    stall: Duration,
    budget: &Budget,
) -> Result<Message, Status> {
    let cut = || Status::invalid("the request ends within a message");
    let mut buffer = BytesMut::new();
    let mut held = Vec::new();
    let mut length = None;
    loop {
        let Some(piece) = piece(&mut incoming, stall).await? else {
            return Err(cut());
        };
        if length.is_none() && buffer.is_empty() && piece.len() >= PREFIX {
            let announced = announced(&piece, limit)?;
            if piece.len() - PREFIX >= announced {
                // The usual case: a whole message in one piece, which is not copied.
                let rest = piece.slice(PREFIX..);
                return end(incoming, rest, announced, held, stall).await;
            }
        }
        while (buffer.len() + piece.len()) as u64 > held.len() as u64 * STEP {
            held.push(budget.reserve(STEP).await?);
        }
        buffer.extend_from_slice(&piece);
        if length.is_none() && buffer.len() >= PREFIX {
            let announced = announced(&buffer, limit)?;
            // Room for all of it at once when it is small; a large one grows with what arrives.
            buffer.reserve(announced.min(256 * 1024));
            length = Some(announced);
        }
        if let Some(length) = length
            && buffer.len() - PREFIX >= length
        {
            buffer.advance(PREFIX);
            return end(incoming, buffer.freeze(), length, held, stall).await;
        }
    }
}

fn announced(bytes: &[u8], limit: usize) -> Result<usize, Status> {
    let (flag, length) = match bytes.first_chunk::<PREFIX>() {
        Some([flag, length @ ..]) => (*flag, u32::from_be_bytes(*length) as usize),
        None => return Err(Status::invalid("the request ends within a message")),
    };
    match flag {
        0 if length <= limit => Ok(length),
        0 => Err(Status::exhausted("the message is larger than this call allows")),
        1 => Err(Status::unimplemented("compressed messages are not supported")),
        _ => Err(Status::invalid("the message has no valid prefix")),
    }
}

/// Waits for the end of the request, so that the answer does not have to cut it off.
async fn end(
    mut incoming: Incoming,
    mut bytes: Bytes,
    length: usize,
    held: Vec<Reservation>,
    stall: Duration,
) -> Result<Message, Status> {
    if bytes.len() > length || (!incoming.is_end_stream() && piece(&mut incoming, stall).await?.is_some()) {
        return Err(Status::invalid("this call takes one message"));
    }
    bytes.truncate(length);
    Ok(Message { bytes, _held: held })
}

/// The prefix of a message of that length.
pub(super) fn prefix(length: usize) -> [u8; PREFIX] {
    let [a, b, c, d] = u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes();
    [0, a, b, c, d]
}

/// A buffer with room for the prefix, for an answer of about that length.
pub(super) fn begin(capacity: usize) -> Vec<u8> {
    let mut out = Vec::with_capacity(PREFIX + capacity);
    out.extend_from_slice(&[0; PREFIX]);
    out
}

/// Fills the prefix in; `more` bytes follow that are not in the buffer.
pub(super) fn seal(mut out: Vec<u8>, more: usize) -> Bytes {
    let length = out.len() - PREFIX + more;
    if let Some(first) = out.first_chunk_mut() {
        *first = prefix(length);
    }
    out.into()
}

/// A message of the library, with its prefix.
pub(super) fn encode(message: &impl prost::Message) -> Bytes {
    let mut out = begin(message.encoded_len());
    // Encoding into a growing vector cannot fail.
    let _ = message.encode(&mut out);
    seal(out, 0)
}
