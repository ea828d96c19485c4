//! The one write that was decided on.

use std::time::Duration;

use russet_api::conditions::{Condition, Severity, reasons, types};
use russet_api::events::apple_silicon as events;
use russet_api::machine::{AddressType, MachineAddress, MachineInitialization, Phase};
use russet_api::values::ServerId;
use russet_controller::Outcome;
use russet_scaleway::apple_silicon::Password;
use tracing::{info, warn};

use super::bootstrapping::provider_id;
use super::look::Sights;
use super::reconcile::NOW;
use super::view::key_group;
use super::write::is_move_blocked;
use super::{Context, Error, Mac};
use crate::bootstrap::Problem;
use crate::candidates::Wanted;
use crate::claims_store::Taken;
use crate::decide::{Action, Machine};
use crate::host::Host;
use crate::journal::{Journal, Work};
use crate::situation::{Report, Retry, Situation};

impl Context {
    pub(super) async fn act(
        &self,
        mac: &Mac,
        machine: &Machine,
        action: Action,
        sights: &Sights,
    ) -> Result<Outcome, Error> {
        match action {
            Action::AddFinalizer => self.add_finalizer(mac).await?,
            Action::TakeClaim { server, id } => return self.take_claim(mac, machine, &server, &id).await,
            Action::DropClaim { server, id } => return self.drop_claim(mac, &server, &id).await,
            Action::WriteJournal(journal) => return self.write_journal(mac, machine, journal.as_deref()).await,
            Action::RecordHost(host) => self.record_host(mac, machine, &host).await?,
            Action::StoreCredentials(server) => return self.fetch_credentials(mac, machine, &server, sights).await,
            Action::Bootstrap(host) => return self.bootstrap(mac, machine, &host).await,
            Action::NoteReboot => {
                let mut draft = self.draft(mac);
                draft.journal(None);
                draft.status.bootstrap_reboot_issued = Some(true);
                self.write_draft(mac, draft).await?;
            }
            Action::SetProviderId(server) => {
                self.set_provider_id(mac, &provider_id(machine, &server).to_string())
                    .await?;
            }
            Action::MarkProvisioned => self.mark_provisioned(mac).await?,
            Action::ForgetHost => {
                self.parts.pool.forget(&machine.holder.uid);
                self.secrets.delete(mac).await?;
                let mut draft = self.draft(mac);
                draft.forget_host();
                self.write_draft(mac, draft).await?;
            }
            Action::CleanUp => return self.clean_up(mac, machine).await,
            Action::RemoveFinalizer => {
                self.remove_finalizer(mac).await?;
                self.gone(mac);
                return Ok(Outcome::Done);
            }
        }
        // The write is an event, and that brings the next reconcile; this is for the case that nothing had to be written.
        Ok(Outcome::After(Duration::from_secs(1)))
    }

    async fn take_claim(&self, mac: &Mac, machine: &Machine, server: &ServerId, id: &str) -> Result<Outcome, Error> {
        // Only a machine that has no host spends more than before.
        let adopting = machine.server.is_none() && machine.provider_server.is_none();
        let counted = self.parts.budget.counting().await;
        if let (true, Ok(wanted)) = (adopting, &machine.wanted)
            && let Err(report) = self.afford(machine, wanted).await
        {
            drop(counted);
            let retry = report.retry;
            self.report(mac, machine, *report).await?;
            return Ok(match retry {
                Retry::After(delay) => Outcome::After(delay),
                _ => Outcome::Done,
            });
        }
        let taken = self.parts.claims.take(server, &machine.holder, id).await;
        match taken.map_err(Error::kube("create a claim"))? {
            Taken::Yes => info!(%server, id, "claimed a host"),
            Taken::Exists => info!(%server, id, "another claim for the host is there"),
        }
        Ok(NOW)
    }

    /// Whether another host may be taken into use; else what to say.
    async fn afford(&self, machine: &Machine, wanted: &Wanted) -> Result<(), Box<Report>> {
        let (budget, zone, type_) = (&self.parts.budget, &machine.zone, &wanted.type_);
        let verdict = budget.check(zone, type_, budget.price(zone, type_)).await;
        verdict.map_err(|message| {
            Box::new(Report {
                phase: Some(Phase::Pending),
                condition: Condition::new(types::PROVISIONED, false, crate::spend::SPEND_CAP_REACHED)
                    .message(message)
                    .severity(Severity::Warning),
                retry: Retry::After(Duration::from_mins(1)),
            })
        })
    }

    async fn drop_claim(&self, mac: &Mac, server: &ServerId, id: &str) -> Result<Outcome, Error> {
        // A claim that was read after the machine may belong to what the machine does by now.
        if self.live_version(mac).await? != mac.metadata.resource_version {
            return Ok(Outcome::After(Duration::from_millis(200)));
        }
        let removed = self.parts.claims.remove(server, id).await;
        removed.map_err(Error::kube("remove a claim"))?;
        info!(%server, id, "dropped a claim");
        Ok(NOW)
    }

