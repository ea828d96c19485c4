//! Whether a signing request is granted. Pure.

use std::collections::BTreeSet;
use std::net::IpAddr;

use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use russet_api::values::CidrBlock;

use super::request::{Request, Unreadable};
use crate::identity::token;

/// Who would sign.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Signer {
    /// A node's identity towards the API server.
    Client,
    /// What a kubelet shows to those who call it.
    Serving,
}

/// Who asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Requestor {
    /// The bootstrap token of the machine with this uid.
    Token { uid: String },
    /// A node.
    Node { name: String },
    /// Anybody else.
    Other { username: String },
}

/// A request that is still open and of a signer we know.
#[derive(Clone, Debug)]
pub(super) struct Asked {
    signer: Signer,
    requestor: Requestor,
    request: Result<Request, Unreadable>,
    usages: BTreeSet<String>,
}

/// A machine of that name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Host {
    pub(super) name: String,
    pub(super) uid: String,
    pub(super) deleting: bool,
    pub(super) provider_id: Option<String>,
    /// Addresses and names that Scaleway gave it.
    pub(super) addresses: Vec<String>,
    /// What its Node runs.
    pub(super) os: &'static str,
    /// It has an address that is not known yet.
    pub(super) more_to_come: bool,
}

/// The Node of that name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Node {
    pub(super) provider_id: Option<String>,
    pub(super) os: Option<String>,
    /// Tailnet addresses that it reports, and that are nobody else's: no other Node reports them and no other machine has them.
    pub(super) tailnet: Vec<IpAddr>,
}

/// Which machines are looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sight {
    /// Those of the whole cluster: one that is not found does not exist.
    Whole,
    /// Those of some namespaces: one that is not found may be in the care of another provider.
    Partial,
}

/// What is known when a request is judged.
#[derive(Clone, Copy, Debug)]
pub(super) struct Known<'a> {
    /// The machines of the name that is asked for.
    pub(super) hosts: &'a [Host],
    pub(super) sight: Sight,
    /// The Node of that name.
    pub(super) node: Option<&'a Node>,
    /// Domains in which hosts are known.
    pub(super) suffixes: &'a [String],
    /// What the tailnet gives out.
    pub(super) tailnet: &'a [CidrBlock],
}

/// What is done about a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It is not ours to judge.
    Ignore,
    /// Not now; look again.
    Wait(String),
    /// Granted.
    Approve(String),
    /// Refused, for good.
    Deny { reason: &'static str, message: String },
}

fn deny(reason: &'static str, message: impl Into<String>) -> Verdict {
    Verdict::Deny {
        reason,
        message: message.into(),
    }
}

/// Whether nobody has decided about a request yet.
pub(crate) fn undecided(csr: &CertificateSigningRequest) -> bool {
    csr.status.as_ref().is_none_or(|status| {
        status.certificate.is_none() && status.conditions.iter().flatten().all(|c| !is_decision(&c.type_))
    })
}

fn is_decision(type_: &str) -> bool {
    matches!(type_, "Approved" | "Denied" | "Failed")
}

impl Asked {
    /// Reads an open request for one of the two signers of kubelets.
    pub(super) fn read(csr: &CertificateSigningRequest) -> Option<Self> {
        let spec = &csr.spec;
        let signer = match spec.signer_name.as_str() {
            "kubernetes.io/kube-apiserver-client-kubelet" => Signer::Client,
            "kubernetes.io/kubelet-serving" => Signer::Serving,
            _ => return None,
        };
        undecided(csr).then_some(())?;
        let username = spec.username.clone().unwrap_or_default();
        let groups = || spec.groups.iter().flatten();
        let uid = groups().find_map(|group| token::uid_of(group));
        let node = username.strip_prefix("system:node:");
        let requestor = match (uid, node) {
            // Both halves are the server's word: the username says that it is a bootstrap token, the group whose.
            (Some(uid), _) if username.starts_with("system:bootstrap:") => Requestor::Token { uid: uid.to_owned() },
            (_, Some(name)) if groups().any(|group| group == "system:nodes") => {
                Requestor::Node { name: name.to_owned() }
            }
            _ => Requestor::Other { username },
        };
        Some(Self {
            signer,
            requestor,
            request: Request::read(&spec.request.0),
            usages: spec.usages.iter().flatten().cloned().collect(),
        })
    }

    /// The node this is about: the one a certificate is asked for, else the one that asks.
    pub(super) fn node(&self) -> Option<&str> {
        let asked_for = self.request.as_ref().ok().and_then(Request::node);
        asked_for.or(match &self.requestor {
            Requestor::Node { name } => Some(name),
            _ => None,
        })
    }

    /// Whether only a look at all Nodes and machines can tell if an address is this node's own.
    pub(super) fn wants_tailnet(&self, tailnet: &[CidrBlock]) -> bool {
        self.signer == Signer::Serving
            && self
                .request
                .as_ref()
                .is_ok_and(|request| request.ips.iter().any(|ip| is_in(tailnet, *ip)))
    }

