//! Spans of requests, sent to a collector as OTLP over HTTP (protobuf).
//!
//! ```text
//! request ──end──► bounded queue ──► exporter task ──► collector
//!                      └ full: dropped and counted
//! ```
//! The collector is never in the way: ending a span is one attempt to put it into a queue. A collector that is slow or gone
//! costs the queue's memory and no more; what did not fit, and what could not be delivered, is counted.
//!
//! The spans are made by hand instead of through `tracing`: a bridge would turn the spans of every library we are built on
//! into exported ones, and would be asked about each log line. Here, off means one `Option` that is `None`.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use opentelemetry::propagation::{Extractor, TextMapPropagator as _};
use opentelemetry::trace::{Span as _, SpanKind, Status, Tracer as _, TracerProvider as _};
use opentelemetry::{Context, KeyValue};
use opentelemetry_otlp::{Protocol, SpanExporter, WithExportConfig as _, WithHttpConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::{Sampler, SdkTracer, SdkTracerProvider, SpanData, SpanExporter as _, SpanProcessor};
use tokio::sync::mpsc::{Receiver, Sender, channel};

/// Spans that may wait for the exporter.
pub const QUEUE: usize = 2048;
/// Spans per request to the collector.
const BATCH: usize = 512;
/// How long a span waits for others to travel with.
const GATHER: Duration = Duration::from_secs(1);
/// How long the collector may take, repetitions included.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long it may take when the process ends.
const GRACE: Duration = Duration::from_secs(2);

/// Why traces cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The exporter refused its settings.
    #[error("traces cannot be sent to {endpoint}; it must be a URL such as http://collector:4318/v1/traces")]
    Exporter {
        /// Where they were to go.
        endpoint: String,
        /// Why not.
        source: opentelemetry_otlp::ExporterBuildError,
    },
    /// No HTTP client.
    #[error("the HTTP client for traces cannot be made")]
    Client(#[source] reqwest::Error),
}

/// Where traces go and what they say about their sender.
#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    /// URL of the collector's trace endpoint.
    pub endpoint: String,
    /// `service.name`.
    pub service: String,
    /// `deployment.environment.name`.
    pub environment: String,
    /// `service.version`.
    pub version: String,
    /// More about the sender.
    pub attributes: Vec<(&'static str, String)>,
    /// Which share of traces that begin here is kept, from 0 to 1. A caller that has decided already is followed.
    pub ratio: f64,
}

/// What became of spans.
#[derive(Debug, Default)]
pub struct Counts {
    exported: AtomicU64,
    dropped: AtomicU64,
    failed: AtomicU64,
}

impl Counts {
    /// The collector took them.
    pub fn exported(&self) -> u64 {
        self.exported.load(Ordering::Relaxed)
    }

    /// The queue was full.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// The collector could not be reached, or refused them.
    pub fn failed(&self) -> u64 {
        self.failed.load(Ordering::Relaxed)
    }
}

/// Where spans are made. Cloning is cheap, and so is one that is off.
#[derive(Clone, Default)]
pub struct Traces(Option<Arc<On>>);

struct On {
    tracer: SdkTracer,
    // Dropping the provider would end the tracer.
    _provider: SdkTracerProvider,
    counts: Arc<Counts>,
}

impl fmt::Debug for Traces {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_on() { "Traces(on)" } else { "Traces(off)" })
    }
}

