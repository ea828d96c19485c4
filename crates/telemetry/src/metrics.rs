//! One metrics registry per process.
//!
//! Metrics are registered under the name a dashboard uses, suffix included. The encoder adds `_total` to counters by
//! itself, and a name in the code that differs from the name in Prometheus is how alerts go silent, so the suffix is
//! taken off here and nowhere else.

use std::sync::{Arc, Mutex, PoisonError};

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Metric, Registry};

/// What the text of [`Metrics::encode`] is, for the `Content-Type` header.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// A cheap, cloneable handle on the registry.
#[derive(Debug, Clone, Default)]
pub struct Metrics {
    registry: Arc<Mutex<Registry>>,
}

/// What is running, as labels of `russet_build_info`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct BuildInfo {
    /// Which binary.
    pub component: String,
    /// Its version.
    pub version: String,
    /// The commit it was built from, or empty.
    pub commit: String,
}

impl Metrics {
    /// An empty registry.
    pub fn new() -> Self {
        Self::default()
    }

    /// Registers a metric under the name it will be scraped by and returns it, so declaring and registering is one line.
    ///
    /// The metric is shared: clones of it (all types of `prometheus-client` share their value) update what is scraped.
    pub fn register<M: Metric + Clone>(&self, name: &str, help: &str, metric: M) -> M {
        let base = name
            .strip_suffix("_total")
            .or_else(|| name.strip_suffix("_info"))
            .unwrap_or(name);
        // The encoder ends every help text with a full stop.
        let help = help.trim_end_matches('.');
        self.lock().register(base, help, metric.clone());
        metric
    }

    /// Publishes `russet_build_info`.
    pub fn build_info(&self, info: BuildInfo) {
        self.lock().register("russet_build", "What is running", Info::new(info));
    }

    /// The registry as OpenMetrics text.
    pub fn encode(&self) -> Result<String, std::fmt::Error> {
        let mut text = String::new();
        encode(&mut text, &self.lock())?;
        Ok(text)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Registry> {
        // A panic while registering leaves a registry that is still a valid list of metrics.
        self.registry.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::metrics::counter::Counter;
    use prometheus_client::metrics::family::Family;
    use prometheus_client::metrics::gauge::Gauge;

    use super::*;

    #[test]
    fn counters_are_scraped_under_the_name_they_were_registered_with() {
        let metrics = Metrics::new();
        let writes: Family<Vec<(String, String)>, Counter> =
            metrics.register("russet_writes_total", "Writes to the API server.", Family::default());
        writes
            .get_or_create(&vec![("controller".into(), "kura".into())])
            .inc_by(3);
        let ready: Gauge = metrics.register("russet_ready", "Whether all checks pass", Gauge::default());
        ready.set(1);
        let text = metrics.encode().unwrap();
        assert!(text.contains("# TYPE russet_writes counter"), "{text}");
        assert!(text.contains("russet_writes_total{controller=\"kura\"} 3"), "{text}");
        assert!(text.contains("russet_ready 1"), "{text}");
        assert!(text.ends_with("# EOF\n"), "{text}");
    }

    #[test]
    fn build_info_is_published() {
        let metrics = Metrics::new();
        metrics.build_info(BuildInfo {
            component: "kura-controller".into(),
            version: "0.1.0".into(),
            commit: String::new(),
        });
        let text = metrics.encode().unwrap();
        assert!(
            text.contains("russet_build_info{component=\"kura-controller\",version=\"0.1.0\",commit=\"\"} 1"),
            "{text}"
        );
    }
}
