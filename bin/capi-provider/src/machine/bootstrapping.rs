//! A host that is to be set up: asking the pool how it stands, and writing that down.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Taint;
use kube::ResourceExt as _;
use russet_api::conditions::{Condition, Severity, reasons, types};
use russet_api::events::apple_silicon as events;
use russet_api::machine::{Phase, Step, StepState};
use russet_api::values::{ProviderId, ProviderKind, ServerId};
use russet_api::{labels, taints};
use russet_controller::Outcome;
use russet_telemetry::Secret;

use super::credentials::Credentials;
use super::reconcile::NOW;
use super::view::{CREDENTIALS_STEP, key_group};
use super::{Context, Error, Mac};
use crate::bootstrap::{
    Done, Failed, HostFacts, Job, Kind, LOGIN_STEP, LoginKey, Problem, Seat, Services, Trouble, Work,
};
use crate::decide::Machine;
use crate::host::Host;
use crate::surroundings::key;
use crate::whereabouts::Whereabouts;

/// The pool wakes whoever it concerns; this is for the case that it does not.
const LOOK_AGAIN: Duration = Duration::from_mins(1);
const RETRY: Duration = Duration::from_secs(30);

/// What the spec says of it.
fn facts(mac: &Mac) -> HostFacts {
    let positive = |number: Option<i64>| number.filter(|number| *number > 0);
    HostFacts {
        type_: mac.spec.type_or_default().to_owned(),
        fleet: mac.spec.fleet_name.clone().filter(|fleet| !fleet.is_empty()),
        cpu: positive(mac.spec.host_cpu),
        memory_mb: positive(mac.spec.host_memory_mb),
        api_server: None,
    }
}

/// The condition of a set-up that is not over.
fn unfinished(reason: &str, severity: Severity, message: impl Into<String>) -> Condition {
    Condition::new(types::BOOTSTRAPPED, false, reason)
        .message(message)
        .severity(severity)
}

impl Context {
    /// What the configuration of its host depends on.
    pub(super) fn facts(&self, mac: &Mac) -> HostFacts {
        HostFacts {
            api_server: self.parts.whereabouts.as_ref().and_then(Whereabouts::known),
            ..facts(mac)
        }
    }

    /// Looks up where the API server is, unless it is known.
    pub(super) async fn learn(&self) -> Result<(), crate::api_server::Error> {
        match &self.parts.whereabouts {
            Some(whereabouts) => whereabouts.learn().await,
            None => Ok(()),
        }
    }

    pub(super) async fn bootstrap(&self, mac: &Mac, machine: &Machine, host: &Host) -> Result<Outcome, Error> {
        let uid = machine.holder.uid.as_str();
        match self.parts.pool.seat(uid, &key(mac), &host.id) {
            Seat::Free => self.start(mac, machine, host).await,
            Seat::Full => {
                let message = "other hosts are set up first; see --max-concurrent-bootstraps";
                self.going_on(mac, None, message).await?;
                Ok(Outcome::After(LOOK_AGAIN))
            }
            Seat::Running(steps) => {
                self.going_on(mac, Some(steps), "the host is being set up").await?;
                Ok(Outcome::After(LOOK_AGAIN))
            }
            Seat::Resting(left) => Ok(Outcome::After(left + Duration::from_millis(50))),
            Seat::Ended(steps, result) => match &*result {
                Ok(done) => self.succeeded(mac, machine, host, steps, done).await,
                Err(trouble) => self.failed(mac, machine, host, steps, trouble).await,
            },
        }
    }

    async fn going_on(&self, mac: &Mac, steps: Option<Vec<Step>>, message: &str) -> Result<(), Error> {
        let mut draft = self.draft(mac);
        draft.status.phase = Some(Phase::Bootstrapping);
        if let Some(steps) = steps {
            draft.status.steps = steps;
        }
        // The cause of the last failure is worth more than that it is tried again.
        let failed_before = draft.status.bootstrap_attempts.is_some_and(|attempts| attempts > 0);
        if !failed_before {
            draft.condition(unfinished(reasons::IN_PROGRESS, Severity::Info, message));
        }
        self.write_draft(mac, draft).await.map(drop)
    }

    async fn start(&self, mac: &Mac, machine: &Machine, host: &Host) -> Result<Outcome, Error> {
        // If it is not known, what the host joins with cannot be made either, and that says so.
        let _ = self.learn().await;
        let steps = mac.status.clone().unwrap_or_default().steps;
        let work = self.work(mac, machine, host, Kind::First);
        self.parts
            .pool
            .start(&machine.holder.uid, &key(mac), &host.id, steps, work);
        if machine.setup.attempts == 0 {
            let note = format!("setting up host {}", host.id);
            self.good_news(mac, events::BOOTSTRAPPING, note).await;
        }
        Ok(Outcome::After(LOOK_AGAIN))
    }

