//! The text a scraper reads (`text/plain; version=0.0.4`).

use super::{Histogram, Metrics, OUTCOMES, Outcome, STATUSES, Shard, Times};
use crate::blob::Kind;
use crate::http::route::Route;
use std::fmt::Write as _;
use std::sync::atomic::Ordering;

/// What is measured at the moment of the scrape.
#[derive(Debug, Clone, Default)]
pub struct Gauges {
    /// Name, help and value of plain gauges, without the `kura_` prefix.
    pub plain: Vec<(&'static str, &'static str, f64)>,
    /// The same for counters kept elsewhere.
    pub counters: Vec<(&'static str, &'static str, u64)>,
    /// Metrics with labels that are kept elsewhere.
    pub labelled: Vec<super::Labelled>,
    /// Labels and value of gRPC calls.
    pub calls: Vec<(String, u64)>,
    /// Region label of `node_info`.
    pub region: String,
    /// Tenant label of `node_info`.
    pub tenant: String,
    /// Labels of `node_geo_info`.
    pub country: String,
    /// Labels of `node_geo_info`.
    pub subdivision: String,
}

/// Writing into a `String` cannot fail, so results of `write!` are dropped here and nowhere else.
struct Text(String);

impl Text {
    fn head(&mut self, name: &str, kind: &str, help: &str) {
        let _ = writeln!(self.0, "# HELP kura_{name} {help}\n# TYPE kura_{name} {kind}");
    }

    fn line(&mut self, name: &str, labels: &str, value: impl std::fmt::Display) {
        let _ = if labels.is_empty() {
            writeln!(self.0, "kura_{name} {value}")
        } else {
            writeln!(self.0, "kura_{name}{{{labels}}} {value}")
        };
    }
}

/// Everything, as text.
pub fn render(metrics: &Metrics, gauges: &Gauges) -> String {
    let mut text = Text(String::with_capacity(16 * 1024));
    requests(&mut text, metrics);
    durations(&mut text, metrics);
    artifacts(&mut text, metrics);
    egress(&mut text, metrics);
    let paths = "artifact_serving_paths_total_total";
    text.head(paths, "counter", "Artifacts sent, by the way their bytes took.");
    for (index, path) in ["accelerated", "memory", "streaming"].iter().enumerate() {
        text.line(
            paths,
            &format!("path=\"{path}\""),
            metrics.sum(|shard| shard.paths.get(index)),
        );
    }
    let refused = "http_malformed_connections_total_total";
    text.head(
        refused,
        "counter",
        "Connections cut off because their bytes were not HTTP.",
    );
    text.line(refused, "", metrics.sum(|shard| Some(&shard.refused_connections)));
    waits(&mut text, metrics);
    let mut last = "";
    for (name, labels, value) in metrics.trust.lines() {
        if name != last {
            text.head(name, "counter", "What the authoriser did.");
            last = name;
        }
        text.line(name, &labels, value);
    }
    let calls = "grpc_requests_total_total";
    text.head(calls, "counter", "Answered gRPC calls, by method and code.");
    for (labels, value) in &gauges.calls {
        text.line(calls, labels, value);
    }
    for (name, help, value) in &gauges.counters {
        text.head(name, "counter", help);
        text.line(name, "", value);
    }
    for (name, help, value) in &gauges.plain {
        text.head(name, "gauge", help);
        text.line(name, "", value);
    }
    last = "";
    for (name, kind, labels, value) in &gauges.labelled {
        if *name != last && !kind.is_empty() {
            text.head(name, kind, "What the node did and is.");
        }
        last = name;
        text.line(name, labels, value);
    }
    let node = format!(
        "region=\"{}\",tenant_id=\"{}\"",
        escape(&gauges.region),
        escape(&gauges.tenant)
    );
    text.head("node_info", "gauge", "Who this node is.");
    text.line("node_info", &node, 1);
    text.head("node_geo_info", "gauge", "Where this node is.");
    let place = format!(
        "{node},country=\"{}\",subdivision=\"{}\"",
        escape(&gauges.country),
        escape(&gauges.subdivision)
    );
    text.line("node_geo_info", &place, 1);
    text.0
}

fn requests(text: &mut Text, metrics: &Metrics) {
    let name = "http_requests_total_total";
    text.head(name, "counter", "Answered requests.");
    for route in Route::ALL {
        for (column, status) in STATUSES.iter().enumerate() {
            let count = metrics.sum(|shard| shard.requests.get(route as usize).and_then(|row| row.get(column)));
            if count > 0 {
                text.line(
                    name,
                    &format!("route=\"{}\",status=\"{status}\"", route.template()),
                    count,
                );
            }
        }
    }
}

