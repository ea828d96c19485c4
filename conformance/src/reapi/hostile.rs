//! Requests no honest client sends. The right code, nothing stored, and the server lives on.

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use prost::Message as _;
use russet_reapi::client::tonic::Code;
use russet_reapi::proto::reapi::batch_update_blobs_request::Request as Update;
use russet_reapi::proto::reapi::{
    ActionResult, BatchUpdateBlobsRequest, BatchUpdateBlobsResponse, Directory, DirectoryNode, GetTreeRequest,
};
use russet_reapi::wire::put_bytes;

use super::raw;
use super::target::{Target, digest, expect_code, pieces, told};
use crate::{Check, check, not_applicable};

pub(super) const CHECKS: &[Check<Target>] = &[
    check!(
        garbage,
        "reapi-hostile-garbage",
        "bytes that are no protobuf are refused by every method",
        "gRPC status codes"
    ),
    check!(
        truncated,
        "reapi-hostile-truncated",
        "a message cut anywhere stores nothing",
        "Protocol Buffers encoding"
    ),
    check!(
        unknown_method,
        "reapi-hostile-unknown-method",
        "methods and services that do not exist are UNIMPLEMENTED",
        "gRPC status codes"
    ),
    check!(
        oversized,
        "reapi-hostile-oversized-message",
        "a message far beyond every limit is refused, and nothing of it is stored",
        "gRPC status codes"
    ),
    check!(
        absurd_sizes,
        "reapi-hostile-absurd-sizes",
        "digests that claim an absurd size cost nothing and store nothing",
        "REAPI Digest"
    ),
    check!(
        many,
        "reapi-hostile-many-digests",
        "a question about a hundred thousand digests is answered or refused, not died of",
        "REAPI FindMissingBlobs"
    ),
    check!(
        cycle,
        "reapi-hostile-tree",
        "GetTree of a deep chain, or of a blob that is no directory, ends",
        "REAPI GetTree"
    ),
    check!(
        mistyped,
        "reapi-hostile-mistyped",
        "fields of another type than the protocol says are refused or ignored, and nothing is stored",
        "Protocol Buffers encoding"
    ),
    check!(
        how_many,
        "reapi-hostile-number-of-messages",
        "a call that takes one message refuses none and two, and nothing is stored",
        "gRPC over HTTP/2: unary calls"
    ),
    check!(
        changing_mind,
        "reapi-hostile-upload-changes-its-mind",
        "an upload that names another resource on its way is refused, and neither is stored",
        "ByteStream WriteRequest.resource_name"
    ),
    check!(
        twins,
        "reapi-hostile-twins",
        "of two blobs of one batch with the same digest the one that lies is refused, and the other is what is read",
        "REAPI BatchUpdateBlobs"
    ),
    check!(
        instances,
        "reapi-hostile-instance-names",
        "instance names with traversal, NUL or reserved words reach nobody else's blobs",
        "REAPI instance_name"
    ),
];

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
    let body = target.body(100);
    let stored = target
        .store(&[&body])
        .await
        .context("the server does not work any more")?;
    let missing = target.missing(stored).await.map_err(told)?;
    ensure!(missing.is_empty(), "the server does not work any more");
    Ok(())
}

async fn garbage(target: &Target) -> Result<()> {
    for method in METHODS {
        for bytes in [
            &b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"[..],
            b"\x0a\xff\x01",
            b"\x08",
        ] {
            let code = raw::refused(target, method, Bytes::from_static(bytes)).await?;
            // Most libraries say INTERNAL for what they cannot decode; UNKNOWN or OK would hide it.
            ensure!(
                matches!(code, Code::InvalidArgument | Code::Internal),
                "{method} of {bytes:?}: {code:?}"
            );
        }
    }
    lives(target).await
}