    /// Preparation and set-up, as one piece of work for the pool.
    pub(super) fn work(&self, mac: &Mac, machine: &Machine, host: &Host, kind: Kind) -> Work {
        let facts = self.facts(mac);
        let hash = self.parts.bootstrapper.desired(&facts);
        self.memory.started(&machine.holder.uid, hash.as_str());
        let reader = self.reader(mac.clone(), host.id.clone());
        let (services, bootstrapper) = (self.parts.services.clone(), Arc::clone(&self.parts.bootstrapper));
        let (mac, machine, host) = (mac.clone(), machine.clone(), host.clone());
        Box::new(move |progress, stop| {
            Box::pin(async move {
                let credentials = reader.await?;
                let prepared = prepare(&services, &mac, &machine, &host, credentials).await;
                let job = Job {
                    kind,
                    facts,
                    hash,
                    ..prepared.map_err(Trouble::Preparation)?
                };
                bootstrapper.run(job, progress, stop).await.map_err(Trouble::Host)
            })
        })
    }

    /// Reads the credentials when the work begins, not now.
    pub(super) fn reader(
        &self,
        mac: Mac,
        server: ServerId,
    ) -> impl Future<Output = Result<Credentials, Trouble>> + Send + 'static {
        let secrets = self.secrets.clone();
        async move {
            match secrets.read(&mac, &server).await {
                Ok(Some(credentials)) => Ok(credentials),
                Ok(None) => Err(Trouble::NoCredentials),
                Err(error) => Err(Trouble::Preparation(Problem {
                    reason: reasons::apple_silicon::CREDENTIALS_REFRESH_FAILED,
                    message: format!("{error}; it is tried again"),
                    retry: RETRY,
                })),
            }
        }
    }

    async fn succeeded(
        &self,
        mac: &Mac,
        machine: &Machine,
        host: &Host,
        steps: Vec<Step>,
        done: &Done,
    ) -> Result<Outcome, Error> {
        if let Some(fingerprint) = &done.fingerprint {
            self.secrets.store_fingerprint(mac, &host.id, fingerprint).await?;
        }
        let mut draft = self.draft(mac);
        draft.status.steps = steps;
        draft.status.bootstrap_attempts = None;
        draft.status.host_config_hash = self.memory.last_started(&machine.holder.uid);
        draft.status.tart_kubelet_binary_sha.clone_from(&done.kubelet_sha);
        draft.condition(Condition::new(types::BOOTSTRAPPED, true, reasons::READY));
        self.write_draft(mac, draft).await?;
        self.parts.pool.acknowledge(&machine.holder.uid);
        self.good_news(mac, events::BOOTSTRAPPED, format!("host {} is set up", host.id))
            .await;
        Ok(NOW)
    }

    async fn failed(
        &self,
        mac: &Mac,
        machine: &Machine,
        host: &Host,
        steps: Vec<Step>,
        trouble: &Trouble,
    ) -> Result<Outcome, Error> {
        let mut draft = self.draft(mac);
        draft.status.steps = steps;
        draft.status.phase = Some(Phase::Bootstrapping);
        let mut news = None;
        match trouble {
            Trouble::Host(Failed {
                step,
                message,
                fingerprint,
            }) => {
                if let Some(fingerprint) = fingerprint {
                    self.secrets.store_fingerprint(mac, &host.id, fingerprint).await?;
                }
                if step == LOGIN_STEP {
                    // Scaleway may know another password: then the host was installed again, and its key is another, too.
                    draft.status.steps.retain(|step| step.name != CREDENTIALS_STEP);
                }
                let attempts = machine.setup.attempts.saturating_add(1);
                draft.status.bootstrap_attempts = Some(i32::try_from(attempts).unwrap_or(i32::MAX));
                let message = format!("step {step} failed: {message} (attempt {attempts}; it is tried again)");
                draft.condition(unfinished(
                    reasons::apple_silicon::BOOTSTRAP_FAILED,
                    Severity::Warning,
                    message.clone(),
                ));
                news = Some((events::BOOTSTRAP_FAILED, message));
            }
            Trouble::Preparation(problem) => {
                draft.condition(unfinished(problem.reason, Severity::Warning, problem.message.clone()));
                news = Some((problem.reason, problem.message.clone()));
            }
            Trouble::NoCredentials => draft.status.steps.retain(|step| step.name != CREDENTIALS_STEP),
            Trouble::Stopped => {}
        }
        self.write_draft(mac, draft).await?;
        self.parts.pool.acknowledge(&machine.holder.uid);
        if let Some((reason, message)) = news {
            self.bad_news(mac, reason, message).await;
        }
        Ok(NOW)
    }

    /// The credentials are stored.
    pub(super) async fn note_credentials(&self, mac: &Mac) -> Result<(), Error> {
        let mut draft = self.draft(mac);
        crate::bootstrap::note_step(
            &mut draft.status.steps,
            CREDENTIALS_STEP,
            StepState::Succeeded,
            None,
            self.parts.clock.now(),
        );
        self.write_draft(mac, draft).await.map(drop)
    }
}

