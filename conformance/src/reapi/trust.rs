//! Who may do what, in gRPC's words.

use anyhow::{Context, Result, ensure};
use russet_reapi::client::CapabilitiesClient;
use russet_reapi::client::tonic::{Code, Request, Status};
use russet_reapi::proto::bytestream::{QueryWriteStatusRequest, ReadRequest, WriteRequest};
use russet_reapi::proto::reapi::batch_update_blobs_request::Request as Update;
use russet_reapi::proto::reapi::{
    ActionResult, BatchReadBlobsRequest, BatchUpdateBlobsRequest, Digest, FindMissingBlobsRequest,
    GetCapabilitiesRequest, UpdateActionResultRequest,
};
use russet_telemetry::Secret;

use super::target::{Target, as_caller, digest, expect_code, pieces, told};
use crate::{Check, checks, not_applicable};

pub(super) const CHECKS: &[Check<Target>] = checks! {
    missing, "reapi-trust-unauthenticated", "gRPC status codes":
        "without a credential, or with one nobody issued, every call is UNAUTHENTICATED and nothing is stored";
    reader, "reapi-trust-reader-may-not-write", "gRPC status codes":
        "a read grant reads; every write is PERMISSION_DENIED and nothing is stored";
    stranger, "reapi-trust-stranger", "gRPC status codes":
        "a credential for something else is PERMISSION_DENIED for reading and writing";
    instances, "reapi-trust-instances", "contract: tenancy":
        "the empty instance is called default, the full handle is the same project, and each has its blobs to itself";
};

/// Every call, as someone. What reads comes first.
async fn calls(
    target: &Target,
    token: Option<&Secret<String>>,
    present: &Digest,
) -> Vec<(&'static str, bool, Result<(), Status>)> {
    let fresh = target.body(120);
    let name = target.instance.clone();
    let read = BatchReadBlobsRequest {
        instance_name: name.clone(),
        digests: vec![present.clone()],
        ..BatchReadBlobsRequest::default()
    };
    let find = FindMissingBlobsRequest {
        instance_name: name.clone(),
        blob_digests: vec![present.clone()],
        ..FindMissingBlobsRequest::default()
    };
    let bytes = ReadRequest {
        resource_name: target.blob_name(present),
        ..ReadRequest::default()
    };
    let update = BatchUpdateBlobsRequest {
        instance_name: name.clone(),
        requests: vec![Update {
            digest: Some(digest(&fresh)),
            data: fresh.clone(),
            compressor: 0,
        }],
        ..BatchUpdateBlobsRequest::default()
    };
    let record = UpdateActionResultRequest {
        instance_name: name,
        action_digest: Some(digest(&fresh)),
        action_result: Some(ActionResult::default()),
        ..UpdateActionResultRequest::default()
    };
    let query = QueryWriteStatusRequest {
        resource_name: target.upload_name(present),
    };
    let upload: Vec<WriteRequest> = pieces(&target.upload_name(&digest(&fresh)), &fresh, 0, true);
    let streamed: Request<_> = as_caller(futures::stream::iter(upload), token);
    vec![
        (
            "FindMissingBlobs",
            false,
            target
                .cas()
                .find_missing_blobs(as_caller(find, token))
                .await
                .map(|_| ()),
        ),
        (
            "BatchReadBlobs",
            false,
            target.cas().batch_read_blobs(as_caller(read, token)).await.map(|_| ()),
        ),
        ("Read", false, stream(target, as_caller(bytes, token)).await),
        (
            "GetActionResult",
            false,
            match target
                .actions()
                .get_action_result(as_caller(target.get(present), token))
                .await
            {
                // Who may look finds nothing.
                Err(status) if status.code() == Code::NotFound => Ok(()),
                answer => answer.map(|_| ()),
            },
        ),
        (
            "QueryWriteStatus",
            true,
            target
                .bytes()
                .query_write_status(as_caller(query, token))
                .await
                .map(|_| ()),
        ),
        (
            "BatchUpdateBlobs",
            true,
            target
                .cas()
                .batch_update_blobs(as_caller(update, token))
                .await
                .map(|_| ()),
        ),
        ("Write", true, target.bytes().write(streamed).await.map(|_| ())),
        (
            "UpdateActionResult",
            true,
            target
                .actions()
                .update_action_result(as_caller(record, token))
                .await
                .map(|_| ()),
        ),
    ]
}

