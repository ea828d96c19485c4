//! Elastic Metal.

use crate::harness::{Api, IPAM, METAL, METAL_V3, PUBLIC_KEY, VPC, metal, names};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use russet_sim_scaleway::{
    Act, BoxFate, BoxOutcome, DEFAULT_PROJECT, Deed, EarlyAttachment, Fault, Id, LinuxBox, MicroEuro, NewMetals, Power,
    Stage, Which, Zone,
};
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
    (server["status"].as_str().unwrap(), server["install"]["status"].as_str())
}

#[tokio::test]
async fn an_order_is_delivered_and_then_installed_while_it_is_ready() {
    let api = Api::start().await;
    let id = api.metal("a").await;
    let ordered = api.metal_shown(&id).await;
    assert_eq!(states(&ordered), ("ordered", Some("to_install")));
    assert_eq!(
        (&ordered["ips"], &ordered["offer_name"]),
        (&json!([]), &json!("EM-B220E-NVME"))
    );
    assert_eq!(
        api.handle().bill().per_hour,
        MicroEuro(0),
        "nothing is there to be paid for"
    );
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
    let events = api.get(&format!("{}/events", metal(&id))).await.ok();
    let actions: Vec<&str> = events["events"]
        .as_array()
        .unwrap()
        .iter()
        .map(|event| event["action"].as_str().unwrap())
        .collect();
    assert_eq!(actions, ["order", "deliver", "install"]);
}

#[tokio::test]
async fn one_name_is_two_offers_and_both_take_from_one_shelf() {
    let api = Api::start().await;
    let offers = api.get(&format!("{METAL}/offers?name=EM-B220E-NVME")).await.ok();
    let mut periods: Vec<&str> = offers["offers"]
        .as_array()
        .unwrap()
        .iter()
        .map(|offer| offer["subscription_period"].as_str().unwrap())
        .collect();
    periods.sort_unstable();
    assert_eq!(periods, ["hourly", "monthly"]);
    let monthly = api
        .pick(
            &format!("{METAL}/offers?name=EM-B220E-NVME"),
            "offers",
            &[("subscription_period", "monthly")],
        )
        .await;
    assert_eq!(
        (&monthly["price_per_hour"], &monthly["price_per_month"]["units"]),
        (&Value::Null, &json!(129))
    );
    assert_eq!(api.offer().await["monthly_offer_id"], monthly["id"]);
    let zone = Zone::new("fr-par-1");
    let stock = |count| Deed::SetStock {
        zone: zone.clone(),
        server_type: "EM-B220E-NVME".to_owned(),
        count,
    };
    api.handle().perform(stock(1)).unwrap();
    assert_eq!(api.offer().await["stock"], "low");
    let id = api.metal("a").await;
    assert_eq!(api.offer().await["stock"], "empty");
    let mut order = api.metal_order("b").await;
    order["offer_id"] = monthly["id"].clone();
    api.post(&format!("{METAL}/servers"), order)
        .await
        .refused(412, "out_of_stock");
    api.advance(ORDER + DELIVERY + INSTALL);
    api.delete(&metal(&id)).await.ok();
    api.advance(Duration::from_mins(2));
    assert_eq!(api.handle().stock(&zone, "EM-B220E-NVME"), Some(1));
}

#[tokio::test]
async fn a_delivery_can_find_the_shelf_empty_fail_or_never_end() {
    let api = Api::start().await;
    for (outcome, status) in [
        (BoxOutcome::OutOfStock, "out_of_stock"),
        (BoxOutcome::Error, "error"),
        (BoxOutcome::Stuck, "delivering"),
    ] {
        let fate = BoxFate {
            stage: Stage::Delivery,
            server: None,
            outcome,
            times: 1,
        };
        api.handle().perform(Deed::DecideBox(fate)).unwrap();
        let id = api.metal(status).await;
        api.advance(Duration::from_hours(2));
        assert_eq!(api.metal_shown(&id).await["status"], status);
        let deleted = api.delete(&metal(&id)).await;
        if status == "delivering" {
            deleted.refused(409, "transient_state");
            api.handle()
                .perform(Deed::Unstick {
                    server: Which::from(&id),
                })
                .unwrap();
            assert_eq!(api.metal_shown(&id).await["status"], "ready");
        } else {
            assert_eq!(deleted.ok()["status"], "deleting");
        }
    }
    assert_eq!(
        api.handle().bill().running().count(),
        1,
        "only what was delivered is paid for"
    );
}

