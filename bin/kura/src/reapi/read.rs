//! `ByteStream.Read`
//!
//! A piece of a blob is read from its segment straight into the frame that leaves: one copy from the page cache, one into the
//! socket, none in between. What is not in the page cache is read by another thread, a piece at a time.

use super::body::Body;
use super::call::Call;
use super::egress::Egress;
use super::message::{self, PREFIX, prefix};
use super::status::{Code, Status};
use crate::blob::{Frames, Hit, Kind, Reader, Room};
use crate::budget::Reservation;
use crate::metrics::Outcome;
use bytes::Bytes;
use hyper::body::Incoming;
use prost::Message as _;
use russet_identity::Access;
use russet_reapi::name::{self, Encoding};
use russet_reapi::pack::Deflate;
use russet_reapi::proto::bytestream::ReadRequest;
use russet_reapi::wire::put_varint;
use std::cell::RefCell;
use std::task::{Context, Poll, ready};

/// Content of one message. With what may wait for the socket, twice this, the readers of a busy node stay within the processor's
/// caches: four times as much cost half as much processor time again.
const PIECE: u64 = 64 * 1024;
/// Room for what precedes the content of a message: prefix, tag and length.
const ROOM: usize = PREFIX + 1 + 5;
/// Tag of `ReadResponse.data`.
const DATA: u8 = 10 << 3 | 2;
/// What a reader holds in memory: messages waiting for the socket.
const WINDOW: u64 = 4 * PIECE;
/// Buffers a thread keeps.
const KEPT: usize = 64;
/// Pieces that are compressed before other calls get their turn.
const TURN: usize = 16;

thread_local! {
    static SPARE: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

/// A buffer for one message, kept by the thread for the next one.
#[derive(Debug)]
struct Piece(Vec<u8>);

impl Piece {
    fn take() -> Self {
        let spare = SPARE.with_borrow_mut(Vec::pop);
        Self(spare.unwrap_or_else(|| vec![0; ROOM + usize::try_from(PIECE).unwrap_or(0)]))
    }
}

impl Room for Piece {
    fn room(&mut self, length: usize) -> &mut [u8] {
        self.0.get_mut(ROOM..ROOM + length).unwrap_or_default()
    }
}

impl AsRef<[u8]> for Piece {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        let buffer = std::mem::take(&mut self.0);
        // The thread may be ending; then there is nobody to keep it for.
        let _ = SPARE.try_with(|spare| {
            if let Ok(mut spare) = spare.try_borrow_mut()
                && spare.len() < KEPT
            {
                spare.push(buffer);
            }
        });
    }
}

#[derive(Debug)]
enum Source {
    /// Bytes as they are stored.
    Stored,
    /// Content that is compressed on its way out.
    Deflate(Option<Deflate>),
}

/// A blob on its way out.
#[derive(Debug)]
pub(super) struct Outgoing {
    reader: Reader<Piece>,
    /// None until it is known that the blob will be sent.
    egress: Option<Egress>,
    source: Source,
    /// What was compressed and not sent yet.
    out: Vec<u8>,
    position: u64,
    end: u64,
    _held: Reservation,
}

impl Outgoing {
    /// The next message.
    pub(super) fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Status>>> {
        let next = match &mut self.source {
            Source::Stored if self.position == self.end => None,
            Source::Stored => Some(ready!(self.poll_stored(cx))),
            Source::Deflate(None) => None,
            Source::Deflate(Some(_)) => Some(ready!(self.poll_deflated(cx))),
        };
        match (&next, &mut self.egress) {
            (Some(Ok((_, content))), Some(egress)) => egress.sent(*content),
            (None, Some(egress)) => egress.end(),
            _ => {}
        }
        Poll::Ready(next.map(|next| next.map(|(message, _)| message)))
    }

    /// The next piece of the blob, behind room for what precedes it, and its length.
    fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Result<(Piece, usize), Status>> {
        let count = (self.end - self.position).min(PIECE);
        let length = usize::try_from(count).unwrap_or(0);
        let piece = ready!(self.reader.poll_read(cx, self.position, length, Piece::take))?;
        self.position += count;
        Poll::Ready(Ok((piece, length)))
    }

    /// A message, and how much content is in it.
    fn poll_stored(&mut self, cx: &mut Context<'_>) -> Poll<Result<(Bytes, u64), Status>> {
        let (mut piece, length) = ready!(self.poll_piece(cx))?;
        let head = head(length);
        let start = ROOM - head.len();
        if let Some(place) = piece.0.get_mut(start..ROOM) {
            place.copy_from_slice(&head);
        }
        let message = Bytes::from_owner(piece).slice(start..ROOM + length);
        Poll::Ready(Ok((message, length as u64)))
    }

