//! Whom the node tells what: usage, webhooks, traces.

use super::{Error, args, given};
use russet_telemetry::{Secret, trace};
use std::time::Duration;

/// Usage reporting.
#[derive(Debug, Clone)]
pub struct Usage {
    /// Base URL of the control plane.
    pub url: String,
    /// Client id.
    pub client_id: String,
    /// Its secret.
    pub client_secret: Secret<String>,
    /// Length of a window.
    pub window: Duration,
    /// How often the outbox is written.
    pub flush: Duration,
    /// How often events are delivered.
    pub delivery: Duration,
    /// Events per delivery.
    pub batch: usize,
    /// Counters per window.
    pub max_buckets: usize,
    /// Events kept.
    pub max_depth: usize,
}

/// Webhooks about single artifacts.
#[derive(Debug, Clone)]
pub struct Analytics {
    /// Base URL of the server.
    pub url: String,
    /// What requests are signed with.
    pub key: Secret<String>,
    /// Events per request.
    pub batch: usize,
    /// How long a batch is gathered.
    pub gather: Duration,
    /// Events that may wait.
    pub queue: usize,
    /// How long the server may take.
    pub timeout: Duration,
    /// Failures in a row after which it is left alone.
    pub threshold: u32,
    /// For how long.
    pub open: Duration,
}

pub(super) fn usage(
    control: &args::Control,
    fallback: Option<String>,
    client_id: Option<String>,
    client_secret: Option<Secret<String>>,
) -> Result<Option<Usage>, Error> {
    let url = given(control.control_plane_url.clone()).or(fallback);
    match (url, client_id, client_secret) {
        (Some(url), Some(client_id), Some(client_secret)) => Ok(Some(Usage {
            url: url.trim_end_matches('/').to_owned(),
            client_id,
            client_secret,
            window: Duration::from_secs(control.usage_window_secs.max(1)),
            flush: Duration::from_millis(control.usage_flush_interval_ms.max(10)),
            delivery: Duration::from_millis(control.usage_delivery_interval_ms.max(10)),
            batch: control.usage_batch_size.clamp(1, 5000),
            max_buckets: control.usage_max_buckets,
            max_depth: control.usage_outbox_max_depth,
        })),
        (_, Some(_), None) | (_, None, Some(_)) => Err(Error::HalfClient),
        _ => Ok(None),
    }
}

pub(super) fn analytics(args: &args::Analytics, key: Option<Secret<String>>) -> Result<Option<Analytics>, Error> {
    let Some(url) = given(args.analytics_server_url.clone()) else {
        return Ok(None);
    };
    let key = key.ok_or(Error::UnsignedAnalytics)?;
    Ok(Some(Analytics {
        url: url.trim_end_matches('/').to_owned(),
        key,
        batch: args.analytics_batch_size.max(1),
        gather: Duration::from_millis(args.analytics_batch_timeout_ms),
        queue: args.analytics_queue_capacity.clamp(1, 1_000_000),
        timeout: Duration::from_millis(args.analytics_request_timeout_ms.max(1)),
        threshold: args.analytics_circuit_breaker_failure_threshold.max(1),
        open: Duration::from_millis(args.analytics_circuit_breaker_open_ms),
    }))
}

/// A URL without a path means the collector's usual one.
pub(super) fn traces(args: &args::Telemetry, node_id: &str, region: &str) -> Result<Option<trace::Options>, Error> {
    let ratio = args.otel_traces_sample_ratio;
    if !(0.0..=1.0).contains(&ratio) {
        return Err(Error::Ratio(ratio));
    }
    let (given_url, base) = match given(args.otel_exporter_otlp_traces_endpoint.clone()) {
        Some(url) => (url, false),
        None => match given(args.otel_exporter_otlp_endpoint.clone()) {
            Some(url) => (url, true),
            None => return Ok(None),
        },
    };
    let mut url = reqwest::Url::parse(&given_url)
        .ok()
        .filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host())
        .ok_or(Error::TracesUrl(given_url))?;
    if base || url.path() == "/" {
        let path = format!("{}/v1/traces", url.path().trim_end_matches('/'));
        url.set_path(&path);
    }
    Ok(Some(trace::Options {
        endpoint: url.into(),
        service: args.otel_service_name.clone(),
        environment: args.otel_deployment_environment.clone(),
        version: crate::VERSION.to_owned(),
        attributes: vec![
            ("service.instance.id", node_id.to_owned()),
            ("cloud.region", region.to_owned()),
        ],
        ratio,
    }))
}
