//! `GetActionResult` and `UpdateActionResult`

use super::actions::{self, Verdict};
use super::body::Body;
use super::call::{Branch, Call};
use super::message::{self, begin, seal};
use super::status::{Code, Status};
use crate::blob::{Blobs, Hit, Kind, Target, packed_key};
use crate::metrics::Outcome;
use crate::multipart::unix_ms;
use hyper::body::Incoming;
use prost::Message as _;
use russet_identity::Access;
use russet_reapi::proto::reapi;
use russet_reapi::request::{GetAction, UpdateAction};
use russet_reapi::result::of_action;
use russet_reapi::{Digest, Function, snapshot};
use std::time::Duration;

/// Largest result.
const MAX_RESULT: usize = 4 << 20;
/// How long a result is good for.
pub(super) const LIFE: Duration = Duration::from_hours(30 * 24);
/// A result with a hole is kept this long: its blobs may be on their way.
const GRACE: Duration = Duration::from_hours(1);
/// The same result again within this time changes nothing.
const SAME: Duration = Duration::from_hours(24);
/// What the client may print is inlined up to this size; larger output is read like any blob.
const MAX_PRINTED: u64 = 1 << 20;
/// Most bytes of output files inlined in one answer.
const MAX_INLINE: u64 = 32 << 20;
/// What stands for all output files.
const ALL: &str = "*";
/// A tag's first byte.
const TRUNK: u8 = b'T';
const BRANCH: u8 = b'B';

fn age(version: u64) -> Duration {
    Duration::from_millis(unix_ms().saturating_sub(version))
}

fn miss() -> Status {
    Status::not_found("no result of this action is here")
}

/// Finds the result of an action. A hit implies that everything it refers to is there, and stays for a while.
pub(super) async fn get(call: &Call<'_>, incoming: Incoming) -> Result<Body, Status> {
    let shared = &call.service.shared;
    let message = message::only(incoming, 1 << 20, call.stall, &shared.budget).await?;
    let request = GetAction::read(&message.bytes)?;
    let function = request.common.function()?;
    let digest = request.digest.digest(function)?;
    let scope = call.scope(request.common.instance, Access::Read).await?;
    let namespace = scope.namespace();
    if snapshot::is_request(&digest) {
        let after = snapshot::after(&request.inline_files);
        return super::snapshot::answer(call, namespace, after).await;
    }
    let key = digest.key();
    let found = shared.blobs.find(Kind::Action, namespace, &key)?;
    let Some(hit) = found.filter(|hit| age(hit.version()) < LIFE) else {
        call.miss(Kind::Action, namespace);
        return Err(miss());
    };
    let version = hit.version();
    let body = Stored::read(hit).await?.ok_or_else(miss)?;
    let verdict = actions::is_whole(&shared.blobs, namespace, &key, body.bytes()).await?;
    if verdict != Verdict::Whole {
        call.miss(Kind::Action, namespace);
        if age(version) > GRACE {
            shared.blobs.remove(target(namespace, &key)).await?;
        }
        return Err(miss());
    }
    let length = body.bytes().len();
    let answer = if request.inline_stdout || request.inline_stderr || !request.inline_files.is_empty() {
        inlined(&shared.blobs, namespace, function, &request, body.bytes()).await?
    } else {
        let mut out = begin(length);
        out.extend_from_slice(body.bytes());
        out
    };
    call.hit(Kind::Action, namespace, length as u64);
    let sent = (answer.len() - message::PREFIX) as u64;
    let egress = call.egress_of(Kind::Action, namespace, sent);
    Ok(Body::pieces(vec![seal(answer, 0)], egress))
}

/// A result, in the buffer it was read into or in one of its own.
enum Stored {
    Small(Hit),
    Large(Vec<u8>),
}

impl Stored {
    async fn read(hit: Hit) -> Result<Option<Self>, Status> {
        if hit.bytes().is_some() {
            return Ok(Some(Self::Small(hit)));
        }
        let read = tokio::task::spawn_blocking(move || hit.read_all()).await;
        Ok(read.map_err(|_| Status::internal("Storage failed"))??.map(Self::Large))
    }

    fn bytes(&self) -> &[u8] {
        match self {
            Self::Small(hit) => hit.bytes().unwrap_or_default(),
            Self::Large(bytes) => bytes,
        }
    }
}

fn target(namespace: &str, key: &[u8]) -> Target {
    Target {
        kind: Kind::Action,
        namespace: namespace.into(),
        key: key.into(),
    }
}

/// The result with what was asked for in it, framed.
async fn inlined(
    blobs: &Blobs,
    namespace: &str,
    function: Function,
    request: &GetAction<'_>,
    stored: &[u8],
) -> Result<Vec<u8>, Status> {
    let mut result =
        reapi::ActionResult::decode(stored).map_err(|_| Status::internal("the stored result cannot be decoded"))?;
    let wants = Wants {
        stdout: request.inline_stdout,
        stderr: request.inline_stderr,
        all: request.inline_files.contains(&ALL),
        paths: request.inline_files.iter().map(|path| (*path).to_owned()).collect(),
    };
    let (blobs, namespace) = (blobs.clone(), Box::<str>::from(namespace));
    let task = tokio::task::spawn_blocking(move || {
        wants.fill(&blobs, &namespace, function, &mut result)?;
        Ok::<_, Status>(result)
    });
    let result = task.await.map_err(|_| Status::internal("Storage failed"))??;
    let mut out = begin(result.encoded_len());
    // Encoding into a growing vector cannot fail.
    let _ = result.encode(&mut out);
    Ok(out)
}

struct Wants {
    stdout: bool,
    stderr: bool,
    all: bool,
    paths: Vec<String>,
}

