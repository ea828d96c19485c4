//! The one write that was decided on.

use std::time::Duration;

use kube::ResourceExt as _;
use russet_api::conditions::{Condition, Severity, reasons, types};
use russet_api::events::linux as events;
use russet_api::machine::{AddressType, MachineAddress, MachineInitialization, Phase, StepState};
use russet_api::values::{ProviderId, ServerId};
use russet_controller::Outcome;
use tracing::info;

use super::look::Sights;
use super::view::UP;
use super::{Context, Error};
use crate::claims_store::Taken;
use crate::linux::call::Call;
use crate::linux::decide::{Action, Machine};
use crate::linux::journal::Journal;
use crate::linux::kind::LinuxKind;
use crate::linux::server::{Attachment, Server};
use crate::machine::reconcile::NOW;

impl Context {
    pub(super) async fn act<K: LinuxKind>(
        &self,
        object: &K,
        machine: &Machine,
        action: Action,
        sights: &Sights,
    ) -> Result<Outcome, Error> {
        match action {
            Action::AddFinalizer => self.add_finalizer(object).await?,
            Action::TakeClaim { server, id } => {
                let taken = self.parts.claims.take(&server, &machine.holder, &id).await;
                match taken.map_err(Error::kube("create a claim"))? {
                    Taken::Yes => info!(%server, id, "claimed a server"),
                    Taken::Exists => info!(%server, id, "another claim for the server is there"),
                }
                return Ok(NOW);
            }
            Action::DropClaim { server, id } => return self.drop_claim(object, &server, &id).await,
            Action::WriteJournal(journal) => return self.write_journal(object, journal.as_deref()).await,
            Action::RecordServer(server) => self.record_server(object, machine, &server).await?,
            Action::RecordUp { server, attachment } => {
                self.record_up(object, machine, &server, attachment.as_deref()).await?;
            }
            Action::SetProviderId(server) => {
                let id = ProviderId::new(K::PROVIDER, machine.zone.clone(), server);
                self.set_provider_id(object, &id.to_string()).await?;
            }
            Action::MarkProvisioned => {
                let mut draft = self.draft(object);
                draft.status.initialization = Some(MachineInitialization {
                    provisioned: Some(true),
                });
                draft.status.phase = Some(Phase::Bootstrapping);
                draft.condition(Condition::new(types::PROVISIONED, true, reasons::READY));
                self.write_draft(object, draft).await?;
            }
            Action::Join(server) => return self.join(object, machine, &server).await,
            Action::Inspect(server) => return self.inspect(object, machine, &server).await,
            Action::Update(server) => return self.update(object, machine, &server, sights).await,
            Action::DressNode { private_address, stamp } => {
                return self.dress_node(object, private_address, stamp).await;
            }
            Action::MarkJoined => self.mark_joined(object, machine).await?,
            Action::ForgetServer => {
                self.parts.pool.forget(&machine.holder.uid);
                self.secrets.delete(object).await?;
                let mut draft = self.draft(object);
                draft.forget_server();
                self.write_draft(object, draft).await?;
            }
            Action::CleanUp => return self.clean_up(object, machine).await,
            Action::RemoveFinalizer => {
                self.remove_finalizer(object).await?;
                self.gone(object);
                return Ok(Outcome::Done);
            }
        }
        // The write is an event, and that brings the next reconcile; this is for the case that nothing had to be written.
        Ok(Outcome::After(Duration::from_secs(1)))
    }

    async fn drop_claim<K: LinuxKind>(&self, object: &K, server: &ServerId, id: &str) -> Result<Outcome, Error> {
        // A claim that was read after the machine may belong to what the machine does by now.
        let live = self.live(object).await?.and_then(|live| live.resource_version());
        if live != object.resource_version() {
            return Ok(Outcome::After(Duration::from_millis(200)));
        }
        let removed = self.parts.claims.remove(server, id).await;
        removed.map_err(Error::kube("remove a claim"))?;
        info!(%server, id, "dropped a claim");
        Ok(NOW)
    }

