//! An emulator with a clock that only moves by hand, and a client that hides nothing.

use reqwest::Method;
use russet_sim_scaleway::{
    DEFAULT_PROJECT, DEFAULT_SECRET_KEY, Factor, Fault, Handle, Id, Options, PermissionSet, Settings, Sim,
};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::Duration;

pub(crate) const APPLE: &str = "/apple-silicon/v1alpha1/zones/fr-par-1";
pub(crate) const INSTANCE: &str = "/instance/v1/zones/fr-par-1";
pub(crate) const BLOCK: &str = "/block/v1/zones/fr-par-1";
pub(crate) const METAL: &str = "/baremetal/v1/zones/fr-par-1";
pub(crate) const METAL_V3: &str = "/baremetal/v3/zones/fr-par-1";
pub(crate) const MINIS: &str = "/apple-silicon/v1alpha1/zones/fr-par-1/servers";
pub(crate) const INSTANCES: &str = "/instance/v1/zones/fr-par-1/servers";
pub(crate) const METALS: &str = "/baremetal/v1/zones/fr-par-1/servers";
pub(crate) const VPC: &str = "/vpc/v2/regions/fr-par";
pub(crate) const IPAM: &str = "/ipam/v1/regions/fr-par";
pub(crate) const IAM: &str = "/iam/v1alpha1";

/// An answer.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) body: Value,
}

impl Answer {
    #[track_caller]
    pub(crate) fn ok(self) -> Value {
        assert!((200..300).contains(&self.status), "{} {}", self.status, self.body);
        self.body
    }

    /// A field or parameter is unknown, missing or out of range.
    #[track_caller]
    pub(crate) fn invalid(self) -> Value {
        self.refused(400, "invalid_arguments")
    }

    #[track_caller]
    pub(crate) fn denied(self) -> Value {
        self.refused(403, "permissions_denied")
    }

    #[track_caller]
    pub(crate) fn missing(self) -> Value {
        self.refused(404, "not_found")
    }

    /// Something is under way.
    #[track_caller]
    pub(crate) fn busy(self) -> Value {
        self.refused(409, "transient_state")
    }

    /// Its state does not allow it.
    #[track_caller]
    pub(crate) fn unmet(self) -> Value {
        self.refused(412, "precondition_failed")
    }

    /// Checks status and type of an error.
    #[track_caller]
    pub(crate) fn refused(self, status: u16, kind: &str) -> Value {
        let told = (self.status, self.body["type"].as_str());
        assert_eq!(told, (status, Some(kind)), "{}", self.body);
        self.body
    }
}

/// Compares the fields that are named; the others may be anything.
macro_rules! shows {
    ($found:expr, $wanted:tt) => {
        shows!($found, $wanted, "not as it should be")
    };
    ($found:expr, $wanted:tt, $($why:tt)+) => {{
        let (found, wanted) = (&$found, serde_json::json!($wanted));
        for (field, value) in wanted.as_object().unwrap() {
            assert_eq!(&found[field], value, "{field} of {found}: {}", format_args!($($why)+));
        }
    }};
}
pub(crate) use shows;

pub(crate) fn text(value: &Value) -> &str {
    value.as_str().unwrap()
}

pub(crate) fn id_of(thing: &Value) -> Id {
    text(&thing["id"]).parse().unwrap()
}

pub(crate) struct Api {
    pub(crate) sim: Sim,
    http: reqwest::Client,
    token: Option<String>,
}

pub(crate) fn options() -> Options {
    Options {
        clock_factor: Factor::MANUAL,
        start: Some("2026-10-01T08:00:00Z".parse().unwrap()),
        ..Options::default()
    }
}

impl Api {
    pub(crate) async fn start() -> Self {
        Self::with(options()).await
    }

    pub(crate) async fn with_settings(change: impl FnOnce(&mut Settings)) -> Self {
        let mut options = options();
        change(&mut options.settings);
        Self::with(options).await
    }

    pub(crate) async fn with(options: Options) -> Self {
        Self::around(Sim::start(options).await.unwrap())
    }

    pub(crate) fn around(sim: Sim) -> Self {
        Self {
            sim,
            http: client(),
            token: Some(DEFAULT_SECRET_KEY.to_owned()),
        }
    }

    pub(crate) fn handle(&self) -> &Handle {
        self.sim.handle()
    }

    pub(crate) fn advance(&self, by: Duration) {
        self.handle().advance(by);
    }

    pub(crate) fn inject(&self, fault: Fault) {
        self.handle().inject(fault);
    }

    pub(crate) fn set(&self, change: impl FnOnce(&mut Settings)) {
        self.handle().set(change);
    }

    /// Does a deed, as `/_sim/deeds` takes it.
    #[track_caller]
    pub(crate) fn deed(&self, deed: Value) -> Vec<Id> {
        self.handle().perform(serde_json::from_value(deed).unwrap()).unwrap()
    }

