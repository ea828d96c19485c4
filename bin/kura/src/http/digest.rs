//! `Content-Digest` (RFC 9530): bodies that say what they hash to, in both directions.
//!
//! A request that carries one is checked while its body streams by, whatever route it is for: [`Checked`] stands between the
//! route and the wire and fails the last read on a mismatch, so nothing becomes visible. An answer carries one where the
//! digest is known for free (content-addressed blobs), and wherever the client asks with `Want-Content-Digest`.

use super::body::{Body, Error};
use super::reply::{Payload, Reply, Slice};
use super::service::Service;
use aws_lc_rs::digest::{self, Context, SHA256, SHA512};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::BytesMut;

/// Hashing less than this takes less time than another thread needs to begin.
const INLINE: u64 = 64 * 1024;
/// What is read at a time.
const PIECE: u64 = 512 * 1024;
/// First byte of a content-addressed key whose hash is SHA-256; the hash follows.
const CAS_SHA256: u8 = 1;

/// The header field says something that is not a digest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("Malformed Content-Digest")]
pub struct Malformed;

/// The hash functions we know; the registry calls the others insecure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Algorithm {
    /// `sha-256`.
    Sha256,
    /// `sha-512`.
    Sha512,
}

impl Algorithm {
    fn of(name: &str) -> Option<Self> {
        match name {
            "sha-256" => Some(Self::Sha256),
            "sha-512" => Some(Self::Sha512),
            _ => None,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Sha256 => "sha-256",
            Self::Sha512 => "sha-512",
        }
    }

    fn context(self) -> Context {
        Context::new(match self {
            Self::Sha256 => &SHA256,
            Self::Sha512 => &SHA512,
        })
    }

    fn length(self) -> usize {
        match self {
            Self::Sha256 => digest::SHA256_OUTPUT_LEN,
            Self::Sha512 => digest::SHA512_OUTPUT_LEN,
        }
    }
}

/// What a request says about digests.
#[derive(Debug, Default)]
pub struct Wish {
    /// What its body must hash to.
    pub expected: Vec<(Algorithm, Vec<u8>)>,
    /// What the answer should carry.
    pub wanted: Option<Algorithm>,
}

/// Reads `Content-Digest`: every digest in it that we can check. Other algorithms are not our business.
pub fn expected(field: &[u8]) -> Result<Vec<(Algorithm, Vec<u8>)>, Malformed> {
    let mut digests: Vec<(Algorithm, Vec<u8>)> = Vec::new();
    for member in members(field)? {
        let (name, value) = member.split_once('=').ok_or(Malformed)?;
        if !is_key(name) {
            return Err(Malformed);
        }
        // Parameters mean nothing here; the colons end the value.
        let inner = value.strip_prefix(':').and_then(|rest| rest.split_once(':'));
        let (inner, after) = inner.ok_or(Malformed)?;
        if !(after.is_empty() || after.starts_with(';')) {
            return Err(Malformed);
        }
        let bytes = STANDARD.decode(inner).map_err(|_| Malformed)?;
        let Some(algorithm) = Algorithm::of(name) else {
            continue;
        };
        if bytes.len() != algorithm.length() || digests.iter().any(|(known, _)| *known == algorithm) {
            return Err(Malformed);
        }
        digests.push((algorithm, bytes));
    }
    Ok(digests)
}

/// Reads `Want-Content-Digest`: the algorithm with the highest weight. A wish that cannot be read is none.
pub fn wanted(field: &[u8]) -> Option<Algorithm> {
    let mut best: Option<(u8, Algorithm)> = None;
    for member in members(field).ok()? {
        let (name, weight) = member.split_once('=')?;
        let weight = weight.split(';').next()?.parse().ok().filter(|weight| *weight <= 10)?;
        if let Some(algorithm) = Algorithm::of(name)
            && weight > best.map_or(0, |(best, _)| best)
        {
            best = Some((weight, algorithm));
        }
    }
    best.map(|(_, algorithm)| algorithm)
}

/// The members of a dictionary, without the blanks around them.
fn members(field: &[u8]) -> Result<impl Iterator<Item = &str>, Malformed> {
    let text = std::str::from_utf8(field).map_err(|_| Malformed)?;
    if !text.is_ascii() || text.trim().is_empty() {
        return Err(Malformed);
    }
    Ok(text.split(',').map(|member| member.trim_matches([' ', '\t'])))
}

fn is_key(name: &str) -> bool {
    name.starts_with(|first: char| first.is_ascii_lowercase() || first == '*')
        && name
            .bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'_' | b'-' | b'.' | b'*'))
}

/// The value of the header field for a digest.
fn field(algorithm: Algorithm, digest: &[u8]) -> String {
    format!("{}=:{}:", algorithm.name(), STANDARD.encode(digest))
}

/// The field of a content-addressed blob, whose key is its hash.
pub fn of_key(key: &[u8]) -> Option<String> {
    match key {
        [CAS_SHA256, hash @ ..] if hash.len() == digest::SHA256_OUTPUT_LEN => Some(field(Algorithm::Sha256, hash)),
        _ => None,
    }
}

