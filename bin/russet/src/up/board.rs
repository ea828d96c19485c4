//! The one record of what `up` is doing. Every change is written to `status.json` and shown.

use super::view::View;
use crate::state::Layout;
use crate::state::run::{self, Part, Phase, Run, Step};
use jiff::Timestamp;
use russet_cluster::process::{Snapshot, Supervisor};
use std::cell::RefCell;
use std::collections::HashMap;
use std::convert::Infallible;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Shared by the concurrent steps of one task, hence the cell: no two borrows cross an await.
#[derive(Debug)]
pub(super) struct Board {
    layout: Layout,
    began: Instant,
    inner: RefCell<Inner>,
}

#[derive(Debug)]
struct Inner {
    run: Run,
    view: View,
    addresses: HashMap<String, String>,
    /// A status file that cannot be written is said once, not at every change.
    write_failed: bool,
}

impl Board {
    /// A run that begins now.
    pub(super) fn begin(layout: &Layout, view: View, cluster_api: bool) -> Self {
        let run = Run {
            pid: std::process::id(),
            russet: env!("CARGO_PKG_VERSION").to_owned(),
            started_at: Timestamp::now(),
            phase: Phase::Starting,
            ready_after_seconds: None,
            server: None,
            kubeconfig: None,
            cluster_api,
            parts: Vec::new(),
            steps: Vec::new(),
        };
        let inner = RefCell::new(Inner {
            run,
            view,
            addresses: HashMap::new(),
            write_failed: false,
        });
        let board = Self {
            layout: layout.clone(),
            began: Instant::now(),
            inner,
        };
        board.change(|_| {});
        board
    }

    fn change(&self, edit: impl FnOnce(&mut Run)) {
        let mut inner = self.inner.borrow_mut();
        let inner = &mut *inner;
        edit(&mut inner.run);
        match run::write(&self.layout, &inner.run) {
            Ok(()) => inner.write_failed = false,
            Err(error) if !inner.write_failed => {
                inner.write_failed = true;
                inner
                    .view
                    .note(&format!("failed to write {}: {error}", self.layout.run().display()));
            }
            Err(_) => {}
        }
        inner.view.update(&inner.run);
    }

    pub(super) fn note(&self, text: &str) {
        self.inner.borrow().view.note(text);
    }

    /// Runs a piece of work that is not a process, and times it. `outcome` words its result.
    pub(super) async fn step<T, E>(
        &self,
        name: &str,
        outcome: impl FnOnce(&T) -> String,
        work: impl Future<Output = Result<T, E>>,
    ) -> Result<T, E> {
        let began = Instant::now();
        self.change(|run| {
            run.steps.push(Step {
                name: name.to_owned(),
                seconds: None,
                outcome: None,
            });
        });
        let value = work.await?;
        let done = outcome(&value);
        self.change(|run| {
            if let Some(step) = run.steps.iter_mut().find(|step| step.name == name) {
                step.seconds = Some(seconds(began.elapsed()));
                step.outcome = Some(done);
            }
        });
        Ok(value)
    }

    /// Where the cluster is reached, and where each part listens.
    pub(super) fn located(&self, server: &str, kubeconfig: PathBuf, addresses: HashMap<String, String>) {
        self.inner.borrow_mut().addresses.extend(addresses);
        self.change(|run| {
            run.server = Some(server.to_owned());
            run.kubeconfig = Some(kubeconfig);
        });
    }

    /// Takes over what the supervisor sees.
    pub(super) fn observe(&self, supervisor: &Supervisor) {
        let parts: Vec<Part> = {
            let inner = self.inner.borrow();
            supervisor
                .snapshot()
                .into_iter()
                .map(|snapshot| part(snapshot, &inner.addresses))
                .collect()
        };
        if self.inner.borrow().run.parts != parts {
            self.change(|run| run.parts = parts);
        }
    }

    /// Observes for ever; meant to be raced against the work.
    pub(super) async fn follow(&self, supervisor: &Supervisor) -> Infallible {
        let mut changed = supervisor.changed();
        loop {
            changed.borrow_and_update();
            self.observe(supervisor);
            if changed.changed().await.is_err() {
                // The supervisor is gone; whoever raced us is about to find out.
                return std::future::pending().await;
            }
        }
    }

    /// Everything answers. From now on news are plain lines.
    pub(super) fn ready(&self) -> f64 {
        let taken = seconds(self.began.elapsed());
        self.change(|run| {
            run.phase = Phase::Ready;
            run.ready_after_seconds = Some(taken);
        });
        self.settle();
        taken
    }

    pub(super) fn stopping(&self) {
        self.settle();
        self.change(|run| run.phase = Phase::Stopping);
    }

    pub(super) fn settle(&self) {
        self.inner.borrow_mut().view.settle();
    }
}

fn part(snapshot: Snapshot, addresses: &HashMap<String, String>) -> Part {
    Part {
        address: addresses.get(&snapshot.name).cloned(),
        state: snapshot.state,
        pid: snapshot.pid,
        restarts: snapshot.restarts,
        started_at: Some(snapshot.started_at),
        ready_after_seconds: snapshot.ready_after.map(seconds),
        last_exit: snapshot.last_exit,
        log: snapshot.log,
        name: snapshot.name,
    }
}

/// Milliseconds are precision enough for people.
fn seconds(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 1000.0).round() / 1000.0
}