    /// The server that came of a deed.
    #[track_caller]
    pub(crate) fn made(&self, deed: Value) -> Id {
        self.deed(deed).pop().unwrap()
    }

    pub(crate) fn set_stock(&self, kind: &str, count: u32) {
        self.deed(json!({"deed": "set_stock", "zone": "fr-par-1", "type": kind, "count": count}));
    }

    /// What becomes of the next change of one Linux server, or of any.
    pub(crate) fn decide(&self, stage: &str, server: Option<&str>, outcome: &str) {
        let server = server.map(|name| json!({"name": name}));
        self.deed(json!({"deed": "decide_box", "stage": stage, "server": server, "outcome": outcome}));
    }

    pub(crate) fn unstick(&self, id: &Id) {
        self.deed(json!({"deed": "unstick", "server": {"id": id}}));
    }

    /// A key for some projects or the whole organisation; calls carry its token from now on.
    pub(crate) fn use_key(&mut self, name: &str, projects: Option<Value>, sets: impl Into<BTreeSet<PermissionSet>>) {
        let (access, sets) = (format!("SCW{}", name.to_uppercase()), sets.into());
        let projects = projects.unwrap_or_default();
        self.deed(json!({"deed": "add_key", "access_key": access, "secret_key": name,
            "projects": projects, "permission_sets": sets}));
        self.use_token(Some(name));
    }

    /// From now on calls carry this token.
    pub(crate) fn use_token(&mut self, token: Option<&str>) {
        self.token = token.map(str::to_owned);
    }

    pub(crate) fn request(&self, method: &str, path: &str) -> reqwest::RequestBuilder {
        let method: Method = method.parse().unwrap();
        let request = self.http.request(method, format!("{}{path}", self.sim.url()));
        match &self.token {
            Some(token) => request.header("X-Auth-Token", token),
            None => request,
        }
    }

    pub(crate) async fn send(&self, method: &str, path: &str, body: Option<Value>) -> Result<Answer, reqwest::Error> {
        let mut request = self.request(method, path);
        if let Some(body) = body {
            request = request.json(&body);
        }
        let response = request.send().await?;
        let status = response.status().as_u16();
        let text = response.text().await?;
        let body = serde_json::from_str(&text).unwrap_or(Value::String(text));
        Ok(Answer { status, body })
    }

    pub(crate) async fn get(&self, path: impl AsRef<str>) -> Answer {
        self.send("GET", path.as_ref(), None).await.unwrap()
    }

    /// What a GET that must succeed answers.
    pub(crate) async fn read(&self, path: impl AsRef<str>) -> Value {
        self.get(path).await.ok()
    }

    pub(crate) async fn post(&self, path: impl AsRef<str>, body: Value) -> Answer {
        self.send("POST", path.as_ref(), Some(body)).await.unwrap()
    }

    pub(crate) async fn put(&self, path: impl AsRef<str>, body: Value) -> Answer {
        self.send("PUT", path.as_ref(), Some(body)).await.unwrap()
    }

    pub(crate) async fn patch(&self, path: impl AsRef<str>, body: Value) -> Answer {
        self.send("PATCH", path.as_ref(), Some(body)).await.unwrap()
    }

    pub(crate) async fn delete(&self, path: impl AsRef<str>) -> Answer {
        self.send("DELETE", path.as_ref(), None).await.unwrap()
    }

    pub(crate) fn mini(&self, name: &str) -> Id {
        self.made(json!({"deed": "add_minis", "name": name}))
    }

    pub(crate) async fn server(&self, id: &Id) -> Value {
        self.read(server(id)).await
    }

    pub(crate) async fn order(&self, name: &str) -> Answer {
        self.post(MINIS, order(name)).await
    }

    /// Orders a mini and lets it be delivered.
    pub(crate) async fn ordered(&self, name: &str) -> Id {
        let made = self.order(name).await.ok();
        self.advance(Duration::from_mins(3));
        id_of(&made)
    }

    pub(crate) async fn network(&self, name: &str) -> Id {
        let body = json!({"name": name, "project_id": DEFAULT_PROJECT});
        let made = self.post(format!("{VPC}/private-networks"), body).await.ok();
        id_of(&made)
    }
}

impl Api {
    /// The image of Ubuntu for block volumes.
    pub(crate) async fn image(&self) -> Value {
        let path = "/marketplace/v2/local-images?image_label=ubuntu_noble&zone=fr-par-1&type=instance_sbs&arch=x86_64";
        self.read(path).await["local_images"][0]["id"].clone()
    }

