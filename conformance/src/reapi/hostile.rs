//! Requests no honest client sends. The right code, nothing stored, and the server lives on.

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use prost::Message as _;
use russet_reapi::client::tonic::Code;
use russet_reapi::proto::reapi::{
    ActionResult, BatchUpdateBlobsResponse, Digest, Directory, DirectoryNode, FindMissingBlobsRequest, GetTreeRequest,
};
use russet_reapi::wire::put_bytes;

use super::raw;
use super::target::{Target, batch, digest, expect_code, pieces, put, update};
use crate::{Check, checks, not_applicable};

pub(super) const CHECKS: &[Check<Target>] = checks! {
    garbage, "reapi-hostile-garbage", "gRPC status codes":
        "bytes that are no protobuf are refused by every method";
    truncated, "reapi-hostile-truncated", "Protocol Buffers encoding":
        "a message cut anywhere stores nothing";
    unknown_method, "reapi-hostile-unknown-method", "gRPC status codes":
        "methods and services that do not exist are UNIMPLEMENTED";
    oversized, "reapi-hostile-oversized-message", "gRPC status codes":
        "a message far beyond every limit is refused, and nothing of it is stored";
    absurd_sizes, "reapi-hostile-absurd-sizes", "REAPI Digest":
        "digests that claim an absurd size cost nothing and store nothing";
    many, "reapi-hostile-many-digests", "REAPI FindMissingBlobs":
        "a question about a hundred thousand digests is answered or refused, not died of";
    cycle, "reapi-hostile-tree", "REAPI GetTree":
        "GetTree of a deep chain, or of a blob that is no directory, ends";
    mistyped, "reapi-hostile-mistyped", "Protocol Buffers encoding":
        "fields of another type than the protocol says are refused or ignored, and nothing is stored";
    how_many, "reapi-hostile-number-of-messages", "gRPC over HTTP/2: unary calls":
        "a call that takes one message refuses none and two, and nothing is stored";
    changing_mind, "reapi-hostile-upload-changes-its-mind", "ByteStream WriteRequest.resource_name":
        "an upload that names another resource on its way is refused, and neither is stored";
    twins, "reapi-hostile-twins", "REAPI BatchUpdateBlobs":
        "of two blobs of one batch with the same digest the one that lies is refused, and the other is what is read";
    instances, "reapi-hostile-instance-names", "REAPI instance_name":
        "instance names with traversal, NUL or reserved words reach nobody else's blobs";
    frames, "reapi-hostile-frames", "gRPC over HTTP/2: length-prefixed messages" [contract]:
        "messages that are cut, doubled, absent, compressed or of an absurd length get the right code";
    exact, "reapi-hostile-names-and-numbers", "contract: gRPC status codes" [contract]:
        "names, offsets, limits and sizes that are none get exactly the contract's code, and nothing is stored";
};

const METHODS: [&str; 8] = [
    "/build.bazel.remote.execution.v2.Capabilities/GetCapabilities",
    "/build.bazel.remote.execution.v2.ActionCache/GetActionResult",
    "/build.bazel.remote.execution.v2.ActionCache/UpdateActionResult",
    "/build.bazel.remote.execution.v2.ContentAddressableStorage/FindMissingBlobs",
    "/build.bazel.remote.execution.v2.ContentAddressableStorage/BatchUpdateBlobs",
    "/build.bazel.remote.execution.v2.ContentAddressableStorage/BatchReadBlobs",
    "/google.bytestream.ByteStream/Read",
    "/google.bytestream.ByteStream/QueryWriteStatus",
];
const UPDATE: &str = METHODS[4];

/// It still works.
async fn lives(target: &Target) -> Result<()> {
    let works = async {
        let (_, stored) = target.stored(100).await?;
        target.expect_present(&stored).await
    };
    works.await.context("the server does not work any more")
}

async fn garbage(target: &Target) -> Result<()> {
    for method in METHODS {
        for bytes in [&[0xff; 11][..], b"\x0a\xff\x01", b"\x08"] {
            let code = raw::refused(target, method, Bytes::from_static(bytes)).await?;
            // Most libraries say INTERNAL for what they cannot decode; UNKNOWN or OK would hide it.
            let right = matches!(code, Code::InvalidArgument | Code::Internal);
            ensure!(right, "{method} of {bytes:?}: {code:?}");
        }
    }
    lives(target).await
}

/// A batch of one honest update, as its client would encode it.
fn honest(target: &Target, body: &Bytes) -> Vec<u8> {
    let updates = vec![update(body, body.clone())];
    batch(&target.instance, updates).encode_to_vec()
}

