//! Whose data a call is about, and whether it may.

use super::{World, code, connect, wire};
use crate::node::{GUARDED, Node};
use russet_conformance::http::tokens::{grants, hs256, now};
use russet_reapi::Function;
use russet_reapi::client::tonic::{Code, Request};
use russet_reapi::proto::reapi;

const SECRET: &str = "kura-auth-jwt-secret-of-the-tests";

fn guarded() -> World {
    let env = [("KURA_AUTH_JWT_SECRET", SECRET)];
    World::with(Node::told(&GUARDED.join(" "), &env))
}

fn bearer(claims: &serde_json::Value) -> String {
    format!("Bearer {}", hs256(r#"{"alg":"HS256"}"#, &claims.to_string(), SECRET))
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

#[tokio::test]
async fn the_account_of_a_call_must_be_the_nodes() {
    let world = guarded();
    let write = bearer(&grants(&[], &["acme/ios"]));
    let mut cas = world.cas();
    let mut ask = async |metadata: &[(&'static str, &str)]| {
        let mut all = vec![("authorization", write.as_str())];
        all.extend_from_slice(metadata);
        cas.find_missing_blobs(with(find("ios"), &all)).await.map(drop)
    };
    assert!(ask(&[]).await.is_ok());
    assert!(ask(&[("x-tuist-account-handle", "acme")]).await.is_ok());
    assert!(ask(&[("x-kura-tenant-id", "ACME")]).await.is_ok());
    let other = ask(&[("x-tuist-account-handle", "other")]).await;
    assert_eq!(code(other), Code::PermissionDenied);
    let two = ask(&[("x-kura-tenant-id", "acme"), ("x-tuist-account-handle", "other")]).await;
    assert_eq!(code(two), Code::InvalidArgument);
}

#[tokio::test]
async fn payment_is_told_apart_from_other_refusals() {
    let world = guarded();
    let claims = serde_json::json!({"exp": now() + 600, "cache_grants": {}, "cache_payment_required": ["acme"]});
    let owing = bearer(&claims);
    let request = with(find("ios"), &[("authorization", &owing)]);
    let refused = world.cas().find_missing_blobs(request).await.unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied);
    let reason = refused.metadata().get("tuist-refusal-reason");
    assert_eq!(reason.unwrap(), "payment_required");
}

#[tokio::test]
async fn a_draining_node_sends_calls_elsewhere_but_still_says_what_it_can_do() {
    let world = World::start(&[]);
    world.node.signal("USR1");
    let deadline = tokio::time::Instant::now() + crate::node::DEADLINE;
    loop {
        // Connections of before are being closed, so each question has one of its own.
        let mut cas = connect(&world.node).cas();
        match cas.find_missing_blobs(find("")).await {
            Err(status) if status.code() == Code::Unavailable => break,
            _ => assert!(tokio::time::Instant::now() < deadline, "the node does not drain"),
        }
    }
    let mut capabilities = russet_reapi::client::CapabilitiesClient::new(connect(&world.node).channel);
    let answer = capabilities
        .get_capabilities(reapi::GetCapabilitiesRequest::default())
        .await;
    assert!(answer.is_ok());
}
