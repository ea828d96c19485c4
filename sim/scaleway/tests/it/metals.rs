//! Elastic Metal.

mod networks;
mod orders;

use crate::harness::{Api, METAL, METALS, PUBLIC_KEY, id_of, metal, shows, text};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use russet_sim_scaleway::{Act, Deed, Fault, Id, LinuxBox, MicroEuro, Power, Which, Zone};
use serde_json::{Value, json};
use std::time::Duration;

const ORDER: Duration = Duration::from_mins(1);
const DELIVERY: Duration = Duration::from_mins(8);
const INSTALL: Duration = Duration::from_mins(40);
const BEGINS: Duration = Duration::from_secs(3);
const OPTION: Duration = Duration::from_secs(90);
const POWER: Duration = Duration::from_mins(4);
const ATTACH: Duration = Duration::from_secs(15);

fn row(api: &Api, id: &Id) -> LinuxBox {
    api.handle().linux_box(id).unwrap()
}

fn states(server: &Value) -> (&str, Option<&str>) {
    (text(&server["status"]), server["install"]["status"].as_str())
}

#[tokio::test]
async fn an_order_is_delivered_and_then_installed_while_it_is_ready() {
    let api = Api::start().await;
    let id = api.metal("a").await;
    let ordered = api.metal_shown(&id).await;
    assert_eq!(states(&ordered), ("ordered", Some("to_install")));
    shows!(ordered, {"ips": [], "offer_name": "EM-B220E-NVME"});
    let found = api.handle().bill().per_hour;
    assert_eq!(found, MicroEuro(0), "nothing is there to be paid for");
    api.advance(ORDER);
    assert_eq!(states(&api.metal_shown(&id).await), ("delivering", Some("to_install")));
    api.advance(DELIVERY);
    let ready = api.metal_shown(&id).await;
    assert_eq!(states(&ready), ("ready", Some("installing")));
    assert_eq!(
        (&ready["ips"][0]["version"], row(&api, &id).power),
        (&json!("IPv4"), Power::Off)
    );
    assert_eq!(api.handle().bill().per_hour, MicroEuro(263_000));
    api.advance(INSTALL);
    assert_eq!(states(&api.metal_shown(&id).await), ("ready", Some("completed")));
    let machine = row(&api, &id);
    assert_eq!((machine.power, machine.generation, machine.boots), (Power::On, 1, 1));
    assert_eq!(
        (
            machine.ssh_user.as_str(),
            machine.os.as_str(),
            machine.hostname.as_str()
        ),
        ("ubuntu", "ubuntu_noble", "a")
    );
    assert_eq!(machine.authorized_keys, [PUBLIC_KEY]);
    let events = api.read(format!("{}/events", metal(&id))).await;
    let actions: Vec<&str> = events["events"]
        .as_array()
        .unwrap()
        .iter()
        .map(|event| text(&event["action"]))
        .collect();
    assert_eq!(actions, ["order", "deliver", "install"]);
}

#[tokio::test]
async fn a_delivery_can_find_the_shelf_empty_fail_or_never_end() {
    let api = Api::start().await;
    for (outcome, status) in [
        ("out_of_stock", "out_of_stock"),
        ("error", "error"),
        ("stuck", "delivering"),
    ] {
        api.decide("delivery", None, outcome);
        let id = api.metal(status).await;
        api.advance(Duration::from_hours(2));
        assert_eq!(api.metal_shown(&id).await["status"], status);
        let deleted = api.delete(metal(&id)).await;
        if status == "delivering" {
            deleted.busy();
            api.unstick(&id);
            assert_eq!(api.metal_shown(&id).await["status"], "ready");
        } else {
            assert_eq!(deleted.ok()["status"], "deleting");
        }
    }
    let found = api.handle().bill().running().count();
    assert_eq!(found, 1, "only what was delivered is paid for");
}

async fn install(api: &Api, id: &Id, name: &str) -> crate::harness::Answer {
    let body = json!({
        "os_id": api.metal_os("24.04 LTS (Noble Numbat)").await,
        "hostname": name,
        "ssh_key_ids": [api.key().await],
    });
    api.post(format!("{}/install", metal(id)), body).await
}

