//! What a decision asks to be read.

use std::net::IpAddr;
use std::time::Duration;

use russet_api::values::{ServerId, Zone};
use russet_controller::Outcome;
use russet_scaleway::{Error as ScalewayError, Kind, PrivateNetworkId};
use tokio::time::Instant;

use super::{Context, Error};
use crate::claims::Claims;
use crate::linux::decide::{Machine, Need};
use crate::linux::kind::LinuxKind;
use crate::linux::script::For;
use crate::linux::server::{Attachment, Server};
use crate::linux::situation::{Situation, SpecProblem};
use crate::linux::wanted::{Catalog, NetworkSight};
use crate::surroundings::key;

/// The poll wakes whoever waits for it; this is for the case that it does not.
const POLL_PATIENCE: Duration = Duration::from_secs(30);

/// What was read for one decision.
#[derive(Debug, Default)]
pub(super) struct Sights {
    pub(super) claims: Option<Claims>,
    pub(super) mine: Option<Vec<Server>>,
    pub(super) server: Option<(ServerId, Option<Box<Server>>)>,
    pub(super) attachments: Option<Vec<Attachment>>,
    pub(super) network: Option<NetworkSight>,
    pub(super) catalog: Option<Catalog>,
    #[expect(clippy::option_option, reason = "not looked is not the same as not there")]
    pub(super) private_address: Option<Option<IpAddr>>,
    pub(super) config_hash: Option<String>,
}

pub(super) enum Looked {
    /// Ask again.
    Seen,
    /// It comes later, and the machine is woken.
    Wait(Outcome),
    /// There is nothing to see.
    Rest(Situation),
}

impl Context {
    pub(super) async fn look<K: LinuxKind>(
        &self,
        object: &K,
        machine: &Machine,
        need: Need,
        sights: &mut Sights,
    ) -> Result<Looked, Error> {
        let read = match need {
            Need::Claims => {
                let live = self.parts.claims.live().await;
                sights.claims = Some(live.map_err(Error::kube("list the claims"))?);
                Ok(())
            }
            Need::Inventory => {
                let zone = self.parts.zones.ask(&machine.zone);
                let (known, error) = {
                    let state = zone.read();
                    (state.inventory().is_some(), state.error().cloned())
                };
                if !known {
                    self.parts.zones.wait(&machine.zone, &key(object));
                    return Ok(match error {
                        Some(error) => Looked::Rest(trouble(machine, error)),
                        None => Looked::Wait(Outcome::After(POLL_PATIENCE)),
                    });
                }
                Ok(())
            }
            Need::ConfigHash => return self.look_at_hash(object, machine, sights).await,
            need => self.look_at_scaleway(machine, need, sights).await,
        };
        Ok(match read {
            Ok(()) => Looked::Seen,
            Err(error) => Looked::Rest(trouble(machine, error)),
        })
    }

    async fn look_at_scaleway(&self, machine: &Machine, need: Need, sights: &mut Sights) -> Result<(), ScalewayError> {
        let (cloud, zone) = (&self.parts.cloud, &machine.zone);
        let wanted = machine.wanted.as_ref().ok();
        match need {
            Need::Mine => {
                sights.mine = Some(match self.servers_of(machine).await {
                    // In a zone that does not exist there is nothing to give up.
                    Err(error) if is_unknown_zone(&error) && machine.standing.deleting => Vec::new(),
                    other => other?,
                });
            }
            Need::Server(id) => {
                let found = match self.parts.zones.seen(zone, &id) {
                    Some(seen) => seen,
                    None => self.see(zone, &id).await?,
                };
                sights.server = Some((id, found.map(Box::new)));
            }
            Need::Attachments(id) => sights.attachments = Some(self.attachments(zone, &id).await?),
            Need::Network => {
                let network = wanted.and_then(|wanted| wanted.network.as_ref());
                sights.network = Some(match network {
                    Some(network) => cloud.network(zone, network).await?,
                    None => NetworkSight::Missing,
                });
            }
            Need::Catalog => {
                if let Some(wanted) = wanted {
                    let catalog = cloud.catalog(zone, wanted, machine.server.is_some()).await?;
                    sights.catalog = Some(catalog);
                }
            }
            Need::PrivateAddress(id, network) => {
                sights.private_address = Some(self.private_address(zone, &id, &network).await?);
            }
            Need::Claims | Need::Inventory | Need::ConfigHash => {}
        }
        Ok(())
    }

