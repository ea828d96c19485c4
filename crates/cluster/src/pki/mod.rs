//! The identities of a cluster: made once, kept, renewed, and repaired after a run that was killed half-way.
//!
//! ```text
//! ca ──────────────┬─ apiserver (serving)      admin, controller-manager, scheduler, apiserver-kubelet-client (clients)
//!                  └─ what callers ask for: client() and server()
//! etcd-ca ─────────── etcd (serving and peer), apiserver-etcd-client
//! front-proxy-ca ──── front-proxy-client
//! sa.key, sa.pub      sign and verify ServiceAccount tokens
//! ```
//!
//! etcd has an authority of its own, because kube-controller-manager signs kubelet certificates with the cluster's, and no kubelet
//! may read etcd. The front proxy has one because the apiserver believes any user name a certificate of it brings.
//!
//! Nothing is trusted because it exists: every start checks that certificate and key belong together, that the
//! certificate was signed by the authority we have, names what we want, and lasts; anything else is made anew. A half-written set is
//! therefore just a set with flaws. Files are whole or absent ([`crate::files`]), keys are written before certificates.

mod authority;
mod pair;

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use rcgen::{KeyPair, PKCS_RSA_SHA256, RsaKeySize};
use time::OffsetDateTime;

pub use self::authority::Authority;
pub use self::pair::{Issued, Pair, Profile, Usage};
use crate::files::{self, Access};

/// The first address of the Service range; the `kubernetes` Service gets it.
pub const FIRST_SERVICE_IP: Ipv4Addr = Ipv4Addr::new(10, 96, 0, 1);

/// The group of cluster administrators.
const MASTERS: &str = "system:masters";

/// Why an identity could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The certificate library refused.
    #[error("could not make the certificate {name}")]
    Certificate {
        /// Which one.
        name: String,
        /// What it said.
        #[source]
        source: rcgen::Error,
    },
    /// A file could not be read or written.
    #[error(transparent)]
    File(#[from] files::Error),
}

/// The identities of one cluster, in one directory.
#[derive(Debug)]
pub struct Pki {
    dir: PathBuf,
    ca: Authority,
    etcd_ca: Authority,
    front_proxy_ca: Authority,
    /// What kube-apiserver serves with.
    pub apiserver: Pair,
    /// What kube-apiserver shows to kubelets.
    pub apiserver_kubelet_client: Pair,
    /// What kube-apiserver shows to etcd.
    pub apiserver_etcd_client: Pair,
    /// What etcd serves with, to clients and peers.
    pub etcd: Pair,
    /// What kube-apiserver shows to aggregated API servers.
    pub front_proxy_client: Pair,
    /// A cluster administrator.
    pub admin: Pair,
    /// `system:kube-controller-manager`.
    pub controller_manager: Pair,
    /// `system:kube-scheduler`.
    pub scheduler: Pair,
    /// What kube-controller-manager and kube-scheduler serve their health with.
    pub loopback: Pair,
}

impl Pki {
    /// Loads the identities in `dir`; makes what is missing, broken, about to expire, or does not name `address`.
    pub fn ensure(dir: &Path, address: Ipv4Addr) -> Result<Self, Error> {
        files::create_private_dir(dir)?;
        let now = OffsetDateTime::now_utc();
        let ca = Authority::ensure(dir, "ca", "russet", now)?;
        let etcd_ca = Authority::ensure(dir, "etcd-ca", "russet-etcd", now)?;
        let front_proxy_ca = Authority::ensure(dir, "front-proxy-ca", "russet-front-proxy", now)?;
        ensure_service_account_key(dir)?;

        let local = vec!["localhost".to_owned(), Ipv4Addr::LOCALHOST.to_string()];
        let client = |name, common_name, group| Pair::ensure(dir, name, &ca, &Profile::client(common_name, group), now);
        Ok(Self {
            apiserver: Pair::ensure(dir, "apiserver", &ca, &Profile::server(apiserver_names(address)), now)?,
            apiserver_kubelet_client: client(
                "apiserver-kubelet-client",
                "kube-apiserver-kubelet-client",
                Some(MASTERS),
            )?,
            apiserver_etcd_client: Pair::ensure(
                dir,
                "apiserver-etcd-client",
                &etcd_ca,
                &Profile::client("kube-apiserver-etcd-client", None),
                now,
            )?,
            etcd: Pair::ensure(
                dir,
                "etcd",
                &etcd_ca,
                // Peers are both: etcd dials its own peer address.
                &Profile {
                    common_name: "etcd".to_owned(),
                    group: None,
                    usage: Usage::Both { names: local.clone() },
                },
                now,
            )?,
            front_proxy_client: Pair::ensure(
                dir,
                "front-proxy-client",
                &front_proxy_ca,
                &Profile::client("front-proxy-client", None),
                now,
            )?,
            admin: client("admin", "russet-admin", Some(MASTERS))?,
            controller_manager: client("controller-manager", "system:kube-controller-manager", None)?,
            scheduler: client("scheduler", "system:kube-scheduler", None)?,
            loopback: Pair::ensure(dir, "loopback", &ca, &Profile::server(local), now)?,
            dir: dir.to_owned(),
            ca,
            etcd_ca,
            front_proxy_ca,
        })
    }

