//! What kubelets, rollout gates and scrapers rely on.

use anyhow::{Context, Result, ensure};
use russet_testkit::wait::{Look, until};
use serde_json::Value;

use crate::http::Server;
use crate::{Check, checks};

pub(super) const CHECKS: &[Check<Server>] = checks! {
    up, "probe-up", "contract: probes":
        "/up is 200 with its fields, for anyone";
    ready, "probe-ready", "contract: probes":
        "/ready is 200 with its fields while the node serves";
    rollout, "probe-status-rollout", "contract: probes":
        "/status/rollout has every field the rollout gate reads";
    cluster, "probe-status-cluster", "contract: probes":
        "/status/cluster has its fields";
    head, "probe-head", "RFC 9110 §9.3.2":
        "HEAD of a probe is 200 without a body";
    names, "metrics-names", "contract: metrics":
        "/metrics has the names dashboards query, in the text format";
    gradle, "metrics-count-requests", "contract: metrics":
        "a hit, a miss and a write are counted under route, status and producer";
};

async fn document(server: &Server, path: &str) -> Result<Value> {
    server.contract()?;
    let answer = server.anonymous().get(path).await?;
    let media = answer.expect(200)?.field("content-type").unwrap_or_default();
    ensure!(media.starts_with("application/json"), "the media type is {media:?}");
    answer.json()
}

