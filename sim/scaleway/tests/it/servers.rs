//! The life of a mini.

use crate::harness::{APPLE, Api, IAM, MINIS, PUBLIC_KEY, id_of, names, order, server, shows, text};
use russet_sim_scaleway::{DEFAULT_PROJECT, Health, HostChange, Passwords, Vanished, VpcToggle, Zone};
use serde_json::json;
use std::time::Duration;

const REINSTALL: Duration = Duration::from_mins(10);

#[tokio::test]
async fn an_order_is_sealed_then_starting_then_delivered_and_ready() {
    let api = Api::start().await;
    let made = api.order("a").await.ok();
    shows!(made, {"status": "starting", "delivered": false});
    shows!(made, {"sudo_password": "<sealed>", "vnc_url": "<sealed>"});
    let id = id_of(&made);
    api.advance(Duration::from_secs(179));
    assert_eq!(api.server(&id).await["status"], "starting");
    api.advance(Duration::from_secs(1));
    let ready = api.server(&id).await;
    assert_eq!((&ready["status"], &ready["delivered"]), (&json!("ready"), &json!(true)));
    assert_eq!(ready["os"]["name"], "macos-tahoe-26.3");
    assert_eq!(ready["commitment"], json!({"type": "duration_24h", "cancelled": false}));
}

#[tokio::test]
async fn another_os_than_the_default_takes_an_hour_longer() {
    let api = Api::start().await;
    let os = api.read(format!("{APPLE}/os?name=macos-sequoia")).await;
    let mut body = order("a");
    body["os_id"] = os["os"][0]["id"].clone();
    let made = api.post(MINIS, body).await.ok();
    let id = id_of(&made);
    api.advance(Duration::from_mins(62));
    assert_eq!(api.server(&id).await["status"], "starting");
    api.advance(Duration::from_mins(1));
    assert_eq!(api.server(&id).await["status"], "ready");
}

#[tokio::test]
async fn stock_falls_with_orders_runs_out_and_comes_back_after_a_deletion() {
    let api = Api::start().await;
    let zone = Zone::new("fr-par-1");
    api.set_stock("M2-L", 1);
    let kind = api.read(format!("{APPLE}/server-type/M2-L")).await;
    shows!(kind, {"stock": "low_stock", "minimum_lease_duration": "86400s"});
    let id = api.ordered("a").await;
    let body = api.order("b").await.refused(412, "out_of_stock");
    assert_eq!(body["resource"], "M2-L");
    let types = api.read(format!("{APPLE}/server-types")).await;
    assert!(types.get("total_count").is_none(), "the one list without pages");
    api.advance(Duration::from_hours(24));
    assert_eq!(api.delete(server(&id)).await.status, 204);
    assert_eq!(api.handle().stock(&zone, "M2-L"), Some(0));
    api.advance(Duration::from_mins(30));
    assert_eq!(api.handle().stock(&zone, "M2-L"), Some(1));
}

#[tokio::test]
async fn a_batch_is_ordered_whole_or_not_at_all() {
    let api = Api::start().await;
    let path = format!("{APPLE}/batch-create-servers");
    let batch = |count: usize| {
        let requests: Vec<_> = (0..count).map(|number| json!({"name": format!("b{number}")})).collect();
        json!({"project_id": DEFAULT_PROJECT, "type": "M2-L", "requests": requests})
    };
    api.post(&path, batch(11)).await.refused(412, "out_of_stock");
    assert!(api.handle().bill().lines.is_empty());
    assert_eq!(
        api.post(&path, batch(10)).await.ok()["servers"]
            .as_array()
            .unwrap()
            .len(),
        10
    );
    api.post(&path, batch(0)).await.invalid();
}

#[tokio::test]
async fn a_quota_is_told_with_its_numbers() {
    let api = Api::with_settings(|settings| settings.server_quota = Some(1)).await;
    api.order("a").await.ok();
    let body = api.order("b").await.refused(403, "quotas_exceeded");
    shows!(body, {"details": [{"resource": "apple_silicon_server", "quota": 1, "current": 1}]});
}

