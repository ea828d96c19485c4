//! Uploads that break off and go on.

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use futures::{StreamExt as _, stream};
use russet_reapi::client::tonic::Code;
use russet_reapi::proto::bytestream::{QueryWriteStatusRequest, QueryWriteStatusResponse};
use russet_reapi::proto::reapi::Digest;

use super::target::{Called, Target, digest, expect_code, pieces};
use crate::{Check, checks, not_applicable};

pub(super) const CHECKS: &[Check<Target>] = checks! {
    complete, "reapi-query-write-status-complete", "ByteStream QueryWriteStatus":
        "the upload of a blob that is there is complete, with its size";
    unknown, "reapi-query-write-status-unknown", "ByteStream QueryWriteStatus":
        "an upload nobody began is NOT_FOUND, or stands at nothing";
    malformed, "reapi-query-write-status-malformed", "ByteStream QueryWriteStatus":
        "a name that is none is INVALID_ARGUMENT or NOT_FOUND";
    resume, "reapi-resume-upload", "ByteStream QueryWriteStatus, Write":
        "an upload that broke off goes on where QueryWriteStatus says, and becomes the blob";
    restart, "reapi-restart-upload", "ByteStream Write":
        "an upload that broke off can begin again under the same name";
    beyond, "reapi-resume-beyond", "ByteStream WriteRequest.write_offset":
        "an upload that goes on further than it came is refused and stores nothing";
};

pub(super) async fn status(target: &Target, name: &str) -> Called<QueryWriteStatusResponse> {
    let request = target.request(QueryWriteStatusRequest {
        resource_name: name.to_owned(),
    });
    Ok(target.bytes().query_write_status(request).await?.into_inner())
}

/// Fails unless an upload stands exactly there.
async fn stands(target: &Target, name: &str, complete: bool, committed_size: i64) -> Result<()> {
    let found = status(target, name).await?;
    let right = QueryWriteStatusResponse {
        complete,
        committed_size,
    };
    ensure!(found == right, "{found:?}, where {right:?} is right");
    Ok(())
}

/// A body, its digest, and a name to upload it under.
fn begun(target: &Target, length: usize) -> (Bytes, Digest, String) {
    let body = target.body(length);
    let digest = digest(&body);
    let name = target.upload_name(&digest);
    (body, digest, name)
}

async fn complete(target: &Target) -> Result<()> {
    let (body, _, name) = begun(target, 100_000);
    target.write(&name, &body).await?;
    stands(target, &name, true, 100_000).await
}

async fn unknown(target: &Target) -> Result<()> {
    let (_, _, name) = begun(target, 100);
    match status(target, &name).await {
        Ok(_) => stands(target, &name, false, 0).await,
        Err(failure) => failure.is(&[Code::NotFound]),
    }
}

async fn malformed(target: &Target) -> Result<()> {
    for name in ["", "uploads", "uploads/x/blobs/y/z", "../uploads/x"] {
        let refused = expect_code(status(target, name).await, &[Code::InvalidArgument, Code::NotFound]);
        refused.with_context(|| format!("{name:?}"))?;
    }
    Ok(())
}

/// Sends half of it and breaks off; how much the server says it has.
async fn half(target: &Target, name: &str, body: &Bytes) -> Result<usize> {
    let sent = body.len() / 2;
    let _ = target.write_pieces(pieces(name, &body.slice(..sent), 0, false)).await;
    let committed = match status(target, name).await {
        Ok(found) => {
            ensure!(!found.complete, "half an upload is complete");
            usize::try_from(found.committed_size).context("a negative size")?
        }
        Err(failure) => failure.is(&[Code::NotFound]).map(|()| 0)?,
    };
    ensure!(committed <= sent, "{committed} committed of {sent} sent");
    Ok(committed)
}

/// Goes on there to the end, which makes it the blob.
async fn go_on(target: &Target, name: &str, body: &Bytes, from: usize) -> Result<()> {
    let (size, digest) = (target.write_pieces(pieces(name, body, from, true)).await?, digest(body));
    ensure!(size == digest.size_bytes, "committed {size}");
    target.holds(&digest, body).await
}

async fn resume(target: &Target) -> Result<()> {
    let (body, digest, name) = begun(target, 3 << 20);
    let committed = half(target, &name, &body).await?;
    if committed == 0 {
        return not_applicable("the server keeps nothing of an upload that broke off");
    }
    go_on(target, &name, &body, committed).await?;
    stands(target, &name, true, digest.size_bytes).await?;
    if !target.contract {
        return Ok(());
    }
    // The same of a call that ends with its connection, in the middle of the stream.
    let (body, _, name) = begun(target, 3 << 20);
    let sent = pieces(&name, &body.slice(..1 << 20), 0, false);
    let call = stream::iter(sent).chain(stream::pending());
    let mut client = target.bytes();
    let broken_off = async {
        while stands(target, &name, false, 1 << 20).await.is_err() {
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        answer = client.write(target.request(call)) => anyhow::bail!("answered in the middle: {answer:?}"),
        () = broken_off => {}
    }
    let kept = stands(target, &name, false, 1 << 20).await;
    kept.context("what was sent is lost")?;
    let elsewhere = target.write_pieces(pieces(&name, &body, 5, true)).await;
    expect_code(elsewhere, &[Code::InvalidArgument]).context("not where it ended")?;
    go_on(target, &name, &body, 1 << 20).await
}

async fn restart(target: &Target) -> Result<()> {
    let (body, digest, name) = begun(target, 3 << 20);
    half(target, &name, &body).await?;
    go_on(target, &name, &body, 0).await?;
    target.expect_present(&digest).await
}

async fn beyond(target: &Target) -> Result<()> {
    let (body, digest, name) = begun(target, 3 << 20);
    half(target, &name, &body).await?;
    let outcome = target.write_pieces(pieces(&name, &body, 2 << 20, true)).await;
    let refusals = [
        Code::InvalidArgument,
        Code::OutOfRange,
        Code::NotFound,
        Code::FailedPrecondition,
    ];
    expect_code(outcome, &refusals)?;
    target.expect_missing(&digest).await
}
