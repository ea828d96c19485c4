//! Calls that change something, each sent once.

use std::time::Duration;

use russet_api::values::{ServerId, Zone};
use russet_scaleway::baremetal::{self, OrderMetal, UpdateMetal};
use russet_scaleway::error::EffectKnown;
use russet_scaleway::instance::{Action, CLOUD_INIT, CreateInstance, RootVolume, VolumeType};
use russet_scaleway::{Error, Kind, SshKeyId};
use russet_telemetry::Secret;
use tracing::warn;

use super::{Cloud, Offered, model};
use crate::linux::call::Call;
use crate::linux::plan::Answer;
use crate::linux::server::{
    ADOPTED_TAG, Attachment, MACHINE_TAG, NETWORKING_TAG, Product, Server, TAG, Volume, VolumeKind,
};
use crate::linux::situation::retry_after;
use crate::linux::wanted::{Network, Wanted};

/// What a call says besides what it is.
#[derive(Clone, Debug)]
pub struct Payload {
    /// Name of the machine, and of its server.
    pub name: String,
    /// What the machine wants.
    pub wanted: Option<Wanted>,
    /// Tags of its server.
    pub tags: Vec<String>,
    /// Who may log in.
    pub keys: Vec<SshKeyId>,
    /// The script of the first boot.
    pub user_data: Option<Secret<String>>,
}

/// What became of a call, and what its answer showed.
#[derive(Clone, Debug)]
pub struct Sent {
    /// What became of it.
    pub answer: Answer,
    /// What was shown.
    pub shown: Shown,
}

/// What the answer to a call showed, as good as a look.
#[derive(Clone, Debug, Default)]
pub struct Shown {
    /// The server.
    pub server: Option<Server>,
    /// Its new place on a network.
    pub attachment: Option<Attachment>,
}

impl Shown {
    fn server(server: Server) -> Self {
        Self {
            server: Some(server),
            attachment: None,
        }
    }

    fn metal(server: &baremetal::Server) -> Self {
        Self::server(model::metal(server))
    }

    fn attachment(attachment: Attachment) -> Self {
        Self {
            server: None,
            attachment: Some(attachment),
        }
    }
}

impl From<Answer> for Sent {
    fn from(answer: Answer) -> Self {
        Self {
            answer,
            shown: Shown::default(),
        }
    }
}

/// Why there is nothing to send.
pub(super) enum Trouble {
    Api(Error),
    /// One word and a sentence.
    Ours(&'static str, String),
}

impl From<Error> for Trouble {
    fn from(error: Error) -> Self {
        Self::Api(error)
    }
}

impl Cloud {
    /// Makes one call, once. Nothing leaves here later than `within`, however long our own limiter would have it wait.
    pub async fn send(
        &self,
        zone: &Zone,
        server: Option<&ServerId>,
        call: &Call,
        payload: &Payload,
        within: Duration,
        slowest: Duration,
    ) -> Sent {
        let answer = tokio::time::timeout(within, self.exchange(zone, server, call, payload)).await;
        let refused = match answer {
            Ok(Ok(shown)) => {
                let made = shown.server.as_ref().filter(|_| *call == Call::Create);
                let made = made.map(|server| server.id.clone());
                let answer = Answer::Done { made };
                return Sent { answer, shown };
            }
            Ok(Err(Trouble::Ours(reason, why))) => Answer::NotDone {
                reason: reason.to_owned(),
                why,
                retry: slowest.min(Duration::from_mins(1)),
            },
            // There is nothing left to remove.
            Ok(Err(Trouble::Api(error))) if call.is_removal() && error.is_not_found() => Answer::Done { made: None },
            Ok(Err(Trouble::Api(error))) => {
                warn!(step = call.step(), %error, "Scaleway did not do as asked");
                match &error.kind {
                    _ if error.is_without_effect() => Answer::NotDone {
                        reason: error.reason().to_owned(),
                        why: error.to_string(),
                        retry: retry_after(&error).min(slowest),
                    },
                    // What was made is found by its tag; for the rest, that it happened is all there is to know.
                    Kind::Unknown {
                        effect: EffectKnown::Happened,
                        ..
                    } if !matches!(call, Call::Create) => Answer::Done { made: None },
                    _ => Answer::Unknown,
                }
            }
            Err(_) => Answer::Unknown,
        };
        refused.into()
    }