#[tokio::test]
async fn a_server_cannot_be_deleted_in_its_first_day() {
    let api = Api::start().await;
    let id = api.ordered("a").await;
    let shown = api.server(&id).await;
    let body = api.delete(server(&id)).await.unmet();
    assert!(
        text(&body["help_message"]).contains(text(&shown["deletable_at"])),
        "{body}"
    );
    api.advance(Duration::from_hours(24));
    assert_eq!(api.delete(server(&id)).await.status, 204);
}

#[tokio::test]
async fn a_scheduled_deletion_happens_when_the_lease_ends_and_can_be_called_off() {
    let api = Api::start().await;
    let (kept, gone) = (api.ordered("kept").await, api.ordered("gone").await);
    for id in [&kept, &gone] {
        let shown = api.patch(server(id), json!({"schedule_deletion": true})).await.ok();
        assert_eq!(shown["deletion_scheduled"], true);
    }
    api.patch(server(&kept), json!({"schedule_deletion": false})).await.ok();
    api.advance(Duration::from_hours(24));
    assert_eq!(api.get(server(&kept)).await.status, 200);
    assert_eq!(api.get(server(&gone)).await.status, 403);
    let bill = api.handle().bill();
    assert_eq!(bill.running().collect::<Vec<_>>(), [&kept]);
}

/// Recorded from the real API: right after a deletion, GET answered 403 and not 404.
#[tokio::test]
async fn a_vanished_server_answers_like_one_that_may_not_be_seen() {
    let api = Api::start().await;
    let id = api.mini("m");
    assert_eq!(api.delete(server(&id)).await.status, 204);
    let body = api.get(server(&id)).await.denied();
    assert_eq!(body["details"], json!([{"action": "read", "resource": "server"}]));
    api.set(|settings| settings.vanished = Vanished::NotFound);
    let body = api.get(server(&id)).await.missing();
    assert_eq!(body["resource_id"], json!(id));
    let never = server(&"deadbeef-0000-4000-a000-00000000000f".parse().unwrap());
    api.set(|settings| settings.vanished = Vanished::PermissionsDenied);
    api.get(never).await.missing();
}

#[tokio::test]
async fn the_last_rename_wins_and_names_are_not_unique() {
    let api = Api::start().await;
    let (one, two) = (api.mini("pool-1"), api.mini("pool-2"));
    for name in ["claim-a", "claim-b"] {
        assert_eq!(api.patch(server(&one), json!({"name": name})).await.ok()["name"], name);
    }
    assert_eq!(api.server(&one).await["name"], "claim-b");
    shows!(api.patch(server(&two), json!({"name": "claim-b"})).await.ok(), {"name": "claim-b"});
    let list = api.read(MINIS).await;
    assert_eq!(names(&list), ["claim-b", "claim-b"]);
    api.patch(server(&one), json!({"name": ""})).await.invalid();
}

#[tokio::test]
async fn a_reinstall_rotates_host_key_password_and_keys_and_stays_delivered() {
    let api = Api::start().await;
    let id = api.mini("m");
    let (before, host) = (api.server(&id).await, api.handle().host(&id).unwrap());
    let key = json!({"name": "fleet", "public_key": PUBLIC_KEY, "project_id": DEFAULT_PROJECT});
    api.post(format!("{IAM}/ssh-keys"), key).await.ok();
    let shown = api.post(format!("{}/reinstall", server(&id)), json!({})).await.ok();
    shows!(shown, {"status": "reinstalling", "delivered": true});
    api.advance(REINSTALL);
    let (after, wiped) = (api.server(&id).await, api.handle().host(&id).unwrap());
    assert_eq!(after["status"], "ready");
    assert_ne!(before["sudo_password"], after["sudo_password"]);
    assert_ne!(host.host_key.public_openssh(), wiped.host_key.public_openssh());
    assert_eq!((host.generation, wiped.generation), (1, 2));
    assert_eq!(wiped.authorized_keys, [PUBLIC_KEY]);
    assert_eq!((&before["ip"], &before["id"]), (&after["ip"], &after["id"]));
}

