//! What probes, the rollout gate and scrapers ask. No credentials; answered in every state.

use crate::VERSION;
use crate::http::reply::{Payload, Reply};
use crate::http::route::Route;
use crate::http::service::Service;
use crate::lifecycle::State;
use crate::metrics::{self, Gauges, render};
use serde_json::{Value, json};

pub(in crate::http) fn answer(service: &Service, route: Route) -> Reply {
    match route {
        Route::Ready => ready(service),
        Route::Rollout => document(200, &rollout(service)),
        Route::Cluster => document(200, &cluster(service)),
        Route::Metrics => Reply {
            payload: Payload::Document {
                content_type: "text/plain; version=0.0.4",
                body: metrics(service).into(),
            },
            ..Reply::empty(200)
        },
        Route::Version => Reply {
            payload: Payload::Document {
                content_type: "text/plain",
                body: format!("{VERSION}\n").into(),
            },
            ..Reply::empty(200)
        },
        _ => document(200, &up(service)),
    }
}

fn metrics(service: &Service) -> String {
    let mut text = render(&service.shared.metrics, &gauges(service));
    service.shared.tools.render(&mut text);
    text
}

fn document(status: u16, value: &Value) -> Reply {
    Reply::json(status, value.to_string())
}

fn up(service: &Service) -> Value {
    let node = &service.shared.node;
    json!({
        "status": "ok",
        "tenant_id": node.tenant.as_str(),
        "region": node.region,
        "node": node.region,
        "node_url": node.url,
    })
}

/// Why the node should not get traffic; empty if it should.
fn reasons(service: &Service) -> Vec<&'static str> {
    let mut reasons = Vec::new();
    match service.shared.lifecycle.state() {
        State::Joining => reasons.push("joining"),
        State::Draining => reasons.push("draining"),
        State::Serving => {}
    }
    if service.shared.blobs.is_poisoned() {
        reasons.push("store_poisoned");
    }
    reasons
}

fn ready(service: &Service) -> Reply {
    let life = &service.shared.lifecycle;
    let reasons = reasons(service);
    let ready = reasons.is_empty();
    let value = json!({
        "status": if ready { "ok" } else { "not_ready" },
        "generation": life.generation(),
        "state": life.state().word(),
        "ready": ready,
        "draining": life.is_draining(),
        "writer_lock_owned": true,
        "initial_discovery_completed": true,
        "known_peers": [],
        "http_inflight_requests": inflight(service),
        "grpc_inflight_requests": life.inflight_calls(),
        "reasons": reasons,
    });
    document(if ready { 200 } else { 503 }, &value)
}

/// The probe itself does not count.
fn inflight(service: &Service) -> i64 {
    (service.shared.lifecycle.inflight() - 1).max(0)
}

fn rollout(service: &Service) -> Value {
    let life = &service.shared.lifecycle;
    json!({
        "generation": life.generation(),
        "ready": reasons(service).is_empty(),
        "state": life.state().word(),
        "ring_members": 1,
        "initial_discovery_completed": true,
        "writer_lock_owned": true,
        "http_inflight_requests": inflight(service),
        "grpc_inflight_requests": life.inflight_calls(),
        "outbox_messages": 0,
        "memory_pressure_state": service.shared.pressure.state() as u8,
        "fd_timeout_count": 0,
        "backfill_initial_cycle": "complete",
        "backfill_backfilling_peers": 0,
        "backfill_budget_exhausted_real_peers": 0,
        "backfill_budget_exhausted_capability_peers": 0,
        "backfill_ring_fullness_percent": 100,
    })
}

fn cluster(service: &Service) -> Value {
    let node = &service.shared.node;
    json!({
        "status": "ok",
        "generation": service.shared.lifecycle.generation(),
        "tenant_id": node.tenant.as_str(),
        "region": node.region,
        "node": node.region,
        "node_url": node.url,
        "connected_nodes": [],
        "ring_members": 1,
        "members": [node.url],
        "regions": [node.region],
        "nodes": [{ "node_url": node.url, "region": node.region }],
    })
}

#[expect(clippy::cast_precision_loss, reason = "gauges are floats on the wire")]
fn gauges(service: &Service) -> Gauges {
    let shared = &service.shared;
    let life = &shared.lifecycle;
    let flag = |set: bool| if set { 1.0 } else { 0.0 };
    let mut plain = vec![
        (
            "http_inflight_requests",
            "Requests being answered.",
            inflight(service) as f64,
        ),
        (
            "public_http_inflight_requests",
            "Requests being answered.",
            inflight(service) as f64,
        ),
        (
            "grpc_inflight_requests",
            "gRPC calls being answered.",
            life.inflight_calls() as f64,
        ),
        (
            "multipart_uploads",
            "Open uploads in parts.",
            shared.uploads.count() as f64,
        ),
        (
            "tmp_dir_bytes",
            "Bytes of uploads in parts.",
            shared.uploads.stored() as f64,
        ),
        (
            "traffic_state",
            "0 joining, 1 serving, 2 draining.",
            f64::from(life.state() as u8),
        ),
        (
            "ready_state",
            "The node may get traffic.",
            flag(reasons(service).is_empty()),
        ),
        ("drain_state", "The node is leaving.", flag(life.is_draining())),
        ("writer_lock_owned", "This process owns the data folder.", 1.0),
        ("outbox_messages", "Replication messages waiting.", 0.0),
        ("discovered_peer_nodes", "Other nodes.", 0.0),
        ("membership_generation", "Changes of state.", life.generation() as f64),
        ("initial_discovery_completed", "Other nodes were looked for.", 1.0),
        (
            "process_start_time_seconds",
            "When the process started.",
            shared.node.started as f64,
        ),
    ];
    plain.extend(metrics::plain(shared));
    plain.extend(shared.blobs.gauges());
    Gauges {
        plain,
        counters: shared.blobs.counters(),
        labelled: metrics::labelled(shared),
        calls: shared.reapi.calls(),
        region: shared.node.region.clone(),
        tenant: shared.node.tenant.as_str().to_owned(),
        country: shared.node.place.0.clone(),
        subdivision: shared.node.place.1.clone(),
    }
}