/// Makes spans and the task that exports them.
pub fn start(options: &Options) -> Result<(Traces, Exporter), Error> {
    let client = reqwest::Client::builder()
        .connect_timeout(Duration::from_secs(3))
        .timeout(PATIENCE)
        .redirect(reqwest::redirect::Policy::none())
        .build()
        .map_err(Error::Client)?;
    let mut exporter = SpanExporter::builder()
        .with_http()
        .with_http_client(client)
        .with_endpoint(&options.endpoint)
        .with_protocol(Protocol::HttpBinary)
        .with_timeout(PATIENCE)
        .build()
        .map_err(|source| Error::Exporter {
            endpoint: options.endpoint.clone(),
            source,
        })?;
    let mut attributes = vec![
        KeyValue::new("service.version", options.version.clone()),
        KeyValue::new("deployment.environment.name", options.environment.clone()),
        // The name of older conventions, which dashboards may still group by.
        KeyValue::new("deployment.environment", options.environment.clone()),
    ];
    let more = options.attributes.iter();
    attributes.extend(more.map(|(name, value)| KeyValue::new(*name, value.clone())));
    let resource = Resource::builder()
        .with_service_name(options.service.clone())
        .with_attributes(attributes)
        .build();
    exporter.set_resource(&resource);
    let (queue, waiting) = channel(QUEUE);
    let counts = Arc::new(Counts::default());
    let provider = SdkTracerProvider::builder()
        .with_resource(resource)
        .with_sampler(Sampler::ParentBased(Box::new(Sampler::TraceIdRatioBased(
            options.ratio,
        ))))
        .with_span_processor(Queue {
            queue,
            counts: Arc::clone(&counts),
        })
        .build();
    let on = On {
        tracer: provider.tracer("russet"),
        _provider: provider,
        counts: Arc::clone(&counts),
    };
    let task = Exporter {
        waiting,
        collector: exporter,
        counts,
    };
    Ok((Traces(Some(Arc::new(on))), task))
}

/// The front of the queue, as the SDK knows it.
#[derive(Debug)]
struct Queue {
    queue: Sender<SpanData>,
    counts: Arc<Counts>,
}

impl SpanProcessor for Queue {
    fn on_start(&self, _: &mut opentelemetry_sdk::trace::Span, _: &Context) {}

    fn on_end(&self, span: SpanData) {
        if self.queue.try_send(span).is_err() {
            self.counts.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    // The exporter empties the queue by itself, and once more when it ends.
    fn force_flush(&self) -> OTelSdkResult {
        Ok(())
    }

    fn shutdown_with_timeout(&self, _: Duration) -> OTelSdkResult {
        Ok(())
    }
}

/// The task that sends spans.
#[derive(Debug)]
pub struct Exporter {
    waiting: Receiver<SpanData>,
    collector: SpanExporter,
    counts: Arc<Counts>,
}

impl Exporter {
    /// Sends until `stop` is ready; then sends what is left, once, and without much patience.
    pub async fn run(mut self, stop: impl Future<Output = ()>) {
        let mut stop = std::pin::pin!(stop);
        let mut batch = Vec::with_capacity(BATCH);
        let mut reached = true;
        loop {
            tokio::select! {
                () = &mut stop => break,
                got = self.waiting.recv_many(&mut batch, BATCH) => if got == 0 {
                    break;
                },
            }
            // Others may follow at once; a span alone is not worth a request.
            tokio::select! {
                () = &mut stop => break,
                () = gather(&mut self.waiting, &mut batch) => {}
            }
            let count = batch.len() as u64;
            let mut sending = std::pin::pin!(self.send(std::mem::take(&mut batch)));
            tokio::select! {
                _ = &mut sending => continue,
                () = &mut stop => {}
            }
            reached = self.hurry(sending, count).await;
            break;
        }
        self.waiting.close();
        while !batch.is_empty() || self.waiting.recv_many(&mut batch, BATCH).await > 0 {
            let last = std::mem::take(&mut batch);
            let count = last.len() as u64;
            // A collector that did not answer once at the end is not worth waiting for again.
            if reached {
                reached = self.hurry(self.send(last), count).await;
            } else {
                self.counts.failed.fetch_add(count, Ordering::Relaxed);
            }
        }
    }

    /// Gives a request little more time; whether it succeeded.
    async fn hurry(&self, sending: impl Future<Output = bool>, count: u64) -> bool {
        let sent = tokio::time::timeout(GRACE, sending).await;
        if sent.is_err() {
            self.counts.failed.fetch_add(count, Ordering::Relaxed);
        }
        sent.unwrap_or(false)
    }

    /// Whether the collector took them.
    async fn send(&self, batch: Vec<SpanData>) -> bool {
        let count = batch.len() as u64;
        match self.collector.export(batch).await {
            Ok(()) => {
                self.counts.exported.fetch_add(count, Ordering::Relaxed);
                true
            }
            Err(error) => {
                tracing::debug!(%error, "spans were not delivered");
                self.counts.failed.fetch_add(count, Ordering::Relaxed);
                false
            }
        }
    }
}

/// Fills the batch until it is full or its time is over.
async fn gather(waiting: &mut Receiver<SpanData>, batch: &mut Vec<SpanData>) {
    let more = async {
        while batch.len() < BATCH {
            let room = BATCH - batch.len();
            if waiting.recv_many(batch, room).await == 0 {
                return;
            }
        }
    };
    let _ = tokio::time::timeout(GATHER, more).await;
}

/// What a request brought along.
struct Parent<'a>(&'a str);

impl Extractor for Parent<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        (key == "traceparent").then_some(self.0)
    }

    fn keys(&self) -> Vec<&str> {
        vec!["traceparent"]
    }
}

