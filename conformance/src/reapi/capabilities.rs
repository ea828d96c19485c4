//! What the server says about itself, and whether it is true.

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use russet_reapi::client::CapabilitiesClient;
use russet_reapi::client::tonic::Code;
use russet_reapi::proto::health::HealthCheckRequest;
use russet_reapi::proto::reapi::batch_update_blobs_request::Request as Update;
use russet_reapi::proto::reapi::{BatchReadBlobsRequest, FindMissingBlobsRequest, GetCapabilitiesRequest};

use super::target::{Target, digest, digest_in, expect_code, told};
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
    let request = GetCapabilitiesRequest {
        instance_name: target.instance.clone(),
    };
    let answer = CapabilitiesClient::new(target.channel.clone())
        .get_capabilities(target.request(request))
        .await
        .map_err(told)?
        .into_inner();
    let cache = answer.cache_capabilities.context("no cache capabilities")?;
    ensure!(
        cache.digest_functions.contains(&1),
        "SHA-256 is not among {:?}",
        cache.digest_functions
    );
    let (low, high) = (
        answer.low_api_version.context("no low_api_version")?,
        answer.high_api_version.context("no high_api_version")?,
    );
    ensure!(
        low.major == 2 && low.minor == 0 && high.major == 2,
        "versions {}.{} to {}.{} leave clients of 2.0 out",
        low.major,
        low.minor,
        high.major,
        high.minor
    );
    ensure!(
        cache.max_batch_total_size_bytes >= 0 && cache.max_cas_blob_size_bytes >= 0,
        "negative limits"
    );
    Ok(())
}

async fn functions(target: &Target) -> Result<()> {
    for function in target.functions().await? {
        let body = target.body(1000);
        let digest = digest_in(function, &body);
        let name = match function.segment() {
            None => format!("blobs/{}/{}", digest.hash, digest.size_bytes),
            Some(segment) => format!("blobs/{segment}/{}/{}", digest.hash, digest.size_bytes),
        };
        let upload = format!("{}uploads/{}/{name}", target.prefix(), target.name());
        let before = target.missing_in(function, vec![digest.clone()]).await.map_err(told)?;
        ensure!(before.len() == 1, "{function:?}: there before it was stored");
        let size = target.write(&upload, &body).await.map_err(told)?;
        ensure!(size == 1000, "{function:?}: committed {size}");
        let after = target.missing_in(function, vec![digest.clone()]).await.map_err(told)?;
        ensure!(after.is_empty(), "{function:?}: missing after it was stored");
        let name = format!("{}{name}", target.prefix());
        let read = target.read(&name, 0, 0).await;
        ensure!(read.map_err(told)? == body, "{function:?}: other bytes came back");
        if !target.contract {
            continue;
        }
        let other_size = name.replace("/1000", "/999");
        expect_code(target.read(&other_size, 0, 0).await, &[Code::NotFound]).context("a blob of another size")?;
        for other in target.functions().await? {
            let same = digest_in(function, &body);
            let missing = target.missing_in(other, vec![same]).await.map_err(told)?;
            ensure!(
                missing.is_empty() == (other == function),
                "{function:?}'s blob, asked for by {other:?}: {missing:?}"
            );
        }
    }
    let advertised = target.capabilities().await?.digest_functions.clone();
    for (function, length) in [(2, 40), (3, 32), (5, 96), (6, 128), (7, 32)] {
        if advertised.contains(&function) {
            continue;
        }
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
        return not_applicable(format!(
            "the advertised limit of {limit} bytes is more than a message should have"
        ));
    }
    let sizes = [limit / 2, limit - limit / 2 - 10, 10];
    let bodies: Vec<Bytes> = sizes.iter().map(|size| target.body(*size)).collect();
    let digests = target
        .store(&bodies.iter().collect::<Vec<_>>())
        .await
        .context("a batch of exactly the limit")?;
    let over = target.body(limit + 1);
    let update = Update {
        digest: Some(digest(&over)),
        data: over.clone(),
        compressor: 0,
    };
    match target.update(vec![update]).await {
        Err(status) => expect_code(Err::<(), _>(status), &[Code::InvalidArgument, Code::ResourceExhausted])?,
        Ok(codes) => ensure!(codes == [3] || codes == [8], "over the limit, a batch got {codes:?}"),
    }
    target.expect_missing(&digest(&over)).await?;

    let read = |digests: Vec<_>| BatchReadBlobsRequest {
        instance_name: target.instance.clone(),
        digests,
        digest_function: 1,
        ..BatchReadBlobsRequest::default()
    };
    let answer = target
        .cas()
        .batch_read_blobs(target.request(read(digests.clone())))
        .await
        .map_err(told)
        .context("reading exactly the limit")?
        .into_inner();
    for (response, body) in answer.responses.iter().zip(&bodies) {
        ensure!(response.data == *body, "reading exactly the limit gave other bytes");
    }
    let more = target.store(&[&target.body(1)]).await?;
    let answer = target
        .cas()
        .batch_read_blobs(target.request(read([digests, more].concat())))
        .await;
    match answer {
        Err(status) => expect_code(Err::<(), _>(status), &[Code::InvalidArgument, Code::ResourceExhausted]),
        Ok(answer) => {
            let given: usize = answer
                .get_ref()
                .responses
                .iter()
                .map(|response| response.data.len())
                .sum();
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
    let name = target.upload_name(&digest);
    let first = super::target::pieces(&name, &target.body(20), 0, false);
    let answer = target.write_pieces(first).await;
    expect_code(
        answer,
        &[Code::InvalidArgument, Code::ResourceExhausted, Code::FailedPrecondition],
    )
}

async fn health(target: &Target) -> Result<()> {
    let request = HealthCheckRequest { service: String::new() };
    match target.health().check(target.request(request)).await {
        Err(status) if status.code() == Code::Unimplemented => not_applicable("the server has no health service"),
        Err(status) => Err(told(status)),
        Ok(answer) => {
            ensure!(answer.get_ref().status == 1, "status {}", answer.get_ref().status);
            Ok(())
        }
    }
}
