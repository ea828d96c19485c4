//! Whose data a call is about, and whether it may.

use super::{World, batch, code, connect, wire};
use crate::node::{Node, Options};
use crate::trust::{SECRET, token};
use russet_reapi::Function;
use russet_reapi::client::tonic::{Code, Request};
use russet_reapi::proto::bytestream::{QueryWriteStatusRequest, ReadRequest};
use russet_reapi::proto::reapi;

async fn guarded() -> World {
    let node = Node::start_with(&Options {
        args: &["--tenant-id", "acme", "--bind-address", "127.0.0.1"],
        env: &[("KURA_AUTH_JWT_SECRET", SECRET)],
    });
    World::with(node).await
}

fn with<T>(message: T, metadata: &[(&'static str, &str)]) -> Request<T> {
    let mut request = Request::new(message);
    for (name, value) in metadata {
        request.metadata_mut().append(*name, value.parse().unwrap());
    }
    request
}

fn find(instance: &str) -> reapi::FindMissingBlobsRequest {
    reapi::FindMissingBlobsRequest {
        instance_name: instance.to_owned(),
        blob_digests: vec![wire(&Function::Sha256.digest(b"x"))],
        ..Default::default()
    }
}

fn update(instance: &str) -> reapi::BatchUpdateBlobsRequest {
    reapi::BatchUpdateBlobsRequest {
        instance_name: instance.to_owned(),
        ..batch(&[(Function::Sha256.digest(b"x"), b"x")])
    }
}

#[tokio::test]
async fn grants_decide_calls_as_they_decide_requests() {
    let world = guarded().await;
    let bearer = |claims| format!("Bearer {}", token(claims));
    let read = bearer(serde_json::json!({"cache_grants":{"project":{"read":["acme/ios"]}}}));
    let write = bearer(serde_json::json!({"cache_grants":{"project":{"write":["acme/ios"]}}}));
    let mut cas = world.cas();
    assert_eq!(code(cas.find_missing_blobs(find("ios")).await), Code::Unauthenticated);
    assert_eq!(
        code(cas.find_missing_blobs(find("../x")).await),
        Code::Unauthenticated,
        "who says nothing learns nothing"
    );
    let reader = [("authorization", read.as_str())];
    let writer = [("authorization", write.as_str())];
    assert!(cas.find_missing_blobs(with(find("ios"), &reader)).await.is_ok());
    assert!(
        cas.find_missing_blobs(with(find("acme/ios"), &reader)).await.is_ok(),
        "the full handle is the same project"
    );
    assert_eq!(
        code(cas.find_missing_blobs(with(find("android"), &reader)).await),
        Code::PermissionDenied
    );
    assert_eq!(
        code(cas.find_missing_blobs(with(find(""), &reader)).await),
        Code::PermissionDenied
    );
    assert_eq!(
        code(cas.batch_update_blobs(with(update("ios"), &reader)).await),
        Code::PermissionDenied
    );
    assert!(cas.batch_update_blobs(with(update("ios"), &writer)).await.is_ok());
    let name = format!("ios/blobs/{}", Function::Sha256.digest(b"x"));
    let get = ReadRequest {
        resource_name: name,
        ..Default::default()
    };
    assert!(world.bytes().read(with(get.clone(), &reader)).await.is_ok());
    assert_eq!(code(world.bytes().read(get).await), Code::Unauthenticated);
    let query = QueryWriteStatusRequest {
        resource_name: format!("ios/uploads/u/blobs/{}", Function::Sha256.digest(b"x")),
    };
    assert_eq!(
        code(world.bytes().query_write_status(with(query, &reader)).await),
        Code::PermissionDenied
    );
    let get = reapi::GetActionResultRequest {
        instance_name: "ios".to_owned(),
        action_digest: Some(wire(&Function::Sha256.digest(b"action"))),
        ..Default::default()
    };
    assert_eq!(
        code(world.actions().get_action_result(with(get.clone(), &reader)).await),
        Code::NotFound
    );
    assert_eq!(
        code(world.actions().get_action_result(get).await),
        Code::Unauthenticated
    );
    assert!(
        world
            .capabilities()
            .get_capabilities(reapi::GetCapabilitiesRequest::default())
            .await
            .is_ok(),
        "anyone may ask what there is"
    );
    let text = world.node.log().join("\n");
    assert!(!text.contains(&write), "a token was logged");
}

#[tokio::test]
async fn the_account_of_a_call_must_be_the_nodes() {
    let world = guarded().await;
    let write = format!(
        "Bearer {}",
        token(serde_json::json!({"cache_grants":{"project":{"write":["acme/ios"]}}}))
    );
    let mut cas = world.cas();
    let mut ask = async |metadata: &[(&'static str, &str)]| {
        let mut all = vec![("authorization", write.as_str())];
        all.extend_from_slice(metadata);
        cas.find_missing_blobs(with(find("ios"), &all)).await.map(drop)
    };
    assert!(ask(&[]).await.is_ok());
    assert!(ask(&[("x-tuist-account-handle", "acme")]).await.is_ok());
    assert!(ask(&[("x-kura-tenant-id", "ACME")]).await.is_ok());
    assert_eq!(
        code(ask(&[("x-tuist-account-handle", "other")]).await),
        Code::PermissionDenied
    );
    let two = ask(&[("x-kura-tenant-id", "acme"), ("x-tuist-account-handle", "other")]).await;
    assert_eq!(code(two), Code::InvalidArgument);
}

#[tokio::test]
async fn payment_is_told_apart_from_other_refusals() {
    let world = guarded().await;
    let owing = format!(
        "Bearer {}",
        token(serde_json::json!({"cache_grants":{},"cache_payment_required":["acme"]}))
    );
    let refused = world
        .cas()
        .find_missing_blobs(with(find("ios"), &[("authorization", &owing)]))
        .await
        .unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied);
    assert_eq!(
        refused.metadata().get("tuist-refusal-reason").unwrap(),
        "payment_required"
    );
}

#[tokio::test]
async fn a_draining_node_sends_calls_elsewhere_but_still_says_what_it_can_do() {
    let world = World::start(&[]).await;
    world.node.signal("USR1");
    let deadline = tokio::time::Instant::now() + crate::node::DEADLINE;
    loop {
        // Connections of before are being closed, so each question has one of its own.
        let mut cas = russet_reapi::client::ContentAddressableStorageClient::new(connect(&world.node).await);
        match cas.find_missing_blobs(find("")).await {
            Err(status) if status.code() == Code::Unavailable => break,
            _ => assert!(tokio::time::Instant::now() < deadline, "the node does not drain"),
        }
    }
    let mut capabilities = russet_reapi::client::CapabilitiesClient::new(connect(&world.node).await);
    assert!(
        capabilities
            .get_capabilities(reapi::GetCapabilitiesRequest::default())
            .await
            .is_ok()
    );
}
