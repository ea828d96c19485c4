//! What an Elastic Metal server is installed with.

use std::time::Duration;

use russet_api::values::{ServerId, Zone};
use russet_scaleway::baremetal::{Install, Schema};
use russet_scaleway::{OfferId, OsId};

use super::partitions::plan;
use super::send::{Payload, Trouble};
use super::{Cloud, Offered, keep, kept_for};

/// How the disks of an offer are divided changes with its operating system, whose id changes then.
const DIVIDED_FOR: Duration = Duration::from_hours(1);

impl Cloud {
    /// What is installed, on a server that is new or that is wiped. A wiped one gets what it had if the spec cannot be followed.
    pub(super) async fn installation(
        &self,
        zone: &Zone,
        id: &ServerId,
        payload: &Payload,
        again: bool,
    ) -> Result<Install, Trouble> {
        let before = if again {
            let server = self.client().metal_server(zone, id).await?;
            let install = server.install.as_ref().map(|install| install.os_id.clone());
            install.map(|os| (os, server.offer_id))
        } else {
            None
        };
        let offered = match &payload.wanted {
            Some(wanted) => Some(self.offered(zone, wanted).await?),
            None => None,
        };
        let (os, offer, divides) = match (before, offered) {
            (
                before,
                Some(Offered::Metal {
                    os, offer, partitions, ..
                }),
            ) => (before.map_or(os, |(had, _)| had), offer, partitions),
            (Some((os, offer)), _) => (os, offer, false),
            (None, _) => {
                let why = "its operating system is not offered any more; name another in a new template";
                return Err(Trouble::Ours("ImageUnavailable", why.to_owned()));
            }
        };
        let partitions = if self.0.local_data && divides {
            self.partitions(zone, &offer, &os).await?
        } else {
            None
        };
        Ok(Install {
            os,
            hostname: payload.name.clone(),
            ssh_keys: payload.keys.clone(),
            login: None,
            partitions,
        })
    }

    async fn partitions(&self, zone: &Zone, offer: &OfferId, os: &OsId) -> Result<Option<Schema>, Trouble> {
        let client = self.client();
        let key = (zone.clone(), offer.clone(), os.clone());
        if let Some(schema) = kept_for(&self.0.schemas, &key, |_| DIVIDED_FOR) {
            return Ok(Some(schema));
        }
        let default = client.default_metal_partitions(zone, offer, os).await?;
        match plan(&default) {
            Ok(schema) => {
                client.validate_metal_partitions(zone, offer, os, &schema).await?;
                keep(&self.0.schemas, key, schema.clone());
                Ok(Some(schema))
            }
            Err(why) => {
                let why = format!(
                    "the disks of this offer cannot be divided for the cache: {why}; choose another offer, or set --linux-local-data=false"
                );
                Err(Trouble::Ours("InstallFailed", why))
            }
        }
    }
}