    /// A server, now.
    pub(super) async fn see(&self, zone: &Zone, id: &ServerId) -> Result<Option<Server>, ScalewayError> {
        let begun = Instant::now();
        let found = self.parts.cloud.see(zone, id).await?;
        self.parts.zones.saw(zone, id, begun, found.as_ref());
        Ok(found)
    }

    /// The servers of a machine, as they were listed since its last call.
    async fn servers_of(&self, machine: &Machine) -> Result<Vec<Server>, ScalewayError> {
        let (zones, uid, begun) = (&self.parts.zones, &machine.holder.uid, Instant::now());
        if let Some(known) = zones.sightings().mine(uid, begun) {
            return Ok(known);
        }
        let found = self.parts.cloud.mine(&machine.zone, uid).await?;
        zones.sightings().saw_mine(uid, begun, &found);
        for server in &found {
            zones.saw(&machine.zone, &server.id, begun, Some(server));
        }
        Ok(found)
    }

    async fn attachments(&self, zone: &Zone, id: &ServerId) -> Result<Vec<Attachment>, ScalewayError> {
        let (zones, begun) = (&self.parts.zones, Instant::now());
        if let Some(known) = zones.sightings().attachments(id, begun) {
            return Ok(known);
        }
        let found = self.parts.cloud.attachments(zone, id).await?;
        Ok(zones.sightings().saw_attachments(id, begun, found))
    }

    async fn private_address(
        &self,
        zone: &Zone,
        id: &ServerId,
        network: &PrivateNetworkId,
    ) -> Result<Option<IpAddr>, ScalewayError> {
        let zones = &self.parts.zones;
        if zones.sightings().is_unaddressed(id, Instant::now()) {
            return Ok(None);
        }
        let attachments = self.attachments(zone, id).await?;
        let found = match attachments.iter().find(|it| it.network == *network) {
            Some(attachment) => self.parts.cloud.private_address(zone, attachment).await?,
            None => None,
        };
        if found.is_none() {
            zones.sightings().saw_no_address(id, Instant::now());
        }
        Ok(found)
    }

    /// Costs nothing but a rendering.
    async fn look_at_hash<K: LinuxKind>(
        &self,
        object: &K,
        machine: &Machine,
        sights: &mut Sights,
    ) -> Result<Looked, Error> {
        let status = object.status();
        let attachment = super::joining::known_attachment(&status);
        let (Some(identities), Some(server)) = (&self.parts.services.identities, &machine.server) else {
            // Without identities nothing was ever rendered.
            sights.config_hash.clone_from(&status.kubelet_config_hash);
            if sights.config_hash.is_none() {
                return Ok(Looked::Rest(Situation::Serving { ready: true }));
            }
            return Ok(Looked::Seen);
        };
        let subject = For {
            holder: &machine.holder,
            zone: &machine.zone,
            server,
            attachment: attachment.as_ref(),
        };
        let hash = self
            .parts
            .scripts
            .config_hash(&self.client, &**identities, object, &subject)
            .await;
        Ok(match hash {
            Ok(hash) => {
                sights.config_hash = Some(hash);
                Looked::Seen
            }
            // A node that serves goes on serving; that its configuration cannot be compared now is no news about it.
            Err(problem) => {
                tracing::warn!(%problem, "the configuration of a node cannot be compared now");
                let ready = matches!(machine.node, crate::linux::decide::Node::Joined { ready: true, .. });
                Looked::Rest(Situation::Serving { ready })
            }
        })
    }
}

/// Whether an error says that there is no such zone: some lists do not exist there, others do not take it.
fn is_unknown_zone(error: &ScalewayError) -> bool {
    match &error.kind {
        Kind::NotFound { .. } => error.endpoint.contains(".list_"),
        Kind::InvalidArguments { details } => details.iter().any(|bad| bad.name == "zone"),
        _ => false,
    }
}

/// What an error of Scaleway's means for a machine.
fn trouble(machine: &Machine, error: ScalewayError) -> Situation {
    if is_unknown_zone(&error) && machine.server.is_none() && machine.provider_server.is_none() {
        return Situation::Spec(SpecProblem::Zone {
            why: format!("there is no zone {} ({error})", machine.zone),
        });
    }
    Situation::Scaleway(Box::new(error))
}
