//! SSH keys.

use crate::harness::{Api, IAM, PUBLIC_KEY, text};
use russet_sim_scaleway::{DEFAULT_PROJECT, HostKey, Permission};
use serde_json::{Value, json};

fn key(name: &str, public_key: &str) -> Value {
    json!({"name": name, "public_key": public_key, "project_id": DEFAULT_PROJECT})
}

#[tokio::test]
async fn a_key_is_made_found_renamed_disabled_and_deleted() {
    let api = Api::start().await;
    let path = format!("{IAM}/ssh-keys");
    let made = api.post(&path, key("fleet", PUBLIC_KEY)).await.ok();
    assert!(
        text(&made["fingerprint"]).ends_with("tuist-capi-macos (ssh-ed25519)"),
        "{made}"
    );
    let list = api
        .read(format!("{path}?project_id={DEFAULT_PROJECT}&name=fleet"))
        .await;
    assert_eq!(list, json!({"ssh_keys": [made], "total_count": 1}));
    let one = format!("{path}/{}", text(&made["id"]));
    let changed = api.patch(&one, json!({"name": "old", "disabled": true})).await.ok();
    assert_eq!((&changed["name"], &changed["disabled"]), (&json!("old"), &json!(true)));
    assert_eq!(api.read(&one).await, changed);
    assert_eq!(api.delete(&one).await.status, 204);
    api.get(&one).await.missing();
    api.delete(&one).await.missing();
}

#[tokio::test]
async fn a_key_that_is_none_is_refused() {
    let api = Api::start().await;
    let path = format!("{IAM}/ssh-keys");
    for bad in ["", "ssh-ed25519", "ssh-ed25519 AAAA", "hello"] {
        let body = api.post(&path, key("x", bad)).await.invalid();
        assert_eq!(body["details"][0]["argument_name"], "public_key");
    }
}

/// Two workers that make a key for one fleet: both may register, and the names do not tell them apart.
#[tokio::test]
async fn two_keys_may_have_one_name_but_one_key_is_registered_once() {
    let api = Api::start().await;
    let path = format!("{IAM}/ssh-keys");
    let made = api.post(&path, key("fleet", PUBLIC_KEY)).await.ok();
    let other: HostKey = serde_json::from_value(json!("BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwc=")).unwrap();
    api.post(&path, key("fleet", &other.public_openssh())).await.ok();
    let again = PUBLIC_KEY.replace("tuist-capi-macos", "another comment");
    let body = api
        .post(&path, key("again", &again))
        .await
        .refused(409, "already_exists");
    assert_eq!(body["resource_id"], made["id"]);
    api.set(|settings| settings.duplicate_ssh_keys = Permission::Accept);
    api.post(&path, key("again", &again)).await.ok();
    let list = api
        .read(format!("{path}?project_id={DEFAULT_PROJECT}&order_by=name_desc"))
        .await;
    assert_eq!(list["total_count"], 3);
    assert_eq!(list["ssh_keys"][2]["name"], "again");
}
