//! The stand-in for a Mac's set-up: an emulated Mac joins a synthetic Node when it is told to over HTTP.
//!
//! `POST /join` hands over what SSH would; `GET /state` says how far it is. Both carry the login of the host, so a host that
//! was wiped meanwhile refuses, as a real one would.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::time::Duration;

use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::Taint;
use reqwest::StatusCode;
use russet_api::machine::StepState;
use russet_telemetry::Secret;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{Bootstrapper, Done, Failed, HostConfigHash, HostFacts, Job, Progress};

const STEP: &str = "join";
const PERIOD: Duration = Duration::from_millis(500);
/// A host that boots answers nothing for a while.
const PATIENCE: Duration = Duration::from_mins(5);

/// Tells emulated Macs to join.
#[derive(Clone, Debug)]
pub struct StandIn {
    http: reqwest::Client,
    port: u16,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Join<'a> {
    node_name: &'a str,
    #[serde(rename = "providerID")]
    provider_id: &'a str,
    labels: &'a BTreeMap<String, String>,
    taints: &'a [Taint],
    kubeconfig: &'a str,
    hash: &'a str,
}

#[derive(Debug, Deserialize)]
struct State {
    phase: String,
    #[serde(default)]
    message: String,
    #[serde(default)]
    hash: String,
}

impl StandIn {
    /// Macs that listen on this port.
    pub fn new(port: u16) -> Result<Self, reqwest::Error> {
        let http = reqwest::Client::builder()
            .no_proxy()
            .tls_certs_only([])
            .timeout(Duration::from_secs(10))
            .build()?;
        Ok(Self { http, port })
    }

    async fn join(self, job: Job) -> Result<Done, Failed> {
        let fail = |message: String| Failed {
            step: STEP.to_owned(),
            message,
            fingerprint: None,
        };
        let base = format!("http://{}", SocketAddr::new(job.address, self.port));
        let password = job.sudo_password.clone().unwrap_or_default();
        let kubeconfig = job.join_kubeconfig.clone().unwrap_or_default();
        let body = Join {
            node_name: &job.node_name,
            provider_id: &job.provider_id,
            labels: &job.labels,
            taints: &job.taints,
            kubeconfig: kubeconfig.expose(),
            hash: job.hash.as_str(),
        };
        let deadline = Instant::now() + PATIENCE;
        let mut asked = false;
        loop {
            let answer = if asked {
                self.state(&base, &job.ssh_user, &password).await
            } else {
                self.post(&base, &job.ssh_user, &password, &body).await.map(|()| None)
            };
            match answer {
                Ok(None) => asked = true,
                Ok(Some(state)) if state.phase == "joined" && state.hash == job.hash.as_str() => {
                    return Ok(Done::default());
                }
                Ok(Some(state)) if state.phase == "failed" => return Err(fail(state.message)),
                // It was restarted and remembers nothing.
                Ok(Some(state)) if state.phase == "idle" => asked = false,
                Err(Refusal::Login) => {
                    return Err(fail(
                        "the host refuses the password; it was installed again meanwhile".to_owned(),
                    ));
                }
                Err(Refusal::Answer(status)) => return Err(fail(format!("the host answers {status}"))),
                Err(Refusal::Silent(why)) if Instant::now() >= deadline => {
                    return Err(fail(format!("the host does not answer on {base}: {why}")));
                }
                Ok(Some(_)) | Err(Refusal::Silent(_)) => {}
            }
            if Instant::now() >= deadline {
                return Err(fail("the host did not join in time".to_owned()));
            }
            tokio::time::sleep(PERIOD).await;
        }
    }

    async fn post(&self, base: &str, user: &str, password: &Secret<String>, body: &Join<'_>) -> Result<(), Refusal> {
        let request = self.http.post(format!("{base}/join")).json(body);
        let response = request.basic_auth(user, Some(password.expose())).send().await;
        check(response).map(drop)
    }

    async fn state(&self, base: &str, user: &str, password: &Secret<String>) -> Result<Option<State>, Refusal> {
        let request = self.http.get(format!("{base}/state"));
        let response = check(request.basic_auth(user, Some(password.expose())).send().await)?;
        response.json().await.map(Some).map_err(|error| Refusal::silent(&error))
    }
}

enum Refusal {
    Login,
    Answer(StatusCode),
    Silent(String),
}

impl Refusal {
    fn silent(error: &reqwest::Error) -> Self {
        // The whole text repeats the address, which the caller names.
        let why = if error.is_timeout() {
            "no answer in time"
        } else if error.is_connect() {
            "no connection"
        } else {
            "the connection broke"
        };
        Self::Silent(why.to_owned())
    }
}

fn check(response: Result<reqwest::Response, reqwest::Error>) -> Result<reqwest::Response, Refusal> {
    let response = response.map_err(|error| Refusal::silent(&error))?;
    match response.status() {
        status if status.is_success() => Ok(response),
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Err(Refusal::Login),
        status if status.is_server_error() => Err(Refusal::Silent(format!("it answers {status}"))),
        status => Err(Refusal::Answer(status)),
    }
}

impl Bootstrapper for StandIn {
    fn desired(&self, host: &HostFacts) -> HostConfigHash {
        let HostFacts {
            type_,
            fleet,
            cpu,
            memory_mb,
            // Whoever stands in for a Mac follows by itself.
            api_server: _,
        } = host;
        let text = format!("stand-in 1 {type_} {fleet:?} {cpu:?} {memory_mb:?}");
        let digest = Sha256::digest(text.as_bytes());
        let hex = digest.iter().take(16).fold(String::new(), |mut hex, byte| {
            // Writing to a String cannot fail.
            let _ = write!(hex, "{byte:02x}");
            hex
        });
        HostConfigHash::new(hex)
    }

    fn run(&self, job: Job, progress: Progress, stop: CancellationToken) -> BoxFuture<'static, Result<Done, Failed>> {
        let this = self.clone();
        Box::pin(async move {
            progress.step(STEP, StepState::Running, None);
            let joined = tokio::select! {
                () = stop.cancelled() => Err(Failed {
                    step: STEP.to_owned(),
                    message: "the provider stops".to_owned(),
                    fingerprint: None,
                }),
                joined = this.join(job) => joined,
            };
            match &joined {
                Ok(_) => progress.step(STEP, StepState::Succeeded, None),
                Err(failed) => progress.step(STEP, StepState::Failed, Some(failed.message.clone())),
            }
            joined
        })
    }
}
