//! The kubelet API of this Node: what `kubectl logs`, `exec`, `attach`, `cp`, `port-forward` and `top` reach.

mod attach;
mod certificate;
mod logs;
mod measure;
mod port;
mod serving;

use std::num::NonZeroU16;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use kube::ResourceExt as _;
use russet_kubelet_api::stats::Summary;
use russet_kubelet_api::{
    Backend, Check, ContainerRef, Duplex, Exec, Exit, Io, LogOptions, LogStream, Metrics, Page, PodRef, Refusal,
    RunningPod,
};
use russet_pod::spec;
use russet_vm::{ExecRequest, TerminalSize, VmName};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};

use crate::host::Gauge;
use crate::pods::directory::{Handle, Instance, Shown};
use crate::pods::guest;
use crate::serve::Pulse;

use measure::Measured;
pub(crate) use serving::{Options, serve};

/// How long the size of a caller's terminal is waited for; it comes at once.
const SIZE: Duration = Duration::from_millis(500);
const USUAL: TerminalSize = TerminalSize { columns: 80, rows: 24 };

/// The Node behind its API.
#[derive(Debug)]
pub(crate) struct Kubelet {
    handle: Handle,
    pulse: Arc<Pulse>,
    measured: Measured,
    config: serde_json::Value,
}

impl Kubelet {
    pub(crate) fn new(handle: Handle, pulse: Arc<Pulse>, disk: Gauge, config: serde_json::Value) -> Self {
        Self {
            measured: Measured::new(Timestamp::now(), disk),
            handle,
            pulse,
            config,
        }
    }

    fn pod(&self, pod: &PodRef) -> Result<Shown, Refusal> {
        let found = self
            .handle
            .directory
            .find(&pod.namespace, &pod.name, pod.uid.as_deref());
        found.ok_or_else(|| Refusal::NoPod { pod: pod.name.clone() })
    }

    fn container(&self, wanted: &ContainerRef) -> Result<Shown, Refusal> {
        let shown = self.pod(&wanted.pod)?;
        match spec::container(&shown.pod, &wanted.container) {
            Some(_) => Ok(shown),
            None => Err(Refusal::NoContainer {
                pod: wanted.pod.name.clone(),
                container: wanted.container.clone(),
            }),
        }
    }

    /// The VM of a container that runs.
    fn running(&self, wanted: &ContainerRef) -> Result<Instance, Refusal> {
        let shown = self.container(wanted)?;
        let instance = shown
            .instances
            .get(&wanted.container)
            .filter(|instance| instance.runs());
        instance.cloned().ok_or_else(|| Refusal::NotRunning {
            pod: wanted.pod.name.clone(),
            container: wanted.container.clone(),
        })
    }
}

/// What the Pod's status says of a container.
fn status<'a>(pod: &'a Pod, container: &str) -> Option<&'a ContainerStatus> {
    let status = pod.status.as_ref()?;
    let all = [&status.init_container_statuses, &status.container_statuses];
    all.into_iter()
        .flatten()
        .flatten()
        .find(|status| status.name == container)
}

fn failed(error: impl std::fmt::Display) -> Refusal {
    Refusal::Failed(error.to_string())
}

impl Backend for Kubelet {
    async fn find_pod(&self, pod: &PodRef) -> Result<(), Refusal> {
        self.pod(pod).map(|_| ())
    }

    async fn find_container(&self, container: &ContainerRef) -> Result<(), Refusal> {
        self.container(container).map(|_| ())
    }

    async fn pods(&self) -> Result<Vec<Pod>, Refusal> {
        let all = self.handle.directory.list();
        Ok(all.into_iter().map(|shown| Pod::clone(&shown.pod)).collect())
    }

    async fn running_pods(&self) -> Result<Vec<RunningPod>, Refusal> {
        let all = self.handle.directory.list().into_iter();
        let running = all.filter_map(|shown| {
            let names: Vec<(String, String)> = spec::containers(&shown.pod)
                .filter(|(_, container)| shown.instances.get(&container.name).is_some_and(Instance::runs))
                .map(|(_, container)| (container.name.clone(), container.image.clone().unwrap_or_default()))
                .collect();
            (!names.is_empty()).then(|| RunningPod {
                namespace: shown.pod.namespace().unwrap_or_default(),
                name: shown.pod.name_any(),
                uid: shown.pod.uid().unwrap_or_default(),
                containers: names,
            })
        });
        Ok(running.collect())
    }

    async fn logs(&self, container: &ContainerRef, options: &LogOptions) -> Result<LogStream, Refusal> {
        let shown = self.container(container)?;
        logs::open(&self.handle, &shown, container, options)
    }