    async fn write_journal(&self, mac: &Mac, machine: &Machine, journal: Option<&Journal>) -> Result<Outcome, Error> {
        if let Some(journal) = journal {
            if !is_move_blocked(mac) {
                self.block_move(mac).await?;
                return Ok(NOW);
            }
            if machine.journal.is_none()
                && matches!(journal.work, Work::Claim(_))
                && let Err(report) = self.ready_to_claim(mac, machine).await
            {
                self.report(mac, machine, *report).await?;
                return Ok(Outcome::After(Duration::from_secs(30)));
            }
        }
        let mut draft = self.draft(mac);
        draft.journal(journal);
        self.write_draft(mac, draft).await?;
        if let Some(journal) = journal {
            self.tell_end(mac, machine, journal).await;
        }
        Ok(Outcome::After(Duration::from_secs(1)))
    }

    /// Before a host is chosen: Scaleway puts keys on hosts only when they are installed, and money is short.
    async fn ready_to_claim(&self, mac: &Mac, machine: &Machine) -> Result<(), Box<Report>> {
        if let Ok(wanted) = &machine.wanted {
            self.afford(machine, wanted).await?;
        }
        let Some(keys) = &self.parts.services.keys else {
            return Ok(());
        };
        let group = key_group(mac);
        if self.memory.has_key(&group) {
            return Ok(());
        }
        match keys.ensure(&group).await {
            Ok(_) => {
                self.memory.key_ensured(&group);
                Ok(())
            }
            Err(Problem { reason, message, retry }) => Err(Box::new(Report {
                phase: Some(Phase::Pending),
                condition: Condition::new(types::PROVISIONED, false, reason)
                    .message(message)
                    .severity(Severity::Error),
                retry: Retry::After(retry),
            })),
        }
    }

    /// Says how the return of a host ended.
    async fn tell_end(&self, mac: &Mac, machine: &Machine, journal: &Journal) {
        let releasing = matches!(
            machine.journal.as_ref().map(|before| &before.work),
            Some(Work::Release(_))
        );
        if !matches!(journal.work, Work::Over) || (machine.journal.is_some() && !releasing) {
            return;
        }
        let why = journal.message.clone().unwrap_or_default();
        let note = format!("host {}: {why}", journal.server);
        if releasing && why.ends_with("is in the pool") {
            self.good_news(mac, events::RELEASED, note).await;
        } else {
            warn!(server = %journal.server, why, "the host is not given back");
            self.bad_news(mac, events::RELEASE_SKIPPED, note).await;
        }
    }

    async fn record_host(&self, mac: &Mac, machine: &Machine, host: &Host) -> Result<(), Error> {
        let mut draft = self.draft(mac);
        draft.forget_host();
        draft.status.server_id = Some(host.id.to_string());
        draft.status.failure_domain = Some(machine.zone.to_string());
        draft.status.addresses = host
            .address
            .iter()
            .map(|address| MachineAddress {
                type_: AddressType::ExternalIp,
                address: address.to_string(),
            })
            .collect();
        draft.status.phase = Some(Phase::Bootstrapping);
        draft.condition(Condition::new(types::PROVISIONED, true, reasons::READY));
        draft.condition(
            Condition::new(types::BOOTSTRAPPED, false, reasons::IN_PROGRESS)
                .message("the host is being set up")
                .severity(Severity::Info),
        );
        self.write_draft(mac, draft).await?;
        if let Some(journal) = &machine.journal {
            let took = self.parts.clock.now().duration_since(journal.started_at);
            self.parts.metrics.adopted(took.try_into().unwrap_or_default());
        }
        let note = format!("host {} of type {} in {} is ours", host.id, host.type_, machine.zone);
        self.good_news(mac, events::ADOPTED, note).await;
        Ok(())
    }

    pub(super) async fn fetch_credentials(
        &self,
        mac: &Mac,
        machine: &Machine,
        server: &ServerId,
        sights: &Sights,
    ) -> Result<Outcome, Error> {
        let seen = match &sights.server {
            Some(seen) if seen.id == *server => Some(seen.clone()),
            _ => match self.see(machine, server).await {
                Ok((_, seen)) => seen,
                Err(error) => return self.rest(mac, machine, &Situation::Scaleway(Box::new(error))).await,
            },
        };
        let Some(seen) = seen else {
            return self.rest(mac, machine, &Situation::HostGone).await;
        };
        let Password::Known(password) = seen.password() else {
            return self.rest(mac, machine, &Situation::MissingPassword).await;
        };
        self.secrets.store(mac, server, &seen.ssh_username, &password).await?;
        self.note_credentials(mac).await?;
        Ok(NOW)
    }

    async fn mark_provisioned(&self, mac: &Mac) -> Result<(), Error> {
        let mut draft = self.draft(mac);
        draft.status.initialization = Some(MachineInitialization {
            provisioned: Some(true),
        });
        draft.status.ready = Some(true);
        draft.status.phase = Some(Phase::Ready);
        draft.condition(Condition::new(types::PROVISIONED, true, reasons::READY));
        draft.condition(self.node_ready(mac));
        self.write_draft(mac, draft).await.map(drop)
    }
}
