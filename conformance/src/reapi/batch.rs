//! BatchUpdateBlobs and BatchReadBlobs: every blob has its own fate.

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use russet_reapi::pack;
use russet_reapi::proto::reapi::batch_update_blobs_request::Request as Update;
use russet_reapi::proto::reapi::{BatchReadBlobsRequest, BatchReadBlobsResponse, Digest};

use super::target::{Target, digest, told};
use crate::{Check, checks, not_applicable};

pub(super) const CHECKS: &[Check<Target>] = checks! {
    round_trip, "reapi-batch-round-trip", "REAPI BatchUpdateBlobs, BatchReadBlobs":
        "a batch of blobs of all sizes comes back byte by byte, each under its digest";
    mixed_update, "reapi-batch-update-codes", "REAPI BatchUpdateBlobs":
        "a blob that does not match its digest is INVALID_ARGUMENT and not stored; its neighbours are stored";
    mixed_read, "reapi-batch-read-codes", "REAPI BatchReadBlobs":
        "what is missing is NOT_FOUND, what is there comes, in one answer";
    again, "reapi-batch-update-again", "REAPI BatchUpdateBlobs":
        "storing what is there is OK; two of the same in one batch too";
    empty, "reapi-batch-empty", "REAPI BatchUpdateBlobs, BatchReadBlobs":
        "empty batches and empty blobs are fine";
    zstd_update, "reapi-batch-update-zstd", "REAPI CacheCapabilities.supported_batch_update_compressors":
        "zstd blobs are stored as what they decompress to; damaged, longer or other content is INVALID_ARGUMENT";
    zstd_read, "reapi-batch-read-zstd", "REAPI BatchReadBlobsRequest.acceptable_compressors":
        "zstd is sent only to those who accept it, and decompresses to the blob";
    unknown_compressor, "reapi-batch-unknown-compressor", "REAPI BatchUpdateBlobs":
        "a compressor that was not advertised is INVALID_ARGUMENT and nothing is stored";
};

pub(super) async fn read(target: &Target, digests: Vec<Digest>, compressors: &[i32]) -> Result<BatchReadBlobsResponse> {
    let request = BatchReadBlobsRequest {
        instance_name: target.instance.clone(),
        digests,
        acceptable_compressors: compressors.to_vec(),
        digest_function: 1,
    };
    let answer = target.cas().batch_read_blobs(target.request(request)).await;
    Ok(answer.map_err(told)?.into_inner())
}

fn update(body: &Bytes, data: impl Into<Bytes>, compressor: i32) -> Update {
    Update {
        digest: Some(digest(body)),
        data: data.into(),
        compressor,
    }
}

async fn round_trip(target: &Target) -> Result<()> {
    let bodies: Vec<Bytes> = [1, 2, 100, 4096, 65_536, 100_000, 500_000]
        .iter()
        .map(|size| target.body(*size))
        .collect();
    let digests = target.store(&bodies.iter().collect::<Vec<_>>()).await?;
    let answer = read(target, digests.clone(), &[]).await?;
    ensure!(
        answer.responses.len() == bodies.len(),
        "{} answers",
        answer.responses.len()
    );
    for (digest, body) in digests.iter().zip(&bodies) {
        let found = answer
            .responses
            .iter()
            .find(|response| response.digest.as_ref() == Some(digest))
            .with_context(|| format!("no answer for {digest:?}"))?;
        let code = found.status.as_ref().map_or(0, |status| status.code);
        ensure!(code == 0 && found.data == *body, "{digest:?}: code {code}");
        ensure!(found.compressor == 0, "compressed, though nobody asked for it");
    }
    Ok(())
}

async fn mixed_update(target: &Target) -> Result<()> {
    let (good, bad, short, also) = (target.body(500), target.body(500), target.body(500), target.body(500));
    let mut other = bad.to_vec();
    if let Some(byte) = other.get_mut(250) {
        *byte ^= 1;
    }
    let mut flipped = short.to_vec();
    flipped.pop();
    let codes = target
        .update(vec![
            update(&good, good.clone(), 0),
            update(&bad, other, 0),
            update(&short, flipped, 0),
            update(&also, also.clone(), 0),
        ])
        .await
        .map_err(told)?;
    ensure!(codes == [0, 3, 3, 0], "codes {codes:?}, where [0, 3, 3, 0] is right");
    let missing = target
        .missing([&good, &bad, &short, &also].map(|body| digest(body)).to_vec())
        .await
        .map_err(told)?;
    ensure!(
        missing == [digest(&bad), digest(&short)],
        "{} are missing",
        missing.len()
    );
    Ok(())
}

