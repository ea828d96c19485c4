//! etcd, kube-apiserver, kube-controller-manager and kube-scheduler, as processes.
//!
//! ```text
//! certificates, ports ─► etcd ─► kube-apiserver (/readyz) ─┬─► kube-controller-manager ─┬─► default namespace and
//!                                                          └─► kube-scheduler ──────────┘   ServiceAccount exist
//! ```
//!
//! A second start on the same directory resumes: the etcd data, the certificates and, where still free, the ports are those of the
//! last run. A start that fails leaves nothing running.

mod parts;
mod ready;

use std::fmt;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use russet_parts::Tools;

use crate::files::{self, Access};
use crate::pki::{self, Pki};
use crate::ports::{self, Ports};
use crate::process::{self, Restart, Supervisor};
use crate::{kubeconfig, pki::Pair};

pub use self::parts::name;

/// What to start, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Holds everything: `pki/`, `etcd/`, `ports.json`, kubeconfigs.
    pub dir: PathBuf,
    /// Where the logs go.
    pub logs: PathBuf,
    /// What kube-apiserver listens on and tells others to use. Nodes in network namespaces need one they can reach.
    pub address: Ipv4Addr,
    /// What runs besides etcd and kube-apiserver.
    pub extras: Extras,
    /// Write an audit log of every request (level Metadata).
    pub audit: bool,
    /// More arguments for kube-apiserver.
    pub apiserver_args: Vec<String>,
    /// What happens when a part ends.
    pub restart: Restart,
    /// Whether etcd waits for the disk.
    pub durability: Durability,
}

impl Options {
    /// etcd and kube-apiserver on loopback, durable and restarted.
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        let dir = dir.into();
        Self {
            logs: dir.join("logs"),
            dir,
            address: Ipv4Addr::LOCALHOST,
            extras: Extras::default(),
            audit: false,
            apiserver_args: Vec::new(),
            restart: Restart::DEFAULT,
            durability: Durability::Synced,
        }
    }
}

/// What runs besides etcd and kube-apiserver.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Extras {
    /// kube-controller-manager, with these further arguments.
    pub controller_manager: Option<Vec<String>>,
    /// kube-scheduler.
    pub scheduler: bool,
}

impl Extras {
    /// Both.
    pub fn all() -> Self {
        Self {
            controller_manager: Some(Vec::new()),
            scheduler: true,
        }
    }
}

/// Whether etcd waits for the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// Data survives a power cut.
    Synced,
    /// Faster; only for clusters that are thrown away.
    Throwaway,
}