fn durations(text: &mut Text, metrics: &Metrics) {
    let name = "http_request_duration_seconds";
    text.head(
        name,
        "histogram",
        "Time from the end of the request header to the end of the answer.",
    );
    for route in Route::ALL {
        let label = format!("route=\"{}\"", route.template());
        times(text, metrics, name, &label, |shard| shard.durations.get(route as usize));
    }
    let name = "public_request_latency_seconds";
    text.head(name, "histogram", "The same for requests of clients.");
    for route in Route::ALL.into_iter().filter(|route| !route.is_probe()) {
        let label = format!("transport=\"http\",route=\"{}\"", route.template());
        times(text, metrics, name, &label, |shard| shard.durations.get(route as usize));
    }
}

/// One series of a histogram of times, if anything was observed.
fn times(text: &mut Text, metrics: &Metrics, name: &str, label: &str, pick: impl Fn(&Shard) -> Option<&Times>) {
    // Bucket n holds what took less than 2^n milliseconds.
    let bound = |index: usize| Seconds::millis(1 << index).to_string();
    let sum = |sum| Seconds(sum).to_string();
    series(text, metrics, (name, label), pick, bound, sum);
}

fn series<const BOUNDS: usize>(
    text: &mut Text,
    metrics: &Metrics,
    (name, label): (&str, &str),
    pick: impl Fn(&Shard) -> Option<&Histogram<BOUNDS>>,
    bound: impl Fn(usize) -> String,
    total: impl Fn(u64) -> String,
) {
    let bucket = |index: usize| metrics.sum(|shard| pick(shard).map(|histogram| histogram.bucket(index)));
    let count: u64 = (0..=BOUNDS).map(bucket).sum();
    if count == 0 {
        return;
    }
    let comma = if label.is_empty() { "" } else { "," };
    let mut sum = 0;
    for index in 0..BOUNDS {
        sum += bucket(index);
        text.line(
            &format!("{name}_bucket"),
            &format!("{label}{comma}le=\"{}\"", bound(index)),
            sum,
        );
    }
    text.line(&format!("{name}_bucket"), &format!("{label}{comma}le=\"+Inf\""), count);
    let observed = metrics.sum(|shard| pick(shard).map(|histogram| &histogram.sum));
    text.line(&format!("{name}_sum"), label, total(observed));
    text.line(&format!("{name}_count"), label, count);
}

/// How long it took to decide, and to ask others.
fn waits(text: &mut Text, metrics: &Metrics) {
    for (name, help, series) in metrics.trust.waits() {
        text.head(name, "histogram", help);
        for (label, wait) in series {
            let mut sum = 0;
            for (bound, count) in wait.cumulative() {
                sum = count;
                text.line(&format!("{name}_bucket"), &format!("{label},le=\"{bound}\""), count);
            }
            let (total, nanos) = wait.total(sum);
            text.line(&format!("{name}_bucket"), &format!("{label},le=\"+Inf\""), total);
            text.line(&format!("{name}_sum"), &label, Seconds(nanos));
            text.line(&format!("{name}_count"), &label, total);
        }
    }
}

/// What left the node: how much, how long it took, and how fast that was.
fn egress(text: &mut Text, metrics: &Metrics) {
    let pick = |shard: &Shard, kind: Kind, column: usize, bytes: bool| -> u64 {
        let counter = shard.egress.get(kind as usize).and_then(|egress| {
            let counters = if bytes { &egress.bytes } else { &egress.counts };
            counters.get(column)
        });
        counter.map_or(0, |counter| counter.load(Ordering::Relaxed))
    };
    for (bytes, name, help) in [
        (
            false,
            "artifact_egress_completions_total_total",
            "Artifacts that left, by producer and result.",
        ),
        (
            true,
            "artifact_egress_bytes_total_total",
            "Bytes a socket has taken, by producer and result.",
        ),
    ] {
        text.head(name, "counter", help);
        for kind in Kind::ALL {
            for (column, result) in ["ok", "error"].iter().enumerate() {
                let value: u64 = metrics
                    .shards
                    .iter()
                    .map(|shard| pick(shard, kind, column, bytes))
                    .sum();
                if value > 0 {
                    let labels = format!("producer=\"{}\",result=\"{result}\"", kind.producer());
                    text.line(name, &labels, value);
                }
            }
        }
    }
    let name = "artifact_egress_duration_seconds";
    text.head(
        name,
        "histogram",
        "Time from the end of the request header until the artifact had left.",
    );
    for kind in Kind::ALL {
        let label = format!("producer=\"{}\"", kind.producer());
        times(text, metrics, name, &label, |shard| {
            shard.egress.get(kind as usize).map(|egress| &egress.durations)
        });
    }
    let name = "artifact_egress_throughput_bytes_per_second";
    text.head(name, "histogram", "How fast artifacts left.");
    for kind in Kind::ALL {
        let label = format!("producer=\"{}\"", kind.producer());
        series(
            text,
            metrics,
            (name, &label),
            |shard| shard.egress.get(kind as usize).map(|egress| &egress.speeds),
            |index| (1024_u64 << (2 * index)).to_string(),
            |sum| sum.to_string(),
        );
    }
}

