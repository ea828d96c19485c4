//! One call to Scaleway, as [`crate::flight`] asks for it.

use std::time::Duration;

use jiff::Timestamp;
use kube::ResourceExt as _;
use russet_api::conditions::{Condition, Severity, types};
use russet_api::events::linux as events;
use russet_api::machine::{Phase, StepState};
use russet_api::values::ServerId;
use russet_bootstrap::linux::Form;
use russet_controller::Outcome;
use tokio::time::Instant;
use tracing::{info, warn};

use super::look::Sights;
use super::status::Draft;
use super::{Context, Error};
use crate::bootstrap::Problem;
use crate::clock::left;
use crate::flight::{Crew, fly};
use crate::journal::later;
use crate::linux::call::{Call, Sight, Target};
use crate::linux::cloud::{Payload, Sent, Shown};
use crate::linux::decide::Machine;
use crate::linux::journal::Journal;
use crate::linux::kind::{LinuxKind, key_group};
use crate::linux::plan::{Answer, Done, Ending, Plan};
use crate::linux::script::{For, Scripts};
use crate::linux::server::{Attachment, TAG, machine_tag};
use crate::linux::wanted::NetworkSight;
use crate::machine::reconcile::NOW;

/// What a call says, and what is noted when it was done.
struct Prepared {
    payload: Payload,
    config_hash: Option<String>,
}

impl Context {
    pub(super) async fn fly<K: LinuxKind>(
        &self,
        object: &K,
        machine: &Machine,
        plan: Plan,
        sights: &Sights,
    ) -> Result<Outcome, Error> {
        let object = &self.hold_move(object).await?;
        // Whatever may take long, or fail, comes before the attempt is written down.
        let prepared = match self.prepare(object, machine, &plan, sights).await {
            Ok(prepared) => prepared,
            Err(problem) => return self.not_ready(object, problem).await,
        };
        let spends = matches!(plan.call, Call::Create | Call::Tag);
        let _counted = if spends {
            self.parts.budget.counting().await
        } else {
            None
        };
        if spends && let Err(message) = self.afford(machine).await {
            let reached = Problem {
                reason: crate::spend::SPEND_CAP_REACHED,
                message,
                retry: Duration::from_mins(1),
            };
            return self.not_ready(object, reached).await;
        }
        let rules = &self.parts.rules.calls;
        let mut pilot = Pilot {
            context: self,
            machine,
            live: object.clone(),
            // What was seen some seconds ago will do only where being wrong does no harm.
            may_remember: plan.call.is_safe_to_repeat(),
            attachments: sights.attachments.as_deref().unwrap_or_default(),
            prepared: &prepared,
            send_by: later(later(plan.at, rules.send_within), self.parts.call_timeout),
        };
        fly(plan, rules, self.parts.clock.as_ref(), &mut pilot).await?;
        Ok(NOW)
    }

    /// A server that was ordered counts before lists have it.
    async fn spent(&self, machine: &Machine, answer: &Answer) {
        if let (true, Answer::Done { made: Some(server) }, Ok(wanted)) =
            (self.parts.budget.is_capped(), answer, &machine.wanted)
        {
            let price = self.parts.tally.price(&machine.zone, &wanted.type_).await;
            self.parts.tally.ordered(server, price);
        }
    }

    fn count(&self, call: &Call, answer: &Answer) {
        let outcome = match answer {
            Answer::Done { .. } => "done",
            Answer::NotDone { .. } => "refused",
            Answer::Unknown => "unknown",
        };
        self.parts
            .metrics
            .call(self.parts.cloud.product(), call.step(), outcome);
    }

    async fn guard(&self, machine: &Machine, target: &Target) -> Result<Sight, russet_scaleway::Error> {
        let cloud = &self.parts.cloud;
        Ok(match target {
            Target::Mine => Sight::Mine(cloud.mine(&machine.zone, &machine.holder.uid).await?),
            Target::Server(id) => Sight::Server(self.see(&machine.zone, id).await?.map(Box::new)),
            Target::Network => {
                let network = machine.wanted.as_ref().ok().and_then(|wanted| wanted.network.as_ref());
                match network {
                    None => Sight::Network(true),
                    Some(network) => {
                        let seen = cloud.network(&machine.zone, network).await?;
                        Sight::Network(seen != NetworkSight::Missing)
                    }
                }
            }
            Target::Nothing => Sight::Nothing,
        })
    }

