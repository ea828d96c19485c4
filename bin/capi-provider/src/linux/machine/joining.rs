//! Servers that are set up over SSH, or asked over SSH how it goes: in the pool, never on a reconcile worker.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Node as KubeNode;
use kube::ResourceExt as _;
use kube::api::{Api, Patch, PatchParams};
use russet_api::annotations::KUBELET_CONFIG_HASH;
use russet_api::conditions::{Condition, Severity, reasons, types};
use russet_api::events::linux as events;
use russet_api::labels::PN_IPV4;
use russet_api::machine::{AddressType, MachineAddress, Phase, Step, StepState};
use russet_bootstrap::linux::{Form, JoinState};
use russet_controller::Outcome;
use serde_json::json;

use super::look::Sights;
use super::view::JOIN;
use super::{Context, Error};
use crate::bootstrap::{Done, Failed, Problem, Progress, Seat, Trouble, Work};
use crate::linux::cloud::Cloud;
use crate::linux::decide::{Machine, is_overdue};
use crate::linux::hosts::{Hosts, Login};
use crate::linux::kind::{LinuxKind, Status, key_group};
use crate::linux::script::{For, Scripts};
use crate::linux::server::{Attachment, AttachmentState, Server};
use crate::machine::MANAGER;
use crate::machine::reconcile::NOW;
use crate::surroundings::key;

/// The pool wakes whoever it concerns; this is for the case that it does not.
const LOOK_AGAIN: Duration = Duration::from_mins(1);
/// A server that is still at it is asked again after this long.
const ASK_AGAIN: Duration = Duration::from_secs(30);
/// Lines of output that a condition can hold.
const LINES: usize = 12;

/// What is done over SSH.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Purpose {
    /// The script is run.
    Join,
    /// The server is asked how its own run goes; if that failed, the script is run.
    Inspect {
        /// It should have joined long ago.
        overdue: bool,
    },
    /// The script is run again, for a node that serves with an older one.
    Update,
}

/// The place on the network that a status tells of. The hardware address is not kept; what is made of this does not depend on it.
pub(super) fn known_attachment(status: &Status) -> Option<Attachment> {
    let network = status.private_network_id.as_deref()?.parse().ok()?;
    let vlan = status.private_network_vlan.and_then(|vlan| u32::try_from(vlan).ok());
    Some(Attachment {
        id: String::new(),
        network,
        state: AttachmentState::Attached,
        mac: vlan.is_none().then(|| "02:00:00:00:00:00".to_owned()),
        vlan,
    })
}

/// Everything that the work needs, taken along.
struct Errand<K> {
    context: ErrandContext,
    object: K,
    machine: Machine,
    server: Server,
    purpose: Purpose,
}

/// What is shared with the controller.
#[derive(Clone)]
struct ErrandContext {
    client: kube::Client,
    cloud: Cloud,
    hosts: Arc<dyn Hosts>,
    scripts: Arc<Scripts>,
    services: crate::bootstrap::Services,
    secrets: crate::machine::credentials::Secrets,
}

fn wait(reason: &'static str, message: String) -> Trouble {
    Trouble::Preparation(Problem {
        reason,
        message,
        retry: ASK_AGAIN,
    })
}

impl<K: LinuxKind> Errand<K> {
    async fn run(self, progress: Progress) -> Result<Done, Trouble> {
        let login = self.login().await.map_err(Trouble::Preparation)?;
        if let Purpose::Inspect { overdue } = self.purpose {
            self.ask(login.clone(), overdue).await?;
        }
        progress.step(JOIN, StepState::Running, None);
        let rendered = self.script().await.map_err(Trouble::Preparation)?;
        let ran = self.context.hosts.run(login, rendered.0).await.map_err(Trouble::Host)?;
        Ok(Done {
            fingerprint: Some(ran),
            // The field of a Mac's agent; here what the kubelet is configured with.
            kubelet_sha: Some(rendered.1),
            ..Done::default()
        })
    }