async fn install(api: &Api, id: &Id, name: &str) -> crate::harness::Answer {
    let body = json!({
        "os_id": api.metal_os("24.04 LTS (Noble Numbat)").await,
        "hostname": name,
        "ssh_key_ids": [api.key().await],
    });
    api.post(&format!("{}/install", metal(id)), body).await
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
    let body = install(&api, &id, "c").await.refused(409, "transient_state");
    assert_eq!(body["current_state"], "installing");
    api.advance(BEGINS);
    let shown = api.metal_shown(&id).await;
    assert_eq!(
        (states(&shown), &shown["install"]["hostname"]),
        (("ready", Some("installing")), &json!("b"))
    );
    install(&api, &id, "c").await.refused(409, "transient_state");
    api.post(&format!("{}/reboot", metal(&id)), json!({"boot_type": "normal"}))
        .await
        .refused(409, "transient_state");
    api.advance(INSTALL);
    let after = row(&api, &id);
    assert_eq!((after.generation, after.power), (2, Power::On));
    assert_ne!(after.host_key, before.host_key);
    assert_eq!(after.public_ip, before.public_ip);
}

#[tokio::test]
async fn an_installation_can_fail_or_never_end_and_the_server_can_still_be_deleted() {
    let api = Api::start().await;
    for (outcome, status) in [(BoxOutcome::Error, "error"), (BoxOutcome::Stuck, "installing")] {
        let server = Some(Which::Name(status.to_owned()));
        let fate = BoxFate {
            stage: Stage::Install,
            server,
            outcome,
            times: 1,
        };
        api.handle().perform(Deed::DecideBox(fate)).unwrap();
        let id = api.installed(status).await;
        api.advance(Duration::from_hours(5));
        assert_eq!(states(&api.metal_shown(&id).await), ("ready", Some(status)));
        assert_eq!(row(&api, &id).power, Power::Off);
        api.delete(&metal(&id)).await.ok();
    }
    api.advance(Duration::from_mins(2));
    assert!(api.handle().metals().is_empty());
}

#[tokio::test]
async fn a_deleted_server_answers_until_it_is_gone_and_costs_until_then() {
    let api = Api::start().await;
    let id = api.installed("a").await;
    assert_eq!(api.delete(&metal(&id)).await.ok()["status"], "deleting");
    assert_eq!(api.metal_shown(&id).await["status"], "deleting");
    api.delete(&metal(&id)).await.refused(409, "transient_state");
    api.patch(&metal(&id), json!({"name": "x"}))
        .await
        .refused(409, "transient_state");
    assert_eq!(api.handle().bill().running().count(), 1);
    api.advance(Duration::from_mins(2));
    api.get(&metal(&id)).await.refused(404, "not_found");
    assert!(api.handle().boxes().is_empty());
    assert_eq!(api.handle().bill().running().count(), 0);
}

async fn network_option(api: &Api) -> Value {
    let offer = api.offer().await["id"].as_str().unwrap().to_owned();
    api.pick(
        &format!("{METAL}/options?offer_id={offer}"),
        "options",
        &[("name", "Private Network")],
    )
    .await["id"]
        .clone()
}

async fn attach(api: &Api, id: &Id, network: &Id) -> Value {
    let body = json!({"private_network_id": network});
    api.post(&format!("{}/private-networks", metal(id)), body).await.ok()
}