    /// Decides.
    pub(super) fn judge(&self, known: &Known<'_>) -> Verdict {
        let hosts = known.hosts;
        let host = match &self.requestor {
            Requestor::Token { uid } => match hosts.iter().find(|host| host.uid == *uid) {
                Some(host) => host,
                None if hosts.is_empty() && known.sight == Sight::Partial => return Verdict::Ignore,
                None => {
                    let name = self.node().unwrap_or_default();
                    let message = format!(
                        "the bootstrap token belongs to the machine with uid {uid}, and no such machine is called {name:?}"
                    );
                    return deny("NotThisMachine", message);
                }
            },
            Requestor::Node { name } => {
                let Some(host) = hosts.iter().min_by_key(|host| host.deleting) else {
                    return Verdict::Ignore;
                };
                if host.name != *name {
                    return deny(
                        "NotThisMachine",
                        format!("node {name} asks for the certificate of machine {}", host.name),
                    );
                }
                host
            }
            Requestor::Other { username } => {
                return match hosts.first() {
                    None => Verdict::Ignore,
                    Some(host) => deny(
                        "NotThisMachine",
                        format!(
                            "{username} is neither the bootstrap token nor the node of machine {}",
                            host.name
                        ),
                    ),
                };
            }
        };
        if host.deleting {
            return deny("MachineDeleting", format!("machine {} is being deleted", host.name));
        }
        let request = match &self.request {
            Ok(request) => request,
            Err(problem) => return deny("Unreadable", problem.to_string()),
        };
        if let Err(refused) = self.content(request, host, known) {
            return refused;
        }
        if let Some(taken) = known.node.and_then(|node| taken(host, node)) {
            return Verdict::Wait(taken);
        }
        let what = match self.signer {
            Signer::Client => "client",
            Signer::Serving => "serving",
        };
        let who = match &self.requestor {
            Requestor::Token { .. } => "its bootstrap token",
            _ => "the node itself",
        };
        Verdict::Approve(format!(
            "{what} certificate of machine {}, asked for by {who}",
            host.name
        ))
    }

    fn content(&self, request: &Request, host: &Host, known: &Known<'_>) -> Result<(), Verdict> {
        let subject = format!("system:node:{}", host.name);
        if request.common_name.as_deref() != Some(&*subject)
            || request.organizations != ["system:nodes"]
            || request.more_subject
        {
            let message = format!("the subject has to be exactly CN={subject}, O=system:nodes");
            return Err(deny("WrongSubject", message));
        }
        if request.more {
            let message = "it asks for more than names and addresses: extensions, attributes, mail or URI names";
            return Err(deny("TooMuch", message));
        }
        let own = match self.signer {
            Signer::Client => "client auth",
            Signer::Serving => "server auth",
        };
        let allowed = ["digital signature", "key encipherment", own];
        let needed = ["digital signature", own];
        if !needed.iter().all(|usage| self.usages.contains(*usage))
            || !self.usages.iter().all(|usage| allowed.contains(&usage.as_str()))
        {
            let message = format!("usages have to be digital signature and {own}, and may be key encipherment");
            return Err(deny("WrongUsages", message));
        }
        match (self.signer, &self.requestor) {
            (Signer::Client, _) if request.dns.is_empty() && request.ips.is_empty() => Ok(()),
            (Signer::Client, _) => Err(deny("TooMuch", "a client certificate is for no names and no addresses")),
            (Signer::Serving, Requestor::Token { .. }) => Err(deny(
                "NotTheNode",
                "a serving certificate is asked for by the node, with its client certificate",
            )),
            (Signer::Serving, _) => serving_names(request, host, known),
        }
    }
}

/// A serving certificate is only for what is known to be this host's.
fn serving_names(request: &Request, host: &Host, known: &Known<'_>) -> Result<(), Verdict> {
    if request.dns.is_empty() && request.ips.is_empty() {
        return Err(deny("NoNames", "a serving certificate needs a name or an address"));
    }
    let dns_known = |name: &String| {
        *name == host.name
            || host.addresses.contains(name)
            || known
                .suffixes
                .iter()
                .any(|suffix| *name == format!("{}.{suffix}", host.name))
    };
    if let Some(foreign) = request.dns.iter().find(|name| !dns_known(name)) {
        return Err(deny(
            "ForeignName",
            format!("{foreign:?} is not a name of machine {}", host.name),
        ));
    }
    let ip_known = |ip: &&IpAddr| {
        host.addresses.iter().any(|address| address.parse() == Ok(**ip))
            || known.node.is_some_and(|node| node.tailnet.contains(ip))
    };
    match request.ips.iter().find(|ip| !ip_known(ip)) {
        Some(foreign) if host.more_to_come => Err(Verdict::Wait(format!(
            "{foreign} may be the private address of machine {}, which is not known yet",
            host.name
        ))),
        Some(foreign) if is_in(known.tailnet, *foreign) => Err(deny(
            "ForeignAddress",
            format!(
                "{foreign} is an address of the tailnet, and Node {} does not report it or is not the only one to have it",
                host.name
            ),
        )),
        Some(foreign) => Err(deny(
            "ForeignAddress",
            format!(
                "{foreign} is neither an address of machine {} nor one that the tailnet gives out",
                host.name
            ),
        )),
        None => Ok(()),
    }
}

/// Why the Node of that name is not this machine's: who may make machines must not thereby get the identity of any Node.
fn taken(host: &Host, node: &Node) -> Option<String> {
    let stranger = match &node.provider_id {
        Some(id) => host.provider_id.as_ref() != Some(id),
        None => node.os.as_deref().is_some_and(|os| os != host.os),
    };
    stranger.then(|| {
        format!(
            "Node {} exists and belongs to something else ({}); delete it if it is left over, or rename the machine",
            host.name,
            node.provider_id
                .as_deref()
                .unwrap_or("no provider id, another operating system")
        )
    })
}

/// Whether one of these networks has the address.
pub(super) fn is_in(networks: &[CidrBlock], ip: IpAddr) -> bool {
    networks.iter().any(|network| network.contains(ip))
}

#[cfg(test)]
mod tests;