    /// What a call needs besides what was decided.
    async fn prepare<K: LinuxKind>(
        &self,
        object: &K,
        machine: &Machine,
        plan: &Plan,
        sights: &Sights,
    ) -> Result<Prepared, Problem> {
        let mut prepared = Prepared {
            payload: Payload {
                name: object.name_any(),
                wanted: machine.wanted.as_ref().ok().cloned(),
                tags: vec![
                    TAG.to_owned(),
                    machine_tag(&machine.holder.uid),
                    format!("{}={}", K::TAG, object.name_any()),
                ],
                keys: Vec::new(),
                user_data: None,
            },
            config_hash: None,
        };
        // Scaleway puts keys on servers only when they are made or installed.
        if matches!(plan.call, Call::Create | Call::Tag | Call::Install | Call::Wipe)
            && let Some(keys) = &self.parts.services.keys
        {
            let key = keys.ensure(&key_group(object)).await?;
            prepared.payload.keys = key.id.into_iter().collect();
        }
        if plan.call == Call::GiveUserData
            && let (Target::Server(server), Some(identities)) = (&plan.target, &self.parts.services.identities)
        {
            let network = match &sights.network {
                Some(NetworkSight::Found(id)) => Some(id),
                _ => None,
            };
            let mut attachments = sights.attachments.iter().flatten();
            let attachment = attachments.find(|it| Some(&it.network) == network);
            let subject = For {
                holder: &machine.holder,
                zone: &machine.zone,
                server,
                attachment,
            };
            let scripts = &self.parts.scripts;
            let rendered = scripts
                .script(&self.client, &**identities, object, &subject, Form::CloudInit)
                .await?;
            prepared.payload.user_data = Some(Scripts::user_data(&rendered));
            prepared.config_hash = Some(rendered.config_hash);
        }
        Ok(prepared)
    }

    async fn not_ready<K: LinuxKind>(&self, object: &K, problem: Problem) -> Result<Outcome, Error> {
        let mut draft = self.draft(object);
        let deleting = object.meta().deletion_timestamp.is_some();
        let concern = if deleting { types::DELETING } else { types::PROVISIONED };
        if !deleting {
            draft.status.phase = Some(match draft.status.server_id {
                Some(_) => Phase::Provisioning,
                None => Phase::Pending,
            });
        }
        draft.condition(
            Condition::new(concern, false, problem.reason)
                .message(problem.message)
                .severity(Severity::Warning),
        );
        self.write_draft(object, draft).await?;
        Ok(Outcome::After(problem.retry.min(self.parts.slowest_retry)))
    }

    /// Whether another server may be ordered; else a sentence.
    async fn afford(&self, machine: &Machine) -> Result<(), String> {
        let Ok(wanted) = &machine.wanted else { return Ok(()) };
        let (parts, type_) = (&self.parts, &wanted.type_);
        let price = if parts.budget.is_capped() {
            parts.tally.price(&machine.zone, type_).await
        } else {
            None
        };
        parts.budget.check(&machine.zone, type_, price).await
    }

    /// Writes what became of an attempt, unless another attempt is stored by now.
    async fn settle<K: LinuxKind>(
        &self,
        live: &K,
        attempt: &str,
        ending: &Ending,
        prepared: &Prepared,
    ) -> Result<(), Error> {
        let mut live = live.clone();
        loop {
            let stored = live.status().intent;
            let stored = stored.and_then(|intent| Journal::try_from(&intent).ok());
            if stored
                .and_then(|journal| journal.attempt)
                .is_none_or(|stored| stored.id != attempt)
            {
                return Ok(());
            }
            let mut draft = self.draft(&live);
            draft.journal(ending.journal.as_ref());
            if let Some(done) = &ending.done {
                note(&mut draft, done, prepared);
            }
            match self.write_draft(&live, draft).await {
                Err(error) if error.is_conflict() => match self.live(&live).await? {
                    Some(newer) => live = newer,
                    None => return Ok(()),
                },
                other => return other.map(drop),
            }
        }
    }

    async fn tell_done<K: LinuxKind>(&self, object: &K, ending: &Ending) {
        let Some(Done { call, server }) = &ending.done else {
            return;
        };
        let id = server.as_ref().map(ToString::to_string).unwrap_or_default();
        match call {
            Call::Create if K::PRODUCT == crate::linux::server::Product::Metal => {
                self.good_news(object, events::ORDERED, format!("ordered server {id}"))
                    .await;
            }
            Call::Create => {
                self.good_news(object, events::CREATED, format!("created server {id}"))
                    .await;
            }
            Call::Tag => {
                self.good_news(object, events::CREATED, format!("took server {id}"))
                    .await;
            }
            Call::Install => {
                let note = "its operating system is being installed".to_owned();
                self.good_news(object, events::INSTALLING, note).await;
            }
            Call::Delete => {
                self.good_news(object, events::DELETED, "the server is deleted".to_owned())
                    .await;
            }
            Call::Untag => {
                let note = "the server was wiped and is free again".to_owned();
                self.good_news(object, events::DELETED, note).await;
            }
            _ => {}
        }
    }
}