    /// The body of an order of an Instance.
    pub(crate) async fn instance_order(&self, name: &str) -> Value {
        json!({
            "name": name,
            "project": DEFAULT_PROJECT,
            "commercial_type": "PRO2-S",
            "image": self.image().await,
            "tags": ["capi", format!("machine-uid={name}")],
            "dynamic_ip_required": true,
            "volumes": {"0": {"volume_type": "sbs_volume", "size": 50_000_000_000_u64}},
        })
    }

    /// Makes an Instance; it is stopped.
    pub(crate) async fn instance(&self, name: &str) -> Id {
        let order = self.instance_order(name).await;
        let made = self.post(INSTANCES, order).await;
        assert_eq!(made.status, 201, "{made:?}");
        id_of(&made.body["server"])
    }

    pub(crate) async fn instance_shown(&self, id: &Id) -> Value {
        self.read(instance(id)).await["server"].clone()
    }

    pub(crate) async fn act(&self, id: &Id, action: &str) -> Answer {
        self.post(format!("{}/action", instance(id)), json!({"action": action}))
            .await
    }

    /// Makes an Instance and lets it boot.
    pub(crate) async fn running(&self, name: &str) -> Id {
        let id = self.instance(name).await;
        self.act(&id, "poweron").await.ok();
        self.advance(Duration::from_secs(25));
        id
    }
}

impl Api {
    /// The one thing of a list whose fields have these values.
    pub(crate) async fn pick(&self, path: &str, list: &str, wanted: &[(&str, &str)]) -> Value {
        let all = self.read(path).await;
        let fits = |one: &&Value| wanted.iter().all(|(name, value)| one[*name] == *value);
        all[list].as_array().unwrap().iter().find(fits).unwrap().clone()
    }

    /// The hourly offer of a name.
    pub(crate) async fn offer(&self) -> Value {
        let path = format!("{METAL}/offers?page_size=100&name=EM-B220E-NVME&subscription_period=hourly");
        self.read(&path).await["offers"][0].clone()
    }

    pub(crate) async fn metal_os(&self, version: &str) -> Value {
        self.pick(&format!("{METAL}/os"), "os", &[("version", version)]).await["id"].clone()
    }

    /// A registered key.
    pub(crate) async fn key(&self) -> Value {
        let path = format!("{IAM}/ssh-keys?project_id={DEFAULT_PROJECT}");
        let present = self.read(&path).await["ssh_keys"][0]["id"].clone();
        if present.is_string() {
            return present;
        }
        let body = json!({"name": "k", "public_key": PUBLIC_KEY, "project_id": DEFAULT_PROJECT});
        self.post(format!("{IAM}/ssh-keys"), body).await.ok()["id"].clone()
    }

    /// The body of an order of Elastic Metal.
    pub(crate) async fn metal_order(&self, name: &str) -> Value {
        json!({
            "offer_id": self.offer().await["id"],
            "project_id": DEFAULT_PROJECT,
            "name": name,
            "tags": ["capi", format!("machine-uid={name}")],
            "install": {
                "os_id": self.metal_os("24.04 LTS (Noble Numbat)").await,
                "hostname": name,
                "ssh_key_ids": [self.key().await],
            },
            "option_ids": [],
        })
    }

    /// Orders Elastic Metal.
    pub(crate) async fn metal(&self, name: &str) -> Id {
        let made = self.post(METALS, self.metal_order(name).await).await.ok();
        id_of(&made)
    }

    /// Orders Elastic Metal and lets it be delivered and installed.
    pub(crate) async fn installed(&self, name: &str) -> Id {
        let id = self.metal(name).await;
        self.advance(Duration::from_mins(49));
        id
    }

    pub(crate) async fn metal_shown(&self, id: &Id) -> Value {
        self.read(metal(id)).await
    }
}

pub(crate) fn metal(id: &Id) -> String {
    format!("{METALS}/{id}")
}

pub(crate) fn instance(id: &Id) -> String {
    format!("{INSTANCES}/{id}")
}

/// Without certificates: reading those of the system takes longer than a whole test.
fn client() -> reqwest::Client {
    reqwest::Client::builder().tls_certs_only([]).build().unwrap()
}

pub(crate) fn server(id: &Id) -> String {
    format!("{MINIS}/{id}")
}

pub(crate) fn order(name: &str) -> Value {
    json!({"name": name, "project_id": DEFAULT_PROJECT, "type": "M2-L"})
}

pub(crate) fn names(list: &Value) -> Vec<&str> {
    let servers = list["servers"].as_array().unwrap();
    servers.iter().map(|server| text(&server["name"])).collect()
}

/// A key like the provider's, without some sets.
pub(crate) fn provider_without(missing: &[PermissionSet]) -> std::collections::BTreeSet<PermissionSet> {
    let all = PermissionSet::PROVIDER.into_iter();
    all.filter(|set| !missing.contains(set)).collect()
}

pub(crate) const PUBLIC_KEY: &str =
    "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl tuist-capi-macos";