/// A field and what it must look like.
type Field = (&'static str, fn(&Value) -> bool);

fn has(value: &Value, fields: &[Field]) -> Result<()> {
    for (name, fits) in fields {
        let field = value.get(name).with_context(|| format!("no field {name} in {value}"))?;
        ensure!(fits(field), "{name} is {field}");
    }
    Ok(())
}

async fn up(server: &Server) -> Result<()> {
    let value = document(server, "/up").await?;
    has(
        &value,
        &[
            ("status", |status| status == "ok"),
            ("tenant_id", Value::is_string),
            ("region", Value::is_string),
            ("node", Value::is_string),
            ("node_url", Value::is_string),
        ],
    )?;
    ensure!(
        value.get("tenant_id").and_then(Value::as_str) == Some(&server.tenant),
        "another tenant: {value}"
    );
    Ok(())
}

async fn ready(server: &Server) -> Result<()> {
    has(
        &document(server, "/ready").await?,
        &[
            ("status", |status| status == "ok"),
            ("generation", Value::is_u64),
            ("state", |state| state == "serving"),
            ("ready", |ready| ready == true),
            ("draining", |draining| draining == false),
            ("writer_lock_owned", |owned| owned == true),
            ("initial_discovery_completed", Value::is_boolean),
            ("known_peers", Value::is_array),
            ("http_inflight_requests", Value::is_u64),
            ("grpc_inflight_requests", Value::is_u64),
            ("reasons", |reasons| reasons.as_array().is_some_and(Vec::is_empty)),
        ],
    )
}

async fn rollout(server: &Server) -> Result<()> {
    has(
        &document(server, "/status/rollout").await?,
        &[
            ("generation", Value::is_u64),
            ("ready", |ready| ready == true),
            ("state", |state| state == "serving"),
            ("ring_members", Value::is_u64),
            ("initial_discovery_completed", Value::is_boolean),
            ("writer_lock_owned", |owned| owned == true),
            ("http_inflight_requests", Value::is_u64),
            ("grpc_inflight_requests", Value::is_u64),
            ("outbox_messages", Value::is_u64),
            ("memory_pressure_state", |state| {
                state.as_u64().is_some_and(|state| state < 3)
            }),
            ("fd_timeout_count", Value::is_u64),
            ("backfill_initial_cycle", |cycle| {
                cycle
                    .as_str()
                    .is_some_and(|cycle| ["pending", "complete", "degraded"].contains(&cycle))
            }),
            ("backfill_backfilling_peers", Value::is_u64),
            ("backfill_budget_exhausted_real_peers", Value::is_u64),
            ("backfill_budget_exhausted_capability_peers", Value::is_u64),
            ("backfill_ring_fullness_percent", Value::is_number),
        ],
    )
}

async fn cluster(server: &Server) -> Result<()> {
    has(
        &document(server, "/status/cluster").await?,
        &[
            ("status", |status| status == "ok"),
            ("generation", Value::is_u64),
            ("tenant_id", Value::is_string),
            ("region", Value::is_string),
            ("node", Value::is_string),
            ("node_url", Value::is_string),
            ("connected_nodes", Value::is_array),
            ("ring_members", Value::is_u64),
            ("members", Value::is_array),
            ("regions", Value::is_array),
            ("nodes", Value::is_array),
        ],
    )
}

async fn head(server: &Server) -> Result<()> {
    server.contract()?;
    for path in ["/up", "/ready", "/metrics"] {
        server
            .anonymous()
            .head(path)
            .await?
            .expect(200)
            .and_then(|head| head.expect_body(b""))
            .with_context(|| path.to_owned())?;
    }
    Ok(())
}

/// Counters carry a doubled `_total`: that is what dashboards of the neighbour ask for.
const NAMES: &[&str] = &[
    "kura_http_requests_total_total",
    "kura_http_request_duration_seconds",
    "kura_artifact_reads_total_total",
    "kura_artifact_writes_total_total",
    "kura_artifact_read_bytes_total_total",
    "kura_artifact_write_bytes_total_total",
    "kura_artifact_serving_paths_total_total",
    "kura_http_inflight_requests",
    "kura_public_http_inflight_requests",
    "kura_grpc_inflight_requests",
    "kura_multipart_uploads",
    "kura_tmp_dir_bytes",
    "kura_manifest_index_entries",
    "kura_memory_pressure_state",
    "kura_outbox_messages",
    "kura_node_info",
    "kura_node_geo_info",
    "kura_traffic_state",
    "kura_ready_state",
    "kura_drain_state",
    "kura_writer_lock_owned",
    "kura_process_start_time_seconds",
];

async fn names(server: &Server) -> Result<()> {
    server.contract()?;
    let answer = server.anonymous().get("/metrics").await?;
    let media = answer.expect(200)?.field("content-type").unwrap_or_default();
    ensure!(
        media.starts_with("text/plain; version=0.0.4"),
        "the media type is {media:?}"
    );
    let text = String::from_utf8(answer.body).context("metrics are text")?;
    for name in NAMES {
        let typed = format!("# TYPE {name} ");
        ensure!(text.lines().any(|line| line.starts_with(&typed)), "no metric {name}");
    }
    // A name is described once.
    let mut described = std::collections::HashSet::new();
    for line in text.lines().filter(|line| line.starts_with("# TYPE ")) {
        ensure!(described.insert(line.split(' ').nth(2)), "twice: {line}");
    }
    for line in text.lines().filter(|line| !line.starts_with('#') && !line.is_empty()) {
        let value = line.rsplit(' ').next().unwrap_or_default();
        ensure!(value.parse::<f64>().is_ok(), "no number in {line:?}");
    }
    Ok(())
}

/// What a miss, a write and a hit add to.
const ROWS: [&str; 7] = [
    r#"kura_http_requests_total_total{route="/api/cache/gradle/{cache_key}",status="201"}"#,
    r#"kura_http_requests_total_total{route="/api/cache/gradle/{cache_key}",status="200"}"#,
    r#"kura_http_requests_total_total{route="/api/cache/gradle/{cache_key}",status="404"}"#,
    r#"kura_artifact_reads_total_total{producer="gradle",result="hit"}"#,
    r#"kura_artifact_reads_total_total{producer="gradle",result="miss"}"#,
    r#"kura_artifact_writes_total_total{producer="gradle",result="created"}"#,
    r#"kura_artifact_write_bytes_total_total{producer="gradle",result="created"}"#,
];

/// The value of a counter with its labels; 0 if it never counted.
pub(in crate::http) async fn metric(server: &Server, row: &str) -> Result<f64> {
    let answer = server.anonymous().get("/metrics").await?;
    let value = answer
        .text()?
        .lines()
        .find_map(|line| line.strip_prefix(row)?.trim().parse().ok());
    Ok(value.unwrap_or(0.0))
}

/// Waits until a counter has come so far: a request is counted when its answer is out, so the client may be ahead of it.
pub(super) async fn counted(server: &Server, row: &str, least: f64) -> Result<()> {
    until(row, server.patience, || async move {
        let now = metric(server, row).await?;
        Ok(if now >= least {
            Look::Done(())
        } else {
            Look::not_yet(now)
        })
    })
    .await
}

async fn gradle(server: &Server) -> Result<()> {
    server.contract()?;
    let mut before = Vec::new();
    for row in ROWS {
        before.push(metric(server, row).await?);
    }
    let (writer, target) = (server.writer(), server.gradle(&server.key("counted")));
    writer.get(&target).await?.expect(404)?;
    writer.put(&target, b"x").await?.expect(201)?;
    writer.get(&target).await?.expect(200)?;
    for (row, before) in ROWS.into_iter().zip(before) {
        counted(server, row, before + 1.0).await?;
    }
    Ok(())
}