    async fn exchange(
        &self,
        zone: &Zone,
        server: Option<&ServerId>,
        call: &Call,
        payload: &Payload,
    ) -> Result<Shown, Trouble> {
        let client = self.client();
        match call {
            Call::CreateNetwork => {
                let network = payload.wanted.as_ref().and_then(|wanted| wanted.network.as_ref());
                let Some(Network::Name { name, cidr }) = network else {
                    return Err(Trouble::Ours(
                        "InvalidSpec",
                        "the spec names no Private Network".to_owned(),
                    ));
                };
                let tags = [TAG, "tuist.dev/runner-cache"];
                client
                    .create_private_network(&zone.region(), name, cidr.as_ref(), &tags)
                    .await?;
                return Ok(Shown::default());
            }
            Call::Create => return self.create(zone, payload).await.map(Shown::server),
            Call::DeleteVolume(volume) => {
                self.delete_volume(zone, volume).await?;
                return Ok(Shown::default());
            }
            Call::DeleteIp(ip) => {
                if let Ok(id) = ip.parse() {
                    client.delete_instance_ip(zone, &id).await?;
                }
                return Ok(Shown::default());
            }
            _ => {}
        }
        let Some(id) = server else {
            return Err(Trouble::Ours("InternalError", "no server is named".to_owned()));
        };
        match self.product() {
            Product::Instance => self.to_instance(zone, id, call, payload).await,
            Product::Metal => self.to_metal(zone, id, call, payload).await,
        }
    }

    async fn create(&self, zone: &Zone, payload: &Payload) -> Result<Server, Trouble> {
        let Some(wanted) = &payload.wanted else {
            return Err(Trouble::Ours("InvalidSpec", "the spec cannot be read".to_owned()));
        };
        match self.offered(zone, wanted).await? {
            Offered::Instance { image, block, .. } => {
                let create = CreateInstance {
                    name: payload.name.clone(),
                    commercial_type: wanted.type_.clone(),
                    image,
                    tags: payload.tags.clone(),
                    dynamic_ip: true,
                    root_volume: Some(RootVolume {
                        gb: u32::try_from(wanted.root_volume_gb).unwrap_or(u32::MAX),
                        volume_type: if block { VolumeType::Block } else { VolumeType::Local },
                    }),
                };
                Ok(model::instance(&self.client().create_instance(zone, &create).await?))
            }
            Offered::Metal { offer, networking, .. } => {
                // Installed later, when its network is known: the script of its first boot needs the VLAN.
                let order = OrderMetal {
                    offer,
                    name: payload.name.clone(),
                    description: "a node of the cache, made by capi-provider".to_owned(),
                    tags: payload.tags.clone(),
                    install: None,
                    options: wanted.network.iter().filter_map(|_| networking.clone()).collect(),
                    user_data: None,
                };
                Ok(model::metal(&self.client().order_metal(zone, &order).await?))
            }
            Offered::Not(_) => Err(Trouble::Ours(
                "OutOfStock",
                format!("{} cannot be had any more", wanted.type_),
            )),
        }
    }

    async fn delete_volume(&self, zone: &Zone, volume: &Volume) -> Result<(), Trouble> {
        let Ok(id) = volume.id.parse() else { return Ok(()) };
        match volume.kind {
            VolumeKind::Local => self.client().delete_instance_volume(zone, &id).await?,
            VolumeKind::Block => self.client().delete_block_volume(zone, &id).await?,
        }
        Ok(())
    }

    async fn to_instance(&self, zone: &Zone, id: &ServerId, call: &Call, payload: &Payload) -> Result<Shown, Trouble> {
        let client = self.client();
        match call {
            Call::Attach(network) => {
                let nic = client.create_private_nic(zone, id, network).await?;
                return Ok(Shown::attachment(model::nic(&nic)));
            }
            Call::Detach(nic) => {
                if let Ok(nic) = nic.parse() {
                    client.delete_private_nic(zone, id, &nic).await?;
                }
            }
            Call::GiveUserData => {
                let Some(text) = payload.user_data.clone() else {
                    return Err(Trouble::Ours("InternalError", "there is no script".to_owned()));
                };
                client.set_user_data(zone, id, CLOUD_INIT, text).await?;
            }
            Call::DropUserData => client.delete_user_data(zone, id, CLOUD_INIT).await?,
            Call::PowerOn => drop(client.instance_action(zone, id, Action::Poweron).await?),
            Call::PowerOff => drop(client.instance_action(zone, id, Action::Poweroff).await?),
            Call::Delete => client.delete_instance(zone, id).await?,
            other => return Err(not_of_this(other)),
        }
        Ok(Shown::default())
    }

