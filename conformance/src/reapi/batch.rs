//! BatchUpdateBlobs and BatchReadBlobs: every blob has its own fate.

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use russet_reapi::client::tonic::Code;
use russet_reapi::pack;
use russet_reapi::proto::reapi::Digest;
use russet_reapi::proto::reapi::batch_read_blobs_response::Response;
use russet_reapi::proto::reapi::batch_update_blobs_request::Request as Update;

use super::target::{Target, digest, update};
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

/// The only blob of a batch.
async fn read_one(target: &Target, digest: &Digest, compressors: &[i32]) -> Result<Response> {
    let found = target.read_batch(vec![digest.clone()], compressors).await?;
    found.into_iter().next().context("no answer")
}

fn found<'r>(responses: &'r [Response], digest: &Digest) -> Result<(i32, &'r Response)> {
    let mut all = responses.iter();
    let found = all.find(|response| response.digest.as_ref() == Some(digest));
    let found = found.with_context(|| format!("no answer for {digest:?}"))?;
    Ok((found.status.as_ref().map_or(0, |status| status.code), found))
}

/// Fails unless a batch of updates gets exactly these codes.
async fn updates(target: &Target, what: &str, updates: Vec<Update>, right: &[i32]) -> Result<()> {
    let codes = target.update(updates).await?;
    ensure!(codes == right, "{what}: codes {codes:?}, where {right:?} is right");
    Ok(())
}

fn compressed(body: &Bytes, data: Vec<u8>, compressor: i32) -> Vec<Update> {
    vec![Update {
        compressor,
        ..update(body, data)
    }]
}

async fn round_trip(target: &Target) -> Result<()> {
    let bodies = [1, 2, 100, 4096, 65_536, 100_000, 500_000].map(|size| target.body(size));
    let digests = target.store(&bodies.each_ref()).await?;
    let answers = target.read_batch(digests.clone(), &[]).await?;
    ensure!(answers.len() == bodies.len(), "{} answers", answers.len());
    for (digest, body) in digests.iter().zip(&bodies) {
        let (code, found) = found(&answers, digest)?;
        ensure!(code == 0 && found.data == *body, "{digest:?}: code {code}");
        ensure!(found.compressor == 0, "compressed, though nobody asked for it");
    }
    Ok(())
}

async fn mixed_update(target: &Target) -> Result<()> {
    let [good, bad, short, also] = [(); 4].map(|()| target.body(500));
    let mut other = bad.to_vec();
    if let Some(byte) = other.get_mut(250) {
        *byte ^= 1;
    }
    let batch = vec![
        update(&good, good.clone()),
        update(&bad, other),
        update(&short, short.slice(..499)),
        update(&also, also.clone()),
    ];
    updates(target, "two of four", batch, &[0, 3, 3, 0]).await?;
    let asked = [&good, &bad, &short, &also].map(|body| digest(body));
    let missing = target.missing(asked.to_vec()).await?;
    let both = missing == [digest(&bad), digest(&short)];
    ensure!(both, "{} are missing", missing.len());
    Ok(())
}

async fn mixed_read(target: &Target) -> Result<()> {
    let (body, present) = target.stored(500).await?;
    let asked = [present, digest(&target.body(500))];
    let answers = target.read_batch(asked.to_vec(), &[]).await?;
    for (digest, right) in asked.iter().zip([0, 5]) {
        let (code, found) = found(&answers, digest)?;
        ensure!(code == right, "code {code}, where {right} is right");
        ensure!(code != 0 || found.data == body, "other bytes");
    }
    Ok(())
}

async fn again(target: &Target) -> Result<()> {
    let body = target.body(700);
    for _ in 0..2 {
        target.store(&[&body, &body]).await?;
    }
    let found = read_one(target, &digest(&body), &[]).await?;
    ensure!(found.data == body, "other bytes");
    Ok(())
}

async fn empty(target: &Target) -> Result<()> {
    updates(target, "nothing", Vec::new(), &[]).await?;
    let nothing = target.read_batch(Vec::new(), &[]).await?.is_empty();
    ensure!(nothing, "answers to nothing");
    target.store(&[&Bytes::new()]).await?;
    let answers = target.read_batch(vec![digest(b"")], &[]).await?;
    let (code, found) = found(&answers, &digest(b""))?;
    ensure!(code == 0 && found.data.is_empty(), "code {code}");
    Ok(())
}

async fn zstd_update(target: &Target) -> Result<()> {
    let supported = &target.capabilities().await?.supported_batch_update_compressors;
    if !supported.contains(&1) {
        return not_applicable("zstd batches are not advertised");
    }
    let body = target.body(50_000);
    let packed = pack::deflate(&body, 3)?;
    updates(target, "packed", compressed(&body, packed.clone(), 1), &[0]).await?;
    let found = read_one(target, &digest(&body), &[]).await?;
    ensure!(found.data == body, "other bytes");

    // What does not compress is longer that way, and the same blob.
    let noise = Bytes::from(packed.clone());
    let longer = pack::deflate(&noise, 3)?;
    updates(target, "longer", compressed(&noise, longer, 1), &[0]).await?;
    target.holds(&digest(&noise), &noise).await?;

    let (victim, bomb) = (target.body(1000), pack::deflate(&vec![0; 32 << 20], 19)?);
    let half = packed.get(..packed.len() / 2).unwrap_or_default().to_vec();
    for (what, data) in [
        ("other content", packed),
        ("a bomb", bomb),
        ("cut short", half),
        ("not zstd", b"not zstd at all".to_vec()),
    ] {
        updates(target, what, compressed(&victim, data, 1), &[3]).await?;
    }
    target.expect_missing(&digest(&victim)).await
}

async fn zstd_read(target: &Target) -> Result<()> {
    let supported = target.capabilities().await?.supported_compressors.contains(&1);
    let (body, digest) = target.stored(50_000).await?;
    let plain = read_one(target, &digest, &[]).await?;
    let asked = plain.compressor == 0 && plain.data == body;
    ensure!(asked, "compressed for someone who did not ask");
    let found = read_one(target, &digest, &[0, 1]).await?;
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
        for update in compressed(&body, body.to_vec(), compressor) {
            let refused = target.refuses(update, &[3], &[Code::InvalidArgument]).await;
            refused.with_context(|| format!("compressor {compressor}"))?;
        }
    }
    target.expect_missing(&digest(&body)).await
}