async fn truncated(target: &Target) -> Result<()> {
    let body = target.body(300);
    let whole = honest(target, &body);
    for cut in (1..whole.len()).step_by(7) {
        let bytes = Bytes::from(whole.get(..cut).unwrap_or_default().to_vec());
        // Cut between two fields it is a smaller request, which may well be answered.
        let _ = raw::call(target, UPDATE, bytes).await;
        let stored = target.expect_missing(&digest(&body)).await;
        stored.with_context(|| format!("cut at {cut}"))?;
    }
    lives(target).await
}

async fn unknown_method(target: &Target) -> Result<()> {
    for method in [
        "/build.bazel.remote.execution.v2.ContentAddressableStorage/NoSuchMethod",
        "/build.bazel.remote.execution.v2.Nothing/Get",
        "/x/y",
    ] {
        let code = raw::refused(target, method, Bytes::new()).await?;
        ensure!(code == Code::Unimplemented, "{method}: {code:?}");
    }
    Ok(())
}

async fn oversized(target: &Target) -> Result<()> {
    let limit = usize::try_from(target.capabilities().await?.max_batch_total_size_bytes).unwrap_or_default();
    let beyond = if limit == 0 {
        usize::MAX
    } else {
        limit.saturating_mul(4)
    };
    let body = target.body(beyond.clamp(16 << 20, 72 << 20));
    // A connection cut off while sending is a refusal too.
    let refusals = [
        Code::InvalidArgument,
        Code::ResourceExhausted,
        Code::OutOfRange,
        Code::Unavailable,
        Code::Internal,
        Code::Cancelled,
        Code::Unknown,
    ];
    target.refuses(update(&body, body.clone()), &[3, 8], &refusals).await?;
    target.expect_missing(&digest(&body)).await?;
    lives(target).await
}

async fn absurd_sizes(target: &Target) -> Result<()> {
    let body = target.body(100);
    let refusals = [
        Code::InvalidArgument,
        Code::ResourceExhausted,
        Code::FailedPrecondition,
        Code::OutOfRange,
    ];
    for size in [i64::MAX, i64::MAX - 1, 1 << 50] {
        let mut claimed = digest(&body);
        claimed.size_bytes = size;
        let mut update = update(&body, body.clone());
        update.digest = Some(claimed.clone());
        match target.update(vec![update]).await {
            Ok(codes) => ensure!(codes != [0], "a blob of 100 bytes was taken for {size}"),
            Err(told) => told.is(&[Code::InvalidArgument, Code::ResourceExhausted])?,
        }
        let written = target.write(&target.upload_name(&claimed), &body).await;
        expect_code(written, &refusals).with_context(|| format!("an upload of {size}"))?;
        let read = target.read(&target.blob_name(&claimed), 0, 0).await;
        read.err().context("it was read")?;
    }
    target.expect_missing(&digest(&body)).await?;
    lives(target).await
}

async fn many(target: &Target) -> Result<()> {
    let digests = (0..100_000_u32).map(|number| digest(&number.to_be_bytes()));
    if let Err(told) = target.missing(digests.collect()).await {
        told.is(&[Code::InvalidArgument, Code::ResourceExhausted])?;
    }
    lives(target).await
}

async fn cycle(target: &Target) -> Result<()> {
    let mut chain = Directory::default();
    let mut bodies = vec![Bytes::from(chain.encode_to_vec())];
    for depth in 0..2000 {
        let below = bodies.last().map(|bytes| digest(bytes));
        chain.directories = vec![DirectoryNode {
            name: format!("{}-{depth}", target.instance),
            digest: below,
        }];
        bodies.push(chain.encode_to_vec().into());
    }
    for part in bodies.chunks(500) {
        target.store(&part.iter().collect::<Vec<_>>()).await?;
    }
    let (_, noise) = target.stored(1000).await?;
    for root in [digest(&chain.encode_to_vec()), noise] {
        let request = GetTreeRequest {
            instance_name: target.instance.clone(),
            root_digest: Some(root),
            ..GetTreeRequest::default()
        };
        if let Ok(answer) = target.cas().get_tree(target.request(request)).await {
            let mut stream = answer.into_inner();
            while let Ok(Some(_)) = stream.message().await {}
        }
    }
    lives(target).await
}

/// A field of a message, if there is anything in it.
fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
    let mut message = Vec::new();
    if !bytes.is_empty() {
        put_bytes(&mut message, number, bytes);
    }
    message
}

