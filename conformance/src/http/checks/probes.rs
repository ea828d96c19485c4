//! What kubelets, rollout gates and scrapers rely on.

use anyhow::{Context, Result, ensure};
use russet_testkit::wait::{Look, until};
use serde_json::Value;

use crate::http::Server;
use crate::{Check, checks};

pub(super) const CHECKS: &[Check<Server>] = checks! {
    up, "probe-up", "contract: probes" [contract]:
        "/up is 200 with its fields, for anyone";
    ready, "probe-ready", "contract: probes" [contract]:
        "/ready is 200 with its fields while the node serves";
    rollout, "probe-status-rollout", "contract: probes" [contract]:
        "/status/rollout has every field the rollout gate reads";
    cluster, "probe-status-cluster", "contract: probes" [contract]:
        "/status/cluster has its fields";
    head, "probe-head", "RFC 9110 §9.3.2" [contract]:
        "HEAD of a probe is 200 without a body";
    names, "metrics-names", "contract: metrics" [contract]:
        "/metrics has the names dashboards query, in the text format";
    gradle, "metrics-count-requests", "contract: metrics" [contract]:
        "a hit, a miss and a write are counted under route, status and producer";
};

/// A field and what it must look like.
type Field = (&'static str, fn(&Value) -> bool);

/// The document at a path, which must have these fields.
async fn document(server: &Server, path: &str, fields: &[Field]) -> Result<Value> {
    let answer = server.anonymous().get(path).await?;
    let value = answer.expect(200)?.expect_media("application/json")?.json()?;
    for (name, fits) in fields {
        let field = value.get(name).with_context(|| format!("no field {name} in {value}"))?;
        ensure!(fits(field), "{name} is {field}");
    }
    Ok(value)
}

async fn up(server: &Server) -> Result<()> {
    let fields: &[Field] = &[
        ("status", |status| status == "ok"),
        ("tenant_id", Value::is_string),
        ("region", Value::is_string),
        ("node", Value::is_string),
        ("node_url", Value::is_string),
    ];
    let value = document(server, "/up", fields).await?;
    let tenant = value.get("tenant_id").and_then(Value::as_str);
    ensure!(tenant == Some(&server.tenant), "another tenant: {value}");
    Ok(())
}

async fn ready(server: &Server) -> Result<()> {
    let fields: &[Field] = &[
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
    ];
    document(server, "/ready", fields).await.map(drop)
}

async fn rollout(server: &Server) -> Result<()> {
    let fields: &[Field] = &[
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
    ];
    document(server, "/status/rollout", fields).await.map(drop)
}

async fn cluster(server: &Server) -> Result<()> {
    let fields: &[Field] = &[
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
    ];
    document(server, "/status/cluster", fields).await.map(drop)
}

async fn head(server: &Server) -> Result<()> {
    for path in ["/up", "/ready", "/metrics"] {
        server.anonymous().head(path).await?.expect(200)?.expect_body(b"")?;
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
    let answer = server.anonymous().get("/metrics").await?;
    answer.expect(200)?.expect_media("text/plain; version=0.0.4")?;
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
    let mut lines = answer.text()?.lines();
    let value = lines.find_map(|line| line.strip_prefix(row)?.trim().parse().ok());
    Ok(value.unwrap_or(0.0))
}

/// Counters, and how far each must have come after what a check does.
pub(super) struct Counted(Vec<(String, f64)>);

impl Counted {
    /// From now on each row must grow by its number.
    pub(super) async fn now(server: &Server, rows: &[(String, f64)]) -> Result<Self> {
        let mut least = Vec::new();
        for (row, more) in rows {
            least.push((row.clone(), metric(server, row).await? + more));
        }
        Ok(Self(least))
    }

    /// Waits until they have: a request is counted when its answer is out, so the client may be ahead of it.
    pub(super) async fn have_come(self, server: &Server) -> Result<()> {
        for (row, least) in &self.0 {
            until(row, server.patience, || async move {
                let now = metric(server, row).await?;
                Ok(if now >= *least {
                    Look::Done(())
                } else {
                    Look::not_yet(now)
                })
            })
            .await?;
        }
        Ok(())
    }
}

async fn gradle(server: &Server) -> Result<()> {
    let before = Counted::now(server, &ROWS.map(|row| (row.to_owned(), 1.0))).await?;
    let (writer, target) = (server.writer(), server.gradle(&server.key("counted")));
    writer.miss(&target).await?;
    writer.puts(&target, b"x", 201).await?;
    writer.hit(&target, b"x").await?;
    before.have_come(server).await
}