async fn mixed_read(target: &Target) -> Result<()> {
    let body = target.body(500);
    let mut asked = target.store(&[&body]).await?;
    asked.push(digest(&target.body(500)));
    let answer = read(target, asked.clone(), &[]).await?;
    for (digest, code) in asked.iter().zip([0, 5]) {
        let found = answer
            .responses
            .iter()
            .find(|found| found.digest.as_ref() == Some(digest));
        let found = found.context("a blob without an answer")?;
        let seen = found.status.as_ref().map_or(0, |status| status.code);
        ensure!(seen == code, "code {seen}, where {code} is right");
        ensure!(code != 0 || found.data == body, "other bytes");
    }
    Ok(())
}

async fn again(target: &Target) -> Result<()> {
    let body = target.body(700);
    for _ in 0..2 {
        target.store(&[&body, &body]).await?;
    }
    let answer = read(target, vec![digest(&body)], &[]).await?;
    ensure!(
        answer.responses.first().is_some_and(|found| found.data == body),
        "other bytes"
    );
    Ok(())
}

async fn empty(target: &Target) -> Result<()> {
    ensure!(
        target.update(Vec::new()).await.map_err(told)?.is_empty(),
        "answers to nothing"
    );
    ensure!(
        read(target, Vec::new(), &[]).await?.responses.is_empty(),
        "answers to nothing"
    );
    target.store(&[&Bytes::new()]).await?;
    let answer = read(target, vec![digest(b"")], &[]).await?;
    let first = answer.responses.first().context("no answer")?;
    let code = first.status.as_ref().map_or(0, |status| status.code);
    ensure!(code == 0 && first.data.is_empty(), "code {code}");
    Ok(())
}

async fn zstd_update(target: &Target) -> Result<()> {
    if !target
        .capabilities()
        .await?
        .supported_batch_update_compressors
        .contains(&1)
    {
        return not_applicable("zstd batches are not advertised");
    }
    let body = target.body(50_000);
    let packed = pack::deflate(&body, 3)?;
    let codes = target
        .update(vec![update(&body, packed.clone(), 1)])
        .await
        .map_err(told)?;
    ensure!(codes == [0], "codes {codes:?}");
    let answer = read(target, vec![digest(&body)], &[]).await?;
    ensure!(
        answer.responses.first().is_some_and(|found| found.data == body),
        "other bytes"
    );

    // What does not compress is longer that way, and the same blob.
    let noise = Bytes::from(packed.clone());
    let longer = pack::deflate(&noise, 3)?;
    let codes = target.update(vec![update(&noise, longer, 1)]).await.map_err(told)?;
    ensure!(codes == [0], "codes {codes:?}");
    let read = target.read(&target.blob_name(&digest(&noise)), 0, 0).await;
    ensure!(read.map_err(told)? == noise, "other bytes");

    let (victim, bomb) = (target.body(1000), pack::deflate(&vec![0; 32 << 20], 19)?);
    for (what, data) in [
        ("other content", packed.clone()),
        ("a bomb", bomb),
        ("cut short", packed.get(..packed.len() / 2).unwrap_or_default().to_vec()),
        ("not zstd", b"not zstd at all".to_vec()),
    ] {
        let codes = target.update(vec![update(&victim, data, 1)]).await.map_err(told)?;
        ensure!(codes == [3], "{what}: codes {codes:?}, where [3] is right");
    }
    target.expect_missing(&digest(&victim)).await
}

async fn zstd_read(target: &Target) -> Result<()> {
    let supported = target.capabilities().await?.supported_compressors.contains(&1);
    let body = target.body(50_000);
    let digests = target.store(&[&body]).await?;
    let plain = read(target, digests.clone(), &[]).await?;
    let plain = plain.responses.first().context("no answer")?;
    ensure!(
        plain.compressor == 0 && plain.data == body,
        "compressed for someone who did not ask"
    );
    let answer = read(target, digests, &[0, 1]).await?;
    let found = answer.responses.first().context("no answer")?;
    let content = match found.compressor {
        0 => found.data.to_vec(),
        1 if supported => pack::inflate(&found.data, body.len() as u64)?,
        other => anyhow::bail!("compressor {other} was not advertised"),
    };
    ensure!(content == body, "other bytes");
    Ok(())
}

async fn unknown_compressor(target: &Target) -> Result<()> {
    let body = target.body(300);
    for compressor in [2, 3, 99] {
        match target.update(vec![update(&body, body.clone(), compressor)]).await {
            Ok(codes) => ensure!(
                codes == [3],
                "compressor {compressor}: codes {codes:?}, where [3] is right"
            ),
            Err(status) => super::target::expect_code(
                Err::<(), _>(status),
                &[russet_reapi::client::tonic::Code::InvalidArgument],
            )?,
        }
    }
    target.expect_missing(&digest(&body)).await
}
