//! What the server says about itself, and whether it is true.

use anyhow::{Context, Result, ensure};
use russet_reapi::client::tonic::Code;
use russet_reapi::proto::health::HealthCheckRequest;
use russet_reapi::proto::reapi::FindMissingBlobsRequest;

use super::target::{Target, Told, digest, digest_in, expect_code, path, pieces, update};
use crate::{Check, checks, not_applicable};

pub(super) const CHECKS: &[Check<Target>] = checks! {
    sane, "reapi-capabilities", "REAPI GetCapabilities":
        "SHA-256 is offered, the API version includes 2.0 to 2.x, and limits are not negative";
    functions, "reapi-capabilities-digest-functions", "REAPI CacheCapabilities.digest_functions":
        "every advertised function stores and finds, every other one is INVALID_ARGUMENT";
    batch_limit, "reapi-capabilities-batch-limit", "REAPI CacheCapabilities.max_batch_total_size_bytes":
        "a batch of exactly max_batch_total_size_bytes is taken and given, one byte more is refused";
    blob_limit, "reapi-capabilities-blob-limit", "REAPI CacheCapabilities.max_cas_blob_size_bytes":
        "a blob over max_cas_blob_size_bytes is refused before it is sent";
    health, "reapi-health", "gRPC health checking protocol":
        "the standard health service says SERVING";
};

async fn sane(target: &Target) -> Result<()> {
    let answer = target.server_capabilities().await?;
    let cache = answer.cache_capabilities.context("no cache capabilities")?;
    let functions = cache.digest_functions;
    ensure!(functions.contains(&1), "SHA-256 is not among {functions:?}");
    let low = answer.low_api_version.context("no low_api_version")?;
    let high = answer.high_api_version.context("no high_api_version")?;
    let inclusive = low.major == 2 && low.minor == 0 && high.major == 2;
    ensure!(inclusive, "versions {low:?} to {high:?} leave clients of 2.0 out");
    let limits = [cache.max_batch_total_size_bytes, cache.max_cas_blob_size_bytes];
    ensure!(limits.iter().all(|limit| *limit >= 0), "negative limits: {limits:?}");
    Ok(())
}

async fn functions(target: &Target) -> Result<()> {
    for function in target.functions().await? {
        let body = target.body(1000);
        let digest = digest_in(function, &body);
        let name = format!("blobs/{}", path(function, &digest));
        let upload = format!("{}uploads/{}/{name}", target.prefix(), target.name());
        let before = target.missing_in(function, vec![digest.clone()]).await?;
        ensure!(before.len() == 1, "{function:?}: there before it was stored");
        let size = target.write(&upload, &body).await?;
        ensure!(size == 1000, "{function:?}: committed {size}");
        let after = target.missing_in(function, vec![digest.clone()]).await?;
        ensure!(after.is_empty(), "{function:?}: missing after it was stored");
        let name = format!("{}{name}", target.prefix());
        let read = target.read(&name, 0, 0).await?;
        ensure!(read == body, "{function:?}: other bytes came back");
        if !target.contract {
            continue;
        }
        let other_size = target.read(&name.replace("/1000", "/999"), 0, 0).await;
        expect_code(other_size, &[Code::NotFound]).context("a blob of another size")?;
        for other in target.functions().await? {
            let missing = target.missing_in(other, vec![digest.clone()]).await?;
            let right = missing.is_empty() == (other == function);
            ensure!(right, "{function:?}'s blob, asked for by {other:?}: {missing:?}");
        }
    }
    let advertised = &target.capabilities().await?.digest_functions;
    let lengths = [(2, 40), (3, 32), (5, 96), (6, 128), (7, 32)].into_iter();
    for (function, length) in lengths.filter(|(function, _)| !advertised.contains(function)) {
        let mut digest = digest(b"x");
        digest.hash = "a".repeat(length);
        let request = FindMissingBlobsRequest {
            instance_name: target.instance.clone(),
            blob_digests: vec![digest],
            digest_function: function,
        };
        let answer = target.cas().find_missing_blobs(target.request(request)).await;
        expect_code(answer, &[Code::InvalidArgument]).with_context(|| format!("function {function}"))?;
    }
    Ok(())
}

/// What the neighbour advertised it did not honour.
async fn batch_limit(target: &Target) -> Result<()> {
    let limit = target.capabilities().await?.max_batch_total_size_bytes;
    let limit = usize::try_from(limit).unwrap_or_default();
    if limit == 0 {
        return not_applicable("the server advertises no limit");
    }
    if limit > 128 << 20 {
        let why = format!("the advertised limit of {limit} bytes is more than a message should have");
        return not_applicable(why);
    }
    let bodies = [limit / 2, limit - limit / 2 - 10, 10].map(|size| target.body(size));
    let stored = target.store(&bodies.each_ref()).await;
    let mut digests = stored.context("a batch of exactly the limit")?;
    let over = target.body(limit + 1);
    let refusals = [Code::InvalidArgument, Code::ResourceExhausted];
    let refused = target.refuses(update(&over, over.clone()), &[3, 8], &refusals).await;
    refused.context("over the limit")?;
    target.expect_missing(&digest(&over)).await?;

    let answers = target.read_batch(digests.clone(), &[]).await;
    for (response, body) in answers.context("reading exactly the limit")?.iter().zip(&bodies) {
        ensure!(response.data == *body, "reading exactly the limit gave other bytes");
    }
    digests.push(target.stored(1).await?.1);
    match target.read_batch(digests, &[]).await {
        Err(told) => told.is(&refusals),
        Ok(answers) => {
            let given: usize = answers.iter().map(|response| response.data.len()).sum();
            ensure!(given <= limit, "{given} bytes were given, {limit} promised");
            Ok(())
        }
    }
}

async fn blob_limit(target: &Target) -> Result<()> {
    let limit = target.capabilities().await?.max_cas_blob_size_bytes;
    if limit == 0 || limit == i64::MAX {
        return not_applicable("the server advertises no limit");
    }
    let mut digest = digest(&target.body(20));
    digest.size_bytes = limit + 1;
    let first = pieces(&target.upload_name(&digest), &target.body(20), 0, false);
    let refusals = [Code::InvalidArgument, Code::ResourceExhausted, Code::FailedPrecondition];
    expect_code(target.write_pieces(first).await, &refusals)
}

async fn health(target: &Target) -> Result<()> {
    let request = target.request(HealthCheckRequest { service: String::new() });
    match target.health().check(request).await.map_err(Told) {
        Err(told) if told.0.code() == Code::Unimplemented => not_applicable("the server has no health service"),
        answer => {
            let status = answer?.get_ref().status;
            ensure!(status == 1, "status {status}");
            Ok(())
        }
    }
}
