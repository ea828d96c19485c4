//! `kubectl attach`: what a container says from now on, and what it is told.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Container;
use russet_kubelet_api::{Io, Reader, Refusal, Resizes};
use russet_vm::{ExecRequest, Runtime, VmName, collect};
use tokio::io::AsyncWriteExt as _;
use tokio_util::sync::CancellationToken;

use super::{failed, logs, terminal_size};
use crate::pods::directory::{Handle, Instance};
use crate::pods::guest::input;

/// A guest that does not take a word in within this does not.
const ANSWER: Duration = Duration::from_secs(10);

pub(super) async fn attach(handle: &Handle, instance: Instance, container: &Container, io: Io) -> Result<(), Refusal> {
    let Io {
        stdin, stdout, resize, ..
    } = io;
    if stdin.is_some() && container.stdin != Some(true) {
        return Err(Refusal::Unsupported(format!(
            "container {} reads no input; give it stdin: true, or use kubectl exec -it",
            container.name
        )));
    }
    let line = Line {
        runtime: Arc::clone(&handle.runtime),
        name: VmName::from(instance.vm.clone()),
    };
    // Before anything is said, so that the answer to it is heard.
    let heard = logs::from_now(handle, &instance).await.map_err(failed)?;
    let left = CancellationToken::new();
    let _left = left.clone().drop_guard();
    if let Some(stdin) = stdin {
        let once = container.stdin_once == Some(true);
        tokio::spawn(line.clone().feed(stdin, once, left));
    }
    let sizes = async {
        if let Some(resize) = resize.filter(|_| container.tty == Some(true)) {
            line.resize(resize).await;
        }
        std::future::pending::<()>().await;
    };
    tokio::select! {
        done = logs::pass(heard, stdout) => done,
        () = sizes => Ok(()),
    }
}

/// The way to the input of a container.
#[derive(Clone)]
struct Line {
    runtime: Arc<dyn Runtime>,
    name: VmName,
}

impl Line {
    /// Passes input on until the caller has no more or has left. The first caller who leaves ends the input of a container that
    /// takes it once.
    async fn feed(self, mut stdin: Reader, once: bool, left: CancellationToken) {
        let passed = async {
            let request = ExecRequest {
                words: input::feed(),
                stdin: true,
                terminal: None,
            };
            let Ok(mut exec) = self.runtime.exec(&self.name, request).await else {
                return;
            };
            if let Some(mut to) = exec.stdin.take() {
                // A container that does not read to the end is no failure.
                let _ = tokio::io::copy(&mut stdin, &mut to).await;
                let _ = to.shutdown().await;
            }
            let _ = exec.exit.await;
        };
        let _ = left.run_until_cancelled(passed).await;
        if once {
            self.tell(input::end()).await;
        }
    }

    async fn resize(&self, mut sizes: Resizes) {
        while let Some(size) = sizes.next().await {
            self.tell(input::resize(terminal_size(size))).await;
        }
    }

    async fn tell(&self, words: Vec<String>) {
        let request = ExecRequest {
            words,
            ..ExecRequest::default()
        };
        let told = async { collect(self.runtime.exec(&self.name, request).await?, b"", 1024).await };
        if !matches!(tokio::time::timeout(ANSWER, told).await, Ok(Ok(_))) {
            tracing::debug!(vm = %self.name, "a guest did not hear what became of the input of its container");
        }
    }
}
