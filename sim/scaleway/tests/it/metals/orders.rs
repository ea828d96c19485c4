//! What can be ordered, at what price, and how it is found again.

use super::{DELIVERY, INSTALL, ORDER};
use crate::harness::{Api, METAL, METAL_V3, METALS, metal, names, text};
use russet_sim_scaleway::{Act, DEFAULT_PROJECT, Fault, Zone};
use serde_json::{Value, json};
use std::time::Duration;

#[tokio::test]
async fn one_name_is_two_offers_and_both_take_from_one_shelf() {
    let api = Api::start().await;
    let offers = api.read(format!("{METAL}/offers?name=EM-B220E-NVME")).await;
    let mut periods: Vec<&str> = offers["offers"]
        .as_array()
        .unwrap()
        .iter()
        .map(|offer| text(&offer["subscription_period"]))
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
    api.set_stock("EM-B220E-NVME", 1);
    assert_eq!(api.offer().await["stock"], "low");
    let id = api.metal("a").await;
    assert_eq!(api.offer().await["stock"], "empty");
    let mut order = api.metal_order("b").await;
    order["offer_id"] = monthly["id"].clone();
    api.post(METALS, order).await.refused(412, "out_of_stock");
    api.advance(ORDER + DELIVERY + INSTALL);
    api.delete(metal(&id)).await.ok();
    api.advance(Duration::from_mins(2));
    assert_eq!(api.handle().stock(&zone, "EM-B220E-NVME"), Some(1));
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
        api.post(METALS, order.clone()).await.refused(status, kind);
    }
    assert!(api.handle().metals().is_empty() && api.handle().bill().lines.is_empty());
    api.get("/baremetal/v1/zones/fr-par-3/servers").await.invalid();
    api.get(format!("{METALS}?tag=x")).await.invalid();
    api.get(format!("{METAL}/offers?subscription_period=weekly"))
        .await
        .invalid();
    api.get(format!("{METAL_V3}/servers"))
        .await
        .refused(404, "unknown_route");
    api.get(format!("{METAL}/settings")).await.refused(501, "not_emulated");
}

#[tokio::test]
async fn servers_are_found_by_all_tags_a_part_of_the_name_one_of_the_states_and_the_project() {
    let api = Api::with_settings(|settings| settings.page_cap = Some(1)).await;
    api.metal("one").await;
    api.deed(json!({"deed": "add_metals", "count": 2, "tags": ["pool"]}));
    let found = async |query: &str| api.read(format!("{METALS}?{query}")).await;
    let all = found("page=2&page_size=50").await;
    assert_eq!((&all["total_count"], names(&all).len()), (&json!(3), 1));
    assert_eq!(names(&found("tags=capi&tags=machine-uid%3Done").await), ["one"]);
    assert_eq!(found("tags=capi&tags=pool").await["total_count"], 0);
    assert_eq!(found("name=tuist-kura-em-").await["total_count"], 2);
    assert_eq!(found("status=ready&status=stopped").await["total_count"], 2);
    assert_eq!(found(&format!("project_id={DEFAULT_PROJECT}")).await["total_count"], 3);
    api.get(format!("{METALS}?status=on")).await.invalid();
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
    let usual = api.read(path).await;
    let check = async |schema: &Value| {
        let body = json!({"offer_id": offer, "os_id": os, "partitioning_schema": schema});
        api.post(format!("{METAL}/partitioning-schemas/validate"), body).await
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
    let made = api.post(METALS, order).await.ok();
    assert_eq!(made["install"]["partitioning_schema"], data);
}

#[tokio::test]
async fn an_order_whose_answer_is_lost_is_found_by_its_tag() {
    let api = Api::with_settings(|settings| settings.list_lag = Duration::from_secs(5)).await;
    let order = api.metal_order("a").await;
    api.inject(Fault::new("POST", "/baremetal/v1/zones/*/servers", Act::Cut).after_effect());
    let path = METALS;
    assert!(api.send("POST", path, Some(order)).await.is_err());
    let tagged = format!("{path}?tags=machine-uid%3Da");
    assert!(names(&api.read(&tagged).await).is_empty(), "the list lags");
    api.advance(Duration::from_secs(5));
    assert_eq!(names(&api.read(&tagged).await), ["a"]);
    let busy = Act::TooManyRequests { retry_after: 1 };
    api.inject(Fault::new("GET", "/baremetal/v1/zones/*/offers", busy));
    assert_eq!(api.get(format!("{METAL}/offers")).await.status, 429);
}

#[tokio::test]
async fn a_key_without_the_set_is_refused_at_the_first_list() {
    let mut api = Api::start().await;
    let sets = crate::harness::provider_without(&[russet_sim_scaleway::PermissionSet::ElasticMetalFullAccess]);
    api.use_key("nometal", None, sets);
    api.get(METALS).await.denied();
    api.read(format!("{METAL}/offers")).await;
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
        let found = api.read(format!("{list}&product_types={kind}")).await;
        let fits = |one: &&Value| one["product"] == product && one["unit_of_measure"]["unit"] == unit;
        let one = found["products"].as_array().unwrap().iter().find(fits).unwrap();
        assert_eq!(one["price"]["retail_price"]["nanos"], nanos);
    }
}
