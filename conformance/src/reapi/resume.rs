//! Uploads that break off and go on.

use anyhow::{Context, Result, ensure};
use futures::{StreamExt as _, stream};
use russet_reapi::client::tonic::Code;
use russet_reapi::proto::bytestream::{QueryWriteStatusRequest, QueryWriteStatusResponse};

use super::target::{Target, digest, expect_code, pieces, told};
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

pub(super) async fn status(
    target: &Target,
    name: &str,
) -> Result<QueryWriteStatusResponse, russet_reapi::client::tonic::Status> {
    let request = QueryWriteStatusRequest {
        resource_name: name.to_owned(),
    };
    Ok(target
        .bytes()
        .query_write_status(target.request(request))
        .await?
        .into_inner())
}

async fn complete(target: &Target) -> Result<()> {
    let body = target.body(100_000);
    let name = target.upload_name(&digest(&body));
    target.write(&name, &body).await.map_err(told)?;
    let found = status(target, &name).await.map_err(told)?;
    ensure!(
        found.complete && found.committed_size == 100_000,
        "complete {}, committed {}",
        found.complete,
        found.committed_size
    );
    Ok(())
}

async fn unknown(target: &Target) -> Result<()> {
    let name = target.upload_name(&digest(&target.body(100)));
    match status(target, &name).await {
        Ok(found) => ensure!(
            !found.complete && found.committed_size == 0,
            "complete {}, committed {}",
            found.complete,
            found.committed_size
        ),
        Err(failure) => expect_code(Err::<(), _>(failure), &[Code::NotFound])?,
    }
    Ok(())
}

async fn malformed(target: &Target) -> Result<()> {
    for name in ["", "uploads", "uploads/x/blobs/y/z", "../uploads/x"] {
        expect_code(status(target, name).await, &[Code::InvalidArgument, Code::NotFound])
            .with_context(|| format!("{name:?}"))?;
    }
    Ok(())
}

/// Sends half of it and breaks off; how much the server says it has.
async fn half(target: &Target, name: &str, body: &bytes::Bytes) -> Result<usize> {
    let sent = body.len() / 2;
    let _ = target.write_pieces(pieces(name, &body.slice(..sent), 0, false)).await;
    let committed = match status(target, name).await {
        Ok(found) => {
            ensure!(!found.complete, "half an upload is complete");
            usize::try_from(found.committed_size).context("a negative size")?
        }
        Err(failure) => {
            expect_code(Err::<(), _>(failure), &[Code::NotFound])?;
            0
        }
    };
    ensure!(committed <= sent, "{committed} committed of {sent} sent");
    Ok(committed)
}

async fn resume(target: &Target) -> Result<()> {
    let body = target.body(3 << 20);
    let name = target.upload_name(&digest(&body));
    let committed = half(target, &name, &body).await?;
    if committed == 0 {
        return not_applicable("the server keeps nothing of an upload that broke off");
    }
    let size = target
        .write_pieces(pieces(&name, &body, committed, true))
        .await
        .map_err(told)?;
    ensure!(size == digest(&body).size_bytes, "committed {size}");
    let read = target
        .read(&target.blob_name(&digest(&body)), 0, 0)
        .await
        .map_err(told)?;
    ensure!(read == body, "other bytes came of it");
    let found = status(target, &name).await.map_err(told)?;
    ensure!(
        found.complete && found.committed_size == size,
        "what was resumed is not complete"
    );
    if !target.contract {
        return Ok(());
    }
    // The same of a call that ends with its connection, in the middle of the stream.
    let body = target.body(3 << 20);
    let name = target.upload_name(&digest(&body));
    let sent = pieces(&name, &body.slice(..1 << 20), 0, false);
    let call = stream::iter(sent).chain(stream::pending());
    let mut client = target.bytes();
    let broken_off = async {
        while !status(target, &name)
            .await
            .is_ok_and(|found| found.committed_size == 1 << 20)
        {
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        answer = client.write(target.request(call)) => anyhow::bail!("answered in the middle: {answer:?}"),
        () = broken_off => {}
    }
    let found = status(target, &name).await.map_err(told)?;
    ensure!(
        !found.complete && found.committed_size == 1 << 20,
        "what was sent is lost"
    );
    let elsewhere = target.write_pieces(pieces(&name, &body, 5, true)).await;
    expect_code(elsewhere, &[Code::InvalidArgument]).context("not where it ended")?;
    let size = target
        .write_pieces(pieces(&name, &body, 1 << 20, true))
        .await
        .map_err(told)?;
    ensure!(size == 3 << 20, "committed {size}");
    let read = target.read(&target.blob_name(&digest(&body)), 0, 0).await;
    ensure!(read.map_err(told)? == body, "other bytes came of it");
    Ok(())
}

async fn restart(target: &Target) -> Result<()> {
    let body = target.body(3 << 20);
    let name = target.upload_name(&digest(&body));
    half(target, &name, &body).await?;
    let size = target.write(&name, &body).await.map_err(told)?;
    ensure!(size == digest(&body).size_bytes, "committed {size}");
    let missing = target.missing(vec![digest(&body)]).await.map_err(told)?;
    ensure!(missing.is_empty(), "acknowledged, and missing");
    Ok(())
}

async fn beyond(target: &Target) -> Result<()> {
    let body = target.body(3 << 20);
    let name = target.upload_name(&digest(&body));
    half(target, &name, &body).await?;
    let outcome = target.write_pieces(pieces(&name, &body, 2 << 20, true)).await;
    expect_code(
        outcome,
        &[
            Code::InvalidArgument,
            Code::OutOfRange,
            Code::NotFound,
            Code::FailedPrecondition,
        ],
    )?;
    target.expect_missing(&digest(&body)).await
}
