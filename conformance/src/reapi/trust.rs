//! Who may do what, in gRPC's words.

use anyhow::{Context, Result, ensure};
use russet_reapi::client::CapabilitiesClient;
use russet_reapi::client::tonic::{Code, Request, Status};
use russet_reapi::proto::bytestream::{QueryWriteStatusRequest, ReadRequest};
use russet_reapi::proto::reapi::{
    ActionResult, BatchReadBlobsRequest, Digest, FindMissingBlobsRequest, GetCapabilitiesRequest,
};
use russet_telemetry::Secret;

use super::target::{Called, Target, Told, as_caller, batch, digest, expect_code, pieces, put, update};
use crate::{Check, checks, not_applicable};

pub(super) const CHECKS: &[Check<Target>] = checks! {
    missing, "reapi-trust-unauthenticated", "gRPC status codes" [guarded]:
        "without a credential, or with one nobody issued, every call is UNAUTHENTICATED and nothing is stored";
    reader, "reapi-trust-reader-may-not-write", "gRPC status codes" [guarded]:
        "a read grant reads; every write is PERMISSION_DENIED and nothing is stored";
    stranger, "reapi-trust-stranger", "gRPC status codes" [guarded]:
        "a credential for something else is PERMISSION_DENIED for reading and writing";
    instances, "reapi-trust-instances", "contract: tenancy" [contract]:
        "the empty instance is called default, the full handle is the same project, and each has its blobs to itself";
};

/// Every call, as someone, and whether it writes. What reads comes first.
async fn calls(
    target: &Target,
    token: Option<&Secret<String>>,
    present: &Digest,
) -> Vec<(&'static str, bool, Result<(), Status>)> {
    let fresh = target.body(120);
    let name = &target.instance;
    let read = BatchReadBlobsRequest {
        instance_name: name.clone(),
        digests: vec![present.clone()],
        ..BatchReadBlobsRequest::default()
    };
    let find = find(name, present);
    let bytes = ReadRequest {
        resource_name: target.blob_name(present),
        ..ReadRequest::default()
    };
    let store = batch(name, vec![update(&fresh, fresh.clone())]);
    let record = put(name, &digest(&fresh), ActionResult::default());
    let query = QueryWriteStatusRequest {
        resource_name: target.upload_name(present),
    };
    let upload = pieces(&target.upload_name(&digest(&fresh)), &fresh, 0, true);
    let upload = as_caller(futures::stream::iter(upload), token);
    let (mut cas, mut actions, mut stream) = (target.cas(), target.actions(), target.bytes());
    let found = cas.find_missing_blobs(as_caller(find, token)).await.map(drop);
    let read = cas.batch_read_blobs(as_caller(read, token)).await.map(drop);
    let bytes = first_message(target, as_caller(bytes, token)).await;
    let result = actions.get_action_result(as_caller(target.get(present), token)).await;
    let result = match result {
        // Who may look finds nothing.
        Err(status) if status.code() == Code::NotFound => Ok(()),
        answer => answer.map(drop),
    };
    let status = stream.query_write_status(as_caller(query, token)).await;
    let update = cas.batch_update_blobs(as_caller(store, token)).await;
    let written = stream.write(upload).await;
    let recorded = actions.update_action_result(as_caller(record, token)).await;
    vec![
        ("FindMissingBlobs", false, found),
        ("BatchReadBlobs", false, read),
        ("Read", false, bytes),
        ("GetActionResult", false, result),
        ("QueryWriteStatus", true, status.map(drop)),
        ("BatchUpdateBlobs", true, update.map(drop)),
        ("Write", true, written.map(drop)),
        ("UpdateActionResult", true, recorded.map(drop)),
    ]
}

fn find(instance: &str, digest: &Digest) -> FindMissingBlobsRequest {
    FindMissingBlobsRequest {
        instance_name: instance.to_owned(),
        blob_digests: vec![digest.clone()],
        ..FindMissingBlobsRequest::default()
    }
}

/// A stream's refusal may come with its first message.
async fn first_message(target: &Target, request: Request<ReadRequest>) -> Result<(), Status> {
    let mut answer = target.bytes().read(request).await?.into_inner();
    answer.message().await.map(drop)
}

/// Fails unless every call of that caller is refused with this code.
async fn all_refused(target: &Target, token: Option<&Secret<String>>, present: &Digest, code: Code) -> Result<()> {
    for (call, _, outcome) in calls(target, token, present).await {
        expect_code(outcome, &[code]).context(call)?;
    }
    Ok(())
}

async fn missing(target: &Target) -> Result<()> {
    let (_, present) = target.stored(200).await?;
    let unknown = Secret::new("nobody-issued-this-token".to_owned());
    if target.contract {
        // Anyone may ask what there is; who says nothing else learns not even whether an instance is one.
        let mut capabilities = CapabilitiesClient::new(target.channel.clone());
        let anyone = capabilities.get_capabilities(GetCapabilitiesRequest::default()).await;
        anyone.map_err(Told)?;
        let nowhere = FindMissingBlobsRequest {
            instance_name: "../x".to_owned(),
            ..FindMissingBlobsRequest::default()
        };
        let answer = target.cas().find_missing_blobs(nowhere).await;
        expect_code(answer, &[Code::Unauthenticated])?;
    }
    for token in [None, Some(&unknown)] {
        all_refused(target, token, &present, Code::Unauthenticated).await?;
    }
    Ok(())
}

async fn reader(target: &Target) -> Result<()> {
    let (_, present) = target.stored(200).await?;
    let Some(token) = &target.reader else {
        return not_applicable("no read-only credential was given");
    };
    for (call, writes, outcome) in calls(target, Some(token), &present).await {
        if writes {
            expect_code(outcome, &[Code::PermissionDenied]).context(call)?;
        } else {
            outcome.map_err(Told).context(call)?;
        }
    }
    Ok(())
}

async fn stranger(target: &Target) -> Result<()> {
    let (_, present) = target.stored(200).await?;
    let Some(token) = &target.stranger else {
        return not_applicable("no credential for something else was given");
    };
    all_refused(target, Some(token), &present, Code::PermissionDenied).await
}

async fn instances(target: &Target) -> Result<()> {
    let body = target.body(200);
    let found = async |instance: &str| -> Called<bool> {
        let request = target.request(find(instance, &digest(&body)));
        let answer = target.cas().find_missing_blobs(request).await?;
        Ok(answer.into_inner().missing_blob_digests.is_empty())
    };
    let ours = [
        target.instance.clone(),
        target.instance.to_uppercase(),
        format!("acme/{}", target.instance),
    ];
    let store = async |instance: &str| {
        let request = target.request(batch(instance, vec![update(&body, body.clone())]));
        target.cas().batch_update_blobs(request).await.map_err(Told)
    };
    store("").await?;
    for instance in ["", "default", "Default", "acme/default"] {
        ensure!(found(instance).await?, "{instance:?} is not the default project");
    }
    for instance in &ours {
        ensure!(!found(instance).await?, "{instance:?} has another project's blob");
    }
    store(&target.instance).await?;
    for instance in &ours {
        ensure!(found(instance).await?, "{instance:?} is another project");
    }
    for bad in ["../x", "a//b", "a b", "/"] {
        expect_code(found(bad).await, &[Code::InvalidArgument]).context(bad)?;
    }
    expect_code(found("other").await, &[Code::PermissionDenied])?;
    let name = format!("default/blobs/{}/200", digest(&body).hash);
    ensure!(target.read(&name, 0, 0).await? == body, "other bytes");
    Ok(())
}