/// What it takes to log in to a host; none of what it is set up with.
pub(super) async fn reach(
    services: &Services,
    mac: &Mac,
    machine: &Machine,
    host: &Host,
    credentials: Credentials,
) -> Result<Job, Problem> {
    let Some(address) = host.address else {
        return Err(Problem {
            reason: reasons::apple_silicon::BOOTSTRAP_FAILED,
            message: "Scaleway shows no public address of the host yet; it is tried again".to_owned(),
            retry: RETRY,
        });
    };
    let key: Option<LoginKey> = match &services.keys {
        Some(keys) => Some(keys.ensure(&key_group(mac)).await?),
        None => None,
    };
    let facts = facts(mac);
    let password = credentials
        .password
        .or_else(|| key.as_ref().and_then(|key| key.sudo_password.clone()));
    Ok(Job {
        kind: Kind::Update,
        machine: machine.holder.clone(),
        address,
        ssh_user: credentials.user,
        sudo_password: password,
        fingerprint: credentials.fingerprint,
        key,
        node_name: mac.name_any(),
        provider_id: provider_id(machine, &host.id).to_string(),
        labels: node_labels(&facts),
        taints: node_taints(),
        join_kubeconfig: None,
        tailnet_key: None,
        vlan: None,
        runner: None,
        facts,
        hash: crate::bootstrap::HostConfigHash::new(""),
    })
}

/// Everything a job needs besides the host itself.
async fn prepare(
    services: &Services,
    mac: &Mac,
    machine: &Machine,
    host: &Host,
    credentials: Credentials,
) -> Result<Job, Problem> {
    let job = reach(services, mac, machine, host, credentials).await?;
    let join_kubeconfig = match &services.identities {
        Some(identities) => Some(identities.issue(&machine.holder).await?),
        None => None,
    };
    let runner = match (&mac.spec.gh_actions_runner, &services.runners) {
        (None, _) => None,
        (Some(runner), Some(tokens)) => {
            let token: Secret<String> = tokens.registration_token(runner, &machine.holder.namespace).await?;
            Some((runner.clone(), token))
        }
        (Some(_), None) => {
            return Err(Problem {
                reason: reasons::apple_silicon::GH_RUNNER_REGISTRATION_TOKEN_UNAVAILABLE,
                message: "spec.ghActionsRunner is set, but this provider was built without GitHub; remove it"
                    .to_owned(),
                retry: LOOK_AGAIN * 5,
            });
        }
    };
    let tailnet_key = match &services.tailnet {
        Some(tailnet) => Some(tailnet.key().await?),
        None => None,
    };
    let vlan = match &services.networks {
        Some(networks) => Some(networks.vlan(&machine.zone, &host.id).await?),
        None => None,
    };
    Ok(Job {
        join_kubeconfig,
        tailnet_key,
        vlan,
        runner,
        ..job
    })
}

/// What binds the Machine to its Node.
pub(super) fn provider_id(machine: &Machine, server: &ServerId) -> ProviderId {
    ProviderId::new(ProviderKind::AppleSilicon, machine.zone.clone(), server.clone())
}

fn node_labels(facts: &HostFacts) -> BTreeMap<String, String> {
    let mut all = vec![
        (labels::OS, labels::OS_DARWIN),
        (labels::ARCH, labels::ARCH_ARM64),
        (labels::RUNTIME, labels::RUNTIME_TART),
    ];
    if let Some(fleet) = &facts.fleet {
        all.push((labels::FLEET, fleet));
    }
    all.into_iter()
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .collect()
}

/// Ordinary Pods stay away; the second goes when core has put the labels of the Machine on the Node.
fn node_taints() -> Vec<Taint> {
    let taint = |key: &str, value: Option<&str>| Taint {
        key: key.to_owned(),
        value: value.map(ToOwned::to_owned),
        effect: taints::NO_SCHEDULE.to_owned(),
        time_added: None,
    };
    vec![
        taint(taints::MACOS, Some(taints::TRUE)),
        taint(taints::UNINITIALIZED, None),
    ]
}