    /// Ok: its own run failed, and the script has to be run.
    async fn ask(&self, login: Login, overdue: bool) -> Result<(), Trouble> {
        let reason = if overdue {
            reasons::linux::JOIN_TIMED_OUT
        } else {
            reasons::linux::WAITING_FOR_NODE
        };
        let told = match self.context.hosts.ask(login).await {
            Ok(told) => told,
            Err(failed) if overdue => {
                return Err(Trouble::Host(Failed {
                    message: format!(
                        "the server did not join in time, and cannot be asked why: {}",
                        failed.message
                    ),
                    ..failed
                }));
            }
            Err(failed) => {
                return Err(wait(
                    reason,
                    format!("the server cannot be asked yet how its join goes: {failed}"),
                ));
            }
        };
        match told.report {
            Some(report) if report.state == JoinState::Failed => Ok(()),
            Some(report) if report.state == JoinState::Done => Err(wait(
                reason,
                "the script is done and the kubelet runs; its Node is waited for".to_owned(),
            )),
            Some(report) => Err(wait(reason, format!("the script is at step {}", report.step))),
            None if overdue => Ok(()),
            None => Err(wait(
                reason,
                "the server is up and has not begun to set itself up".to_owned(),
            )),
        }
    }

    async fn login(&self) -> Result<Login, Problem> {
        let address: Option<IpAddr> = self.server.address;
        let Some(address) = address else {
            return Err(Problem {
                reason: reasons::linux::NO_PUBLIC_ADDRESS,
                message: "the server has no public address".to_owned(),
                retry: ASK_AGAIN,
            });
        };
        let Some(keys) = &self.context.services.keys else {
            return Err(Problem {
                reason: reasons::linux::SSH_KEY_UNAVAILABLE,
                message: "this provider was built without SSH keys".to_owned(),
                retry: LOOK_AGAIN,
            });
        };
        let key = keys.ensure(&key_group(&self.object)).await?;
        let stored = self.context.secrets.read(&self.object, &self.server.id).await;
        let stored = stored.map_err(|error| Problem {
            reason: reasons::linux::BOOTSTRAP_FAILED,
            message: format!("{error}; it is tried again"),
            retry: ASK_AGAIN,
        })?;
        Ok(Login {
            address,
            user: self.server.user.clone(),
            key: key.private,
            pin: stored.and_then(|stored| stored.fingerprint),
        })
    }

    /// The script and the hash of what it configures.
    async fn script(&self) -> Result<(russet_telemetry::Secret<String>, String), Problem> {
        let Some(identities) = &self.context.services.identities else {
            return Err(Problem {
                reason: "NodeIdentityUnavailable",
                message: "this provider was built without identities".to_owned(),
                retry: LOOK_AGAIN,
            });
        };
        let network = self.object.status().private_network_id;
        let attachment = match &network {
            None => None,
            Some(network) => {
                let found = self
                    .context
                    .cloud
                    .attachments(&self.machine.zone, &self.server.id)
                    .await;
                let found = found.map_err(|error| Problem {
                    reason: reasons::linux::PRIVATE_NETWORK_PENDING,
                    message: error.to_string(),
                    retry: ASK_AGAIN,
                })?;
                found.into_iter().find(|it| it.network.as_str() == network)
            }
        };
        let subject = For {
            holder: &self.machine.holder,
            zone: &self.machine.zone,
            server: &self.server.id,
            attachment: attachment.as_ref(),
        };
        let rendered = self
            .context
            .scripts
            .script(&self.context.client, &**identities, &self.object, &subject, Form::Ssh)
            .await?;
        Ok((rendered.script, rendered.config_hash))
    }
}

impl Context {
    pub(super) async fn join<K: LinuxKind>(
        &self,
        object: &K,
        machine: &Machine,
        server: &Server,
    ) -> Result<Outcome, Error> {
        self.errand(object, machine, server, Purpose::Join).await
    }

    pub(super) async fn inspect<K: LinuxKind>(
        &self,
        object: &K,
        machine: &Machine,
        server: &Server,
    ) -> Result<Outcome, Error> {
        let overdue = is_overdue(machine, &self.parts.rules, self.parts.clock.now());
        self.errand(object, machine, server, Purpose::Inspect { overdue }).await
    }

