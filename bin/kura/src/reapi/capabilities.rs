//! What we can do, told truthfully and to anyone.

use super::body::Body;
use super::call::Call;
use super::message::{self, encode};
use super::status::Status;
use hyper::body::Incoming;
use prost::Message as _;
use russet_reapi::Function;
use russet_reapi::proto::{reapi, semver};

/// Most bytes of content in a batch. Answers have to fit what clients accept unless told otherwise, which is 4 MiB with all
/// that surrounds the content.
const BATCH: u64 = (4 << 20) - (256 << 10);
/// The same for clients of the account's own tools, which accept 256 MiB and send 32 MiB whatever they are told.
const FIRST_PARTY_BATCH: u64 = 32 << 20;

/// Most bytes of content this caller may put into a batch.
pub(super) fn batch_limit(call: &Call<'_>) -> u64 {
    if call.is_first_party() {
        FIRST_PARTY_BATCH
    } else {
        BATCH
    }
}

/// Most bytes of a batch message: content, and names and framing around it.
pub(super) fn batch_message(call: &Call<'_>) -> usize {
    usize::try_from(batch_limit(call)).unwrap_or(usize::MAX / 2) + (8 << 20)
}

/// `GetCapabilities`. Needs no grant, so that a client without one learns that from the call that needs it.
pub(super) async fn get(call: &Call<'_>, incoming: Incoming) -> Result<Body, Status> {
    let message = message::only(incoming, 64 * 1024, call.stall, &call.service.shared.budget).await?;
    // The answer is the same for every instance, but what is no request gets none.
    reapi::GetCapabilitiesRequest::decode(message.bytes)
        .map_err(|_| Status::invalid("the message cannot be decoded"))?;
    let zstd = reapi::compressor::Value::Zstd as i32;
    let version = |minor| {
        Some(semver::SemVer {
            major: 2,
            minor,
            ..Default::default()
        })
    };
    let answer = reapi::ServerCapabilities {
        cache_capabilities: Some(reapi::CacheCapabilities {
            digest_functions: Function::ALL.iter().map(|function| function.value()).collect(),
            action_cache_update_capabilities: Some(reapi::ActionCacheUpdateCapabilities { update_enabled: true }),
            cache_priority_capabilities: Some(reapi::PriorityCapabilities {
                priorities: vec![reapi::priority_capabilities::PriorityRange::default()],
            }),
            max_batch_total_size_bytes: i64::try_from(batch_limit(call)).unwrap_or(i64::MAX),
            // Links are kept as they were sent, wherever they point.
            symlink_absolute_path_strategy: reapi::symlink_absolute_path_strategy::Value::Allowed as i32,
            supported_compressors: vec![zstd],
            supported_batch_update_compressors: vec![zstd],
            max_cas_blob_size_bytes: i64::try_from(call.service.shared.blobs.largest()).unwrap_or(i64::MAX),
            ..Default::default()
        }),
        low_api_version: version(0),
        high_api_version: version(3),
        ..Default::default()
    };
    Ok(Body::message(encode(&answer)))
}