    async fn exec(&self, container: &ContainerRef, exec: Exec, io: Io) -> Result<Exit, Refusal> {
        let instance = self.running(container)?;
        let Io {
            stdin,
            stdout,
            stderr,
            mut resize,
        } = io;
        let terminal = if exec.tty {
            let first = match &mut resize {
                Some(resize) => tokio::time::timeout(SIZE, resize.next()).await.ok().flatten(),
                None => None,
            };
            Some(first.map_or(USUAL, terminal_size))
        } else {
            None
        };
        let request = ExecRequest {
            words: guest::enter(exec.command),
            stdin: stdin.is_some(),
            terminal,
        };
        let name = VmName::from(instance.vm);
        let running = self.handle.runtime.exec(&name, request).await.map_err(failed)?;
        let russet_vm::Exec {
            stdin: to,
            stdout: from_out,
            stderr: from_err,
            resize: sizes,
            exit,
        } = running;
        let input = async {
            if let (Some(from), Some(mut to)) = (stdin, to) {
                let mut from = tokio::io::BufReader::with_capacity(PIECE, from);
                // A program that does not read to the end is no failure; and a caller that was cut off has not said its last word,
                // so the program must not see an end.
                match tokio::io::copy_buf(&mut from, &mut to).await {
                    Ok(_) => drop(to.shutdown().await),
                    Err(_) => std::future::pending().await,
                }
            }
            std::future::pending::<()>().await;
        };
        let resized = async {
            if let (Some(mut resize), Some(sizes)) = (resize, sizes) {
                while let Some(size) = resize.next().await {
                    sizes.send_replace(terminal_size(size));
                }
            }
            std::future::pending::<()>().await;
        };
        let output = async {
            let out = pass(from_out, stdout);
            let err = pass(from_err, stderr);
            let (code, (), ()) = tokio::join!(exit, out, err);
            code
        };
        tokio::select! {
            code = output => Ok(Exit(code.map_err(failed)?)),
            () = input => Err(failed("the input ended")),
            () = resized => Err(failed("the terminal ended")),
        }
    }

    async fn attach(&self, container: &ContainerRef, _tty: bool, io: Io) -> Result<(), Refusal> {
        let (shown, instance) = (self.container(container)?, self.running(container)?);
        let (_, spec) = spec::container(&shown.pod, &container.container).ok_or_else(|| Refusal::NoContainer {
            pod: container.pod.name.clone(),
            container: container.container.clone(),
        })?;
        attach::attach(&self.handle, instance, spec, io).await
    }

    async fn dial(&self, pod: &PodRef, port: NonZeroU16) -> Result<Box<dyn Duplex>, Refusal> {
        port::dial(&self.handle, &self.pod(pod)?, port).await
    }

    async fn stats(&self) -> Result<Summary, Refusal> {
        self.measured.summary(&self.handle).await
    }

    async fn metrics(&self, which: Metrics) -> Result<Page, Refusal> {
        match which {
            Metrics::Agent => self.pulse.metrics.encode().map(Page::OpenMetrics).map_err(failed),
            // Nothing of that kind is counted here; an empty page is a page.
            Metrics::Cadvisor | Metrics::Probes | Metrics::Slis => Ok(Page::Text(String::new())),
        }
    }

    async fn health(&self) -> Vec<Check> {
        vec![Check {
            name: "syncloop",
            healthy: self.pulse.is_ready(),
        }]
    }

    async fn config(&self) -> serde_json::Value {
        self.config.clone()
    }
}

fn terminal_size(size: russet_kubelet_api::Size) -> TerminalSize {
    TerminalSize {
        columns: size.width,
        rows: size.height,
    }
}

/// As much as a pipe holds. Smaller pieces cost a frame and two calls each, which shows where much is copied.
const PIECE: usize = 64 * 1024;

/// Passes output on to whoever wants it, to its end. A program whose output nobody wants any more is not kept waiting: what it says
/// goes where nobody holds the other end, and it ends or goes on as it would in a pipe.
async fn pass(mut from: Box<dyn AsyncRead + Send + Unpin>, to: Option<impl AsyncWrite + Unpin>) {
    match to {
        Some(mut to) => {
            let mut from = tokio::io::BufReader::with_capacity(PIECE, from);
            // A caller that left altogether is noticed elsewhere.
            let _ = tokio::io::copy_buf(&mut from, &mut to).await;
            let _ = to.shutdown().await;
        }
        None => {
            let _ = tokio::io::copy(&mut from, &mut tokio::io::sink()).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A caller that had enough of the output alone, and not of the errors, left a program that waited for ever to be read.
    #[tokio::test]
    async fn a_program_whose_output_nobody_wants_is_not_kept_waiting() {
        let (mut program, output) = tokio::io::duplex(16);
        let (caller, to) = tokio::io::duplex(16);
        drop(caller);
        let much = async {
            let mut said = Ok(());
            while said.is_ok() {
                said = program.write_all(b"more and more").await;
            }
            said
        };
        let (said, ()) = tokio::join!(much, pass(Box::new(output), Some(to)));
        assert_eq!(said.unwrap_err().kind(), std::io::ErrorKind::BrokenPipe);
    }
}