    pub(super) async fn update<K: LinuxKind>(
        &self,
        object: &K,
        machine: &Machine,
        server: &Server,
        _sights: &Sights,
    ) -> Result<Outcome, Error> {
        self.errand(object, machine, server, Purpose::Update).await
    }

    async fn errand<K: LinuxKind>(
        &self,
        object: &K,
        machine: &Machine,
        server: &Server,
        purpose: Purpose,
    ) -> Result<Outcome, Error> {
        let uid = machine.holder.uid.as_str();
        match self.parts.pool.seat(uid, &key(object), &server.id) {
            Seat::Free => {
                let errand = Errand {
                    context: ErrandContext {
                        client: self.client.clone(),
                        cloud: self.parts.cloud.clone(),
                        hosts: Arc::clone(&self.parts.hosts),
                        scripts: Arc::clone(&self.parts.scripts),
                        services: self.parts.services.clone(),
                        secrets: self.secrets.clone(),
                    },
                    object: object.clone(),
                    machine: machine.clone(),
                    server: server.clone(),
                    purpose,
                };
                let work: Work = Box::new(move |progress, stop| {
                    Box::pin(async move {
                        tokio::select! {
                            () = stop.cancelled() => Err(Trouble::Stopped),
                            done = errand.run(progress) => done,
                        }
                    })
                });
                let steps = object.status().steps;
                self.parts.pool.start(uid, &key(object), &server.id, steps, work);
                Ok(Outcome::After(LOOK_AGAIN))
            }
            Seat::Full => Ok(Outcome::After(LOOK_AGAIN)),
            Seat::Running(steps) => {
                let mut draft = self.draft(object);
                draft.status.steps = steps;
                self.write_draft(object, draft).await?;
                Ok(Outcome::After(LOOK_AGAIN))
            }
            Seat::Resting(left) => Ok(Outcome::After(left + Duration::from_millis(50))),
            Seat::Ended(steps, result) => {
                let outcome = match &*result {
                    Ok(done) => self.ran(object, server, steps, done, purpose).await?,
                    Err(trouble) => {
                        self.did_not_run(object, machine, server, steps, trouble, purpose)
                            .await?
                    }
                };
                self.parts.pool.acknowledge(uid);
                Ok(outcome)
            }
        }
    }

    async fn ran<K: LinuxKind>(
        &self,
        object: &K,
        server: &Server,
        steps: Vec<Step>,
        done: &Done,
        purpose: Purpose,
    ) -> Result<Outcome, Error> {
        if let Some(fingerprint) = &done.fingerprint {
            self.secrets.store_fingerprint(object, &server.id, fingerprint).await?;
        }
        let mut draft = self.draft(object);
        draft.status.steps = steps;
        draft.step(JOIN, StepState::Succeeded, None);
        draft.status.kubelet_config_hash.clone_from(&done.kubelet_sha);
        if purpose == Purpose::Update {
            draft.condition(Condition::new(types::UP_TO_DATE, true, reasons::READY));
        }
        self.write_draft(object, draft).await?;
        if purpose == Purpose::Update
            && let Some(hash) = &done.kubelet_sha
        {
            self.patch_node(object, json!({"annotations": {KUBELET_CONFIG_HASH: hash}}))
                .await?;
        }
        Ok(NOW)
    }

