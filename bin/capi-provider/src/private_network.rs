//! The private network of caches: a host is put on it, and told its VLAN.
//!
//! Nothing here is paid or lost: a call that was made twice is refused the second time, so a crash between two calls costs nothing.

use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use russet_api::conditions::reasons;
use russet_api::values::{ServerId, Zone};
use russet_scaleway::apple_silicon::VpcStatus;
use russet_scaleway::{Client, Error};

use crate::bootstrap::{Networks, Problem};

const SOON: Duration = Duration::from_secs(5);
const LATER: Duration = Duration::from_mins(1);

/// The private network of this name, in the region of each host.
#[derive(Clone, Debug)]
pub struct PrivateNetwork {
    client: Client,
    name: String,
}

fn pending(message: impl Into<String>, retry: Duration) -> Problem {
    Problem {
        reason: reasons::linux::PRIVATE_NETWORK_PENDING,
        message: message.into(),
        retry,
    }
}

fn failed(what: &'static str) -> impl FnOnce(Error) -> Problem {
    move |error| pending(format!("failed to {what}: {error}"), LATER)
}

impl PrivateNetwork {
    /// None where hosts are on none.
    pub fn new(client: Client, name: &str) -> Option<Self> {
        let name = name.trim();
        (!name.is_empty()).then(|| Self {
            client,
            name: name.to_owned(),
        })
    }

    async fn find(&self, zone: &Zone, server: &ServerId) -> Result<u16, Problem> {
        let (client, name, region) = (&self.client, &self.name, zone.region());
        let found = client
            .find_private_network(&region, name)
            .await
            .map_err(failed("find the private network"))?;
        let Some(network) = found else {
            let message =
                format!("there is no private network {name:?} in {region}; make it, or see --vm-cache-pn-name");
            return Err(pending(message, LATER));
        };
        let attachments = client
            .list_mac_attachments(zone, server)
            .await
            .map_err(failed("read the private networks of the host"))?;
        if let Some(there) = attachments.iter().find(|there| there.private_network_id == network.id) {
            let vlan = there.vlan.and_then(|vlan| u16::try_from(vlan).ok());
            let message = format!("the host is being put on the private network {name}; its VLAN is not known yet");
            return vlan.ok_or_else(|| pending(message, SOON));
        }
        let mac = client.get_mac(zone, server).await.map_err(failed("read the host"))?;
        match mac.vpc_status {
            VpcStatus::Enabled => {
                client
                    .attach_mac(zone, server, &network.id)
                    .await
                    .map_err(failed("put the host on the private network"))?;
                Err(pending(
                    format!("the host is being put on the private network {name}"),
                    SOON,
                ))
            }
            VpcStatus::Disabled => {
                client
                    .set_mac_vpc(zone, server, true)
                    .await
                    .map_err(failed("switch private networks of the host on"))?;
                Err(pending("private networks of the host are being switched on", SOON))
            }
            _ => Err(pending("private networks of the host are being switched on", SOON)),
        }
    }
}

impl Networks for PrivateNetwork {
    fn vlan<'a>(&'a self, zone: &'a Zone, server: &'a ServerId) -> BoxFuture<'a, Result<u16, Problem>> {
        self.find(zone, server).boxed()
    }
}
