//! Emulated Macs behind an emulated Scaleway, and a provider that logs in to them.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use clap::Parser as _;
use russet_api::ScalewayAppleSiliconMachine;
use russet_api::conditions;
use russet_api::machine::{Step, StepState};
use russet_bootstrap::mac::Patience;
use russet_capi_provider::bootstrap::{Recipe, Services, Ssh};
use russet_capi_provider::config::HostArgs;
use russet_capi_provider::private_network::PrivateNetwork;
use russet_capi_provider::tailnet_key::TailnetKeys;
use russet_sim_mac::macos::{Faults, Mac};
use russet_stages::macs::rack::Rack;
use russet_stages::macs::rights::client_of;
use russet_testkit::Sandbox;
use russet_testkit::identity::Granted;

use crate::harness::{Provider, cloud, identity, services};

/// The private network of [`Stage::services`], once somebody makes it.
pub(crate) const NETWORK: &str = "cache";
/// The Secret with the key of the tailnet.
pub(crate) const TAILNET: &str = "tailnet";
/// An agent that does nothing but stay.
pub(crate) const STAYS: &str = "#!/bin/bash\nexec sleep 100000\n";

#[derive(clap::Parser)]
struct Flags {
    #[command(flatten)]
    host: HostArgs,
}

/// The bootstrapper as these flags about hosts make it.
pub(crate) fn ssh(rack: &Rack, host: &[String]) -> Result<Ssh> {
    let agent = format!("--tartkubelet-binary-path={}", rack.path("agent").display());
    let mut all = vec!["provider".to_owned(), agent];
    all.extend_from_slice(host);
    if !host.iter().any(|flag| flag.starts_with("--tart-tarball-path")) {
        all.push("--tart-tarball-path=".to_owned());
    }
    let recipe = Recipe::new(Flags::try_parse_from(all)?.host)?;
    Ok(Ssh::new(recipe, rack.port()).patience(Patience {
        settle: Duration::from_millis(300),
        pause: Duration::from_millis(100),
    }))
}

pub(crate) struct Stage<'a> {
    pub(crate) sandbox: &'a Sandbox<'a>,
    who: Granted,
    pub(crate) rack: Rack,
}

impl<'a> Stage<'a> {
    /// With so many Macs in the pool.
    pub(crate) async fn set(sandbox: &'a Sandbox<'a>, count: u32) -> Result<Self> {
        let rack = Rack::new(count).await?;
        rack.put("agent", STAYS)?;
        Ok(Self {
            sandbox,
            who: identity(sandbox).await?,
            rack,
        })
    }

    pub(crate) fn cloud(&self) -> Result<russet_scaleway::Client> {
        cloud(&self.rack.sim)
    }

    /// Keys of fleets and join credentials, as every provider has them.
    pub(crate) async fn services(&self) -> Result<Services> {
        services(self.sandbox, &self.who, &self.rack.sim).await
    }

    /// The same, for hosts that are on a tailnet and on a private network.
    pub(crate) async fn connected_services(&self) -> Result<Services> {
        let tailnet = TailnetKeys::new(client_of(&self.who).await?, self.sandbox.namespace(), TAILNET);
        Ok(Services {
            tailnet: tailnet.map(|keys| Arc::new(keys) as _),
            networks: PrivateNetwork::new(self.cloud()?, NETWORK).map(|network| Arc::new(network) as _),
            ..self.services().await?
        })
    }

    /// A provider with these flags about hosts, and these about itself.
    pub(crate) async fn provider(&self, services: Services, host: &[String], flags: &[&str]) -> Result<Provider> {
        let ssh = Arc::new(ssh(&self.rack, host)?);
        Provider::with(self.sandbox, &self.who, &self.rack.sim, ssh, services, flags).await
    }

    /// Breaks every Mac.
    pub(crate) async fn break_all(&self, change: impl Fn(&mut Faults)) {
        for mac in self.rack.macs.all().await {
            mac.set_faults(&change);
        }
    }

    /// Heals every Mac but that of this server.
    pub(crate) async fn heal_all_but(&self, server: &str) {
        for mac in self.rack.macs.all().await {
            if mac.host().server_id.to_string() != server {
                mac.set_faults(|faults| *faults = Faults::default());
            }
        }
    }

    /// The Mac of a server, as it is installed now; one that is wiped is waited for.
    pub(crate) async fn mac(&self, server: &str) -> Result<Mac> {
        self.rack.mac_of(&server.parse()?).await
    }

    /// Posts of this kind about hosts.
    pub(crate) fn posts(&self, what: &str) -> usize {
        let path = format!("/apple-silicon/v1alpha1/zones/*/servers/*/{what}");
        self.rack.sim.handle().calls("POST", &path)
    }
}

/// Its host was set up.
pub(crate) fn is_set_up(mac: &ScalewayAppleSiliconMachine) -> bool {
    let status = mac.status.as_ref();
    status.is_some_and(|status| conditions::is_true(&status.conditions, "Bootstrapped"))
}

/// One step of its set-up.
pub(crate) fn step<'a>(mac: &'a ScalewayAppleSiliconMachine, name: &str) -> Option<&'a Step> {
    mac.status.as_ref()?.steps.iter().find(|step| step.name == name)
}

pub(crate) fn is(mac: &ScalewayAppleSiliconMachine, name: &str, state: &StepState) -> bool {
    step(mac, name).is_some_and(|step| step.state == *state)
}

pub(crate) fn server(mac: &ScalewayAppleSiliconMachine) -> String {
    mac.status
        .as_ref()
        .and_then(|status| status.server_id.clone())
        .unwrap_or_default()
}