    async fn write_journal<K: LinuxKind>(&self, object: &K, journal: Option<&Journal>) -> Result<Outcome, Error> {
        let held = match journal {
            Some(_) => self.hold_move(object).await?,
            None => object.clone(),
        };
        let mut draft = self.draft(&held);
        draft.journal(journal);
        self.write_draft(&held, draft).await?;
        Ok(Outcome::After(Duration::from_secs(1)))
    }

    async fn record_server<K: LinuxKind>(&self, object: &K, machine: &Machine, server: &ServerId) -> Result<(), Error> {
        let mut draft = self.draft(object);
        if draft.status.server_id.as_deref() != Some(server.as_str()) {
            draft.forget_server();
        }
        draft.status.server_id = Some(server.to_string());
        // By a call whose answer was lost; from now on it is waited for.
        draft.step(Call::Create.step(), StepState::Succeeded, None);
        draft.status.failure_domain = Some(machine.zone.to_string());
        draft.status.intent = None;
        draft.status.phase = Some(Phase::Provisioning);
        draft.condition(
            Condition::new(types::PROVISIONED, false, reasons::IN_PROGRESS)
                .message("the server exists and is being prepared")
                .severity(Severity::Info),
        );
        self.write_draft(object, draft).await.map(drop)
    }

    async fn record_up<K: LinuxKind>(
        &self,
        object: &K,
        machine: &Machine,
        server: &Server,
        attachment: Option<&Attachment>,
    ) -> Result<(), Error> {
        let mut draft = self.draft(object);
        draft.status.failure_domain = Some(machine.zone.to_string());
        draft.status.addresses = server
            .address
            .iter()
            .map(|address| MachineAddress {
                type_: AddressType::ExternalIp,
                address: address.to_string(),
            })
            .collect();
        draft.status.private_network_id = attachment.map(|it| it.network.to_string());
        draft.status.private_network_vlan = attachment
            .and_then(|it| it.vlan)
            .and_then(|vlan| i32::try_from(vlan).ok());
        draft.step(UP, StepState::Succeeded, None);
        draft.status.phase = Some(Phase::Bootstrapping);
        draft.condition(
            Condition::new(types::BOOTSTRAPPED, false, reasons::linux::WAITING_FOR_NODE)
                .message("the server is up and sets itself up; its Node comes when the kubelet has started")
                .severity(Severity::Info),
        );
        self.write_draft(object, draft).await.map(drop)
    }

    async fn mark_joined<K: LinuxKind>(&self, object: &K, machine: &Machine) -> Result<(), Error> {
        let mut draft = self.draft(object);
        draft.status.bootstrap_attempts = None;
        draft.status.failure_reason = None;
        draft.status.failure_message = None;
        draft.step(super::view::JOIN, StepState::Succeeded, None);
        draft.condition(Condition::new(types::PROVISIONED, true, reasons::READY));
        draft.condition(Condition::new(types::BOOTSTRAPPED, true, reasons::READY));
        draft.condition(node_ready(&machine.node));
        self.write_draft(object, draft).await?;
        let note = format!("Node {} joined", object.name_any());
        self.good_news(object, events::JOINED, note).await;
        Ok(())
    }
}

/// Whether the Node is there and well.
pub(super) fn node_ready(node: &crate::linux::decide::Node) -> Condition {
    use crate::linux::decide::Node;
    match node {
        Node::Joined { ready: true, .. } => Condition::new(types::NODE_READY, true, reasons::READY),
        Node::Joined { .. } => Condition::new(types::NODE_READY, false, reasons::NOT_READY)
            .message("the Node is not Ready; look at its conditions and at the log of the kubelet")
            .severity(Severity::Warning),
        Node::Missing | Node::Foreign { .. } => Condition::new(types::NODE_READY, false, reasons::linux::NODE_MISSING)
            .message("there is no Node of this name")
            .severity(Severity::Warning),
    }
}
