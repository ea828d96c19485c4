//! `kubectl attach`: what a container says from now on, and what it is told.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Container;
use russet_kubelet_api::{Io, Refusal, Resizes};
use russet_vm::{ExecRequest, Runtime, VmName, collect};
use tokio::io::{AsyncRead, AsyncWriteExt as _};
use tokio_util::sync::CancellationToken;

use super::{failed, logs, terminal_size};
use crate::pods::directory::{Handle, Instance};
use crate::pods::guest::input;

/// A guest that does not take a word in within this does not.
const ANSWER: Duration = Duration::from_secs(10);
/// How long the end of a container may take to show after its input broke, which is how it is noticed first.
const SETTLE: Duration = Duration::from_secs(5);

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
    let heard = logs::from_now(handle, &instance, container).await.map_err(failed)?;
    let left = CancellationToken::new();
    let _left = left.clone().drop_guard();
    let once = container.stdin_once == Some(true);
    let feeding = stdin.map(|stdin| tokio::spawn(line.clone().feed(stdin, once, left)));
    let fed = async {
        let fed = match feeding {
            Some(feeding) => feeding.await,
            None => pending().await,
        };
        match fed {
            // Others may have more to say to the container; this caller has not, and leaves.
            Ok(Ok(Fed::Whole)) if !once => Ok(()),
            Ok(Err(why)) => {
                tokio::time::sleep(SETTLE).await;
                Err(failed(why))
            }
            // Its input is over, and what it says to that is what the caller waits for.
            _ => pending().await,
        }
    };
    let sizes = async {
        if let Some(resize) = resize.filter(|_| container.tty == Some(true)) {
            line.resize(resize).await;
        }
        pending::<()>().await;
    };
    tokio::select! {
        done = logs::pass(heard, stdout) => done,
        done = fed => done,
        () = sizes => Ok(()),
    }
}

/// How much of what a caller said has reached the container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fed {
    /// Everything, and there is no more.
    Whole,
    /// The container takes no more, or the caller was cut off.
    Part,
}

/// The way to the input of a container.
#[derive(Clone)]
struct Line {
    runtime: Arc<dyn Runtime>,
    name: VmName,
}

impl Line {
    /// Passes input on until the caller has no more or has left. The first caller who leaves ends the input of a container that
    /// takes it once. An error is a sentence for the caller, who must not take what it said for heard.
    async fn feed(
        self,
        mut stdin: impl AsyncRead + Send + Unpin + 'static,
        once: bool,
        left: CancellationToken,
    ) -> Result<Fed, String> {
        let lost = |why: String| format!("the input could not be passed on to the container: {why}");
        let passed = async {
            let request = ExecRequest {
                words: input::feed(),
                stdin: true,
                terminal: None,
            };
            let begun = self.runtime.exec(&self.name, request).await;
            let mut exec = begun.map_err(|error| lost(error.to_string()))?;
            let to = exec.stdin.take();
            let copying = async {
                let Some(mut to) = to else { return Fed::Part };
                let copied = tokio::io::copy(&mut stdin, &mut to).await;
                let _ = to.shutdown().await;
                // A container that does not read to the end is no failure.
                if copied.is_ok() { Fed::Whole } else { Fed::Part }
            };
            // Its end may come first: nobody carries more then, whatever the caller still has to say.
            let (fed, ended) = tokio::select! {
                fed = copying => (fed, None),
                ended = &mut exec.exit => (Fed::Part, Some(ended)),
            };
            let ended = match ended {
                Some(ended) => ended,
                None => exec.exit.await,
            };
            match ended {
                Ok(0) => Ok(fed),
                Ok(input::OVER) => Err(lost(
                    "its input is over, since somebody was attached to it before and it takes input once (stdinOnce)"
                        .to_owned(),
                )),
                Ok(input::ABSENT) => Err(lost("it has no input yet; try again once it has started".to_owned())),
                Ok(code) => Err(lost(format!("what carries it in the guest ended with {code}"))),
                Err(error) => Err(lost(error.to_string())),
            }
        };
        let fed = left.run_until_cancelled(passed).await;
        if once {
            self.tell(input::end()).await;
        }
        fed.unwrap_or(Ok(Fed::Part))
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

#[cfg(test)]
mod tests {
    use super::*;
    use russet_vm::{PodVm, Synthetic, synthetic};

    /// What was typed was lost, and the caller was told that all was well.
    #[tokio::test]
    async fn input_that_does_not_reach_its_container_is_said_to_be_lost() {
        let line = Line {
            runtime: Arc::new(Synthetic::new(synthetic::Host::new(synthetic::Settings::default()))),
            name: PodVm::new("ci", "job", "main", "0b5d7f3c", 0).unwrap().into(),
        };
        let fed = line.feed(&b"words"[..], false, CancellationToken::new()).await;
        let why = fed.unwrap_err();
        assert!(why.starts_with("the input could not be passed on"), "{why}");
        assert!(why.contains("does not exist"), "{why}");
    }
}