/// A number where bytes belong, and the other way round. Some libraries take such fields for ones they do not know.
async fn mistyped(target: &Target) -> Result<()> {
    let (body, instance) = (target.body(300), field(1, target.instance.as_bytes()));
    let stored = digest(&body);
    let number = |field: u8| vec![field << 3, 7];
    let without_digest = [number(1), field(2, &body)].concat();
    let without_data = [field(1, &stored.encode_to_vec()), number(2)].concat();
    // A hash that is a number, and a size that is text.
    let wrong_digest = [number(1), field(2, b"300")].concat();
    let with_wrong_digest = [field(1, &wrong_digest), field(2, &body)].concat();
    for part in [&without_digest, &without_data, &with_wrong_digest] {
        let request = [instance.clone(), field(2, part)].concat();
        if let Ok(answer) = raw::call(target, UPDATE, request).await {
            let answer = BatchUpdateBlobsResponse::decode(answer).context("no answer to a batch")?;
            let codes = answer.responses.iter();
            let codes = codes.map(|one| one.status.as_ref().map_or(0, |status| status.code));
            let codes: Vec<_> = codes.collect();
            ensure!(!codes.contains(&0), "mis-typed, but {codes:?}");
        }
        target.expect_missing(&stored).await?;
    }
    let action = digest(&target.body(50));
    // The result of the action is a number.
    let result = [instance, field(2, &action.encode_to_vec()), number(3)].concat();
    raw::refused(target, METHODS[2], result).await?;
    expect_code(target.result(&action).await, &[Code::NotFound])?;
    lives(target).await
}

async fn how_many(target: &Target) -> Result<()> {
    let body = target.body(300);
    let once = Bytes::from(honest(target, &body));
    let refusals = [
        Code::InvalidArgument,
        Code::Internal,
        Code::Unimplemented,
        Code::Cancelled,
        Code::Unknown,
    ];
    for messages in [vec![], vec![once.clone(), once]] {
        let count = messages.len();
        let answer = raw::call_with(target, UPDATE, messages).await;
        expect_code(answer, &refusals).with_context(|| format!("{count} messages"))?;
        target.expect_missing(&digest(&body)).await?;
    }
    lives(target).await
}

async fn changing_mind(target: &Target) -> Result<()> {
    let (first, second) = (target.body(200_000), target.body(200_000));
    let [ours, theirs] = [&first, &second].map(|body| target.upload_name(&digest(body)));
    let mut messages = pieces(&ours, &first, 0, true);
    if let Some(last) = messages.last_mut() {
        last.resource_name = theirs;
    }
    let answer = target.write_pieces(messages).await;
    expect_code(answer, &[Code::InvalidArgument])?;
    for body in [&first, &second] {
        target.expect_missing(&digest(body)).await?;
    }
    lives(target).await
}

async fn twins(target: &Target) -> Result<()> {
    let (body, lie) = (target.body(3000), target.body(3000));
    let [lying, honest] = [&lie, &body].map(|data| update(&body, data.clone()));
    for (place, batch) in [(1, vec![lying.clone(), honest.clone()]), (0, vec![honest, lying])] {
        match target.update(batch).await {
            // A batch that names a blob twice may be refused as a whole.
            Err(told) => return told.is(&[Code::InvalidArgument]),
            Ok(codes) => ensure!(codes.get(place) == Some(&0), "the honest one got {codes:?}"),
        }
        target.holds(&digest(&body), &body).await?;
    }
    lives(target).await
}

async fn instances(target: &Target) -> Result<()> {
    // A server may keep one store for all names, as long as it says so by doing it for every name.
    let (action, another) = (digest(&target.body(50)), format!("{}-another", target.instance));
    let recorded = |instance: &str, action: &Digest| {
        let request = put(instance, action, ActionResult::default());
        target.acknowledged(request)
    };
    let _ = recorded(&another, &action).await;
    if target.result(&action).await.is_ok() {
        return not_applicable("the server keeps one store for all instance names");
    }
    let body = target.body(400);
    let (hash, action) = (digest(&body).hash, digest(&target.body(50)));
    for instance in [
        "..",
        "a/../b",
        "a\0b",
        "blobs",
        "uploads",
        "a/blobs/b",
        "/",
        "a//b",
        " ",
    ] {
        let upload = format!("{instance}/uploads/{}/blobs/{hash}/400", target.name());
        let written = target.write(&upload, &body).await;
        let recorded = recorded(instance, &action).await;
        // Refused, or kept under that very name: never under ours.
        for told in [written.err(), recorded.err()].into_iter().flatten() {
            let refused = told.is(&[
                Code::InvalidArgument,
                Code::NotFound,
                Code::PermissionDenied,
                Code::Unimplemented,
            ]);
            refused.with_context(|| format!("{instance:?}"))?;
        }
        let found = target.result(&action).await;
        expect_code(found, &[Code::NotFound]).with_context(|| format!("{instance:?} reached our action"))?;
    }
    lives(target).await
}

const WRITE: &str = "/google.bytestream.ByteStream/Write";
const FIND: &str = METHODS[3];