/// Why the control plane could not be started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A program is missing.
    #[error("a part of the control plane is missing")]
    Part(#[from] russet_parts::Error),
    /// A process did not start.
    #[error(transparent)]
    Process(#[from] process::Error),
    /// Certificates could not be made.
    #[error(transparent)]
    Pki(#[from] pki::Error),
    /// No ports.
    #[error(transparent)]
    Ports(#[from] ports::Error),
    /// A kubeconfig could not be written or used.
    #[error(transparent)]
    Kubeconfig(#[from] kubeconfig::Error),
    /// A file could not be written.
    #[error(transparent)]
    File(#[from] files::Error),
    /// Everything runs, but the cluster does not get usable.
    #[error("the control plane runs, but {what} did not appear within {seconds} s (last answer: {last}); its logs are in {}", logs.display())]
    Incomplete {
        /// What is missing.
        what: &'static str,
        /// The limit that passed.
        seconds: u64,
        /// What the apiserver said last.
        last: String,
        /// Where to look.
        logs: PathBuf,
    },
}

/// A running control plane. Cheap to clone; the processes belong to the supervisor.
#[derive(Clone)]
pub struct ControlPlane {
    options: Arc<Options>,
    pki: Arc<Pki>,
    server: String,
    etcd_url: String,
    admin_kubeconfig: PathBuf,
}

impl fmt::Debug for ControlPlane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ControlPlane")
            .field("server", &self.server)
            .field("dir", &self.options.dir)
            .finish_non_exhaustive()
    }
}

impl ControlPlane {
    /// Starts it and waits until it is usable.
    pub async fn start(tools: &Tools, supervisor: &Supervisor, options: Options) -> Result<Self, Error> {
        files::create_private_dir(&options.dir)?;
        files::create_private_dir(&options.dir.join("etcd"))?;
        let (dir, address) = (options.dir.join("pki"), options.address);
        // RSA key generation takes long enough to hold up a runtime thread.
        let made = tokio::task::spawn_blocking(move || Pki::ensure(&dir, address)).await;
        let pki = made.unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()))?;
        let (options, pki) = (Arc::new(options), Arc::new(pki));
        ports::started(
            || Self::start_once(tools, supervisor, &options, &pki),
            |error| match error {
                Error::Process(error) => Some(error),
                _ => None,
            },
        )
        .await
    }

    async fn start_once(
        tools: &Tools,
        supervisor: &Supervisor,
        options: &Arc<Options>,
        pki: &Arc<Pki>,
    ) -> Result<Self, Error> {
        let loopback = Ports::pick(&options.dir, Ipv4Addr::LOCALHOST, &parts::LOOPBACK_PORTS)?;
        let public = Ports::pick(&options.dir, options.address, &[parts::APISERVER_PORT])?;
        let layout = parts::Layout {
            options,
            pki,
            loopback: &loopback,
            public: &public,
        };
        let server = format!("https://{}", public.socket(parts::APISERVER_PORT));
        let kubeconfig = |user: &Pair, file: &str| {
            kubeconfig::for_client_cert(&server, pki.ca().pem(), user, &options.dir.join(file))
        };
        let admin_kubeconfig = kubeconfig(&pki.admin, "admin.kubeconfig")?;
        let controller_manager = kubeconfig(&pki.controller_manager, "controller-manager.kubeconfig")?;
        let scheduler = kubeconfig(&pki.scheduler, "scheduler.kubeconfig")?;
        if options.audit {
            files::write(&layout.audit_policy(), parts::AUDIT_POLICY.as_bytes(), Access::Public)?;
        }
        let control_plane = Self {
            options: options.clone(),
            pki: pki.clone(),
            etcd_url: layout.etcd_url(),
            admin_kubeconfig,
            server,
        };
        let started = async {
            supervisor.start(layout.etcd(tools.path(name::ETCD)?)).await?;
            supervisor.start(layout.apiserver(tools.path(name::APISERVER)?)).await?;
            let controller_manager = async {
                let Some(extra) = &options.extras.controller_manager else {
                    return Ok(());
                };
                let program = tools.path(name::CONTROLLER_MANAGER)?;
                supervisor
                    .start(layout.controller_manager(program, &controller_manager, extra))
                    .await?;
                Ok::<_, Error>(())
            };
            let scheduler = async {
                if options.extras.scheduler {
                    supervisor
                        .start(layout.scheduler(tools.path(name::SCHEDULER)?, &scheduler))
                        .await?;
                }
                Ok(())
            };
            futures::try_join!(controller_manager, scheduler, ready::wait(&control_plane))?;
            Ok(())
        };
        match started.await {
            Ok(()) => Ok(control_plane),
            Err(error) => {
                for part in [name::SCHEDULER, name::CONTROLLER_MANAGER, name::APISERVER, name::ETCD] {
                    // Those that were never started are unknown, which is just as well.
                    let _ = supervisor.stop(part).await;
                }
                Err(error)
            }
        }
    }

    /// A kubeconfig with all rights, readable by its owner only.
    pub fn admin_kubeconfig(&self) -> &Path {
        &self.admin_kubeconfig
    }

    /// The apiserver's URL.
    pub fn server(&self) -> &str {
        &self.server
    }

    /// The certificate authority of the cluster, as PEM.
    pub fn ca_pem(&self) -> &str {
        self.pki.ca().pem()
    }

    /// A client with all rights.
    pub async fn client(&self) -> Result<kube::Client, Error> {
        Ok(kubeconfig::client(&self.admin_kubeconfig).await?)
    }

    /// The identities.
    pub fn pki(&self) -> &Pki {
        &self.pki
    }

    /// The directory that holds everything.
    pub fn dir(&self) -> &Path {
        &self.options.dir
    }

    /// What it was started with.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// The audit log: one JSON object per line, written before the request is answered.
    pub fn audit_log(&self) -> Option<PathBuf> {
        self.options.audit.then(|| parts::audit_log(&self.options))
    }

    /// etcd's URL. It wants a client certificate: [`Pki::apiserver_etcd_client`].
    pub fn etcd_url(&self) -> &str {
        &self.etcd_url
    }
}