/// Does for one machine what a flight asks for.
struct Pilot<'a, K> {
    context: &'a Context,
    machine: &'a Machine,
    live: K,
    may_remember: bool,
    /// As they were when it was decided.
    attachments: &'a [Attachment],
    prepared: &'a Prepared,
    send_by: Timestamp,
}

impl<K> Pilot<'_, K> {
    /// What was seen before this call does not hold any more.
    fn calls(&self, server: Option<&ServerId>, call: &Call) {
        let mut sightings = self.context.parts.zones.sightings();
        sightings.called(&self.machine.holder.uid, server, Instant::now());
        if let (Some(id), Call::Attach(_) | Call::Detach(_)) = (server, call) {
            sightings.forget_attachments(id);
        }
    }

    /// An answer is as good as a look.
    fn remember(&self, server: Option<&ServerId>, call: &Call, answer: &Answer, shown: Shown) {
        let (zones, now) = (&self.context.parts.zones, Instant::now());
        if let Some(shown) = &shown.server {
            zones.saw(&self.machine.zone, &shown.id, now, Some(shown));
            if *call == Call::Create {
                zones.sightings().saw_attachments(&shown.id, now, Vec::new());
            }
        }
        let (Some(id), Answer::Done { .. }) = (server, answer) else {
            return;
        };
        let mut attachments = self.attachments.to_vec();
        match (call, shown.attachment) {
            (Call::Attach(_), Some(made)) => {
                attachments.retain(|known| known.id != made.id);
                attachments.push(made);
            }
            (Call::Detach(gone), _) => {
                let ended = |it: &&Attachment| it.id == *gone || it.network.as_str() == gone;
                for attachment in self.attachments.iter().filter(ended) {
                    zones.sightings().ended(id, &attachment.id, now);
                }
            }
            _ => return,
        }
        zones.sightings().saw_attachments(id, now, attachments);
    }
}

impl<K: LinuxKind> Crew<Plan> for Pilot<'_, K> {
    type Error = Error;

    async fn write(&mut self, journal: &Journal) -> Result<bool, Error> {
        let mut draft = self.context.draft(&self.live);
        draft.journal(Some(journal));
        // The attempt has an id of its own, so there is always something to write.
        let Some(written) = self.context.write_draft(&self.live, draft).await? else {
            return Ok(false);
        };
        self.live = written;
        Ok(true)
    }

    async fn look(&mut self, target: &Target) -> Option<Sight> {
        if let (true, Target::Server(id)) = (self.may_remember, target)
            && let Some(seen) = self.context.parts.zones.seen(&self.machine.zone, id)
        {
            return Some(Sight::Server(seen.map(Box::new)));
        }
        let sight = self.context.guard(self.machine, target).await;
        if let Err(error) = &sight {
            warn!(?target, %error, "nothing could be seen right before a call; nothing is sent");
        }
        sight.ok()
    }

    async fn send(&mut self, target: &Target, call: &Call) -> Answer {
        let server = match target {
            Target::Server(id) => Some(id),
            _ => None,
        };
        let (parts, zone) = (&self.context.parts, &self.machine.zone);
        let payload = &self.prepared.payload;
        self.calls(server, call);
        let within = left(self.send_by, parts.clock.now());
        let Sent { answer, shown } = parts
            .cloud
            .send(zone, server, call, payload, within, parts.slowest_retry)
            .await;
        self.calls(server, call);
        self.remember(server, call, &answer, shown);
        info!(machine = %self.live.name_any(), step = call.step(), ?target, ?answer, "called Scaleway");
        self.context.count(call, &answer);
        self.context.spent(self.machine, &answer).await;
        answer
    }

    async fn settle(&mut self, attempt: &str, ending: &Ending) -> Result<(), Error> {
        let context = self.context;
        context.settle(&self.live, attempt, ending, self.prepared).await?;
        context.tell_done(&self.live, ending).await;
        Ok(())
    }
}

/// What a call that ended well leaves in the status.
fn note(draft: &mut Draft, done: &Done, prepared: &Prepared) {
    draft.step(done.call.step(), StepState::Succeeded, None);
    match done.call {
        Call::Create | Call::Tag => {
            draft.status.server_id = done.server.as_ref().map(ToString::to_string);
        }
        Call::GiveUserData => draft.status.kubelet_config_hash.clone_from(&prepared.config_hash),
        _ => {}
    }
}