    /// The directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The cluster's authority.
    pub fn ca(&self) -> &Authority {
        &self.ca
    }

    /// etcd's authority.
    pub fn etcd_ca(&self) -> &Authority {
        &self.etcd_ca
    }

    /// The front proxy's authority.
    pub fn front_proxy_ca(&self) -> &Authority {
        &self.front_proxy_ca
    }

    /// Private key that signs ServiceAccount tokens.
    pub fn service_account_key(&self) -> PathBuf {
        self.dir.join("sa.key")
    }

    /// Public key that verifies ServiceAccount tokens.
    pub fn service_account_public_key(&self) -> PathBuf {
        self.dir.join("sa.pub")
    }

    /// A client certificate of the cluster's authority, kept as `<name>.crt` and `<name>.key` in the directory.
    pub fn client(&self, name: &str, user: &str, group: Option<&str>) -> Result<Pair, Error> {
        self.pair(name, &Profile::client(user, group))
    }

    /// A serving certificate of the cluster's authority for host names and addresses, kept in the directory.
    pub fn server(&self, name: &str, names: impl IntoIterator<Item = String>) -> Result<Pair, Error> {
        self.pair(name, &Profile::server(names.into_iter().collect()))
    }

    /// Any certificate of the cluster's authority, kept in the directory.
    pub fn pair(&self, name: &str, profile: &Profile) -> Result<Pair, Error> {
        Pair::ensure(&self.dir, name, &self.ca, profile, OffsetDateTime::now_utc())
    }

    /// Any certificate of the cluster's authority, kept in another directory, such as a webhook's certificate folder.
    pub fn pair_in(&self, dir: &Path, name: &str, profile: &Profile) -> Result<Pair, Error> {
        files::create_private_dir(dir)?;
        Pair::ensure(dir, name, &self.ca, profile, OffsetDateTime::now_utc())
    }
}

fn apiserver_names(address: Ipv4Addr) -> Vec<String> {
    let mut names: Vec<String> = [
        "kubernetes",
        "kubernetes.default",
        "kubernetes.default.svc",
        "kubernetes.default.svc.cluster.local",
        "localhost",
        "127.0.0.1",
    ]
    .map(str::to_owned)
    .to_vec();
    names.push(FIRST_SERVICE_IP.to_string());
    if address != Ipv4Addr::LOCALHOST {
        names.push(address.to_string());
    }
    names
}

/// RSA, because that is what every verifier of tokens outside Kubernetes understands.
fn ensure_service_account_key(dir: &Path) -> Result<(), Error> {
    let (private, public) = (dir.join("sa.key"), dir.join("sa.pub"));
    let failed = |source| Error::Certificate {
        name: "sa".to_owned(),
        source,
    };
    let kept = files::read_text(&private)?.and_then(|pem| KeyPair::from_pem(&pem).ok());
    let key = if let Some(key) = kept {
        key
    } else {
        let key = KeyPair::generate_rsa_for(&PKCS_RSA_SHA256, RsaKeySize::_2048).map_err(failed)?;
        files::write(&private, key.serialize_pem().as_bytes(), Access::Private)?;
        key
    };
    let wanted = key.public_key_pem();
    if files::read_text(&public)?.as_deref() != Some(&wanted) {
        files::write(&public, wanted.as_bytes(), Access::Public)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