/// A request being served. It ends, and is queued, when dropped.
#[derive(Debug)]
pub struct Span(opentelemetry_sdk::trace::Span);

impl Traces {
    /// No traces: making a span makes nothing.
    pub fn off() -> Self {
        Self(None)
    }

    /// Whether spans are made.
    pub fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// What became of spans, if there are any.
    pub fn counts(&self) -> Option<&Counts> {
        self.0.as_deref().map(|on| &*on.counts)
    }

    /// Begins the span of a request; `parent` is its `traceparent` field. One that cannot be read begins a new trace.
    pub fn request(&self, parent: Option<&[u8]>) -> Option<Box<Span>> {
        let on = self.0.as_deref()?;
        let parent = parent.and_then(|field| std::str::from_utf8(field).ok());
        let context = match parent {
            Some(parent) => TraceContextPropagator::new().extract_with_context(&Context::new(), &Parent(parent)),
            None => Context::new(),
        };
        let builder = on.tracer.span_builder("request").with_kind(SpanKind::Server);
        let span = on.tracer.build_with_context(builder, &context);
        Some(Box::new(Span(span)))
    }
}

impl Span {
    /// What the request turned out to be.
    pub fn name(&mut self, name: String) {
        self.0.update_name(name);
    }

    /// A fact about it.
    pub fn text(&mut self, name: &'static str, value: impl Into<String>) {
        self.0.set_attribute(KeyValue::new(name, value.into()));
    }

    /// A number about it.
    pub fn number(&mut self, name: &'static str, value: u64) {
        let value = i64::try_from(value).unwrap_or(i64::MAX);
        self.0.set_attribute(KeyValue::new(name, value));
    }

    /// It failed, and it was our fault.
    pub fn failed(&mut self) {
        self.0.set_status(Status::error(""));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(endpoint: &str) -> Options {
        Options {
            endpoint: endpoint.to_owned(),
            service: "s".to_owned(),
            environment: "e".to_owned(),
            version: "v".to_owned(),
            attributes: Vec::new(),
            ratio: 1.0,
        }
    }

    #[test]
    fn off_makes_nothing() {
        let traces = Traces::off();
        assert!(traces.request(None).is_none() && traces.counts().is_none());
    }

    #[tokio::test]
    async fn a_queue_that_nobody_empties_is_bounded_and_counts_what_it_drops() {
        let (traces, exporter) = start(&options("http://127.0.0.1:9/v1/traces")).unwrap();
        for _ in 0..QUEUE + 7 {
            drop(traces.request(None));
        }
        assert_eq!(traces.counts().unwrap().dropped(), 7);
        assert_eq!(exporter.waiting.len(), QUEUE);
    }

    /// Port 9 refuses connections, as a collector does that is gone.
    #[tokio::test]
    async fn a_collector_that_is_gone_costs_spans_and_nothing_else() {
        let (traces, exporter) = start(&options("http://127.0.0.1:9/v1/traces")).unwrap();
        drop(traces.request(Some(b"nonsense")));
        exporter.run(std::future::ready(())).await;
        assert_eq!(traces.counts().unwrap().failed(), 1);
        drop(traces.request(None));
        assert_eq!(traces.counts().unwrap().dropped(), 1, "nobody will send it any more");
    }

    #[test]
    fn a_parent_that_was_not_sampled_is_followed() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let _entered = runtime.enter();
        let (traces, exporter) = start(&options("http://127.0.0.1:9/v1/traces")).unwrap();
        drop(traces.request(Some(b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00")));
        assert_eq!(exporter.waiting.len(), 0);
        drop(traces.request(Some(b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")));
        assert_eq!(exporter.waiting.len(), 1);
    }
}