#[tokio::test]
async fn a_second_installation_wipes_the_first_and_shows_only_after_a_moment() {
    let api = Api::start().await;
    let id = api.installed("a").await;
    let before = row(&api, &id);
    install(&api, &id, "b").await.ok();
    let shown = api.metal_shown(&id).await;
    assert_eq!(
        (states(&shown), &shown["install"]["hostname"]),
        (("ready", Some("completed")), &json!("a")),
        "not noticed yet"
    );
    let body = install(&api, &id, "c").await.busy();
    assert_eq!(body["current_state"], "installing");
    api.advance(BEGINS);
    let shown = api.metal_shown(&id).await;
    assert_eq!(
        (states(&shown), &shown["install"]["hostname"]),
        (("ready", Some("installing")), &json!("b"))
    );
    install(&api, &id, "c").await.busy();
    api.post(format!("{}/reboot", metal(&id)), json!({"boot_type": "normal"}))
        .await
        .busy();
    api.advance(INSTALL);
    let after = row(&api, &id);
    assert_eq!((after.generation, after.power), (2, Power::On));
    assert_ne!(after.host_key, before.host_key);
    assert_eq!(after.public_ip, before.public_ip);
}

#[tokio::test]
async fn an_installation_can_fail_or_never_end_and_the_server_can_still_be_deleted() {
    let api = Api::start().await;
    for (outcome, status) in [("error", "error"), ("stuck", "installing")] {
        api.decide("install", Some(status), outcome);
        let id = api.installed(status).await;
        api.advance(Duration::from_hours(5));
        assert_eq!(states(&api.metal_shown(&id).await), ("ready", Some(status)));
        assert_eq!(row(&api, &id).power, Power::Off);
        api.delete(metal(&id)).await.ok();
    }
    api.advance(Duration::from_mins(2));
    assert!(api.handle().metals().is_empty());
}

#[tokio::test]
async fn a_deleted_server_answers_until_it_is_gone_and_costs_until_then() {
    let api = Api::start().await;
    let id = api.installed("a").await;
    assert_eq!(api.delete(metal(&id)).await.ok()["status"], "deleting");
    assert_eq!(api.metal_shown(&id).await["status"], "deleting");
    api.delete(metal(&id)).await.busy();
    api.patch(metal(&id), json!({"name": "x"})).await.busy();
    assert_eq!(api.handle().bill().running().count(), 1);
    api.advance(Duration::from_mins(2));
    api.get(metal(&id)).await.missing();
    assert!(api.handle().boxes().is_empty());
    assert_eq!(api.handle().bill().running().count(), 0);
}

#[tokio::test]
async fn user_data_come_in_base64_and_only_where_cloud_init_is() {
    let api = Api::start().await;
    let text = "#cloud-config\n";
    let mut order = api.metal_order("a").await;
    order["user_data"] = json!("not base64!");
    api.post(METALS, order.clone()).await.invalid();
    order["user_data"] = json!(BASE64.encode(text));
    let mut old = order.clone();
    old["install"]["os_id"] = api.metal_os("20.04 LTS (Focal Fossa)").await;
    let body = api.post(METALS, old).await.invalid();
    assert_eq!(body["details"][0]["argument_name"], "user_data");
    let os = api
        .pick(&format!("{METAL}/os"), "os", &[("version", "20.04 LTS (Focal Fossa)")])
        .await;
    assert_eq!(os["cloud_init_supported"], false);
    let made = api.post(METALS, order).await.ok();
    let id: Id = id_of(&made);
    assert_eq!(made["user_data"], json!(BASE64.encode(text)));
    assert_eq!(row(&api, &id).user_data.as_deref(), Some(text));
    api.patch(metal(&id), json!({"user_data": ""})).await.ok();
    assert_eq!(row(&api, &id).user_data, None);
    api.advance(ORDER + DELIVERY + INSTALL);
    let mut body = json!({
        "os_id": api.metal_os("24.04 LTS (Noble Numbat)").await,
        "hostname": "a",
        "ssh_key_ids": [api.key().await],
        "user_data": BASE64.encode(text),
    });
    let path = format!("{}/install", metal(&id));
    api.post(&path, body.clone()).await.invalid();
    body["user_data"] = json!({"name": "file", "content_type": "text/plain", "content": BASE64.encode("other")});
    api.post(&path, body).await.ok();
    assert_eq!(row(&api, &id).user_data.as_deref(), Some("other"));
}