    async fn did_not_run<K: LinuxKind>(
        &self,
        object: &K,
        machine: &Machine,
        server: &Server,
        steps: Vec<Step>,
        trouble: &Trouble,
        purpose: Purpose,
    ) -> Result<Outcome, Error> {
        let type_ = if purpose == Purpose::Update {
            types::UP_TO_DATE
        } else {
            types::BOOTSTRAPPED
        };
        let mut draft = self.draft(object);
        draft.status.steps = steps;
        let mut news = None;
        match trouble {
            Trouble::Host(failed) => {
                if let Some(fingerprint) = &failed.fingerprint {
                    self.secrets.store_fingerprint(object, &server.id, fingerprint).await?;
                }
                let attempts = draft.status.bootstrap_attempts.unwrap_or_default().saturating_add(1);
                draft.status.bootstrap_attempts = Some(attempts);
                let overdue = is_overdue(machine, &self.parts.rules, self.parts.clock.now());
                let reason = if overdue && purpose != Purpose::Update {
                    reasons::linux::JOIN_TIMED_OUT
                } else {
                    reasons::linux::BOOTSTRAP_FAILED
                };
                let message = format!(
                    "step {} failed: {} (attempt {attempts}; it is tried again)",
                    failed.step,
                    last_lines(&failed.message)
                );
                draft.step(JOIN, StepState::Failed, Some(format!("step {} failed", failed.step)));
                if let Some(step) = draft.status.steps.iter_mut().find(|step| step.name == JOIN) {
                    step.output_tail = Some(failed.message.chars().take(8000).collect());
                    step.attempts = Some(attempts);
                }
                if purpose != Purpose::Update {
                    draft.status.phase = Some(Phase::Bootstrapping);
                }
                let condition = Condition::new(type_, false, reason).message(message.clone());
                draft.condition(condition.severity(Severity::Warning));
                news = Some((reason, message));
            }
            Trouble::Preparation(problem) => {
                let condition = Condition::new(type_, false, problem.reason).message(problem.message.clone());
                let severity = if problem.reason == reasons::linux::WAITING_FOR_NODE {
                    Severity::Info
                } else {
                    Severity::Warning
                };
                draft.condition(condition.severity(severity));
            }
            Trouble::NoCredentials | Trouble::Stopped => {}
        }
        self.write_draft(object, draft).await?;
        if let Some((reason, message)) = news {
            self.bad_news(object, reason, message).await;
        }
        Ok(NOW)
    }

    /// What the Node cannot say of itself: the Node authorizer lets no kubelet write these.
    pub(super) async fn dress_node<K: LinuxKind>(
        &self,
        object: &K,
        private_address: Option<IpAddr>,
        stamp: bool,
    ) -> Result<Outcome, Error> {
        let mut metadata = serde_json::Map::new();
        if let Some(address) = private_address {
            let address = address.to_string();
            metadata.insert("labels".to_owned(), json!({PN_IPV4: address}));
            let mut draft = self.draft(object);
            draft
                .status
                .addresses
                .retain(|known| known.type_ != AddressType::InternalIp);
            draft.status.addresses.push(MachineAddress {
                type_: AddressType::InternalIp,
                address: address.clone(),
            });
            self.write_draft(object, draft).await?;
        }
        if stamp {
            let hash = object
                .status()
                .kubelet_config_hash
                .unwrap_or_else(|| "unknown".to_owned());
            metadata.insert("annotations".to_owned(), json!({KUBELET_CONFIG_HASH: hash}));
        }
        self.patch_node(object, metadata.into()).await?;
        if let Some(address) = private_address {
            let note = format!("the Node is reached at {address} on the Private Network");
            self.good_news(object, events::PRIVATE_ADDRESS_KNOWN, note).await;
        }
        // The event of the Node brings the next reconcile.
        Ok(Outcome::After(Duration::from_secs(1)))
    }

    async fn patch_node<K: LinuxKind>(&self, object: &K, metadata: serde_json::Value) -> Result<(), Error> {
        let nodes: Api<KubeNode> = Api::all(self.client.clone());
        let params = PatchParams {
            field_manager: Some(MANAGER.to_owned()),
            ..PatchParams::default()
        };
        let patched = nodes
            .patch(
                &object.name_any(),
                &params,
                &Patch::Merge(&json!({"metadata": metadata})),
            )
            .await;
        match patched {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
            Err(error) => Err(Error::kube("label the Node")(error)),
        }
    }
}

fn last_lines(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let from = lines.len().saturating_sub(LINES);
    let kept = lines.get(from..).unwrap_or_default().join("\n");
    let skip = kept.chars().count().saturating_sub(1500);
    kept.chars().skip(skip).collect()
}
