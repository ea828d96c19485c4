//! `BatchReadBlobs` and `BatchUpdateBlobs`

use super::body::Body;
use super::call::Call;
use super::capabilities::{batch_limit, batch_message};
use super::egress::Egress;
use super::message::{self, begin, seal};
use super::status::{Code, Status};
use crate::blob::{self, Blobs, Kind, Put, Target, packed_key};
use crate::metrics::Outcome;
use bytes::Bytes;
use hyper::body::Incoming;
use russet_identity::Access;
use russet_reapi::request::{BatchRead, BatchUpdate, Update};
use russet_reapi::wire::{RawDigest, bytes_len, put_bytes, put_length, put_number, varint_len};
use russet_reapi::{Digest, Function, pack};
use std::ops::Range;

/// Above this a batch is worked on by other threads, a share each.
const INLINE: u64 = 1 << 20;
/// Most threads one batch is spread over.
const SHARES: usize = 4;
/// Field numbers of both answers.
const DIGEST: u8 = 1;

/// Reads small blobs. Each is read from its segment straight into the answer.
pub(super) async fn read(call: &Call<'_>, incoming: Incoming) -> Result<Body, Status> {
    let shared = &call.service.shared;
    let message = message::only(incoming, batch_message(call), call.stall, &shared.budget).await?;
    let request = BatchRead::read(&message.bytes)?;
    let function = request.common.function()?;
    let mut total = 0_u64;
    for raw in request.digests() {
        total = total.saturating_add(u64::try_from(raw?.size()).unwrap_or(0));
    }
    if total > batch_limit(call) {
        return Err(too_large());
    }
    let scope = call.scope(request.common.instance, Access::Read).await?;
    if total > INLINE {
        call.check_pressure()?;
    }
    let _held = shared.budget.reserve(total).await?;
    let job = ReadJob {
        blobs: shared.blobs.clone(),
        namespace: scope.namespace().into(),
        function,
        zstd: request.zstd,
    };
    let here = if total <= INLINE {
        let raw: Vec<_> = request.digests().collect::<Result<_, _>>()?;
        let out = begin(estimate(total, request.count));
        job.run(out, raw.into_iter(), Manner::AtOnce)
    } else {
        None
    };
    let pieces = if let Some(piece) = here {
        vec![piece]
    } else {
        let reading = spread(&message.bytes, request.count, move |bytes, range| {
            let digests = BatchRead::read(bytes).map(|request| request.digests());
            let picked = digests
                .into_iter()
                .flatten()
                .flatten()
                .skip(range.start)
                .take(range.len());
            let out = if range.start == 0 { begin(0) } else { Vec::new() };
            job.run(out, picked, Manner::Patient).unwrap_or_default()
        });
        reading.await?
    };
    let (mut hits, mut misses, mut sent) = (0, 0, 0);
    let mut outs = Vec::with_capacity(pieces.len());
    for piece in pieces {
        hits += piece.hits;
        misses += piece.misses;
        sent += piece.sent;
        outs.push(piece.out);
    }
    for number in 0..hits {
        call.hit(Kind::Cas, scope.namespace(), if number == 0 { sent } else { 0 });
    }
    let egress = call.egress_of(Kind::Cas, scope.namespace(), sent);
    for _ in 0..misses {
        call.miss(Kind::Cas, scope.namespace());
    }
    Ok(assemble(outs, egress))
}

fn too_large() -> Status {
    Status::invalid("the batch is larger than max_batch_total_size_bytes; use ByteStream")
}

fn estimate(total: u64, count: usize) -> usize {
    usize::try_from(total).unwrap_or(0) + 96 * count
}

/// One message from its pieces, the first of which has room for the prefix.
fn assemble(outs: Vec<Vec<u8>>, egress: Option<Egress>) -> Body {
    let mut outs = outs.into_iter();
    let first = outs.next().unwrap_or_else(|| begin(0));
    let rest: Vec<Bytes> = outs.map(Bytes::from).collect();
    let more = rest.iter().map(Bytes::len).sum();
    let mut pieces = vec![seal(first, more)];
    pieces.extend(rest.into_iter().filter(|piece| !piece.is_empty()));
    Body::pieces(pieces, egress)
}

/// Runs `work` on shares of `count` entries, on other threads.
async fn spread<T: Send + 'static>(
    bytes: &Bytes,
    count: usize,
    work: impl Fn(&Bytes, Range<usize>) -> T + Clone + Send + 'static,
) -> Result<Vec<T>, Status> {
    let share = count.div_ceil(SHARES).max(1);
    let tasks: Vec<_> = (0..count.max(1))
        .step_by(share)
        .map(|start| {
            let (bytes, work) = (bytes.clone(), work.clone());
            tokio::task::spawn_blocking(move || work(&bytes, start..(start + share).min(count.max(start))))
        })
        .collect();
    let mut done = Vec::with_capacity(tasks.len());
    for task in tasks {
        done.push(task.await.map_err(|_| Status::internal("Storage failed"))?);
    }
    Ok(done)
}

