//! Setting up Macs over SSH: the plan of `russet-bootstrap`, with what the flags say about fleets.
//!
//! ```text
//!   flags ─┐
//!   facts ─┴▶ recipe::Recipe ──▶ mac::Fleet ──▶ mac::desired (the hash), mac::plan
//!   job ─────────────────────▶ mac::Host ───────────┘
//!   job ── login: the fleet's key, else the password ──▶ Session ──▶ Engine ──▶ status.steps
//! ```
//!
//! How many hosts are set up at once is the pool's business; each has one connection. A host that does not answer gives its
//! place up after [`DIAL`] and is tried again later, so that hosts behind it are not held up.

mod login;
mod recipe;

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::Taint;
use russet_api::machine::StepState;
use russet_bootstrap::linux;
use russet_bootstrap::mac::{self, Engine, Patience, plan, watched};
use russet_bootstrap::ssh::{Limits, Session};
use tokio_util::sync::CancellationToken;
use tracing::info;

use super::{Bootstrapper, Done, Effort, Failed, HostConfigHash, HostFacts, Job, Progress};

pub use recipe::{BadHostFlag, Recipe};

/// For so long a host may be silent, as one that boots is, before the next attempt is left to a later time.
const DIAL: Duration = Duration::from_secs(45);
const DIAL_AGAIN: Duration = Duration::from_secs(3);
/// The step that stands for the connection.
const CONNECT_STEP: &str = "connect";
/// The step of a host that answers and does not know us, or is not the one we know: what we know of it may be out of date.
pub(crate) const LOGIN_STEP: &str = "login";

/// Sets up Macs over SSH. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Ssh(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    recipe: Recipe,
    port: u16,
    patience: Patience,
    limits: Limits,
}

impl Ssh {
    /// With this recipe, on hosts that listen on this port.
    pub fn new(recipe: Recipe, port: u16) -> Self {
        Self(Arc::new(Inner {
            recipe,
            port,
            patience: Patience::default(),
            limits: Limits::default(),
        }))
    }

    /// With another patience: emulated Macs are quicker.
    #[must_use]
    pub fn patience(self, patience: Patience) -> Self {
        Self(Arc::new(Inner {
            recipe: self.0.recipe.clone(),
            port: self.0.port,
            patience,
            limits: self.0.limits,
        }))
    }

    /// How many files were read to the end so far: once each, unless they change.
    pub fn hashed(&self) -> u64 {
        self.0.recipe.hashed()
    }
}

fn failed(step: &str, message: impl Into<String>, pin: Option<String>) -> Failed {
    Failed {
        step: step.to_owned(),
        message: message.into(),
        fingerprint: pin,
    }
}

fn taint(taint: &Taint) -> linux::Taint {
    linux::Taint {
        key: taint.key.clone(),
        value: taint.value.clone().unwrap_or_default(),
        effect: taint.effect.clone(),
    }
}

/// What a host is told about itself.
fn host(job: &Job) -> Result<mac::Host, Failed> {
    let missing = |what: &str| failed(CONNECT_STEP, format!("the provider has no {what} for the host"), None);
    Ok(mac::Host {
        user: job.ssh_user.clone(),
        password: job.sudo_password.clone(),
        node_name: job.node_name.clone(),
        provider_id: job.provider_id.clone(),
        labels: job.labels.clone(),
        taints: job.taints.iter().map(taint).collect(),
        login_keys: job.key.iter().map(|key| key.public.trim().to_owned()).collect(),
        kubeconfig: job.join_kubeconfig.clone().ok_or_else(|| missing("join credentials"))?,
        tailnet_key: job.tailnet_key.clone(),
        vlan: job.vlan,
        runner: job.runner.clone().map(|(runner, token)| mac::Runner {
            org: runner.org_or_default().to_owned(),
            labels: runner.labels_or_default().collect::<Vec<_>>().join(","),
            version: runner.gh_runner_version,
            token,
        }),
    })
}

fn told(error: mac::Failed, pin: Option<String>) -> Failed {
    match error {
        mac::Failed::Step { step, message } => failed(step, message, pin),
        error @ mac::Failed::NoPassword { .. } => failed("sudo", error.to_string(), pin),
        error => failed(CONNECT_STEP, error.to_string(), pin),
    }
}