/// A stream's refusal may come with its first message.
async fn stream(target: &Target, request: Request<ReadRequest>) -> Result<(), Status> {
    let mut answer = target.bytes().read(request).await?.into_inner();
    answer.message().await.map(|_| ())
}

async fn present(target: &Target) -> Result<Digest> {
    target.guarded()?;
    target
        .store(&[&target.body(200)])
        .await?
        .pop()
        .context("nothing stored")
}

async fn missing(target: &Target) -> Result<()> {
    let present = present(target).await?;
    let unknown = Secret::new("nobody-issued-this-token".to_owned());
    if target.contract {
        // Anyone may ask what there is; who says nothing else learns not even whether an instance is one.
        let mut capabilities = CapabilitiesClient::new(target.channel.clone());
        capabilities
            .get_capabilities(GetCapabilitiesRequest::default())
            .await
            .map_err(told)?;
        let nowhere = FindMissingBlobsRequest {
            instance_name: "../x".to_owned(),
            ..FindMissingBlobsRequest::default()
        };
        let answer = target.cas().find_missing_blobs(nowhere).await;
        expect_code(answer, &[Code::Unauthenticated])?;
    }
    for token in [None, Some(&unknown)] {
        for (call, _, outcome) in calls(target, token, &present).await {
            expect_code(outcome, &[Code::Unauthenticated]).with_context(|| call.to_owned())?;
        }
    }
    Ok(())
}

async fn reader(target: &Target) -> Result<()> {
    let present = present(target).await?;
    let Some(token) = &target.reader else {
        return not_applicable("no read-only credential was given");
    };
    for (call, writes, outcome) in calls(target, Some(token), &present).await {
        if writes {
            expect_code(outcome, &[Code::PermissionDenied]).with_context(|| call.to_owned())?;
        } else {
            outcome.map_err(told).with_context(|| call.to_owned())?;
        }
    }
    Ok(())
}

async fn stranger(target: &Target) -> Result<()> {
    let present = present(target).await?;
    let Some(token) = &target.stranger else {
        return not_applicable("no credential for something else was given");
    };
    for (call, _, outcome) in calls(target, Some(token), &present).await {
        expect_code(outcome, &[Code::PermissionDenied]).with_context(|| call.to_owned())?;
    }
    Ok(())
}

async fn instances(target: &Target) -> Result<()> {
    target.contract()?;
    let body = target.body(200);
    let found = async |instance: &str| {
        let request = FindMissingBlobsRequest {
            instance_name: instance.to_owned(),
            blob_digests: vec![digest(&body)],
            ..FindMissingBlobsRequest::default()
        };
        let answer = target.cas().find_missing_blobs(target.request(request)).await?;
        Ok::<_, Status>(answer.into_inner().missing_blob_digests.is_empty())
    };
    let ours = [
        target.instance.clone(),
        target.instance.to_uppercase(),
        format!("acme/{}", target.instance),
    ];
    let default = ["", "default", "Default", "acme/default"];
    let store = async |instance: &str| {
        let request = BatchUpdateBlobsRequest {
            instance_name: instance.to_owned(),
            requests: vec![Update {
                digest: Some(digest(&body)),
                data: body.clone(),
                compressor: 0,
            }],
            ..BatchUpdateBlobsRequest::default()
        };
        target
            .cas()
            .batch_update_blobs(target.request(request))
            .await
            .map_err(told)
    };
    store("").await?;
    for instance in default {
        ensure!(
            found(instance).await.map_err(told)?,
            "{instance:?} is not the default project"
        );
    }
    for instance in &ours {
        ensure!(
            !found(instance).await.map_err(told)?,
            "{instance:?} has another project's blob"
        );
    }
    store(&target.instance).await?;
    for instance in &ours {
        ensure!(found(instance).await.map_err(told)?, "{instance:?} is another project");
    }
    for bad in ["../x", "a//b", "a b", "/"] {
        expect_code(found(bad).await, &[Code::InvalidArgument]).with_context(|| bad.to_owned())?;
    }
    expect_code(found("other").await, &[Code::PermissionDenied])?;
    let read = target
        .read(&format!("default/blobs/{}/200", digest(&body).hash), 0, 0)
        .await;
    ensure!(read.map_err(told)? == body, "other bytes");
    Ok(())
}
