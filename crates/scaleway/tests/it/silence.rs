//! No secret leaves by a log line, a span, an error or a `Debug`.

use serde_json::json;

use russet_scaleway::baremetal::{Install, Login, OrderMetal};
use russet_sim_kit::logged::logged;
use russet_telemetry::Secret;

use crate::server::Script;
use crate::{PROJECT, World, mac, mac_id, zone};

#[tokio::test]
async fn nothing_that_is_printed_holds_a_key_or_a_password() {
    const GET: &str = "GET /apple-silicon/v1alpha1/zones/fr-par-1/servers/2f1c7a50-9f3b-4f5e-8a53-0f6a0e1d2c3b";
    let denied = json!({"type": "denied_authentication", "method": "api_key", "reason": "canary-secret-key unknown"});
    let script = Script::new()
        .answer(GET, 401, denied)
        .answer(GET, 500, r#"{"message":"canary-secret-key broke us"}"#)
        .answer(GET, 200, mac(mac_id().as_str(), "tuist-pool-1", PROJECT))
        .answer(
            GET,
            200,
            r#"{"id":"s1","sudo_password":"canary-sudo-password","name":7}"#,
        );
    let world = World::new(script).await;
    let refused = world.client.get_mac(&zone(), &mac_id()).await.unwrap_err();
    let mac = world.client.get_mac(&zone(), &mac_id()).await.unwrap();
    let unreadable = world.client.get_mac(&zone(), &mac_id()).await.unwrap_err();
    let printed = format!(
        "{refused} {refused:?} {mac:?} {unreadable} {unreadable:?} {:?}",
        world.client
    );
    let logged = logged();
    assert!(logged.contains("apple_silicon.get_server"), "the calls are not traced");
    assert!(printed.contains("[redacted] unknown"), "{printed}");
    for text in [printed, logged] {
        let leak = text.lines().find(|line| line.contains("canary"));
        assert_eq!(leak, None);
    }
    world.finish();
}

/// A server boots with a text that holds the token it joins with. APIs like to quote what they refuse, whole or in part, as it
/// came or encoded.
#[tokio::test]
async fn what_a_server_boots_with_is_not_printed_even_where_the_api_quotes_it() {
    const SET: &str =
        "PATCH /instance/v1/zones/fr-par-1/servers/2f1c7a50-9f3b-4f5e-8a53-0f6a0e1d2c3b/user_data/cloud-init";
    const ORDER: &str = "POST /baremetal/v1/zones/fr-par-1/servers";
    const SCRIPT: &str = "#cloud-config\ntoken: canary-join-token-0123456789\n";
    let quoted = json!({"type": "invalid_request_error", "message": "Validation Error",
                        "fields": {"user_data": ["'canary-join-token-0123…' is not allowed"]}});
    let encoded = json!({"type": "invalid_arguments", "details": [
        {"argument_name": "user_data", "reason": "format", "help_message": "bad: I2Nsb3VkLWNvbmZpZwp0b2tlbjogY2FuYXJ5"},
        {"argument_name": "install.password", "reason": "constraint", "help_message": "canary-pw is too short"},
        {"argument_name": "install.hostname", "reason": "constraint", "help_message": "too long"},
    ]});
    let script = Script::new()
        .answer(SET, 400, quoted)
        .answer(ORDER, 400, encoded)
        .answer(
            ORDER,
            500,
            r#"{"message":"cannot store token: canary-join-token-0123456789"}"#,
        );
    let world = World::new(script).await;
    let order = OrderMetal {
        offer: "offer-1".parse().unwrap(),
        name: "cache-1".to_owned(),
        description: String::new(),
        tags: Vec::new(),
        install: Some(Install {
            os: "os-1".parse().unwrap(),
            hostname: "cache-1".to_owned(),
            ssh_keys: Vec::new(),
            login: Some(Login {
                user: "ubuntu".to_owned(),
                password: Secret::from("canary-pw"),
            }),
            partitions: None,
        }),
        options: Vec::new(),
        user_data: Some(Secret::from(SCRIPT)),
    };
    let set = world
        .client
        .set_user_data(&zone(), &mac_id(), "cloud-init", Secret::from(SCRIPT))
        .await
        .unwrap_err();
    let refused = world.client.order_metal(&zone(), &order).await.unwrap_err();
    let broken = world.client.order_metal(&zone(), &order).await.unwrap_err();
    let printed = format!("{set} {set:?} {refused} {refused:?} {broken} {broken:?} {order:?}");
    let logged = logged();
    assert!(logged.contains("baremetal.create_server"), "the calls are not traced");
    assert!(printed.contains("too long"), "harmless help is kept: {printed}");
    for text in [printed, logged] {
        let leak = text
            .lines()
            .find(|line| line.contains("canary") || line.contains("I2Nsb3"));
        assert_eq!(leak, None);
    }
    world.finish();
}