/// A hash being computed, and what it must come to.
struct Running {
    context: Context,
    expected: Vec<u8>,
}

impl std::fmt::Debug for Running {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Running")
            .field("expected", &self.expected)
            .finish_non_exhaustive()
    }
}

/// A body that must hash to what its header says.
#[derive(Debug)]
pub struct Checked<'a, B> {
    inner: &'a mut B,
    running: Vec<Running>,
    /// So many bytes at the front of the current chunk have been hashed and not consumed.
    ahead: usize,
}

impl<'a, B: Body> Checked<'a, B> {
    /// Checks `inner` against all of `expected`.
    pub fn new(inner: &'a mut B, expected: Vec<(Algorithm, Vec<u8>)>) -> Self {
        let running = expected
            .into_iter()
            .map(|(algorithm, expected)| Running {
                context: algorithm.context(),
                expected,
            })
            .collect();
        Self {
            inner,
            running,
            ahead: 0,
        }
    }
}

fn update(running: &mut [Running], bytes: &[u8]) {
    for one in running {
        one.context.update(bytes);
    }
}

fn compare(running: &[Running]) -> Result<(), Error> {
    let same = running
        .iter()
        .all(|one| one.context.clone().finish().as_ref() == one.expected.as_slice());
    if same { Ok(()) } else { Err(Error::Mismatch) }
}

impl<B: Body> Body for Checked<'_, B> {
    fn remaining(&self) -> Option<u64> {
        self.inner.remaining()
    }

    async fn chunk(&mut self) -> Result<&[u8], Error> {
        let chunk = self.inner.chunk().await?;
        if chunk.is_empty() {
            compare(&self.running)?;
        }
        update(&mut self.running, chunk.get(self.ahead..).unwrap_or_default());
        self.ahead = self.ahead.max(chunk.len());
        Ok(chunk)
    }

    fn consume(&mut self, count: usize) {
        self.inner.consume(count);
        self.ahead = self.ahead.saturating_sub(count);
    }

    async fn collect(&mut self, into: &mut BytesMut, limit: usize) -> Result<bool, Error> {
        let before = into.len();
        let whole = self.inner.collect(into, limit).await?;
        let fresh = into.get(before..).unwrap_or_default();
        let known = self.ahead.min(fresh.len());
        update(&mut self.running, fresh.get(known..).unwrap_or_default());
        self.ahead -= known;
        if whole {
            compare(&self.running)?;
        }
        Ok(whole)
    }
}

impl Service {
    /// Puts the digest of an answer into it, if the client wants one and it is not there yet.
    pub async fn describe(&self, mut reply: Reply, wanted: Option<Algorithm>) -> Reply {
        let Some(algorithm) = wanted.filter(|_| reply.digest.is_none()) else {
            return reply;
        };
        match reply.payload {
            Payload::Document { ref body, .. } => {
                let mut context = algorithm.context();
                context.update(body);
                reply.digest = Some(field(algorithm, context.finish().as_ref()));
                reply
            }
            Payload::Blob(slice) if !slice.described_only => match self.hash(slice, algorithm).await {
                Ok((slice, digest)) => {
                    reply.digest = Some(field(algorithm, digest.as_ref()));
                    reply.payload = Payload::Blob(slice);
                    reply
                }
                Err(refused) => refused,
            },
            _ => reply,
        }
    }

    /// Hashes what is about to be sent. A large blob is read by another thread, a few at a time.
    async fn hash(&self, slice: Slice, algorithm: Algorithm) -> Result<(Slice, digest::Digest), Reply> {
        let failed = |error: crate::blob::Error| Reply::from(super::reply::Error::from(error));
        if slice.length <= INLINE {
            let digest = hash_of(&slice, algorithm).map_err(failed)?;
            return Ok((slice, digest));
        }
        let reserved = self.shared.budget.reserve(PIECE).await;
        let _held = reserved.map_err(|error| Reply::from(super::reply::Error::from(error)))?;
        let task = tokio::task::spawn_blocking(move || hash_of(&slice, algorithm).map(|digest| (slice, digest)));
        match task.await {
            Ok(hashed) => hashed.map_err(failed),
            Err(_) => Err(Reply::message(500, "Storage failed")),
        }
    }
}

fn hash_of(slice: &Slice, algorithm: Algorithm) -> Result<digest::Digest, crate::blob::Error> {
    let mut context = algorithm.context();
    let mut buffer = vec![0; usize::try_from(slice.length.min(PIECE)).unwrap_or_default()];
    let mut done = 0;
    while done < slice.length {
        let count = usize::try_from((slice.length - done).min(PIECE)).unwrap_or_default();
        let piece = buffer.get_mut(..count).unwrap_or_default();
        slice.hit.read_at(slice.start + done, piece)?;
        context.update(piece);
        done += count as u64;
    }
    Ok(context.finish())
}

#[cfg(test)]
#[path = "digest_tests.rs"]
mod tests;
