//! Instances, their NICs, addresses and volumes.

mod belongings;
mod nics;
mod orders;

use crate::harness::{Answer, Api, BLOCK, INSTANCES, PUBLIC_KEY, id_of, instance, names, shows, text};
use russet_sim_scaleway::{Act, DEFAULT_PROJECT, Deed, DynamicIp, ErrorStyle, Fault, Id, Which};
use serde_json::{Value, json};
use std::time::Duration;

const BOOT: Duration = Duration::from_secs(25);
const STOP: Duration = Duration::from_secs(20);

#[tokio::test]
async fn an_instance_is_made_stopped_and_has_an_address_only_once_it_runs() {
    let api = Api::start().await;
    let id = api.instance("a").await;
    let made = api.instance_shown(&id).await;
    shows!(made, {"state": "stopped", "public_ips": [], "allowed_actions": ["poweron", "backup"]});
    let task = api.act(&id, "poweron").await;
    assert_eq!((task.status, &task.body["task"]["status"]), (202, &json!("pending")));
    let booting = api.instance_shown(&id).await;
    shows!(booting, {"state": "starting", "public_ips": []});
    api.advance(BOOT);
    let running = api.instance_shown(&id).await;
    assert_eq!(running["state"], "running");
    assert_eq!(running["public_ips"][0]["dynamic"], true);
    assert_eq!(running["public_ip"], running["public_ips"][0]);
    assert!(text(&running["creation_date"]).ends_with("+00:00"));
}

#[tokio::test]
async fn an_instance_has_no_public_address_unless_it_asked_for_one() {
    for (setting, expected) in [(DynamicIp::IfAsked, 0), (DynamicIp::UnlessDeclined, 1)] {
        let api = Api::with_settings(|settings| settings.dynamic_ip = setting).await;
        let mut order = api.instance_order("a").await;
        order.as_object_mut().unwrap().remove("dynamic_ip_required");
        let made = api.post(INSTANCES, order).await.ok();
        let id: Id = id_of(&made["server"]);
        api.act(&id, "poweron").await.ok();
        api.advance(BOOT);
        let addresses = api.instance_shown(&id).await["public_ips"].clone();
        assert_eq!(addresses.as_array().unwrap().len(), expected, "{setting:?}");
    }
}

#[tokio::test]
async fn the_dynamic_address_goes_with_poweroff_and_the_next_one_is_another() {
    let api = Api::start().await;
    let id = api.running("a").await;
    let first = api.instance_shown(&id).await["public_ip"]["address"].clone();
    api.act(&id, "reboot").await.ok();
    assert_eq!(api.instance_shown(&id).await["state"], "starting");
    api.advance(BOOT);
    shows!(api.instance_shown(&id).await["public_ip"], {"address": first}, "a reboot keeps it");
    api.act(&id, "poweroff").await.ok();
    assert_eq!(api.instance_shown(&id).await["public_ip"], Value::Null);
    api.advance(STOP);
    api.act(&id, "poweron").await.ok();
    api.advance(BOOT);
    let second = api.instance_shown(&id).await["public_ip"]["address"].clone();
    assert!(second.is_string() && second != first, "{first} {second}");
}

#[tokio::test]
async fn a_stopped_server_cannot_be_stopped_and_a_running_one_not_deleted() {
    let api = Api::start().await;
    let id = api.instance("a").await;
    for action in ["poweroff", "terminate", "reboot", "stop_in_place"] {
        let body = api.act(&id, action).await.unmet();
        assert_eq!(body["help_message"], "server should be running", "{action}");
    }
    api.act(&id, "poweron").await.ok();
    api.delete(instance(&id)).await.busy();
    let body = api.act(&id, "poweroff").await.busy();
    assert_eq!(body["current_state"], "starting");
    api.advance(BOOT);
    let body = api.delete(instance(&id)).await.unmet();
    assert_eq!(body["help_message"], "server should be stopped");
    api.act(&id, "poweron").await.unmet();
    api.act(&id, "poweroff").await.ok();
    api.delete(instance(&id)).await.busy();
    api.advance(STOP);
    assert_eq!(api.delete(instance(&id)).await.status, 204);
    api.get(instance(&id)).await.missing();
}

#[tokio::test]
async fn the_older_words_say_the_same_as_the_present_ones() {
    let api = Api::with_settings(|settings| settings.instance_errors = ErrorStyle::Legacy).await;
    let id = api.instance("a").await;
    let body = api.act(&id, "poweroff").await.refused(400, "invalid_request_error");
    assert_eq!(body["message"], "server should be running");
    api.get(instance(&DEFAULT_PROJECT.parse().unwrap()))
        .await
        .refused(404, "unknown_resource");
    let body = api
        .post(INSTANCES, json!({"name": "x", "nmae": 1}))
        .await
        .refused(400, "invalid_request_error");
    assert!(body["fields"]["nmae"][0].is_string(), "{body}");
}

async fn raw(api: &Api, method: &str, path: &str, kind: &str, body: &str) -> Answer {
    let request = api
        .request(method, path)
        .header("Content-Type", kind)
        .body(body.to_owned());
    let response = request.send().await.unwrap();
    let status = response.status().as_u16();
    let text = response.text().await.unwrap();
    let body = serde_json::from_str(&text).unwrap_or(Value::String(text));
    Answer { status, body }
}

