//! `ByteStream.Write` and `QueryWriteStatus`

use super::LEASE;
use super::body::Body;
use super::call::Call;
use super::message::{self, encode};
use super::status::{Code, Status};
use super::uploads::{Claim, Name, Partial, SMALL};
use crate::blob::{Kind, Put};
use crate::budget::Reservation;
use crate::metrics::Outcome;
use bytes::Bytes;
use futures::FutureExt as _;
use hyper::body::Incoming;
use prost::Message as _;
use russet_identity::Access;
use russet_reapi::name::{self, Encoding};
use russet_reapi::pack;
use russet_reapi::proto::bytestream::{QueryWriteStatusRequest, QueryWriteStatusResponse, WriteResponse};
use russet_reapi::upload::{Decoder, Event};

/// What a stream holds in memory: a piece of its body, and what waits to be written.
const WINDOW: u64 = 512 * 1024;

/// The upload a stream is about.
struct Stream<'a> {
    resource: String,
    name: Name,
    hold: Hold<'a>,
    _held: Reservation,
}

enum Hold<'a> {
    /// Too small to be worth resuming.
    Alone(Box<Partial>),
    Shared(Claim<'a>),
}

enum Opened<'a> {
    /// It is there already.
    Known(i64),
    Stream(Box<Stream<'a>>),
}

/// Stores a blob, verified, from a stream of messages that are never in memory as a whole.
pub(super) async fn write(call: &Call<'_>, mut incoming: Incoming) -> Result<Body, Status> {
    let blobs = &call.service.shared.blobs;
    let mut decoder = Decoder::default();
    let mut stream: Option<Box<Stream<'_>>> = None;
    loop {
        let Some(piece) = next(call, &mut incoming, stream.as_deref_mut()).await? else {
            return Err(Status::invalid(if decoder.is_between() {
                "the stream ended without finish_write; the upload can be resumed"
            } else {
                "the request ends within a message"
            }));
        };
        let mut rest = &piece[..];
        while let Some(event) = decoder.next(&mut rest).map_err(refused)? {
            match (event, &mut stream) {
                (Event::Start { name, offset }, None) => {
                    let resource =
                        name.ok_or_else(|| Status::invalid("the first message must have a resource_name"))?;
                    match open(call, resource, offset).await? {
                        Opened::Known(size) => return Ok(answer(size)),
                        Opened::Stream(opened) => stream = Some(opened),
                    }
                }
                (Event::Start { name, offset }, Some(stream)) => stream.check(name.as_deref(), offset)?,
                (Event::Data(data), Some(stream)) => match &mut stream.hold {
                    Hold::Alone(partial) => partial.write_all(blobs, data)?,
                    Hold::Shared(claim) => claim.take(blobs, piece.slice_ref(data)).await?,
                },
                (Event::End { finish: true }, _) => {
                    let Some(stream) = stream.take() else {
                        return Err(Status::invalid("the first message must have a resource_name"));
                    };
                    return finish(call, *stream).await;
                }
                (Event::End { .. } | Event::Data(_), _) => {}
            }
        }
    }
}

/// The next piece. Bytes that wait for company go to the disk when none comes at once.
async fn next(
    call: &Call<'_>,
    incoming: &mut Incoming,
    stream: Option<&mut Stream<'_>>,
) -> Result<Option<Bytes>, Status> {
    if let Some(Hold::Shared(claim)) = stream.map(|stream| &mut stream.hold)
        && claim.waits()
    {
        let at_once = message::piece(incoming, call.stall).now_or_never();
        if let Some(Ok(Some(piece))) = at_once {
            return Ok(Some(piece));
        }
        claim.flush(&call.service.shared.blobs).await?;
        if let Some(end) = at_once {
            return end;
        }
    }
    message::piece(incoming, call.stall).await
}

fn refused(error: russet_reapi::upload::Error) -> Status {
    match error {
        russet_reapi::upload::Error::Compressed => Status::unimplemented("compressed messages are not supported"),
        error => Status::invalid(error.to_string()),
    }
}

fn answer(committed_size: i64) -> Body {
    Body::message(encode(&WriteResponse { committed_size }))
}