    async fn to_metal(&self, zone: &Zone, id: &ServerId, call: &Call, payload: &Payload) -> Result<Shown, Trouble> {
        let client = self.client();
        let update = |update: UpdateMetal| async move { client.update_metal(zone, id, &update).await };
        let server = match call {
            Call::Tag => {
                let server = client.metal_server(zone, id).await?;
                let mut tags = other_tags(&server);
                tags.extend(payload.tags.iter().cloned());
                tags.push(ADOPTED_TAG.to_owned());
                if server.private_network_option().is_none() {
                    tags.push(NETWORKING_TAG.to_owned());
                }
                update(UpdateMetal {
                    tags: Some(tags),
                    ..UpdateMetal::default()
                })
                .await?
            }
            Call::Untag => {
                let tags = other_tags(&client.metal_server(zone, id).await?);
                update(UpdateMetal {
                    tags: Some(tags),
                    ..UpdateMetal::default()
                })
                .await?
            }
            Call::EnableNetworking => self.enable_networking(zone, id, payload).await?,
            Call::DisableNetworking => {
                let server = client.metal_server(zone, id).await?;
                if let Some(option) = server.private_network_option() {
                    client.remove_metal_option(zone, id, &option.id).await?;
                }
                return Ok(Shown::default());
            }
            Call::Attach(network) => {
                let attached = client.attach_metal_private_network(zone, id, network).await?;
                return Ok(Shown::attachment(model::attachment(&attached)));
            }
            Call::Detach(network) => {
                if let Ok(network) = network.parse() {
                    client.detach_metal_private_network(zone, id, &network).await?;
                }
                return Ok(Shown::default());
            }
            Call::GiveUserData => {
                update(UpdateMetal {
                    user_data: payload.user_data.clone(),
                    ..UpdateMetal::default()
                })
                .await?
            }
            Call::DropUserData => {
                update(UpdateMetal {
                    user_data: Some(Secret::new(String::new())),
                    ..UpdateMetal::default()
                })
                .await?
            }
            Call::Install | Call::Wipe => {
                let install = self.installation(zone, id, payload, *call == Call::Wipe).await?;
                client.install_metal(zone, id, &install).await?
            }
            Call::PowerOn => client.reboot_metal(zone, id).await?,
            Call::Delete => {
                client.delete_metal(zone, id).await?;
                return Ok(Shown::default());
            }
            other => return Err(not_of_this(other)),
        };
        Ok(Shown::metal(&server))
    }

    async fn enable_networking(
        &self,
        zone: &Zone,
        id: &ServerId,
        payload: &Payload,
    ) -> Result<baremetal::Server, Trouble> {
        let networking = match &payload.wanted {
            Some(wanted) => match self.offered(zone, wanted).await? {
                Offered::Metal { networking, .. } => networking,
                _ => None,
            },
            None => None,
        };
        let Some(option) = networking else {
            let why = "this offer has no option for Private Networks; choose another offer, or name no network";
            return Err(Trouble::Ours("PrivateNetworkPending", why.to_owned()));
        };
        Ok(self.client().add_metal_option(zone, id, &option).await?)
    }
}

/// The tags of a server that say nothing about whose it is.
fn other_tags(server: &baremetal::Server) -> Vec<String> {
    let ours = |tag: &str| {
        [TAG, ADOPTED_TAG, NETWORKING_TAG].contains(&tag)
            || tag.starts_with(MACHINE_TAG)
            || tag.starts_with("scalewayelasticmetalmachine=")
    };
    server.tags.iter().filter(|tag| !ours(tag)).cloned().collect()
}

fn not_of_this(call: &Call) -> Trouble {
    Trouble::Ours(
        "InternalError",
        format!("{} means nothing for this product", call.step()),
    )
}