/// The reference registered its key after the adoption once, and no host ever let it in.
#[tokio::test]
async fn a_key_registered_after_the_installation_began_is_not_on_the_machine() {
    let api = Api::start().await;
    let id = api.mini("m");
    api.post(format!("{}/reinstall", server(&id)), json!({})).await.ok();
    let key = json!({"name": "late", "public_key": PUBLIC_KEY, "project_id": DEFAULT_PROJECT});
    api.post(format!("{IAM}/ssh-keys"), key).await.ok();
    api.advance(REINSTALL);
    assert_eq!(api.handle().host(&id).unwrap().authorized_keys, Vec::<String>::new());
}

#[tokio::test]
async fn a_reinstall_without_an_image_takes_the_default_of_the_day() {
    let api = Api::start().await;
    let id = api.mini("m");
    let default = json!({"deed": "set_default_os", "zone": "fr-par-1", "type": "M2-L", "name": "macos-sequoia-15.6"});
    api.deed(default);
    api.post(format!("{}/reinstall", server(&id)), json!({})).await.ok();
    assert_eq!(api.server(&id).await["os"]["family"], "Sequoia");
}

#[tokio::test]
async fn a_retired_image_is_missing_from_lists_and_cannot_be_installed() {
    let api = Api::start().await;
    let id = api.mini("m");
    let os = api.server(&id).await["os"].clone();
    let name = text(&os["name"]).to_owned();
    api.deed(json!({"deed": "retire_os", "name": name}));
    let list = api.read(format!("{APPLE}/os?server_type=M2-L&name={name}")).await;
    assert_eq!(list["total_count"], 0);
    let body = json!({"os_id": os["id"]});
    api.post(format!("{}/reinstall", server(&id)), body).await.invalid();
    shows!(api.server(&id).await["os"], {"name": name}, "what runs keeps running");
}

#[tokio::test]
async fn the_name_of_an_image_is_searched_from_its_start() {
    let api = Api::start().await;
    let list = api.read(format!("{APPLE}/os?name=macos-tahoe-26.1")).await;
    let found: Vec<&str> = list["os"]
        .as_array()
        .unwrap()
        .iter()
        .map(|os| text(&os["name"]))
        .collect();
    assert_eq!(found, ["macos-tahoe-26.10", "macos-tahoe-26.11-beta"]);
    let list = api.read(format!("{APPLE}/os?name=tahoe")).await;
    assert_eq!(list["total_count"], 0);
}

#[tokio::test]
async fn linux_and_macos_do_not_replace_each_other() {
    let api = Api::start().await;
    let id = api.mini("m");
    let asahi = api.read(format!("{APPLE}/os?name=fedora")).await;
    let body = json!({"os_id": asahi["os"][0]["id"]});
    api.post(format!("{}/reinstall", server(&id)), body).await.invalid();
    let unknown = json!({"os_id": DEFAULT_PROJECT});
    api.post(format!("{}/reinstall", server(&id)), unknown).await.missing();
}

#[tokio::test]
async fn a_reboot_takes_a_while_and_changes_nothing() {
    let api = Api::start().await;
    let id = api.mini("m");
    let before = api.server(&id).await;
    let shown = api.post(format!("{}/reboot", server(&id)), json!({})).await.ok();
    assert_eq!(shown["status"], "rebooting");
    api.advance(Duration::from_secs(90));
    let after = api.server(&id).await;
    assert_eq!(after["status"], "ready");
    assert_eq!(before["sudo_password"], after["sudo_password"]);
}