async fn frames(target: &Target) -> Result<()> {
    let request = FindMissingBlobsRequest {
        instance_name: target.instance.clone(),
        ..FindMissingBlobsRequest::default()
    };
    let good = raw::frame(&request.encode_to_vec());
    let (twice, nonsense) = ([good.clone(), good.clone()].concat(), raw::frame(&[0xff; 20]));
    let split = "/build.bazel.remote.execution.v2.ContentAddressableStorage/SplitBlob";
    let execute = "/build.bazel.remote.execution.v2.Execution/Execute";
    for (method, body, status) in [
        (FIND, vec![], Code::InvalidArgument),
        (FIND, vec![0, 0, 0], Code::InvalidArgument),
        (FIND, vec![0, 0, 0, 0, 9, 1], Code::InvalidArgument),
        (FIND, nonsense.clone(), Code::InvalidArgument),
        (FIND, twice, Code::InvalidArgument),
        (FIND, vec![1, 0, 0, 0, 0], Code::Unimplemented),
        (FIND, vec![9, 0, 0, 0, 0], Code::InvalidArgument),
        (FIND, vec![0, 0xff, 0xff, 0xff, 0xff], Code::ResourceExhausted),
        (WRITE, vec![], Code::InvalidArgument),
        (WRITE, vec![0, 0, 0], Code::InvalidArgument),
        (WRITE, raw::frame(&[]), Code::InvalidArgument),
        (WRITE, nonsense, Code::InvalidArgument),
        (WRITE, vec![1, 0, 0, 0, 0], Code::Unimplemented),
        (
            WRITE,
            vec![0, 0xff, 0xff, 0xff, 0xff, 0x52, 0xff],
            Code::InvalidArgument,
        ),
        (split, good.clone(), Code::Unimplemented),
        (execute, good.clone(), Code::Unimplemented),
        ("/nobody.knows.This/Call", good.clone(), Code::Unimplemented),
        (FIND, good.clone(), Code::Ok),
    ] {
        let shown = format!("{method} {:?}", body.get(..12.min(body.len())));
        let code = raw::framed(target, method, body, None).await;
        let code = code.with_context(|| shown.clone())?;
        ensure!(code == status as i32, "{shown}: {code}, where {status:?} is right");
    }
    for (coding, status) in [("gzip", Code::Unimplemented), ("identity", Code::Ok)] {
        let code = raw::framed(target, FIND, good.clone(), Some(coding)).await?;
        ensure!(code == status as i32, "{coding}: {code}, where {status:?} is right");
    }
    lives(target).await
}

async fn exact(target: &Target) -> Result<()> {
    let (_, stored) = target.stored(70).await?;
    let (prefix, blob, hash) = (target.prefix(), target.blob_name(&stored), &stored.hash);
    let packed = |coding: &str| format!("{prefix}compressed-blobs/{coding}/{hash}/70");
    for (name, offset, limit, code) in [
        (String::new(), 0, 0, Code::InvalidArgument),
        (format!("{prefix}blobs/xyz/7"), 0, 0, Code::NotFound),
        (format!("{prefix}blobs/{hash}/x"), 0, 0, Code::InvalidArgument),
        (format!("{prefix}blobs/sha512/{hash}/70"), 0, 0, Code::InvalidArgument),
        (packed("lzma"), 0, 0, Code::InvalidArgument),
        (packed("zstd"), 0, 1, Code::InvalidArgument),
        (blob.clone(), -1, 0, Code::OutOfRange),
        (blob.clone(), i64::MIN, i64::MAX, Code::OutOfRange),
        (blob.clone(), i64::MAX, i64::MAX, Code::OutOfRange),
        (blob, 0, -1, Code::InvalidArgument),
        ("a".repeat(5000), 0, 0, Code::InvalidArgument),
    ] {
        let read = target.read(&name, offset, limit).await;
        expect_code(read, &[code]).with_context(|| format!("{name:?} from {offset}, at most {limit}"))?;
    }
    let body = target.body(200_000);
    let (absent, upload) = (digest(&body), target.upload_name(&digest(&body)));
    for name in [
        String::new(),
        target.blob_name(&absent),
        format!("{prefix}uploads/u/blobs/{}/-1", absent.hash),
        format!("{prefix}uploads/u/blobs/xyz/1"),
        format!("../x/uploads/u/blobs/{}/200000", absent.hash),
    ] {
        let written = target.write(&name, &body).await;
        expect_code(written, &[Code::InvalidArgument]).with_context(|| format!("writing {name:?}"))?;
    }
    for (at, offset) in [(0, -1), (1, 4)] {
        let mut messages = pieces(&upload, &body, 0, true);
        if let Some(message) = messages.get_mut(at) {
            message.write_offset = offset;
        }
        let written = target.write_pieces(messages).await;
        expect_code(written, &[Code::InvalidArgument]).with_context(|| format!("message {at} at {offset}"))?;
    }
    let huge = format!("{prefix}uploads/u/blobs/{}/{}", absent.hash, i64::MAX);
    expect_code(target.write(&huge, &body).await, &[Code::ResourceExhausted])?;
    target.expect_missing(&absent).await
}