impl Wants {
    fn fill(
        &self,
        blobs: &Blobs,
        namespace: &str,
        function: Function,
        result: &mut reapi::ActionResult,
    ) -> Result<(), Status> {
        let read = |digest: &Option<reapi::Digest>, most: u64| -> Result<Option<bytes::Bytes>, Status> {
            let Some(digest) = digest.as_ref().and_then(|digest| parse(digest, function)) else {
                return Ok(None);
            };
            if digest.size > most {
                return Ok(None);
            }
            Ok(actions::read(blobs, namespace, &digest)?.map(bytes::Bytes::from))
        };
        if self.stdout
            && result.stdout_raw.is_empty()
            && let Some(printed) = read(&result.stdout_digest, MAX_PRINTED)?
        {
            result.stdout_raw = printed;
        }
        if self.stderr
            && result.stderr_raw.is_empty()
            && let Some(printed) = read(&result.stderr_digest, MAX_PRINTED)?
        {
            result.stderr_raw = printed;
        }
        let mut left = MAX_INLINE;
        // Files asked for by name come first: they must fit.
        for named in [true, false] {
            for file in &mut result.output_files {
                if self.paths.contains(&file.path) != named || (!named && !self.all) || !file.contents.is_empty() {
                    continue;
                }
                match read(&file.digest, left)? {
                    Some(contents) => {
                        left -= contents.len() as u64;
                        file.contents = contents;
                    }
                    None if named => return Err(Status::exhausted("the output files to inline are too large")),
                    None => {}
                }
            }
        }
        Ok(())
    }
}

fn parse(digest: &reapi::Digest, function: Function) -> Option<Digest> {
    Some(Digest {
        function,
        hash: russet_reapi::digest::hash_of_hex(digest.hash.as_bytes())?,
        size: u64::try_from(digest.size_bytes).ok()?,
    })
}

/// Stores the result of an action, as the client serialized it.
pub(super) async fn update(call: &Call<'_>, incoming: Incoming) -> Result<Body, Status> {
    let shared = &call.service.shared;
    let limit = MAX_RESULT + (1 << 20);
    let message = message::only(incoming, limit, call.stall, &shared.budget).await?;
    let request = UpdateAction::read(&message.bytes)?;
    let function = request.common.function()?;
    let digest = request.digest.digest(function)?;
    let scope = call.scope(request.common.instance, Access::Write).await?;
    let namespace = scope.namespace();
    let result = request
        .result
        .ok_or_else(|| Status::invalid("there is no action_result"))?;
    if result.len() > MAX_RESULT {
        return Err(Status::new(
            Code::FailedPrecondition,
            "the action result is larger than 4 MiB",
        ));
    }
    validate(function, result)?;
    if snapshot::is_request(&digest) {
        return Err(Status::invalid("this action stands for the snapshot and has no result"));
    }
    let key = digest.key();
    tag(&shared.blobs, namespace, &key, &call.branch()).await?;
    if same(&shared.blobs, namespace, &key, result).await? {
        call.known(Kind::Action, namespace);
    } else {
        let stored = shared
            .blobs
            .put_all(vec![(target(namespace, &key), message.bytes.slice_ref(result))])
            .await;
        if let Some(Err(error)) = stored.into_iter().next() {
            call.service.shard.write(Kind::Action, Outcome::Error, 0);
            return Err(error.into());
        }
        call.stored(Kind::Action, namespace, result.len() as u64);
    }
    let mut out = begin(result.len());
    out.extend_from_slice(result);
    Ok(Body::message(seal(out, 0)))
}

/// Refuses what no client could use.
fn validate(function: Function, result: &[u8]) -> Result<(), Status> {
    let decoded =
        reapi::ActionResult::decode(result).map_err(|_| Status::invalid("the action result cannot be decoded"))?;
    if decoded.output_files.iter().any(|file| file.digest.is_none()) {
        return Err(Status::invalid("an output file has no digest"));
    }
    let mut wrong = None;
    of_action(result, |reference| {
        use russet_reapi::result::Reference::{Blob, Directory, Tree};
        let (Blob(raw) | Tree(raw) | Directory(raw)) = reference;
        wrong = raw.digest(function).err();
        wrong.is_none()
    })?;
    wrong.map_or(Ok(()), |error| Err(error.into()))
}

/// Whether the same bytes were stored lately.
async fn same(blobs: &Blobs, namespace: &str, key: &[u8], result: &[u8]) -> Result<bool, Status> {
    let Some(hit) = blobs.find(Kind::Action, namespace, key)? else {
        return Ok(false);
    };
    if hit.length() != result.len() as u64 || age(hit.version()) > SAME {
        return Ok(false);
    }
    Ok(Stored::read(hit).await?.is_some_and(|stored| stored.bytes() == result))
}

/// Remembers on which branch a result was made, beside the result: once made on the trunk it stays so, and a write without a
/// branch says nothing.
async fn tag(blobs: &Blobs, namespace: &str, key: &[u8; 33], branch: &Branch) -> Result<(), Status> {
    let (Some(name), Some(key)) = (&branch.name, packed_key(key)) else {
        return Ok(());
    };
    let mut body = vec![if branch.is_trunk() { TRUNK } else { BRANCH }];
    body.extend_from_slice(name.as_bytes());
    if let Some(hit) = blobs.find(Kind::Action, namespace, &key)?
        && hit.bytes().is_some_and(|old| is_trunk(old) || old == body)
    {
        return Ok(());
    }
    blobs.put(&target(namespace, &key), body).await?;
    Ok(())
}

/// Whether a stored tag says trunk.
pub(super) fn is_trunk(tag: &[u8]) -> bool {
    tag.first() == Some(&TRUNK)
}