#[tokio::test]
async fn an_option_takes_its_time_and_its_money() {
    let api = Api::start().await;
    let id = api.installed("a").await;
    let option = network_option(&api).await;
    let path = format!("{}/options/{}", metal(&id), option.as_str().unwrap());
    let added = api.post(&path, json!({})).await.ok();
    assert_eq!(added["options"][0]["status"], "option_status_enabling");
    assert!(added["options"][0]["private_network"].is_object());
    api.post(&path, json!({})).await.refused(409, "already_exists");
    api.delete(&path).await.refused(409, "transient_state");
    assert_eq!(api.handle().bill().per_hour, MicroEuro(263_000 + 14_000));
    api.advance(OPTION);
    assert_eq!(
        api.metal_shown(&id).await["options"][0]["status"],
        "option_status_enable"
    );
    assert_eq!(
        api.delete(&path).await.ok()["options"][0]["status"],
        "option_status_disabling"
    );
    api.advance(OPTION);
    assert_eq!(api.metal_shown(&id).await["options"], json!([]));
    assert_eq!(api.handle().bill().per_hour, MicroEuro(263_000));
}

#[tokio::test]
async fn a_network_attached_after_the_option_has_its_vlan_late_and_then_carries_packets() {
    let api = Api::start().await;
    let mut order = api.metal_order("a").await;
    order["option_ids"] = json!([network_option(&api).await]);
    let made = api.post(&format!("{METAL}/servers"), order).await.ok();
    let id: Id = made["id"].as_str().unwrap().parse().unwrap();
    let network = api.network("cache").await;
    let body = json!({"private_network_id": network});
    api.post(&format!("{}/private-networks", metal(&id)), body)
        .await
        .refused(409, "transient_state");
    api.advance(ORDER + DELIVERY + INSTALL);
    let attached = attach(&api, &id, &network).await;
    assert_eq!(
        (&attached["status"], &attached["vlan"]),
        (&json!("attaching"), &Value::Null)
    );
    assert!(attached.get("ipam_ip_ids").is_none(), "that is version 3");
    assert!(row(&api, &id).private.is_none());
    api.advance(ATTACH);
    let list = format!("server-private-networks?server_id={id}");
    let v1 = api.get(&format!("{METAL}/{list}")).await.ok()["server_private_networks"][0].clone();
    let v3 = api.get(&format!("{METAL_V3}/{list}")).await.ok()["server_private_networks"][0].clone();
    assert_eq!((&v1["status"], &v1["vlan"]), (&json!("attached"), &v3["vlan"]));
    assert_eq!(v3["ipam_ip_ids"].as_array().unwrap().len(), 2);
    let leg = row(&api, &id).private.unwrap();
    assert_eq!(
        (json!(leg.vlan), leg.address.as_str()),
        (v1["vlan"].clone(), "172.16.0.2/22")
    );
    let rows = format!("{IPAM}/ips?private_network_id={network}&resource_type=baremetal_private_nic");
    assert_eq!(api.get(&rows).await.ok()["total_count"], 0, "not yet");
    api.advance(Duration::from_secs(2));
    let found = api.get(&rows).await.ok();
    let resource = &found["ips"][0]["resource"];
    assert_eq!((&resource["id"], &resource["name"]), (&v1["id"], &json!("a")));
    assert_eq!(resource["mac_address"], leg.mac.to_uppercase());
    let path = format!("{}/private-networks/{network}", metal(&id));
    assert_eq!(api.delete(&path).await.status, 204);
    api.delete(&path).await.refused(409, "transient_state");
    assert!(row(&api, &id).private.is_none());
    api.advance(Duration::from_secs(10));
    assert_eq!(
        api.delete(&format!("{VPC}/private-networks/{network}")).await.status,
        204
    );
}