/// Tells `status.steps` how steps stand.
fn teller(progress: &Progress) -> impl Fn(&str, &mac::StepState) + Send + Sync {
    move |name: &str, state: &mac::StepState| {
        let (state, message) = match state {
            mac::StepState::Unchanged | mac::StepState::Changed => (StepState::Succeeded, None),
            mac::StepState::Running => (StepState::Running, None),
            mac::StepState::Held(why) => (StepState::Pending, Some(why.clone())),
            mac::StepState::Failed(why) => (StepState::Failed, Some(why.clone())),
        };
        progress.step(name, state, message);
    }
}

impl Inner {
    async fn set_up(&self, job: Job, progress: &Progress) -> Result<Done, Failed> {
        let fleet = self
            .recipe
            .fleet(&job.facts)
            .map_err(|error| failed("files", error.to_string(), None))?;
        let host = host(&job)?;
        let unfit = |invalid: mac::Invalid| failed("configuration", invalid.to_string(), None);
        fleet.check().map_err(unfit)?;
        host.check(&fleet).map_err(unfit)?;
        progress.step(CONNECT_STEP, StepState::Running, None);
        let session = login::login(&job, self.port, &self.limits).await?;
        let pin = Some(session.host_key().to_string());
        progress.step(CONNECT_STEP, StepState::Succeeded, None);
        let run = self.follow_plan(&session, &fleet, &host, progress).await;
        session.close().await;
        match run {
            Ok(report) => {
                let effort = Effort {
                    commands: report.commands,
                    uploaded: report.uploaded,
                };
                info!(
                    host = host.node_name,
                    changed = ?report.changed,
                    commands = effort.commands,
                    uploaded = effort.uploaded,
                    "the host is as it should be"
                );
                Ok(Done {
                    fingerprint: pin,
                    kubelet_sha: Some(fleet.agent.program.sha().to_owned()),
                    effort,
                    looked: false,
                })
            }
            Err(error) => Err(told(error, pin)),
        }
    }

    async fn watch(&self, job: &Job, progress: &Progress) -> Result<(), Failed> {
        let host = host(job)?;
        let steps = watched(&host);
        if steps.is_empty() {
            return Ok(());
        }
        let session = login::login(job, self.port, &self.limits).await?;
        let tell = teller(progress);
        let engine = Engine::new(&session, &host, &steps, &tell).patience(self.patience);
        let seen = engine.watch().await;
        session.close().await;
        match seen {
            Ok(report) => {
                info!(host = host.node_name, held = ?report.held, "looked at the host");
                Ok(())
            }
            Err(error) => Err(told(error, None)),
        }
    }

    async fn follow_plan(
        &self,
        session: &Session,
        fleet: &mac::Fleet,
        host: &mac::Host,
        progress: &Progress,
    ) -> Result<mac::Report, mac::Failed> {
        let steps = plan(fleet, host);
        let tell = teller(progress);
        Engine::new(session, host, &steps, &tell)
            .patience(self.patience)
            .run()
            .await
    }
}

impl Bootstrapper for Ssh {
    fn desired(&self, host: &HostFacts) -> HostConfigHash {
        self.0.recipe.desired(host)
    }

    fn run(&self, job: Job, progress: Progress, stop: CancellationToken) -> BoxFuture<'static, Result<Done, Failed>> {
        let this = Arc::clone(&self.0);
        Box::pin(async move {
            let set_up = tokio::select! {
                () = stop.cancelled() => Err(failed(CONNECT_STEP, "the provider stops", None)),
                set_up = this.set_up(job, &progress) => set_up,
            };
            if let Err(error) = &set_up {
                progress.step(&error.step, StepState::Failed, Some(error.message.clone()));
            }
            set_up
        })
    }

    fn look(&self, job: Job, progress: Progress, stop: CancellationToken) -> BoxFuture<'static, Result<(), Failed>> {
        let this = Arc::clone(&self.0);
        Box::pin(async move {
            tokio::select! {
                () = stop.cancelled() => Ok(()),
                looked = this.watch(&job, &progress) => looked,
            }
        })
    }
}
