//! Cluster API core, as a process with its own ServiceAccount.
//!
//! It runs outside the cluster, so its webhooks are called by URL on loopback with a certificate of the cluster's authority, and no
//! cert-manager is needed. Its rights are those of its release: the roles of its own configuration folder, bound to
//! `capi-system/capi-manager`, whose token is in the kubeconfig it is given. Leader election stays off: it wants a Pod.

mod install;
mod manifests;

use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::time::Duration;

use russet_parts::Tools;

use crate::control_plane::ControlPlane;
use crate::pki::{self, Profile};
use crate::ports::{self, Ports};
use crate::process::{self, Probe, Restart, Spec, Supervisor};
use crate::{files, kubeconfig};

/// The name of the process and of its program.
pub const NAME: &str = "capi-core";
/// The tool that holds its configuration folder.
pub const CONFIG: &str = "cluster-api-config";
/// Where its ServiceAccount lives.
pub const NAMESPACE: &str = "capi-system";
/// Its ServiceAccount.
pub const SERVICE_ACCOUNT: &str = "capi-manager";

const WEBHOOK_PORT: &str = "capi-webhook";
const HEALTH_PORT: &str = "capi-health";
const DIAGNOSTICS_PORT: &str = "capi-diagnostics";

/// How to run it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Holds its kubeconfig, certificate and ports.
    pub dir: PathBuf,
    /// Where its log goes.
    pub logs: PathBuf,
    /// Whether it reconciles an object at most once a second, as in production, or as fast as it can.
    pub pace: Pace,
    /// More arguments.
    pub args: Vec<String>,
    /// What happens when it ends.
    pub restart: Restart,
}

impl Options {
    /// As in production, restarted when it ends.
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        let dir = dir.into();
        Self {
            logs: dir.join("logs"),
            dir,
            pace: Pace::Production,
            args: Vec::new(),
            restart: Restart::DEFAULT,
        }
    }
}

/// How often it reconciles.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pace {
    /// One reconcile per object and second.
    Production,
    /// No limit: a MachineDeployment is available in less than half the time. For tests.
    Unlimited,
}

/// Why it could not be started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Its rights are aggregated by kube-controller-manager.
    #[error(
        "Cluster API core needs kube-controller-manager, which aggregates its role; start the control plane with it"
    )]
    NeedsControllerManager,
    /// The program or its configuration folder is missing.
    #[error("a part of Cluster API core is missing")]
    Part(#[from] russet_parts::Error),
    /// Its configuration folder does not hold what is expected of its version.
    #[error("the Cluster API configuration {} is not usable: {reason}; `russet parts fetch` obtains it anew", path.display())]
    Config {
        /// The file or folder.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// An object could not be applied.
    #[error("could not apply {object}")]
    Apply {
        /// Kind and name.
        object: String,
        /// What the apiserver said.
        #[source]
        source: Box<kube::Error>,
    },
    /// The cluster could not be asked what is installed.
    #[error("could not find out what is installed of Cluster API")]
    Inspect(#[source] Box<kube::Error>),
    /// Something applied does not take effect.
    #[error("{what} did not happen within {seconds} s")]
    NotInEffect {
        /// What was waited for.
        what: String,
        /// The limit that passed.
        seconds: u64,
    },
    /// The process did not start.
    #[error(transparent)]
    Process(#[from] process::Error),
    /// No certificate.
    #[error(transparent)]
    Pki(#[from] pki::Error),
    /// No ports.
    #[error(transparent)]
    Ports(#[from] ports::Error),
    /// No kubeconfig.
    #[error(transparent)]
    Kubeconfig(#[from] kubeconfig::Error),
    /// No client.
    #[error("could not reach the control plane")]
    ControlPlane(#[source] Box<crate::control_plane::Error>),
    /// A file could not be read or written.
    #[error(transparent)]
    File(#[from] files::Error),
}

/// Installs it into the cluster, where that is not done yet, and starts it. Returns when its webhooks answer.
pub async fn start(
    tools: &Tools,
    supervisor: &Supervisor,
    control_plane: &ControlPlane,
    options: Options,
) -> Result<(), Error> {
    if control_plane.options().extras.controller_manager.is_none() {
        return Err(Error::NeedsControllerManager);
    }
    ports::started(
        || start_once(tools, supervisor, control_plane, &options),
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
    control_plane: &ControlPlane,
    options: &Options,
) -> Result<(), Error> {
    files::create_private_dir(&options.dir)?;
    let ports = Ports::pick(
        &options.dir,
        Ipv4Addr::LOCALHOST,
        &[WEBHOOK_PORT, HEALTH_PORT, DIAGNOSTICS_PORT],
    )?;
    let serving = Profile::server(vec![Ipv4Addr::LOCALHOST.to_string(), "localhost".to_owned()]);
    let certs = options.dir.join("webhook-certs");
    control_plane.pki().pair_in(&certs, "tls", &serving)?;

    let webhooks = manifests::Webhooks {
        base_url: format!("https://{}", ports.socket(WEBHOOK_PORT)),
        ca_pem: control_plane.ca_pem().to_owned(),
    };
    let objects = manifests::load(tools.path(CONFIG)?, &webhooks)?;
    let client = control_plane
        .client()
        .await
        .map_err(|error| Error::ControlPlane(Box::new(error)))?;
    install::ensure(&client, &objects).await?;

    let dest = options.dir.join("capi.kubeconfig");
    let kubeconfig = kubeconfig::for_service_account(client, control_plane, NAMESPACE, SERVICE_ACCOUNT, &dest).await?;
    let health = ports.socket(HEALTH_PORT);
    let spec = Spec::new(NAME, tools.path(NAME)?, options.logs.join(format!("{NAME}.log")))
        .args([
            format!("--kubeconfig={}", kubeconfig.display()),
            format!("--webhook-port={}", ports.port(WEBHOOK_PORT)),
            format!("--webhook-cert-dir={}", certs.display()),
            format!("--diagnostics-address={}", ports.socket(DIAGNOSTICS_PORT)),
            "--insecure-diagnostics".to_owned(),
            format!("--health-addr={health}"),
        ])
        .args(match options.pace {
            Pace::Production => None,
            Pace::Unlimited => Some("--feature-gates=ReconcilerRateLimiting=false"),
        })
        .args(options.args.iter().cloned())
        // Core compares its own Pod with the cluster it manages; outside a Pod any values do.
        .env("POD_NAMESPACE", NAMESPACE)
        .env("POD_NAME", SERVICE_ACCOUNT)
        .env("POD_UID", SERVICE_ACCOUNT)
        .listens(ports.socket(WEBHOOK_PORT))
        .listens(health)
        .listens(ports.socket(DIAGNOSTICS_PORT))
        .restart(options.restart)
        .ready_within(Duration::from_mins(1))
        // Its readiness covers the webhook server, but not that the apiserver will trust it: that is tried from here.
        .probe(Probe::All(vec![
            Probe::Http {
                url: format!("http://{health}/readyz"),
            },
            Probe::Tls {
                url: format!("{}/", webhooks.base_url),
                ca: control_plane.pki().ca().cert().to_owned(),
            },
        ]));
    supervisor.start(spec).await?;
    Ok(())
}
