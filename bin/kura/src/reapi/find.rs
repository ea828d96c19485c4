//! `FindMissingBlobs`

use super::LEASE;
use super::body::Body;
use super::call::Call;
use super::message::{self, begin, seal};
use super::status::Status;
use hyper::body::Incoming;
use russet_identity::Access;
use russet_reapi::request::FindMissing;
use russet_reapi::wire::put_bytes;

/// Largest request: about 800,000 digests.
const LIMIT: usize = 64 << 20;

/// Which of these blobs have to be uploaded. Digests are neither copied nor allocated: they are read where they arrived, and
/// those that are missing are sent back as they came.
pub(super) async fn missing(call: &Call<'_>, incoming: Incoming) -> Result<Body, Status> {
    let shared = &call.service.shared;
    let message = message::only(incoming, LIMIT, call.stall, &shared.budget).await?;
    let request = FindMissing::read(&message.bytes)?;
    let function = request.common.function()?;
    let scope = call.scope(request.common.instance, Access::Read).await?;
    let mut out = begin(64);
    let mut vouch = shared.blobs.vouch(scope.namespace());
    for raw in request.digests() {
        let raw = raw?;
        if !vouch.has(&raw.digest(function)?)? {
            put_bytes(&mut out, 2, raw.message);
        }
    }
    if !vouch.settle(LEASE) {
        // Something was evicted between the look and the lease. What is still there is leased now, so this look is the truth.
        out.truncate(message::PREFIX);
        for raw in request.digests() {
            let raw = raw?;
            if !shared.blobs.has(scope.namespace(), &raw.digest(function)?)? {
                put_bytes(&mut out, 2, raw.message);
            }
        }
    }
    Ok(Body::message(seal(out, 0)))
}