#[tokio::test]
async fn what_is_under_way_refuses_reboot_reinstall_and_delete_but_not_a_rename() {
    let api = Api::start().await;
    let id = api.mini("m");
    for (start, state) in [("reinstall", "reinstalling"), ("reboot", "rebooting")] {
        api.post(format!("{}/{start}", server(&id)), json!({})).await.ok();
        for action in ["reboot", "reinstall"] {
            let path = format!("{}/{action}", server(&id));
            let body = api.post(path, json!({})).await.busy();
            assert_eq!(body["current_state"], state);
            shows!(body, {"resource": "server", "resource_id": id});
        }
        api.delete(server(&id)).await.busy();
        shows!(api.patch(server(&id), json!({"name": state})).await.ok(), {"name": state});
        api.advance(REINSTALL);
    }
}

#[tokio::test]
async fn a_locked_server_refuses_everything_until_it_is_unlocked() {
    let api = Api::start().await;
    let id = api.mini("m");
    api.deed(json!({"deed": "set_status", "server": {"name": "m"}, "status": "locked"}));
    assert_eq!(api.server(&id).await["status"], "locked");
    api.patch(server(&id), json!({"name": "x"}))
        .await
        .refused(423, "locked");
    api.post(format!("{}/reboot", server(&id)), json!({}))
        .await
        .refused(423, "locked");
    api.delete(server(&id)).await.refused(423, "locked");
    api.deed(json!({"deed": "set_status", "server": {"name": "m"}, "status": "ready"}));
    assert_eq!(api.delete(server(&id)).await.status, 204);
}

#[tokio::test]
async fn a_stuck_reinstall_ends_only_when_somebody_helps() {
    let api = Api::start().await;
    let id = api.mini("m");
    api.deed(json!({"deed": "decide", "status": "reinstalling", "outcome": "stuck"}));
    api.post(format!("{}/reinstall", server(&id)), json!({})).await.ok();
    api.advance(Duration::from_hours(100));
    assert_eq!(api.server(&id).await["status"], "reinstalling");
    api.unstick(&id);
    assert_eq!(api.server(&id).await["status"], "ready");

    api.deed(json!({"deed": "decide", "status": "reinstalling", "outcome": "error"}));
    api.post(format!("{}/reinstall", server(&id)), json!({})).await.ok();
    api.advance(REINSTALL);
    assert_eq!(api.server(&id).await["status"], "error");
    api.post(format!("{}/reinstall", server(&id)), json!({})).await.ok();
    api.advance(REINSTALL);
    shows!(api.server(&id).await, {"status": "ready"}, "an error can be reinstalled away");
}

#[tokio::test]
async fn credentials_are_shown_in_one_field_in_both_or_not_at_all() {
    let api = Api::with_settings(|settings| settings.awkward_passwords = true).await;
    let id = api.mini("m");
    let host = api.handle().host(&id).unwrap();
    for (passwords, sudo, url) in [
        (Passwords::Shown, host.password.as_str(), true),
        (Passwords::OnlyInVncUrl, "", true),
        (Passwords::SealedButInVncUrl, "<sealed>", true),
        (Passwords::Sealed, "<sealed>", false),
    ] {
        api.deed(json!({"deed": "set_passwords", "server": {"id": id}, "passwords": passwords}));
        let shown = api.server(&id).await;
        assert_eq!(shown["sudo_password"], sudo, "{passwords:?}");
        let vnc_url = text(&shown["vnc_url"]);
        if url {
            let parsed = reqwest::Url::parse(vnc_url).unwrap();
            assert_eq!((parsed.scheme(), parsed.username()), ("vnc", "m1"), "{vnc_url}");
            assert_eq!(parsed.port().map(u64::from), shown["vnc_port"].as_u64());
            let password = parsed.password().unwrap();
            assert!(
                password.contains('%'),
                "awkward characters are percent-encoded: {password}"
            );
        } else {
            assert_eq!(vnc_url, "<sealed>");
        }
    }
}