    /// Compresses pieces until they fill a message. Those that compress well may take a while, so others get their turn.
    fn poll_deflated(&mut self, cx: &mut Context<'_>) -> Poll<Result<(Bytes, u64), Status>> {
        for _ in 0..TURN {
            if self.out.is_empty() {
                self.out.resize(ROOM, 0);
            }
            if self.position == self.end {
                if let Source::Deflate(Some(encoder)) = &mut self.source {
                    encoder.finish(&mut self.out)?;
                }
                self.source = Source::Deflate(None);
                return Poll::Ready(Ok(self.compressed()));
            }
            let (mut piece, length) = ready!(self.poll_piece(cx))?;
            if let Source::Deflate(Some(encoder)) = &mut self.source {
                encoder.push(piece.room(length), &mut self.out)?;
            }
            if self.out.len() as u64 > PIECE {
                return Poll::Ready(Ok(self.compressed()));
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// What was compressed, as a message.
    fn compressed(&mut self) -> (Bytes, u64) {
        let mut out = std::mem::take(&mut self.out);
        let content = (out.len() - ROOM) as u64;
        let head = head(out.len() - ROOM);
        let start = ROOM - head.len();
        if let Some(place) = out.get_mut(start..ROOM) {
            place.copy_from_slice(&head);
        }
        (Bytes::from(out).slice(start..), content)
    }
}

/// What precedes that much content.
fn head(length: usize) -> Vec<u8> {
    let mut field = Vec::with_capacity(ROOM);
    field.push(DATA);
    put_varint(&mut field, length as u64);
    let mut head = prefix(field.len() + length).to_vec();
    head.extend_from_slice(&field);
    head
}

/// Sends a blob, or a part of it.
pub(super) async fn read(call: &Call<'_>, incoming: Incoming) -> Result<Body, Status> {
    let shared = &call.service.shared;
    let message = message::only(incoming, 64 * 1024, call.stall, &shared.budget).await?;
    let request = ReadRequest::decode(message.bytes).map_err(|_| Status::invalid("the message cannot be decoded"))?;
    let missing = || Status::not_found("the blob is not here");
    let wanted = name::read(&request.resource_name).map_err(|error| match error {
        name::Error::Hash => missing(),
        error => Status::invalid(error.to_string()),
    })?;
    let scope = call.scope(wanted.instance, Access::Read).await?;
    let size = wanted.digest.size;
    let beyond = || Status::new(Code::OutOfRange, "read_offset lies outside the blob");
    let start = u64::try_from(request.read_offset)
        .ok()
        .filter(|start| *start <= size)
        .ok_or_else(beyond)?;
    let limit = u64::try_from(request.read_limit).map_err(|_| Status::invalid("read_limit must not be negative"))?;
    if limit > 0 && wanted.encoding == Encoding::Zstd {
        return Err(Status::invalid("read_limit must be 0 for compressed blobs"));
    }
    let end = if limit == 0 {
        size
    } else {
        start.saturating_add(limit).min(size)
    };
    let mut outgoing = match open(call, scope.namespace(), &wanted, start..end).await {
        Ok(Some(outgoing)) => outgoing,
        Ok(None) if wanted.digest.is_empty_blob() => return empty(wanted.encoding),
        Ok(None) => {
            call.miss(Kind::Cas, scope.namespace());
            return Err(missing());
        }
        Err(status) => {
            call.service.shard.read(Kind::Cas, Outcome::Error, 0);
            return Err(status);
        }
    };
    call.hit(Kind::Cas, scope.namespace(), end - start);
    outgoing.egress = Some(call.egress(Kind::Cas, scope.namespace()));
    Ok(Body::Blob(Box::new(outgoing)))
}

/// The empty blob needs no upload to be read.
fn empty(encoding: Encoding) -> Result<Body, Status> {
    if encoding == Encoding::Identity {
        return Ok(Body::pieces(Vec::new(), None));
    }
    let frame = russet_reapi::pack::deflate(b"", 1)?;
    let mut message = head(frame.len());
    message.extend_from_slice(&frame);
    Ok(Body::message(message.into()))
}

async fn open(
    call: &Call<'_>,
    namespace: &str,
    wanted: &name::Source<'_>,
    range: std::ops::Range<u64>,
) -> Result<Option<Outgoing>, Status> {
    let shared = &call.service.shared;
    let digest = &wanted.digest;
    if wanted.encoding == Encoding::Zstd
        && range.start == 0
        && let Some(frames) = shared.blobs.frames(namespace, digest)?
    {
        let Some(hit) = verified(frames.hit).await? else {
            return Ok(None);
        };
        let end = hit.length();
        return Ok(Some(Outgoing {
            _held: shared.budget.reserve(WINDOW.min(end)).await?,
            reader: Reader::new(&shared.blobs, hit),
            egress: None,
            source: Source::Stored,
            out: Vec::new(),
            position: Frames::START,
            end,
        }));
    }
    let Some(hit) = shared.blobs.content(namespace, digest)? else {
        return Ok(None);
    };
    let Some(hit) = verified(hit).await? else {
        return Ok(None);
    };
    let length = range.end - range.start;
    Ok(Some(Outgoing {
        _held: shared.budget.reserve(WINDOW.min(length)).await?,
        reader: Reader::new(&shared.blobs, hit),
        egress: None,
        source: match wanted.encoding {
            Encoding::Identity => Source::Stored,
            Encoding::Zstd => Source::Deflate(Some(Deflate::new(length)?)),
        },
        out: Vec::new(),
        position: range.start,
        end: range.end,
    }))
}

/// A blob nobody has read since the process started is compared first, as a whole and by another thread.
async fn verified(hit: Hit) -> Result<Option<Hit>, Status> {
    if !hit.is_unverified() {
        return Ok(Some(hit));
    }
    let verified = tokio::task::spawn_blocking(move || hit.verify()).await;
    Ok(verified.map_err(|_| Status::internal("Storage failed"))??)
}

#[cfg(test)]
mod tests {
    use super::*;
    use russet_reapi::proto::bytestream::ReadResponse;

    #[test]
    fn what_precedes_content_is_what_the_library_writes() {
        for length in [1_usize, 127, 128, 20_000, 131_072] {
            let theirs = ReadResponse {
                data: vec![7; length].into(),
            }
            .encode_to_vec();
            let ours = head(length);
            assert_eq!(ours[..PREFIX], prefix(theirs.len()));
            assert_eq!(ours[PREFIX..], theirs[..theirs.len() - length]);
            assert!(ours.len() <= ROOM);
        }
    }
}