#[derive(Clone)]
struct ReadJob {
    blobs: Blobs,
    namespace: Box<str>,
    function: Function,
    zstd: bool,
}

#[derive(Default)]
struct ReadShare {
    out: Vec<u8>,
    hits: u64,
    misses: u64,
    sent: u64,
}

/// How blobs are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Manner {
    /// By a thread that has others to serve: only what takes no waiting.
    AtOnce,
    /// By one that has not.
    Patient,
}

impl ReadJob {
    /// Reads blobs one after the other. `None`: one of them cannot be read in that manner.
    fn run<'a>(&self, out: Vec<u8>, digests: impl Iterator<Item = RawDigest<'a>>, manner: Manner) -> Option<ReadShare> {
        let mut share = ReadShare {
            out,
            ..ReadShare::default()
        };
        for raw in digests {
            let start = share.out.len();
            match self.one(&raw, &mut share.out, manner) {
                Ok(None) => {
                    self.blobs.count_cold();
                    return None;
                }
                Ok(Some(sent)) => {
                    share.hits += 1;
                    share.sent += sent;
                }
                Err(status) => {
                    share.misses += u64::from(status.code == Code::NotFound);
                    share.out.truncate(start);
                    refused(&mut share.out, 3, &raw, &status);
                }
            }
        }
        Some(share)
    }

    /// Appends the response of one blob; bytes of it that are sent. `None`: not in that manner.
    fn one(&self, raw: &RawDigest<'_>, out: &mut Vec<u8>, manner: Manner) -> Result<Option<u64>, Status> {
        let digest = raw.digest(self.function)?;
        let missing = || Status::not_found("the blob is not here");
        if digest.is_empty_blob() {
            head(out, raw, 0, 0);
            return Ok(Some(0));
        }
        let frames = if self.zstd {
            self.blobs.frames(&self.namespace, &digest)?
        } else {
            None
        };
        let (mut hit, start, compressor) = if let Some(frames) = frames {
            (frames.hit, blob::Frames::START, 1)
        } else {
            let found = self.blobs.content(&self.namespace, &digest)?;
            (found.ok_or_else(missing)?, 0, 0)
        };
        if hit.is_unverified() {
            if manner == Manner::AtOnce {
                return Ok(None);
            }
            hit = hit.verify()?.ok_or_else(missing)?;
        }
        let length = hit.length() - start;
        head(out, raw, length, compressor);
        let place = out.len();
        out.resize(place + usize::try_from(length).unwrap_or(0), 0);
        let into = out.get_mut(place..).unwrap_or_default();
        let read = match manner {
            Manner::AtOnce => hit.read_now(start, into)?,
            Manner::Patient => hit.read_at(start, into).map(|()| true)?,
        };
        if compressor != 0 {
            put_number(out, 4, compressor);
        }
        Ok(read.then_some(length))
    }
}

/// Appends everything before the data of a response.
fn head(out: &mut Vec<u8>, raw: &RawDigest<'_>, length: u64, compressor: u64) {
    let length = usize::try_from(length).unwrap_or(usize::MAX);
    let data = if length == 0 { 0 } else { bytes_len(length) };
    let rest = if compressor == 0 { 0 } else { 1 + varint_len(compressor) };
    put_length(out, 1, bytes_len(raw.message.len()) + data + rest);
    put_bytes(out, DIGEST, raw.message);
    if length > 0 {
        put_length(out, 2, length);
    }
}

/// Appends a response that says why there is no blob, or that there is one.
fn refused(out: &mut Vec<u8>, field: u8, raw: &RawDigest<'_>, status: &Status) {
    let mut inner = Vec::with_capacity(raw.message.len() + status.message.len() + 16);
    put_bytes(&mut inner, DIGEST, raw.message);
    let mut told = Vec::with_capacity(status.message.len() + 8);
    put_number(&mut told, 1, u64::from(status.code.number()));
    if !status.message.is_empty() {
        put_bytes(&mut told, 2, status.message.as_bytes());
    }
    put_bytes(&mut inner, field, &told);
    put_bytes(out, 1, &inner);
}