#[tokio::test]
async fn a_network_attached_before_the_option_looks_attached_and_stays_dark() {
    for (setting, lights_up) in [(EarlyAttachment::StaysDark, false), (EarlyAttachment::LightsUp, true)] {
        let api = Api::with_settings(|settings| settings.early_attachment = setting).await;
        let (id, network) = (api.installed("a").await, api.network("cache").await);
        attach(&api, &id, &network).await;
        let option = network_option(&api).await;
        api.post(
            &format!("{}/options/{}", metal(&id), option.as_str().unwrap()),
            json!({}),
        )
        .await
        .ok();
        api.advance(ATTACH);
        let list = api
            .get(&format!("{METAL}/server-private-networks?server_id={id}"))
            .await
            .ok();
        assert!(
            list["server_private_networks"][0]["vlan"].is_number(),
            "nothing shows it"
        );
        assert!(row(&api, &id).private.is_none(), "the option is still being enabled");
        api.advance(OPTION);
        assert_eq!(row(&api, &id).private.is_some(), lights_up, "{setting:?}");
        let path = format!("{}/private-networks/{network}", metal(&id));
        api.delete(&path).await.ok();
        api.advance(Duration::from_secs(10));
        attach(&api, &id, &network).await;
        api.advance(ATTACH);
        assert!(row(&api, &id).private.is_some(), "attached anew it always works");
    }
}

#[tokio::test]
async fn networks_can_be_set_as_a_whole_in_both_versions() {
    let api = Api::start().await;
    let (id, a, b) = (api.installed("a").await, api.network("a").await, api.network("b").await);
    let body = json!({"private_network_ids": [a, b]});
    let set = api
        .send("PUT", &format!("{}/private-networks", metal(&id)), Some(body))
        .await
        .unwrap()
        .ok();
    assert_eq!(set["server_private_networks"].as_array().unwrap().len(), 2);
    api.advance(ATTACH);
    let v3 = format!("{METAL_V3}/servers/{id}/private-networks");
    let body = json!({"per_private_network_ipam_ip_ids": {b.as_str(): []}});
    api.send("PUT", &v3, Some(body)).await.unwrap().ok();
    api.advance(Duration::from_secs(10));
    let left = api
        .get(&format!("{METAL}/server-private-networks?server_id={id}"))
        .await
        .ok();
    assert_eq!(
        (
            &left["total_count"],
            &left["server_private_networks"][0]["private_network_id"]
        ),
        (&json!(1), &json!(b))
    );
    let unknown = json!({"private_network_ids": [DEFAULT_PROJECT]});
    api.send("PUT", &format!("{}/private-networks", metal(&id)), Some(unknown))
        .await
        .unwrap()
        .refused(404, "not_found");
    let wrong = json!({"private_network_id": b, "ipam_ip_ids": []});
    api.post(&format!("{}/private-networks", metal(&id)), wrong)
        .await
        .refused(400, "invalid_arguments");
}