fn artifacts(text: &mut Text, metrics: &Metrics) {
    let words = |read: bool, outcome: Outcome| match (read, outcome) {
        (true, Outcome::Ok) => "hit",
        (true, Outcome::Known) => "miss",
        (false, Outcome::Ok) => "created",
        (false, Outcome::Known) => "exists",
        (_, Outcome::Error) => "error",
    };
    for (read, counts, bytes) in [
        (true, "artifact_reads_total_total", "artifact_read_bytes_total_total"),
        (false, "artifact_writes_total_total", "artifact_write_bytes_total_total"),
    ] {
        text.head(counts, "counter", "Artifacts, by producer and result.");
        for kind in Kind::ALL {
            for (column, outcome) in OUTCOMES.into_iter().enumerate() {
                let count = metrics.sum(|shard| {
                    let traffic = if read { &shard.reads } else { &shard.writes };
                    traffic.counts.get(kind as usize).and_then(|row| row.get(column))
                });
                if count > 0 {
                    let labels = format!("producer=\"{}\",result=\"{}\"", kind.producer(), words(read, outcome));
                    text.line(counts, &labels, count);
                }
            }
        }
        text.head(bytes, "counter", "Bytes of artifacts, by producer.");
        for kind in Kind::ALL {
            let count = metrics.sum(|shard| {
                let traffic = if read { &shard.reads } else { &shard.writes };
                traffic.bytes.get(kind as usize)
            });
            if count > 0 {
                let labels = format!(
                    "producer=\"{}\",result=\"{}\"",
                    kind.producer(),
                    words(read, Outcome::Ok)
                );
                text.line(bytes, &labels, count);
            }
        }
    }
}

/// Nanoseconds, printed as seconds without going through a float.
struct Seconds(u64);

impl Seconds {
    fn millis(millis: u64) -> Self {
        Self(millis.saturating_mul(1_000_000))
    }
}

impl std::fmt::Display for Seconds {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let fraction = format!("{:09}", self.0 % 1_000_000_000);
        let fraction = fraction.trim_end_matches('0');
        if fraction.is_empty() {
            write!(f, "{}", self.0 / 1_000_000_000)
        } else {
            write!(f, "{}.{fraction}", self.0 / 1_000_000_000)
        }
    }
}

fn escape(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn shards_are_added_up_under_the_doubled_names() {
        let metrics = Metrics::new(2);
        metrics.shard(0).request(Route::Gradle, 200, Duration::from_micros(300));
        metrics.shard(1).request(Route::Gradle, 200, Duration::from_millis(3));
        metrics.shard(1).request(Route::Up, 799, Duration::from_hours(1));
        metrics.shard(0).read(Kind::Gradle, Outcome::Ok, 4096);
        metrics.shard(0).write(Kind::Gradle, Outcome::Known, 0);
        let text = render(
            &metrics,
            &Gauges {
                region: "eu\"1".to_owned(),
                ..Gauges::default()
            },
        );
        for line in [
            "kura_http_requests_total_total{route=\"/api/cache/gradle/{cache_key}\",status=\"200\"} 2",
            "kura_http_requests_total_total{route=\"/up\",status=\"0\"} 1",
            "kura_http_request_duration_seconds_bucket{route=\"/api/cache/gradle/{cache_key}\",le=\"0.001\"} 1",
            "kura_http_request_duration_seconds_bucket{route=\"/api/cache/gradle/{cache_key}\",le=\"0.004\"} 2",
            "kura_http_request_duration_seconds_sum{route=\"/api/cache/gradle/{cache_key}\"} 0.0033",
            "kura_http_request_duration_seconds_bucket{route=\"/up\",le=\"+Inf\"} 1",
            "kura_artifact_reads_total_total{producer=\"gradle\",result=\"hit\"} 1",
            "kura_artifact_read_bytes_total_total{producer=\"gradle\",result=\"hit\"} 4096",
            "kura_artifact_writes_total_total{producer=\"gradle\",result=\"exists\"} 1",
            "kura_node_info{region=\"eu\\\"1\",tenant_id=\"\"} 1",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
        }
    }
}
