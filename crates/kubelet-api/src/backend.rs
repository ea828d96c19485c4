//! The node behind the API: what it must be able to tell and do.

use std::future::Future;
use std::num::NonZeroU16;

use bytes::Bytes;
use futures::stream::BoxStream;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use tokio::io::{AsyncRead, AsyncWrite};

use crate::refusal::Refusal;
use crate::stats::Summary;
use crate::stream::{Reader, Resizes, Writer};

/// A Pod as a request names it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PodRef {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its uid, when the caller means one incarnation and no other.
    pub uid: Option<String>,
}

/// A container as a request names it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ContainerRef {
    /// Its Pod.
    pub pod: PodRef,
    /// Its name.
    pub container: String,
}

/// Which part of a log is wanted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LogOptions {
    /// Go on with new lines until this instance of the container ends.
    pub follow: bool,
    /// The last terminated instance instead of the current one.
    pub previous: bool,
    /// Begin each line with its time. Done by the server.
    pub timestamps: bool,
    /// Only lines at or after this time. Done by the server; a backend may use it to skip old files.
    pub since: Option<Timestamp>,
    /// Only the last so many lines that exist now. Done by the backend, before `since`.
    pub tail: Option<u64>,
    /// At most so many bytes. Done by the server.
    pub limit_bytes: Option<u64>,
}

/// A piece of a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogEntry {
    /// When it was written.
    pub at: Timestamp,
    /// The text, without the end of the line.
    pub text: Bytes,
    /// The line goes on in the next entry.
    pub partial: bool,
}

/// The entries of a log, oldest first.
pub type LogStream = BoxStream<'static, std::io::Result<LogEntry>>;

/// A command to run in a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exec {
    /// Program and arguments; never empty.
    pub command: Vec<String>,
    /// With a terminal.
    pub tty: bool,
}

/// How a command ended. Death by signal n is 128 + n.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Exit(pub i32);

/// What a caller connected to a command.
#[derive(Debug)]
pub struct Io {
    /// Its input. The end of it is the end of the command's input; output goes on.
    pub stdin: Option<Reader>,
    /// Its output.
    pub stdout: Option<Writer>,
    /// Its error output; never with a terminal.
    pub stderr: Option<Writer>,
    /// Sizes of the caller's terminal, when it has one.
    pub resize: Option<Resizes>,
}

/// A connection to a port in a Pod.
pub trait Duplex: AsyncRead + AsyncWrite + Send + Unpin + 'static {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin + 'static> Duplex for T {}

/// A Pod as the runtime sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunningPod {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its uid.
    pub uid: String,
    /// Name and image of each container.
    pub containers: Vec<(String, String)>,
}

/// A page of metrics. Readers choose their parser by its type, and the older one fails on words of the newer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Page {
    /// In the text format of Prometheus.
    Text(String),
    /// As OpenMetrics.
    OpenMetrics(String),
}

/// Which metrics page is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Metrics {
    /// `/metrics`: of the agent itself.
    Agent,
    /// `/metrics/cadvisor`.
    Cadvisor,
    /// `/metrics/probes`.
    Probes,
    /// `/metrics/slis`.
    Slis,
}

/// One health check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Check {
    /// Its name, such as `syncloop`.
    pub name: &'static str,
    /// Whether it passes.
    pub healthy: bool,
}

/// The node behind the API.
///
/// A future returned here is dropped when its caller leaves. A command started by [`Backend::exec`] must end then; a container
/// that was only attached to must not.
pub trait Backend: Send + Sync + 'static {
    /// Whether there is such a Pod, before anything is upgraded.
    fn find_pod(&self, pod: &PodRef) -> impl Future<Output = Result<(), Refusal>> + Send;

    /// Whether there is such a container, before anything is upgraded.
    fn find_container(&self, container: &ContainerRef) -> impl Future<Output = Result<(), Refusal>> + Send;

    /// The Pods bound to this node, with their status.
    fn pods(&self) -> impl Future<Output = Result<Vec<Pod>, Refusal>> + Send;

    /// The Pods that really run.
    fn running_pods(&self) -> impl Future<Output = Result<Vec<RunningPod>, Refusal>> + Send;

    /// A container's log. Of [`LogOptions`] only `follow`, `previous` and `tail` are the backend's to heed.
    fn logs(
        &self,
        container: &ContainerRef,
        options: &LogOptions,
    ) -> impl Future<Output = Result<LogStream, Refusal>> + Send;

    /// Runs a command in a container until it ends. Output is complete when this returns.
    fn exec(&self, container: &ContainerRef, exec: Exec, io: Io) -> impl Future<Output = Result<Exit, Refusal>> + Send;

    /// Connects to the container's own process until it ends or the input does. Shows only new output.
    fn attach(&self, container: &ContainerRef, tty: bool, io: Io) -> impl Future<Output = Result<(), Refusal>> + Send;

    /// Connects to a port in the Pod, as if from the Pod's own loopback.
    fn dial(&self, pod: &PodRef, port: NonZeroU16) -> impl Future<Output = Result<Box<dyn Duplex>, Refusal>> + Send;

    /// What the node and its Pods use, measured not long ago.
    fn stats(&self) -> impl Future<Output = Result<Summary, Refusal>> + Send;

    /// A page of metrics.
    fn metrics(&self, which: Metrics) -> impl Future<Output = Result<Page, Refusal>> + Send;

    /// The node's own checks; `ping` and `log` are the server's.
    fn health(&self) -> impl Future<Output = Vec<Check>> + Send;

    /// What the agent was configured with, secrets left out.
    fn config(&self) -> impl Future<Output = serde_json::Value> + Send;
}