#[tokio::test]
async fn user_data_is_a_text_by_key_and_can_be_taken_away() {
    let api = Api::start().await;
    let id = api.instance("a").await;
    let all = format!("{}/user_data", instance(&id));
    let one = format!("{all}/cloud-init");
    assert_eq!(api.read(&all).await, json!({"user_data": []}));
    api.get(&one).await.missing();
    let text = "#cloud-config\nruncmd: []\n";
    assert_eq!(raw(&api, "PATCH", &one, "text/plain", text).await.status, 204);
    let found = raw(&api, "PATCH", &one, "text/plain; charset=utf-8", text).await.status;
    assert_eq!(found, 204);
    raw(&api, "PATCH", &one, "application/json", "\"x\"").await.invalid();
    assert_eq!(api.read(&all).await, json!({"user_data": ["cloud-init"]}));
    assert_eq!(api.read(&one).await, json!(text));
    assert_eq!(api.delete(&one).await.status, 204);
    api.delete(&one).await.missing();
    assert_eq!(api.read(&all).await, json!({"user_data": []}));
}

#[tokio::test]
async fn a_boot_can_hang_for_ever_or_fail_back_to_stopped() {
    let api = Api::start().await;
    let (a, b) = (api.instance("a").await, api.instance("b").await);
    api.decide("boot", Some("a"), "stuck");
    api.act(&b, "poweron").await.ok();
    api.act(&a, "poweron").await.ok();
    api.advance(Duration::from_hours(3));
    assert_eq!(api.instance_shown(&a).await["state"], "starting");
    shows!(api.instance_shown(&b).await, {"state": "running"}, "only the one that was meant");
    api.unstick(&a);
    assert_eq!(api.instance_shown(&a).await["state"], "running");
    api.act(&a, "poweroff").await.ok();
    api.advance(STOP);
    api.decide("boot", Some("a"), "error");
    api.act(&a, "poweron").await.ok();
    api.advance(BOOT);
    let failed = api.instance_shown(&a).await;
    shows!(failed, {"state": "stopped", "state_detail": "the server failed to boot"});
}

#[tokio::test]
async fn a_protected_instance_is_neither_deleted_nor_terminated() {
    let api = Api::start().await;
    let id = api.instance("a").await;
    api.patch(instance(&id), json!({"protected": true})).await.ok();
    api.delete(instance(&id)).await.unmet();
    api.act(&id, "poweron").await.ok();
    api.advance(BOOT);
    api.act(&id, "terminate").await.unmet();
    api.patch(
        &instance(&id),
        json!({"protected": false, "name": "b_c", "tags": ["x"]}),
    )
    .await
    .ok();
    let shown = api.instance_shown(&id).await;
    shows!(shown, {"name": "b_c", "hostname": "b-c", "tags": ["x"]});
    api.act(&id, "terminate").await.ok();
}

#[tokio::test]
async fn every_call_about_instances_can_be_struck_before_and_after_its_effect() {
    let api = Api::start().await;
    let order = api.instance_order("a").await;
    let path = INSTANCES;
    let lost = Fault::new("POST", "/instance/v1/zones/*/servers", Act::Status(502));
    api.inject(lost.clone());
    assert_eq!(api.post(path, order.clone()).await.status, 502);
    assert!(api.handle().instances().is_empty());
    api.inject(lost.after_effect());
    assert_eq!(api.post(path, order).await.status, 502);
    let found = api.read(format!("{path}?tags=machine-uid%3Da")).await;
    assert_eq!(names(&found), ["a"], "it was made all the same");
    let id: Id = id_of(&found["servers"][0]);
    api.inject(Fault::new("POST", "/instance/v1/zones/*/servers/*/action", Act::Cut).after_effect());
    let body = json!({"action": "poweron"});
    assert!(
        api.send("POST", &format!("{}/action", instance(&id)), Some(body))
            .await
            .is_err()
    );
    assert_eq!(api.instance_shown(&id).await["state"], "starting");
    let rename = Deed::Rename {
        server: Which::from(&id),
        name: "theirs".to_owned(),
    };
    api.inject(Fault::new("PATCH", "/instance/**", Act::Meanwhile(vec![rename])).after_effect());
    api.patch(instance(&id), json!({"name": "ours"})).await.ok();
    assert_eq!(api.instance_shown(&id).await["name"], "theirs");
    let slow = Act::TooManyRequests { retry_after: 2 };
    api.inject(Fault::new("GET", "/block/**", slow));
    assert_eq!(api.get(format!("{BLOCK}/volumes")).await.status, 429);
}

#[tokio::test]
async fn a_list_that_lags_misses_the_new_server_and_keeps_the_deleted_one() {
    let api = Api::with_settings(|settings| settings.list_lag = Duration::from_secs(10)).await;
    let id = api.instance("a").await;
    let list = INSTANCES;
    assert!(names(&api.read(list).await).is_empty());
    shows!(api.instance_shown(&id).await, {"name": "a"}, "a read of one sees the present");
    api.advance(Duration::from_secs(10));
    assert_eq!(names(&api.read(list).await), ["a"]);
    api.delete(instance(&id)).await.ok();
    assert_eq!(names(&api.read(list).await), ["a"]);
}

#[tokio::test]
async fn keys_are_those_of_the_project_when_it_boots() {
    let api = Api::start().await;
    let id = api.instance("a").await;
    assert!(api.handle().linux_box(&id).unwrap().authorized_keys.is_empty());
    let body = json!({"name": "k", "public_key": PUBLIC_KEY, "project_id": DEFAULT_PROJECT});
    api.post("/iam/v1alpha1/ssh-keys", body).await.ok();
    api.act(&id, "poweron").await.ok();
    api.advance(BOOT);
    assert_eq!(api.handle().linux_box(&id).unwrap().authorized_keys, [PUBLIC_KEY]);
}
