//! The emulator as a client meets it: over HTTP, with a client of this file only.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "helpers of tests, outside of test functions"
)]

mod control;
mod program;
mod strictness;
mod tokens;

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::KeyPair;
use aws_lc_rs::signature::RSA_PKCS1_SHA256;
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use russet_sim_github::{AppKey, Deed, Factor, Options, Sim};
use serde_json::{Value, json};
use std::sync::OnceLock;

const APP: u64 = 7;
const INSTALLATION: u64 = 42;
const START: i64 = 1_700_000_000;

fn key() -> &'static AppKey {
    static KEY: OnceLock<AppKey> = OnceLock::new();
    KEY.get_or_init(|| AppKey::generate().unwrap())
}

/// A JWT, signed whatever it says.
fn jwt(head: &Value, claims: &Value) -> String {
    let pem = key().pkcs1_pem();
    let base64: String = pem.lines().filter(|line| !line.starts_with('-')).collect();
    let pair = KeyPair::from_der(&STANDARD.decode(base64).unwrap()).unwrap();
    let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let message = format!("{}.{}", part(head), part(claims));
    let mut signature = vec![0; pair.public_modulus_len()];
    let random = SystemRandom::new();
    pair.sign(&RSA_PKCS1_SHA256, &random, message.as_bytes(), &mut signature)
        .unwrap();
    format!("{message}.{}", URL_SAFE_NO_PAD.encode(signature))
}

fn good_jwt() -> String {
    let claims = json!({"iat": START - 30, "exp": START + 540, "iss": APP.to_string()});
    jwt(&json!({"alg": "RS256"}), &claims)
}

/// An answer.
struct Answer {
    status: u16,
    headers: reqwest::header::HeaderMap,
    body: Value,
}

impl Answer {
    fn message(&self) -> &str {
        self.body["message"].as_str().unwrap_or_default()
    }
}

struct World {
    sim: Sim,
    http: reqwest::Client,
}

impl World {
    async fn new() -> Self {
        let (app, public_key, org) = (APP, key().public_pem(), "acme".to_owned());
        let installed = Deed::install(APP, INSTALLATION, "tuist");
        let deeds = vec![Deed::AddApp { app, public_key }, installed, Deed::AddOrg { org }];
        let options = Options {
            clock_factor: Factor::MANUAL,
            start: Some(jiff::Timestamp::from_second(START).unwrap()),
            deeds,
            ..Options::default()
        };
        Self {
            sim: Sim::start(options).await.unwrap(),
            http: reqwest::Client::builder().no_proxy().build().unwrap(),
        }
    }

    /// Does a deed, as `/_sim/deeds` takes it.
    fn deed(&self, deed: Value) {
        self.sim
            .handle()
            .perform(serde_json::from_value(deed).unwrap())
            .unwrap();
    }

    /// A request with everything GitHub wants but the bearer.
    fn request(&self, method: &str, path: &str) -> reqwest::RequestBuilder {
        self.http
            .request(method.parse().unwrap(), format!("{}{path}", self.sim.url()))
            .header("user-agent", "test")
            .header("accept", "application/vnd.github+json")
            .header("x-github-api-version", "2022-11-28")
    }

    async fn send(&self, request: reqwest::RequestBuilder) -> Answer {
        let response = request.send().await.unwrap();
        Answer {
            status: response.status().as_u16(),
            headers: response.headers().clone(),
            body: serde_json::from_str(&response.text().await.unwrap()).unwrap_or(Value::Null),
        }
    }

    async fn as_app(&self, method: &str, path: &str, jwt: &str) -> Answer {
        self.send(self.request(method, path).bearer_auth(jwt)).await
    }

    async fn token(&self) -> String {
        let path = format!("/app/installations/{INSTALLATION}/access_tokens");
        let answer = self.as_app("POST", &path, &good_jwt()).await;
        assert_eq!(answer.status, 201, "{}", answer.body);
        answer.body["token"].as_str().unwrap().to_owned()
    }

    async fn as_installation(&self, method: &str, path: &str, body: Option<Value>) -> Answer {
        let mut request = self.request(method, path).bearer_auth(self.token().await);
        if let Some(body) = body {
            request = request.json(&body);
        }
        self.send(request).await
    }
}
