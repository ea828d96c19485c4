//! What a fleet and a host must be before there is a plan for them. Values become words of shell and of property lists, which cannot
//! break out of their quotes; what is refused here is what macOS or Kubernetes would refuse later, or take for something else.

use std::net::Ipv4Addr;

use super::config::{ApiServer, Firewall, Fleet, Host};
use crate::linux::{self, validate};

/// Something nobody can be set up with. Says what to use instead, and quotes no secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Invalid {
    #[error(transparent)]
    Node(#[from] linux::Invalid),
    #[error("{name:?} cannot be the user of a host; use at most 31 lower-case letters, digits, '_' and '-'")]
    User { name: String },
    #[error("{text:?} is no network for {what}; use an IPv4 network, such as 172.16.0.0/22")]
    Network { what: &'static str, text: String },
    #[error("{what} needs a tailnet; configure one, or leave {what} out")]
    NoTailnet { what: &'static str },
    #[error("the cluster's DNS is only reached together with its services; name their network too")]
    DnsAlone,
    #[error("an OAuth secret joins a tailnet only with tags; configure some, such as tag:tuist-macmini-staging")]
    NoTags,
    #[error("{tag:?} is no tag; use tag: and letters, digits and '-'")]
    Tag { tag: String },
    #[error("{what} is a number of at least 1")]
    Zero { what: &'static str },
    #[error("{text:?} is no {what}; use {instead}")]
    Word {
        what: &'static str,
        text: String,
        instead: &'static str,
    },
    #[error("{what} holds a control character; store it again, as one line of text")]
    Control { what: &'static str },
    #[error("what vouches for the API server is no certificate; use PEM, as the cluster's kubeconfig has it")]
    Authority,
    #[error("a login key is one line of authorized_keys; this one is not")]
    LoginKey,
    #[error("{id} is no VLAN; use a number from 1 to 4094")]
    Vlan { id: u16 },
}

impl Fleet {
    /// Fails on the first thing that is wrong.
    pub fn check(&self) -> Result<(), Invalid> {
        let agent = &self.agent;
        for (what, number) in [
            ("the number of cores", agent.cpu),
            ("the memory", agent.memory_mb),
            ("the number of Pods", agent.max_pods),
            ("the size of the cache volume", self.cache_volume_gib.unwrap_or(1)),
        ] {
            if number == 0 {
                return Err(Invalid::Zero { what });
            }
        }
        if agent
            .extra
            .iter()
            .any(|argument| argument.chars().any(char::is_control))
        {
            return Err(Invalid::Control {
                what: "an argument of tart-kubelet",
            });
        }
        for (what, wants) in [
            ("node_exporter", self.node_exporter.is_some()),
            ("the guard of SSH", self.login_from.is_some()),
            ("the address of Nodes on the tailnet", agent.tailnet_only),
        ] {
            if wants && self.tailnet.is_none() {
                return Err(Invalid::NoTailnet { what });
            }
        }
        self.api_server.as_deref().map_or(Ok(()), ApiServer::check)?;
        self.firewall.check()?;
        for network in self.login_from.iter().flatten() {
            check_network("logging in", network)?;
        }
        for tag in self.tailnet.iter().flat_map(|tailnet| &tailnet.tags) {
            let name = tag.strip_prefix("tag:").unwrap_or_default();
            if name.is_empty() || !name.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'-') {
                return Err(Invalid::Tag { tag: tag.clone() });
            }
        }
        let servers = self.tailnet.iter().filter_map(|tailnet| tailnet.login_server.as_ref());
        for url in servers.chain(self.logs.iter().map(|logs| &logs.url)) {
            let plain = url.bytes().all(|c| c.is_ascii_graphic());
            if !plain || !(url.starts_with("https://") || url.starts_with("http://")) {
                return Err(Invalid::Word {
                    what: "address of a server",
                    text: url.clone(),
                    instead: "https:// and a name",
                });
            }
        }
        Ok(())
    }
}

impl ApiServer {
    fn check(&self) -> Result<(), Invalid> {
        let plain = |c: u8| c.is_ascii_alphanumeric() || b".-_:[]/".contains(&c);
        let place = self.url.strip_prefix("https://").unwrap_or_default();
        if place.is_empty() || !place.bytes().all(plain) {
            return Err(Invalid::Word {
                what: "address of an API server",
                text: self.url.clone(),
                instead: "https://host:port",
            });
        }
        if !self.ca_pem.contains("-----BEGIN CERTIFICATE-----") {
            return Err(Invalid::Authority);
        }
        Ok(())
    }
}

impl Firewall {
    fn check(&self) -> Result<(), Invalid> {
        if self.dns.is_some() && self.services.is_none() {
            return Err(Invalid::DnsAlone);
        }
        let networks = [
            ("the cluster's services", &self.services),
            ("caches", &self.cache_network),
        ];
        for (what, network) in networks {
            if let Some(network) = network {
                check_network(what, network)?;
            }
        }
        Ok(())
    }
}

impl Host {
    /// Fails on the first thing that is wrong. Some of it depends on the fleet.
    pub fn check(&self, fleet: &Fleet) -> Result<(), Invalid> {
        let plain = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'_' || c == b'-';
        let name = self.user.as_bytes();
        if !name.first().is_some_and(|c| c.is_ascii_lowercase() || *c == b'_')
            || name.len() > 31
            || !name.iter().all(|c| plain(*c))
        {
            // A dot in it, and sudo would skip the rule that carries its name.
            return Err(Invalid::User {
                name: self.user.clone(),
            });
        }
        if self.node_name.len() > 63 || !validate::is_dns_name(&self.node_name) {
            return Err(Invalid::Node(linux::Invalid::NodeName {
                name: self.node_name.clone(),
            }));
        }
        if !validate::is_provider_id(&self.provider_id) {
            return Err(Invalid::Node(linux::Invalid::ProviderId {
                id: self.provider_id.clone(),
            }));
        }
        for (key, value) in &self.labels {
            validate::check_label(key, value)?;
        }
        validate::check_taints(&self.taints)?;
        if self.login_keys.iter().any(|key| !is_public_key(key)) {
            return Err(Invalid::LoginKey);
        }
        for (what, secret) in [
            ("the password of the host", &self.password),
            ("the key of the tailnet", &self.tailnet_key),
        ] {
            let text = secret.as_ref().map_or("", |secret| secret.expose().trim());
            if text.chars().any(char::is_control) {
                return Err(Invalid::Control { what });
            }
        }
        if let (Some(tailnet), Some(key)) = (&fleet.tailnet, &self.tailnet_key)
            && key.expose().trim().starts_with("tskey-client-")
            && tailnet.tags.is_empty()
        {
            return Err(Invalid::NoTags);
        }
        if let Some(id) = self.vlan.filter(|id| !(1..=4094).contains(id)) {
            return Err(Invalid::Vlan { id });
        }
        self.check_runner()
    }

    fn check_runner(&self) -> Result<(), Invalid> {
        let Some(runner) = &self.runner else { return Ok(()) };
        let words: [(&str, &str, &str, &[u8]); 3] = [
            (
                "organisation",
                &runner.org,
                "the name of an organisation on GitHub",
                b"-",
            ),
            (
                "version of a runner",
                &runner.version,
                "three numbers, such as 2.336.0",
                b".",
            ),
            (
                "list of labels",
                &runner.labels,
                "labels with commas in between",
                b"-_.,",
            ),
        ];
        for (what, text, instead, also) in words {
            if text.is_empty() || !text.bytes().all(|c| c.is_ascii_alphanumeric() || also.contains(&c)) {
                return Err(Invalid::Word {
                    what,
                    text: text.to_owned(),
                    instead,
                });
            }
        }
        Ok(())
    }
}

fn is_public_key(line: &str) -> bool {
    let mut words = line.split(' ');
    let kind = words.next().unwrap_or_default();
    let key = words.next().unwrap_or_default();
    (kind.starts_with("ssh-") || kind.starts_with("ecdsa-"))
        && key.len() > 16
        && key.bytes().all(|c| c.is_ascii_alphanumeric() || b"+/=".contains(&c))
        && !line.chars().any(char::is_control)
}

fn check_network(what: &'static str, text: &str) -> Result<(), Invalid> {
    let good = text.split_once('/').is_some_and(|(address, prefix)| {
        let digits = !prefix.is_empty() && prefix.bytes().all(|c| c.is_ascii_digit());
        let prefix = prefix.parse::<u32>().ok().filter(|prefix| digits && *prefix <= 32);
        let address = address.parse::<Ipv4Addr>().ok();
        address
            .zip(prefix)
            .is_some_and(|(address, prefix)| u32::from(address) & u32::MAX.checked_shr(prefix).unwrap_or(0) == 0)
    });
    if good {
        return Ok(());
    }
    Err(Invalid::Network {
        what,
        text: text.to_owned(),
    })
}