/// Stores small blobs: all are verified, then all that are right go into one group commit.
pub(super) async fn update(call: &Call<'_>, incoming: Incoming) -> Result<Body, Status> {
    let shared = &call.service.shared;
    let message = message::only(incoming, batch_message(call), call.stall, &shared.budget).await?;
    let request = BatchUpdate::read(&message.bytes)?;
    let function = request.common.function()?;
    let mut total = 0_u64;
    for update in request.updates() {
        let update = update?;
        let announced = u64::try_from(update.digest.size()).unwrap_or(0);
        total = total.saturating_add(announced.max(update.data.len() as u64));
    }
    if total > batch_limit(call) {
        return Err(too_large());
    }
    let scope = call.scope(request.common.instance, Access::Write).await?;
    let namespace = scope.namespace();
    let checked = if total <= INLINE {
        request
            .updates()
            .map(|update| Ok(check(&message.bytes, &update?, function)))
            .collect::<Result<Vec<_>, Status>>()?
    } else {
        call.check_pressure()?;
        // Content of compressed blobs is in memory until it is verified.
        let _held = shared.budget.reserve(total).await?;
        let verified = spread(&message.bytes, request.count, move |bytes, range| {
            let request = BatchUpdate::read(bytes);
            let updates = request.into_iter().flat_map(|request| request.updates()).flatten();
            let picked = updates.skip(range.start).take(range.len());
            picked.map(|update| check(bytes, &update, function)).collect::<Vec<_>>()
        });
        verified.await?.into_iter().flatten().collect()
    };
    let mut wanted = Vec::new();
    let mut results: Vec<Option<Status>> = Vec::with_capacity(checked.len());
    for one in checked {
        match one {
            Ok(Checked::Empty) => results.push(Some(Status::new(Code::Ok, ""))),
            Ok(Checked::Store(digest, ..)) if shared.blobs.has(namespace, &digest)? => {
                call.known(Kind::Cas, namespace);
                results.push(Some(Status::new(Code::Ok, "")));
            }
            Ok(Checked::Store(digest, packed, body)) => {
                results.push(None);
                wanted.push((target(namespace, &digest, packed), body));
            }
            Err(status) => results.push(Some(status)),
        }
    }
    let sizes: Vec<u64> = wanted.iter().map(|(_, body)| body.len() as u64).collect();
    let mut stored = shared.blobs.put_all(wanted).await.into_iter().zip(sizes);
    let mut out = begin(96 * results.len());
    for (update, result) in request.updates().zip(results) {
        let status = result.unwrap_or_else(|| answer(call, namespace, stored.next()));
        refused(&mut out, 2, &update?.digest, &status);
    }
    Ok(Body::message(seal(out, 0)))
}

/// Counts a write and says how it went.
fn answer(call: &Call<'_>, namespace: &str, stored: Option<(Result<Put, blob::Error>, u64)>) -> Status {
    let (result, length) = stored.unwrap_or((Err(blob::Error::Unanswered), 0));
    match result {
        Ok(Put::Created) => {
            call.stored(Kind::Cas, namespace, length);
            Status::new(Code::Ok, "")
        }
        Ok(Put::Existing) => {
            call.known(Kind::Cas, namespace);
            Status::new(Code::Ok, "")
        }
        Err(error) => {
            call.service.shard.write(Kind::Cas, Outcome::Error, 0);
            let status = Status::from(error);
            // For a blob of a batch, "try again" and "no room" are the same word.
            if status.code == Code::Unavailable {
                Status::new(Code::ResourceExhausted, status.message)
            } else {
                status
            }
        }
    }
}

enum Checked {
    /// The empty blob is always there.
    Empty,
    /// Right; to be stored as it is or compressed.
    Store(Digest, bool, Bytes),
}

/// Verifies one blob of a batch.
fn check(message: &Bytes, update: &Update<'_>, function: Function) -> Result<Checked, Status> {
    let digest = update.digest.digest(function)?;
    let wrong = || Status::invalid("the content does not match its digest");
    let verify = |content: &[u8]| {
        let right = content.len() as u64 == digest.size && function.digest(content).hash == digest.hash;
        right.then_some(()).ok_or_else(wrong)
    };
    let stored = match update.compressor {
        0 => {
            verify(update.data)?;
            Checked::Store(digest, false, message.slice_ref(update.data))
        }
        1 => {
            let content = pack::inflate(update.data, digest.size)?;
            verify(&content)?;
            if update.data.len() + 8 < content.len() {
                let mut body = digest.size.to_le_bytes().to_vec();
                body.extend_from_slice(update.data);
                Checked::Store(digest, true, body.into())
            } else {
                Checked::Store(digest, false, content.into())
            }
        }
        _ => return Err(Status::invalid("this compressor is not supported; use zstd or none")),
    };
    Ok(if digest.size == 0 { Checked::Empty } else { stored })
}

/// Where content goes.
pub(super) fn target(namespace: &str, digest: &Digest, packed: bool) -> Target {
    let key = digest.key();
    Target {
        kind: Kind::Cas,
        namespace: namespace.into(),
        key: packed
            .then(|| packed_key(&key))
            .flatten()
            .unwrap_or_else(|| key.into())
            .into(),
    }
}