#[tokio::test]
async fn a_password_is_disclosed_for_some_days_only() {
    let api = Api::start().await;
    let id = api.mini("m");
    assert_ne!(api.server(&id).await["sudo_password"], "<sealed>");
    api.advance(Duration::from_hours(72));
    let shown = api.server(&id).await;
    shows!(shown, {"sudo_password": "<sealed>", "vnc_url": "<sealed>"});
    api.post(format!("{}/reinstall", server(&id)), json!({})).await.ok();
    api.advance(REINSTALL);
    let shown = api.server(&id).await;
    assert_ne!(shown["sudo_password"], "<sealed>", "a reinstall discloses again");
}

#[tokio::test]
async fn switching_private_networks_on_takes_a_while_and_shows_as_told() {
    let api = Api::start().await;
    let id = api.mini("m");
    let shown = api.patch(server(&id), json!({"enable_vpc": true})).await.ok();
    shows!(shown, {"status": "updating", "vpc_status": "vpc_updating"});
    let body = api.patch(server(&id), json!({"enable_vpc": false})).await.busy();
    assert_eq!(body["current_state"], "vpc_updating");
    api.advance(Duration::from_secs(40));
    let shown = api.server(&id).await;
    shows!(shown, {"status": "ready", "vpc_status": "vpc_enabled"});
    api.set(|settings| settings.vpc_toggle = VpcToggle::Ready);
    let shown = api.patch(server(&id), json!({"enable_vpc": false})).await.ok();
    shows!(shown, {"status": "ready", "vpc_status": "vpc_updating"});
    api.advance(Duration::from_secs(40));
    assert_eq!(api.server(&id).await["vpc_status"], "vpc_disabled");
}

#[tokio::test]
async fn a_diagnostic_tells_what_is_up_after_a_while() {
    let api = Api::start().await;
    let id = api.mini("m");
    let health = Health {
        is_ssh_port_up: false,
        ..Health::default()
    };
    api.deed(json!({"deed": "set_health", "server": {"id": id}, "health": health}));
    let path = format!("{APPLE}/connectivity-diagnostics");
    let started = api.post(&path, json!({"server_id": id})).await.ok();
    let path = format!("{path}/{}", text(&started["diagnostic_id"]));
    assert_eq!(api.read(&path).await["status"], "processing");
    api.advance(Duration::from_secs(5));
    let done = api.read(&path).await;
    shows!(done, {"status": "completed", "is_healthy": false});
    assert_eq!(done["health_details"]["is_ssh_port_up"], false);
    assert_eq!(done["supported_actions"], json!(["reboot_server", "reinstall_server"]));
}

#[tokio::test]
async fn bandwidth_and_type_are_checked_against_the_offer() {
    let api = Api::start().await;
    let mut body = order("a");
    body["public_bandwidth_bps"] = json!(2_000_000_000_u64);
    api.post(MINIS, body).await.invalid();
    let mut body = order("a");
    body["type"] = json!("M1-M");
    api.post(MINIS, body).await.invalid();
    let mut body = order("a");
    body["commitment_type"] = json!("forever");
    api.post(MINIS, body).await.invalid();
    api.get(format!("{APPLE}/server-type/M1-M")).await.missing();
}

#[tokio::test]
async fn machines_hear_what_happens_to_them_in_order() {
    let api = Api::start().await;
    let id = api.ordered("a").await;
    api.post(format!("{}/reboot", server(&id)), json!({})).await.ok();
    api.advance(REINSTALL);
    api.post(format!("{}/reinstall", server(&id)), json!({})).await.ok();
    api.advance(Duration::from_hours(24));
    api.delete(server(&id)).await;
    let events = api.handle().events_after(0);
    let changes: Vec<HostChange> = events.iter().map(|event| event.change).collect();
    assert_eq!(
        changes,
        [
            HostChange::Installed,
            HostChange::Rebooting,
            HostChange::Rebooted,
            HostChange::Wiped,
            HostChange::Installed,
            HostChange::Gone
        ]
    );
    let generations: Vec<u32> = events.iter().map(|event| event.host.generation).collect();
    assert_eq!(generations, [1, 1, 1, 1, 2, 2]);
}
