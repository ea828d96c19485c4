//! The program itself: flags, environment, Lease, stand-in, signals.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex};

use anyhow::{Context as _, Result};
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::{get, post};
use axum::{Json, Router};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use kube::config::Kubeconfig;
use kube::{Client, ResourceExt as _};
use russet_cluster::process::Spec;
use russet_testkit::wait::{self, PATIENCE};
use serde_json::{Value, json};

use crate::fleet::{Fleet, is_ready};
use crate::harness::{cluster, environment, flags, identity, program, sim};
use crate::joiner::join;

/// An emulated Mac that joins when it is told to.
#[derive(Clone)]
struct Mac {
    client: Client,
    login: String,
    hash: Arc<Mutex<Option<String>>>,
}

impl Mac {
    fn knows(&self, headers: &HeaderMap) -> bool {
        let expected = format!("Basic {}", BASE64.encode(&self.login));
        headers
            .get("authorization")
            .is_some_and(|given| given.as_bytes() == expected.as_bytes())
    }
}

async fn told_to_join(State(mac): State<Mac>, headers: HeaderMap, Json(body): Json<Value>) -> StatusCode {
    if !mac.knows(&headers) {
        return StatusCode::UNAUTHORIZED;
    }
    let text = |key: &str| body[key].as_str().unwrap().to_owned();
    let labels = serde_json::from_value(body["labels"].clone()).unwrap();
    join(mac.client.clone(), &text("nodeName"), &text("providerID"), &labels)
        .await
        .unwrap();
    *mac.hash.lock().unwrap() = Some(text("hash"));
    StatusCode::ACCEPTED
}

async fn state(State(mac): State<Mac>, headers: HeaderMap) -> Result<Json<Value>, StatusCode> {
    if !mac.knows(&headers) {
        return Err(StatusCode::UNAUTHORIZED);
    }
    let hash = mac.hash.lock().unwrap().clone();
    let phase = if hash.is_some() { "joined" } else { "idle" };
    Ok(Json(
        json!({"generation": 1, "phase": phase, "message": "", "hash": hash}),
    ))
}

/// Where the API server is, as a kubeconfig says.
fn server_of(kubeconfig: &Path) -> Result<String> {
    let parsed = Kubeconfig::read_from(kubeconfig)?;
    let cluster = parsed.clusters.into_iter().find_map(|named| named.cluster);
    cluster.and_then(|cluster| cluster.server).context("no server")
}

#[tokio::test]
async fn the_program_serves_a_machine_through_the_stand_in_and_ends_when_told() -> Result<()> {
    let sandbox = cluster().await?.sandbox("process").await?;
    let who = identity(&sandbox).await?;
    let sim = sim(1).await?;
    let client = sandbox.client().await?;
    let host = sim
        .handle()
        .host("tuist-pool-0")
        .or_else(|| sim.handle().host("tuist-pool-0-1"))
        .unwrap();
    let listener = tokio::net::TcpListener::bind(SocketAddr::new(host.address, 0)).await?;
    let port = listener.local_addr()?.port();
    let mac = Mac {
        client,
        login: format!("{}:{}", host.username, host.password),
        hash: Arc::default(),
    };
    let router = Router::new()
        .route("/join", post(told_to_join))
        .route("/state", get(state))
        .with_state(mac);
    let server = tokio::spawn(async move { axum::serve(listener, router).await });

    let name = format!("{}.capi-provider", sandbox.namespace());
    let log = cluster().await?.dir().join(format!("{name}.log"));
    let mut spec = Spec::new(&name, program(), log.clone())
        .args(flags(&sandbox, &who))
        .args([
            format!("--leader-election-namespace={}", sandbox.namespace()),
            format!("--stand-in-port={port}"),
            format!("--api-server-url={}", server_of(&who.kubeconfig)?),
            "--host-bootstrap=stand-in".to_owned(),
            "--a-flag-of-another-release=1".to_owned(),
            "--log-format=json".to_owned(),
        ]);
    for (key, value) in environment(&sim) {
        spec = spec.env(key, value);
    }
    let supervisor = cluster().await?.supervisor();
    supervisor.start(spec).await?;
    let fleet = Fleet::create(&sandbox, 1, json!({"fleetName": "runners"})).await?;
    let ready = fleet.until("the machine to be ready", 1, is_ready).await;
    let said = std::fs::read_to_string(&log)?;
    let macs = ready.map_err(|error| error.context(said.clone()))?;
    let node = fleet.nodes().get(&macs[0].name_any()).await?;
    assert_eq!(
        node.labels().get("tuist.dev/fleet").map(String::as_str),
        Some("runners")
    );
    assert!(said.contains("a-flag-of-another-release"), "{said}");
    assert!(
        !said.contains(russet_sim_scaleway::DEFAULT_SECRET_KEY),
        "no key in the log"
    );
    assert!(!said.contains(&host.password), "no password in the log");
    supervisor.stop(&name).await?;
    wait::until_true("it to say that it stopped", PATIENCE, || async {
        Ok(std::fs::read_to_string(&log)?.contains("stopped"))
    })
    .await?;
    server.abort();
    Ok(())
}