#[tokio::test]
async fn user_data_come_in_base64_and_only_where_cloud_init_is() {
    let api = Api::start().await;
    let text = "#cloud-config\n";
    let mut order = api.metal_order("a").await;
    order["user_data"] = json!("not base64!");
    api.post(&format!("{METAL}/servers"), order.clone())
        .await
        .refused(400, "invalid_arguments");
    order["user_data"] = json!(BASE64.encode(text));
    let mut old = order.clone();
    old["install"]["os_id"] = api.metal_os("20.04 LTS (Focal Fossa)").await;
    let body = api
        .post(&format!("{METAL}/servers"), old)
        .await
        .refused(400, "invalid_arguments");
    assert_eq!(body["details"][0]["argument_name"], "user_data");
    let os = api
        .pick(&format!("{METAL}/os"), "os", &[("version", "20.04 LTS (Focal Fossa)")])
        .await;
    assert_eq!(os["cloud_init_supported"], false);
    let made = api.post(&format!("{METAL}/servers"), order).await.ok();
    let id: Id = made["id"].as_str().unwrap().parse().unwrap();
    assert_eq!(made["user_data"], json!(BASE64.encode(text)));
    assert_eq!(row(&api, &id).user_data.as_deref(), Some(text));
    api.patch(&metal(&id), json!({"user_data": ""})).await.ok();
    assert_eq!(row(&api, &id).user_data, None);
    api.advance(ORDER + DELIVERY + INSTALL);
    let mut body = json!({
        "os_id": api.metal_os("24.04 LTS (Noble Numbat)").await,
        "hostname": "a",
        "ssh_key_ids": [api.key().await],
        "user_data": BASE64.encode(text),
    });
    let path = format!("{}/install", metal(&id));
    api.post(&path, body.clone()).await.refused(400, "invalid_arguments");
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
async fn what_cannot_be_ordered_is_refused_and_nothing_is_made() {
    let api = Api::start().await;
    let good = api.metal_order("a").await;
    let changed = |name: &str, value: Value| {
        let mut order = good.clone();
        order[name] = value;
        order
    };
    let installed = |name: &str, value: Value| {
        let mut order = good.clone();
        order["install"][name] = value;
        order
    };
    for (order, status, kind) in [
        (changed("offer_id", json!(DEFAULT_PROJECT)), 404, "not_found"),
        (changed("offer", json!("EM-B220E-NVME")), 400, "invalid_arguments"),
        (changed("project_id", Value::Null), 400, "invalid_arguments"),
        (
            changed("project_id", json!("0a11ce00-0000-4000-a000-0000000000ff")),
            403,
            "permissions_denied",
        ),
        (changed("name", json!("")), 400, "invalid_arguments"),
        (
            changed("option_ids", json!([DEFAULT_PROJECT])),
            400,
            "invalid_arguments",
        ),
        (installed("ssh_key_ids", json!([])), 400, "invalid_arguments"),
        (installed("ssh_key_ids", json!([DEFAULT_PROJECT])), 404, "not_found"),
        (installed("os_id", json!(DEFAULT_PROJECT)), 404, "not_found"),
        (installed("hostname", json!("")), 400, "invalid_arguments"),
        (installed("host_name", json!("a")), 400, "invalid_arguments"),
        (
            installed("partitioning_schema", json!({"disks": []})),
            400,
            "invalid_arguments",
        ),
    ] {
        api.post(&format!("{METAL}/servers"), order.clone())
            .await
            .refused(status, kind);
    }
    assert!(api.handle().metals().is_empty() && api.handle().bill().lines.is_empty());
    api.get("/baremetal/v1/zones/fr-par-3/servers")
        .await
        .refused(400, "invalid_arguments");
    api.get(&format!("{METAL}/servers?tag=x"))
        .await
        .refused(400, "invalid_arguments");
    api.get(&format!("{METAL}/offers?subscription_period=weekly"))
        .await
        .refused(400, "invalid_arguments");
    api.get(&format!("{METAL_V3}/servers"))
        .await
        .refused(404, "unknown_route");
    api.get(&format!("{METAL}/settings")).await.refused(501, "not_emulated");
}

#[tokio::test]
async fn servers_are_found_by_all_tags_a_part_of_the_name_one_of_the_states_and_the_project() {
    let api = Api::with_settings(|settings| settings.page_cap = Some(1)).await;
    api.metal("one").await;
    let pool = NewMetals {
        count: 2,
        tags: vec!["pool".to_owned()],
        ..NewMetals::default()
    };
    api.handle().perform(Deed::AddMetals(pool)).unwrap();
    let found = async |query: &str| api.get(&format!("{METAL}/servers?{query}")).await.ok();
    let all = found("page=2&page_size=50").await;
    assert_eq!((&all["total_count"], names(&all).len()), (&json!(3), 1));
    assert_eq!(names(&found("tags=capi&tags=machine-uid%3Done").await), ["one"]);
    assert_eq!(found("tags=capi&tags=pool").await["total_count"], 0);
    assert_eq!(found("name=tuist-kura-em-").await["total_count"], 2);
    assert_eq!(found("status=ready&status=stopped").await["total_count"], 2);
    assert_eq!(found(&format!("project_id={DEFAULT_PROJECT}")).await["total_count"], 3);
    api.get(&format!("{METAL}/servers?status=on"))
        .await
        .refused(400, "invalid_arguments");
}

#[tokio::test]
async fn a_pool_of_yesterday_is_delivered_installed_and_paid_for() {
    let api = Api::start().await;
    let pool = NewMetals {
        private_network: true,
        ..NewMetals::default()
    };
    let id = api.handle().perform(Deed::AddMetals(pool)).unwrap().pop().unwrap();
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
    api.post(&path, json!({})).await.refused(412, "precondition_failed");
}

#[tokio::test]
async fn tags_and_names_are_patched_and_a_colleague_may_do_so_in_between() {
    let api = Api::start().await;
    let id = api.installed("a").await;
    let body = json!({"name": "b", "tags": ["x"], "description": "d", "protected": true});
    let shown = api.patch(&metal(&id), body).await.ok();
    assert_eq!(
        (&shown["name"], &shown["tags"], &shown["protected"]),
        (&json!("b"), &json!(["x"]), &json!(true))
    );
    api.delete(&metal(&id)).await.refused(412, "precondition_failed");
    api.patch(&metal(&id), json!({"hostname": "x"}))
        .await
        .refused(400, "invalid_arguments");
    let rename = Deed::Rename {
        server: Which::from("b"),
        name: "theirs".to_owned(),
    };
    api.handle()
        .inject(Fault::new("PATCH", "/baremetal/**", Act::Meanwhile(vec![rename])));
    api.patch(&metal(&id), json!({"tags": []})).await.ok();
    assert_eq!(api.metal_shown(&id).await["name"], "theirs");
    api.handle()
        .perform(Deed::SetState {
            server: Which::from(&id),
            state: "locked".to_owned(),
        })
        .unwrap();
    api.patch(&metal(&id), json!({"name": "x"}))
        .await
        .refused(423, "locked");
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
    let call = async |action: &str, body: Value| api.post(&format!("{}/{action}", metal(&id)), body).await;
    let normal = || json!({"boot_type": "normal", "ssh_key_ids": null});
    call("start", normal()).await.refused(412, "precondition_failed");
    call("reboot", json!({"boot_type": "rescue"}))
        .await
        .refused(400, "invalid_arguments");
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

#[tokio::test]
async fn the_usual_layout_passes_the_check_and_others_only_if_they_fit() {
    let api = Api::start().await;
    let (offer, os) = (
        api.offer().await["id"].clone(),
        api.metal_os("24.04 LTS (Noble Numbat)").await,
    );
    let path = format!(
        "{METAL}/partitioning-schemas/default?offer_id={}&os_id={}",
        offer.as_str().unwrap(),
        os.as_str().unwrap()
    );
    let usual = api.get(&path).await.ok();
    let check = async |schema: &Value| {
        let body = json!({"offer_id": offer, "os_id": os, "partitioning_schema": schema});
        api.post(&format!("{METAL}/partitioning-schemas/validate"), body).await
    };
    assert_eq!(check(&usual).await.status, 204);
    // Root shrinks to 64 GiB, and the rest becomes a mirrored /data.
    let mut data = usual.clone();
    for disk in data["disks"].as_array_mut().unwrap() {
        let parts = disk["partitions"].as_array_mut().unwrap();
        parts[3]["size"] = json!(64_u64 << 30);
        parts.push(json!({"label": "raid", "number": 5, "size": 0, "use_all_available_space": true}));
    }
    let mirror = json!({"name": "/dev/md2", "level": "raid_level_1", "devices": ["/dev/nvme0n1p5", "/dev/nvme1n1p5"]});
    data["raids"].as_array_mut().unwrap().push(mirror);
    data["filesystems"]
        .as_array_mut()
        .unwrap()
        .push(json!({"device": "/dev/md2", "format": "xfs", "mountpoint": "/data"}));
    assert_eq!(check(&data).await.status, 204);
    let broken: [fn(&mut Value); 6] = [
        |schema| schema["filesystems"][2]["mountpoint"] = json!("/root"),
        |schema| schema["filesystems"][2]["format"] = json!("btrfs"),
        |schema| schema["filesystems"][2]["device"] = json!("/dev/md9"),
        |schema| schema["disks"][0]["device"] = json!("/dev/sda"),
        |schema| schema["disks"][0]["partitions"][3]["size"] = json!(u64::MAX),
        |schema| schema["disks"][0]["partitions"][3]["number"] = json!(1),
    ];
    for (number, breaking) in broken.into_iter().enumerate() {
        let mut schema = usual.clone();
        breaking(&mut schema);
        let answer = check(&schema).await;
        assert_eq!(answer.status, 400, "{number}: {answer:?}");
    }
    let mut order = api.metal_order("a").await;
    order["install"]["partitioning_schema"] = data.clone();
    let made = api.post(&format!("{METAL}/servers"), order).await.ok();
    assert_eq!(made["install"]["partitioning_schema"], data);
}

#[tokio::test]
async fn an_order_whose_answer_is_lost_is_found_by_its_tag() {
    let api = Api::with_settings(|settings| settings.list_lag = Duration::from_secs(5)).await;
    let order = api.metal_order("a").await;
    api.handle()
        .inject(Fault::new("POST", "/baremetal/v1/zones/*/servers", Act::Cut).after_effect());
    let path = format!("{METAL}/servers");
    assert!(api.send("POST", &path, Some(order)).await.is_err());
    let tagged = format!("{path}?tags=machine-uid%3Da");
    assert!(names(&api.get(&tagged).await.ok()).is_empty(), "the list lags");
    api.advance(Duration::from_secs(5));
    assert_eq!(names(&api.get(&tagged).await.ok()), ["a"]);
    let busy = Act::TooManyRequests { retry_after: 1 };
    api.handle()
        .inject(Fault::new("GET", "/baremetal/v1/zones/*/offers", busy));
    assert_eq!(api.get(&format!("{METAL}/offers")).await.status, 429);
}

#[tokio::test]
async fn a_key_without_the_set_is_refused_at_the_first_list() {
    let mut api = Api::start().await;
    let sets = crate::harness::provider_without(&[russet_sim_scaleway::PermissionSet::ElasticMetalFullAccess]);
    let key = Deed::AddKey {
        access_key: "SCWNOMETAL".to_owned(),
        secret_key: "nometal".to_owned(),
        organization_id: None,
        projects: None,
        permission_sets: sets,
        expires_at: None,
    };
    api.handle().perform(key).unwrap();
    api.use_token(Some("nometal"));
    api.get(&format!("{METAL}/servers"))
        .await
        .refused(403, "permissions_denied");
    api.get(&format!("{METAL}/offers")).await.ok();
}

#[tokio::test]
async fn every_price_on_the_bill_is_in_the_price_list() {
    let api = Api::start().await;
    let list = "/product-catalog/v2alpha1/public-catalog/products?page_size=100&zone=fr-par-1";
    for (kind, product, unit, nanos) in [
        ("instance", "PRO2-S", "hour", 219_000_000_u64),
        ("elastic_metal", "EM-B220E-NVME", "hour", 263_000_000),
        ("block_storage", "Block Storage 5K", "gigabyte_hour", 118_000),
    ] {
        let found = api.get(&format!("{list}&product_types={kind}")).await.ok();
        let fits = |one: &&Value| one["product"] == product && one["unit_of_measure"]["unit"] == unit;
        let one = found["products"].as_array().unwrap().iter().find(fits).unwrap();
        assert_eq!(one["price"]["retail_price"]["nanos"], nanos);
    }
}
