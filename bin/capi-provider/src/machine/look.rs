//! What a decision asks to be read.

use std::sync::Arc;
use std::time::Duration;

use russet_controller::Outcome;
use russet_scaleway::Error as ScalewayError;
use russet_scaleway::apple_silicon::Server;

use super::{Context, Error, Mac};
use crate::claims::Claims;
use crate::decide::{Machine, Need};
use crate::host::{Image, Sight};
use crate::surroundings::key;

/// The poll wakes whoever waits for it; this is for the case that it does not.
const POLL_PATIENCE: Duration = Duration::from_secs(30);

/// What was read for one decision.
#[derive(Debug, Default)]
pub(super) struct Sights {
    pub(super) claims: Option<Claims>,
    pub(super) inventory: bool,
    pub(super) host: Option<Sight>,
    /// The host with its password, from the same call.
    pub(super) server: Option<Server>,
    pub(super) images: Option<Arc<Vec<Image>>>,
}

pub(super) enum Looked {
    /// Ask again.
    Seen,
    /// It comes later, and the machine is woken.
    Wait(Outcome),
    /// Scaleway said no, or nothing.
    Trouble(Box<ScalewayError>),
}

impl Context {
    pub(super) async fn look(
        &self,
        mac: &Mac,
        machine: &Machine,
        need: Need,
        sights: &mut Sights,
    ) -> Result<Looked, Error> {
        match need {
            Need::Claims => {
                let live = self.parts.claims.live().await;
                sights.claims = Some(live.map_err(Error::kube("list the claims"))?);
            }
            Need::Inventory => {
                let zone = self.parts.inventories.ask(&machine.zone);
                let (known, error) = {
                    let state = zone.read();
                    (state.inventory().is_some(), state.error().cloned())
                };
                if !known {
                    self.parts.inventories.wait(&machine.zone, &key(mac));
                    return Ok(match error {
                        Some(error) => Looked::Trouble(Box::new(error)),
                        None => Looked::Wait(Outcome::After(POLL_PATIENCE)),
                    });
                }
                sights.inventory = true;
            }
            Need::Host(server) => match self.see(machine, &server).await {
                Ok((sight, server)) => {
                    sights.host = Some(sight);
                    sights.server = server;
                }
                Err(error) => return Ok(Looked::Trouble(Box::new(error))),
            },
            Need::Images => {
                let type_ = machine
                    .wanted
                    .as_ref()
                    .map(|wanted| wanted.type_.clone())
                    .unwrap_or_default();
                // The hardware of the host decides what it can run, whatever the spec says by now.
                let type_ = match &sights.host {
                    Some(Sight::There(host)) => host.type_.clone(),
                    _ => type_,
                };
                match self.parts.inventories.images(&machine.zone, &type_).await {
                    Ok(images) => sights.images = Some(images),
                    Err(error) => return Ok(Looked::Trouble(Box::new(error))),
                }
            }
        }
        Ok(Looked::Seen)
    }

    /// Reads one host.
    pub(super) async fn see(
        &self,
        machine: &Machine,
        id: &russet_api::values::ServerId,
    ) -> Result<(Sight, Option<Server>), ScalewayError> {
        self.parts.inventories.see(&machine.zone, id).await
    }
}