#[tokio::test]
async fn keys_are_read_when_the_installation_begins() {
    let api = Api::start().await;
    let id = api.metal("a").await;
    let key = format!("/iam/v1alpha1/ssh-keys/{}", api.key().await.as_str().unwrap());
    api.patch(&key, json!({"disabled": true})).await.ok();
    api.advance(ORDER + DELIVERY);
    api.patch(&key, json!({"disabled": false})).await.ok();
    api.advance(INSTALL);
    assert!(row(&api, &id).authorized_keys.is_empty(), "it was disabled just then");
    install(&api, &id, "a").await.ok();
    api.advance(BEGINS + INSTALL);
    assert_eq!(row(&api, &id).authorized_keys, [PUBLIC_KEY]);
}

#[tokio::test]
async fn a_pool_of_yesterday_is_delivered_installed_and_paid_for() {
    let api = Api::start().await;
    let id = api.made(json!({"deed": "add_metals", "private_network": true}));
    let shown = api.metal_shown(&id).await;
    assert_eq!(
        (states(&shown), &shown["name"]),
        (("ready", Some("completed")), &json!("tuist-kura-em"))
    );
    assert_eq!(shown["options"][0]["status"], "option_status_enable");
    assert_eq!(row(&api, &id).power, Power::On);
    assert_eq!(api.handle().bill().per_hour, MicroEuro(263_000 + 14_000));
    assert_eq!(api.handle().stock(&Zone::new("fr-par-1"), "EM-B220E-NVME"), Some(10));
    let path = format!("{}/migrate-offer-monthly", metal(&id));
    api.post(&path, json!({})).await.ok();
    assert_eq!(api.handle().bill().total, MicroEuro(263_000 + 14_000 + 129_990_000));
    api.post(&path, json!({})).await.unmet();
}

#[tokio::test]
async fn tags_and_names_are_patched_and_a_colleague_may_do_so_in_between() {
    let api = Api::start().await;
    let id = api.installed("a").await;
    let body = json!({"name": "b", "tags": ["x"], "description": "d", "protected": true});
    let shown = api.patch(metal(&id), body).await.ok();
    shows!(shown, {"name": "b", "tags": ["x"], "protected": true});
    api.delete(metal(&id)).await.unmet();
    api.patch(metal(&id), json!({"hostname": "x"})).await.invalid();
    let rename = Deed::Rename {
        server: Which::from("b"),
        name: "theirs".to_owned(),
    };
    api.inject(Fault::new("PATCH", "/baremetal/**", Act::Meanwhile(vec![rename])));
    api.patch(metal(&id), json!({"tags": []})).await.ok();
    assert_eq!(api.metal_shown(&id).await["name"], "theirs");
    api.deed(json!({"deed": "set_state", "server": {"id": id}, "state": "locked"}));
    api.patch(metal(&id), json!({"name": "x"})).await.refused(423, "locked");
    let wrong = Deed::SetState {
        server: Which::from(&id),
        state: "asleep".to_owned(),
    };
    assert!(api.handle().perform(wrong).unwrap_err().to_string().contains("asleep"));
}

#[tokio::test]
async fn power_goes_off_and_on_and_a_reboot_counts() {
    let api = Api::start().await;
    let id = api.installed("a").await;
    let call = async |action: &str, body: Value| api.post(format!("{}/{action}", metal(&id)), body).await;
    let normal = || json!({"boot_type": "normal", "ssh_key_ids": null});
    call("start", normal()).await.unmet();
    call("reboot", json!({"boot_type": "rescue"})).await.invalid();
    assert_eq!(call("reboot", normal()).await.ok()["status"], "starting");
    assert_eq!(row(&api, &id).power, Power::Off);
    api.advance(POWER);
    assert_eq!(
        (row(&api, &id).power, row(&api, &id).boots, row(&api, &id).generation),
        (Power::On, 2, 1)
    );
    assert_eq!(call("stop", json!({})).await.ok()["status"], "stopping");
    api.advance(POWER);
    assert_eq!(api.metal_shown(&id).await["status"], "stopped");
    call("start", normal()).await.ok();
    api.advance(POWER);
    assert_eq!((row(&api, &id).power, row(&api, &id).boots), (Power::On, 3));
}