async fn truncated(target: &Target) -> Result<()> {
    let body = target.body(300);
    let request = BatchUpdateBlobsRequest {
        instance_name: target.instance.clone(),
        requests: vec![Update {
            digest: Some(digest(&body)),
            data: body.clone(),
            compressor: 0,
        }],
        digest_function: 0,
    };
    let whole = request.encode_to_vec();
    for cut in (1..whole.len()).step_by(7) {
        let bytes = Bytes::from(whole.get(..cut).unwrap_or_default().to_vec());
        // Cut between two fields it is a smaller request, which may well be answered.
        let _ = raw::call(target, UPDATE, bytes).await;
        target
            .expect_missing(&digest(&body))
            .await
            .with_context(|| format!("cut at {cut}"))?;
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
    let update = Update {
        digest: Some(digest(&body)),
        data: body.clone(),
        compressor: 0,
    };
    match target.update(vec![update]).await {
        // A connection cut off while sending is a refusal too.
        Err(status) => expect_code(
            Err::<(), _>(status),
            &[
                Code::InvalidArgument,
                Code::ResourceExhausted,
                Code::OutOfRange,
                Code::Unavailable,
                Code::Internal,
                Code::Cancelled,
                Code::Unknown,
            ],
        )?,
        Ok(codes) => ensure!(codes == [3] || codes == [8], "codes {codes:?}"),
    }
    target.expect_missing(&digest(&body)).await?;
    lives(target).await
}

async fn absurd_sizes(target: &Target) -> Result<()> {
    let body = target.body(100);
    for size in [i64::MAX, i64::MAX - 1, 1 << 50] {
        let mut claimed = digest(&body);
        claimed.size_bytes = size;
        let update = Update {
            digest: Some(claimed.clone()),
            data: body.clone(),
            compressor: 0,
        };
        match target.update(vec![update]).await {
            Ok(codes) => ensure!(codes != [0], "a blob of 100 bytes was taken for {size}"),
            Err(status) => expect_code(Err::<(), _>(status), &[Code::InvalidArgument, Code::ResourceExhausted])?,
        }
        let written = target.write(&target.upload_name(&claimed), &body).await;
        expect_code(
            written,
            &[
                Code::InvalidArgument,
                Code::ResourceExhausted,
                Code::FailedPrecondition,
                Code::OutOfRange,
            ],
        )
        .with_context(|| format!("an upload of {size}"))?;
        target
            .read(&target.blob_name(&claimed), 0, 0)
            .await
            .err()
            .context("it was read")?;
    }
    target.expect_missing(&digest(&body)).await?;
    lives(target).await
}

async fn many(target: &Target) -> Result<()> {
    let digests: Vec<_> = (0..100_000_u32).map(|number| digest(&number.to_be_bytes())).collect();
    if let Err(status) = target.missing(digests).await {
        expect_code(Err::<(), _>(status), &[Code::InvalidArgument, Code::ResourceExhausted])?;
    }
    lives(target).await
}

async fn cycle(target: &Target) -> Result<()> {
    let mut chain = Directory::default();
    let mut bodies: Vec<Bytes> = Vec::new();
    for depth in 0..2000 {
        let bytes = Bytes::from(chain.encode_to_vec());
        let below = digest(&bytes);
        bodies.push(bytes);
        chain = Directory {
            directories: vec![DirectoryNode {
                name: format!("{}-{depth}", target.instance),
                digest: Some(below),
            }],
            ..Directory::default()
        };
    }
    bodies.push(chain.encode_to_vec().into());
    for part in bodies.chunks(500) {
        target.store(&part.iter().collect::<Vec<_>>()).await?;
    }
    let noise = target.body(1000);
    target.store(&[&noise]).await?;
    for root in [digest(&chain.encode_to_vec()), digest(&noise)] {
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

/// A number where bytes belong, and the other way round. Some libraries take such fields for ones they do not know.
async fn mistyped(target: &Target) -> Result<()> {
    let body = target.body(300);
    let stored = digest(&body);
    let request = |part: &[u8]| {
        let mut bytes = Vec::new();
        if !target.instance.is_empty() {
            put_bytes(&mut bytes, 1, target.instance.as_bytes());
        }
        put_bytes(&mut bytes, 2, part);
        Bytes::from(bytes)
    };
    let mut without_digest = vec![1 << 3, 7];
    put_bytes(&mut without_digest, 2, &body);
    let mut without_data = Vec::new();
    put_bytes(&mut without_data, 1, &stored.encode_to_vec());
    without_data.extend_from_slice(&[2 << 3, 7]);
    // A hash that is a number, and a size that is text.
    let mut wrong_digest = vec![1 << 3, 7];
    put_bytes(&mut wrong_digest, 2, b"300");
    let mut with_wrong_digest = Vec::new();
    put_bytes(&mut with_wrong_digest, 1, &wrong_digest);
    put_bytes(&mut with_wrong_digest, 2, &body);
    for part in [&without_digest, &without_data, &with_wrong_digest] {
        if let Ok(answer) = raw::call(target, UPDATE, request(part)).await {
            let answer = BatchUpdateBlobsResponse::decode(answer).context("no answer to a batch")?;
            let codes: Vec<_> = answer
                .responses
                .iter()
                .map(|one| one.status.as_ref().map_or(0, |status| status.code))
                .collect();
            ensure!(!codes.contains(&0), "mis-typed, but {codes:?}");
        }
        target.expect_missing(&stored).await?;
    }
    let action = digest(&target.body(50));
    // The result of the action is a number.
    let mut result = Vec::new();
    if !target.instance.is_empty() {
        put_bytes(&mut result, 1, target.instance.as_bytes());
    }
    put_bytes(&mut result, 2, &action.encode_to_vec());
    result.extend_from_slice(&[3 << 3, 7]);
    raw::refused(target, METHODS[2], result).await?;
    expect_code(target.result(&action).await, &[Code::NotFound])?;
    lives(target).await
}

async fn how_many(target: &Target) -> Result<()> {
    let body = target.body(300);
    let request = BatchUpdateBlobsRequest {
        instance_name: target.instance.clone(),
        requests: vec![Update {
            digest: Some(digest(&body)),
            data: body.clone(),
            compressor: 0,
        }],
        digest_function: 0,
    };
    let once = Bytes::from(request.encode_to_vec());
    for messages in [vec![], vec![once.clone(), once]] {
        let count = messages.len();
        let answer = raw::call_with(target, UPDATE, messages).await;
        expect_code(
            answer,
            &[
                Code::InvalidArgument,
                Code::Internal,
                Code::Unimplemented,
                Code::Cancelled,
                Code::Unknown,
            ],
        )
        .with_context(|| format!("{count} messages"))?;
        target.expect_missing(&digest(&body)).await?;
    }
    lives(target).await
}

async fn changing_mind(target: &Target) -> Result<()> {
    let (first, second) = (target.body(200_000), target.body(200_000));
    let names = [&first, &second].map(|body| target.upload_name(&digest(body)));
    let [ours, theirs] = &names;
    let mut messages = pieces(ours, &first, 0, true);
    if let Some(last) = messages.last_mut() {
        last.resource_name.clone_from(theirs);
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
    let update = |data: &Bytes| Update {
        digest: Some(digest(&body)),
        data: data.clone(),
        compressor: 0,
    };
    for batch in [[update(&lie), update(&body)], [update(&body), update(&lie)]] {
        match target.update(batch.to_vec()).await {
            // A batch that names a blob twice may be refused as a whole.
            Err(status) => return expect_code(Err::<(), _>(status), &[Code::InvalidArgument]),
            Ok(codes) => {
                let honest = batch.iter().position(|one| one.data == body).unwrap_or(0);
                ensure!(codes.get(honest) == Some(&0), "the honest one got {codes:?}");
            }
        }
        let read = target.read(&target.blob_name(&digest(&body)), 0, 0).await;
        ensure!(read.map_err(told)? == body, "other bytes came back");
    }
    lives(target).await
}

/// A server may keep one store for all names, as long as it says so by doing it for every name.
async fn shares_instances(target: &Target) -> Result<bool> {
    let action = digest(&target.body(50));
    let request = russet_reapi::proto::reapi::UpdateActionResultRequest {
        instance_name: format!("{}-another", target.instance),
        action_digest: Some(action.clone()),
        action_result: Some(ActionResult::default()),
        ..Default::default()
    };
    let _ = target.actions().update_action_result(target.request(request)).await;
    Ok(target.result(&action).await.is_ok())
}

async fn instances(target: &Target) -> Result<()> {
    if shares_instances(target).await? {
        return not_applicable("the server keeps one store for all instance names");
    }
    let body = target.body(400);
    let stored = digest(&body);
    let action = digest(&target.body(50));
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
        let upload = format!(
            "{instance}/uploads/{}/blobs/{}/{}",
            target.name(),
            stored.hash,
            stored.size_bytes
        );
        let written = target.write(&upload, &body).await;
        let request = russet_reapi::proto::reapi::UpdateActionResultRequest {
            instance_name: instance.to_owned(),
            action_digest: Some(action.clone()),
            action_result: Some(ActionResult::default()),
            ..Default::default()
        };
        let recorded = target.actions().update_action_result(target.request(request)).await;
        // Refused, or kept under that very name: never under ours.
        for status in [written.err(), recorded.err()].into_iter().flatten() {
            ensure!(
                matches!(
                    status.code(),
                    Code::InvalidArgument | Code::NotFound | Code::PermissionDenied | Code::Unimplemented
                ),
                "{instance:?}: {:?}",
                status.code()
            );
        }
        let found = target.result(&action).await;
        expect_code(found, &[Code::NotFound]).with_context(|| format!("{instance:?} reached our action"))?;
    }
    lives(target).await
}