async fn open<'a>(call: &Call<'a>, resource: String, offset: i64) -> Result<Opened<'a>, Status> {
    let shared = &call.service.shared;
    let sink = name::write(&resource).map_err(|error| Status::invalid(error.to_string()))?;
    let offset = u64::try_from(offset).map_err(|_| Status::invalid("write_offset must not be negative"))?;
    let scope = call.scope(sink.instance, Access::Write).await?;
    let (digest, encoding) = (sink.digest, sink.encoding);
    let mut vouch = shared.blobs.vouch(scope.namespace());
    if vouch.has(&digest)? && vouch.settle(LEASE) {
        call.known(Kind::Cas, scope.namespace());
        // Of a compressed upload nobody can say how long it would have been.
        return Ok(Opened::Known(match encoding {
            Encoding::Identity => i64::try_from(digest.size).unwrap_or(i64::MAX),
            Encoding::Zstd => -1,
        }));
    }
    if digest.size > shared.blobs.largest() {
        return Err(Status::exhausted("the blob is larger than max_cas_blob_size_bytes"));
    }
    let window = match encoding {
        Encoding::Identity => WINDOW.min(digest.size.max(1)),
        Encoding::Zstd => WINDOW + digest.size.min(pack::WINDOW) + (2 << 20),
    };
    let reserved = shared.budget.reserve(window).await?;
    let name = Name::new(scope.namespace(), sink.upload, digest, encoding);
    if digest.size > SMALL {
        call.check_pressure()?;
    }
    let hold = if digest.size <= SMALL && offset == 0 {
        Hold::Alone(Box::new(Partial::begin(&shared.blobs, &name)?))
    } else {
        let begin = |name: &Name| Partial::begin(&shared.blobs, name);
        Hold::Shared(shared.reapi.uploads.claim(name.clone(), offset, begin)?)
    };
    Ok(Opened::Stream(Box::new(Stream {
        resource,
        name,
        hold,
        _held: reserved,
    })))
}

impl Stream<'_> {
    /// Later messages go on with the same resource, where the last one ended.
    fn check(&self, name: Option<&str>, offset: i64) -> Result<(), Status> {
        if name.is_some_and(|name| name != self.resource) {
            return Err(Status::invalid(
                "all messages of a stream must have the same resource_name",
            ));
        }
        let committed = match &self.hold {
            Hold::Alone(partial) => partial.committed(),
            Hold::Shared(claim) => claim.taken(),
        };
        if u64::try_from(offset) != Ok(committed) {
            return Err(Status::invalid("write_offset must be where the last message ended"));
        }
        Ok(())
    }
}

async fn finish(call: &Call<'_>, stream: Stream<'_>) -> Result<Body, Status> {
    let shared = &call.service.shared;
    let stored = match stream.hold {
        Hold::Alone(partial) => partial.commit(&shared.blobs).await,
        Hold::Shared(mut claim) => match claim.flush(&shared.blobs).await {
            Ok(()) => claim.commit(&shared.blobs).await,
            Err(status) => Err(status),
        },
    };
    match stored {
        Ok((put, sent)) => {
            match put {
                Put::Created => call.stored(Kind::Cas, &stream.name.namespace, sent),
                Put::Existing => call.known(Kind::Cas, &stream.name.namespace),
            }
            Ok(answer(i64::try_from(sent).unwrap_or(i64::MAX)))
        }
        Err(status) => {
            if status.code != Code::InvalidArgument {
                call.service.shard.write(Kind::Cas, Outcome::Error, 0);
            }
            Err(status)
        }
    }
}

/// How far an upload came.
pub(super) async fn query(call: &Call<'_>, incoming: Incoming) -> Result<Body, Status> {
    let shared = &call.service.shared;
    let message = message::only(incoming, 64 * 1024, call.stall, &shared.budget).await?;
    let request =
        QueryWriteStatusRequest::decode(message.bytes).map_err(|_| Status::invalid("the message cannot be decoded"))?;
    let sink = name::write(&request.resource_name).map_err(|error| Status::invalid(error.to_string()))?;
    let scope = call.scope(sink.instance, Access::Write).await?;
    let status = if shared.blobs.has(scope.namespace(), &sink.digest)? {
        QueryWriteStatusResponse {
            committed_size: i64::try_from(sink.digest.size).unwrap_or(i64::MAX),
            complete: true,
        }
    } else {
        let name = Name::new(scope.namespace(), sink.upload, sink.digest, sink.encoding);
        let committed = shared.reapi.uploads.committed(&name);
        let committed = committed.ok_or_else(|| Status::not_found("no such upload"))?;
        QueryWriteStatusResponse {
            committed_size: i64::try_from(committed).unwrap_or(i64::MAX),
            complete: false,
        }
    };
    Ok(Body::message(encode(&status)))
}
