//! metrics-server, as a process outside the cluster it serves: what answers `kubectl top`.
//!
//! ```text
//!   kubectl top ──► kube-apiserver ──APIService, front proxy──► metrics-server ──:10250 /metrics/resource──► kubelets
//! ```
//!
//! Nothing is left unchecked for convenience: the API server checks its certificate, it checks those of the kubelets, and it asks them
//! with the rights of its own ServiceAccount, which are those of its own manifests.

use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams};
use russet_parts::Tools;
use serde_json::{Value, json};

use crate::control_plane::ControlPlane;
use crate::files;
use crate::kubeconfig;
use crate::pki::{self, Profile};
use crate::ports::{self, Ports};
use crate::process::{self, Probe, Restart, Spec, Supervisor};

/// The name of the program, and of everything it has in the cluster.
pub const NAME: &str = "metrics-server";
/// Where that is.
pub const NAMESPACE: &str = "kube-system";
/// Its APIService.
pub const API_SERVICE: &str = "v1beta1.metrics.k8s.io";

const FIELD_MANAGER: &str = "russet";
const PORT: &str = "metrics-server";

/// Why it could not be started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An object could not be applied.
    #[error("could not apply the {kind} of metrics-server")]
    Apply {
        /// Which.
        kind: &'static str,
        /// What the apiserver said.
        #[source]
        source: Box<kube::Error>,
    },
    /// The program is missing.
    #[error(transparent)]
    Part(#[from] russet_parts::Error),
    /// No client.
    #[error("could not reach the control plane")]
    ControlPlane(#[source] Box<crate::control_plane::Error>),
    /// The process did not start.
    #[error(transparent)]
    Process(#[from] process::Error),
    /// No certificate.
    #[error(transparent)]
    Pki(#[from] pki::Error),
    /// No port.
    #[error(transparent)]
    Ports(#[from] ports::Error),
    /// No kubeconfig.
    #[error(transparent)]
    Kubeconfig(#[from] kubeconfig::Error),
    /// A file could not be read or written.
    #[error(transparent)]
    File(#[from] files::Error),
}

/// How to run it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Holds its certificate, its kubeconfig and the port it had.
    pub dir: PathBuf,
    /// Holds its log.
    pub logs: PathBuf,
    /// Time between two readings of a node, of which usage takes two. It accepts no less than 10 seconds.
    pub resolution: Duration,
    /// What happens when it ends.
    pub restart: Restart,
}

/// Tells the cluster about it and starts it. Returns when it answers; `kubectl top` has numbers after two readings.
pub async fn start(
    tools: &Tools,
    supervisor: &Supervisor,
    control_plane: &ControlPlane,
    options: &Options,
) -> Result<(), Error> {
    ports::started(
        || start_once(tools, supervisor, control_plane, options),
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
    let ports = Ports::pick(&options.dir, Ipv4Addr::LOCALHOST, &[PORT])?;
    let names = vec![format!("{NAME}.{NAMESPACE}.svc"), Ipv4Addr::LOCALHOST.to_string()];
    let serving = control_plane
        .pki()
        .pair_in(&options.dir, "tls", &Profile::server(names))?;
    let client = control_plane
        .client()
        .await
        .map_err(|error| Error::ControlPlane(Box::new(error)))?;
    for (kind, object) in objects(ports.port(PORT), control_plane.ca_pem()) {
        apply(&client, kind, &object).await?;
    }
    let dest = options.dir.join("kubeconfig");
    let kubeconfig = kubeconfig::for_service_account(client, control_plane, NAMESPACE, NAME, &dest).await?;
    let kubeconfig = kubeconfig.display();
    let ca = control_plane.pki().ca().cert();
    let address = ports.socket(PORT);
    let resolution = options.resolution.as_secs();
    let spec = Spec::new(NAME, tools.path(NAME)?, options.logs.join(format!("{NAME}.log")))
        .args([
            format!("--kubeconfig={kubeconfig}"),
            format!("--authentication-kubeconfig={kubeconfig}"),
            format!("--authorization-kubeconfig={kubeconfig}"),
            format!("--bind-address={}", Ipv4Addr::LOCALHOST),
            format!("--secure-port={}", ports.port(PORT)),
            format!("--tls-cert-file={}", serving.cert.display()),
            format!("--tls-private-key-file={}", serving.key.display()),
            format!("--kubelet-certificate-authority={}", ca.display()),
            "--kubelet-preferred-address-types=InternalIP".to_owned(),
            "--kubelet-use-node-status-port".to_owned(),
            // It wants this to be well below its resolution.
            format!("--kubelet-request-timeout={}s", (resolution / 2).max(1)),
            format!("--metric-resolution={resolution}s"),
        ])
        .listens(address)
        .restart(options.restart)
        // Whether it is ready depends on nodes, and there may be none yet.
        .probe(Probe::Tls {
            url: format!("https://{address}/"),
            ca: ca.to_owned(),
        });
    supervisor.start(spec).await?;
    Ok(())
}

async fn apply(client: &kube::Client, kind: &'static str, object: &Value) -> Result<(), Error> {
    let text = |pointer| object.pointer(pointer).and_then(Value::as_str);
    let (group, version) = text("/apiVersion")
        .and_then(|version| version.split_once('/'))
        .unwrap_or(("", "v1"));
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
    let api: Api<DynamicObject> = match text("/metadata/namespace") {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    };
    let params = PatchParams::apply(FIELD_MANAGER).force();
    let applied = api
        .patch(
            text("/metadata/name").unwrap_or_default(),
            &params,
            &Patch::Apply(object),
        )
        .await;
    applied.map(drop).map_err(|source| Error::Apply {
        kind,
        source: Box::new(source),
    })
}

/// What its own manifests have, but for the Deployment: the Service leads out of the cluster to the process, and what it shows there is
/// checked.
fn objects(port: u16, ca_pem: &str) -> [(&'static str, Value); 8] {
    const RBAC: &str = "rbac.authorization.k8s.io/v1";
    let account = json!([{"kind": "ServiceAccount", "name": NAME, "namespace": NAMESPACE}]);
    let role = |kind: &str, name: &str| json!({"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name});
    let ours = json!({"name": NAME, "namespace": NAMESPACE});
    let object = |kind: &'static str, version: &str, metadata: &Value, mut rest: Value| {
        if let Value::Object(fields) = &mut rest {
            fields.insert("kind".to_owned(), kind.into());
            fields.insert("apiVersion".to_owned(), version.into());
            fields.insert("metadata".to_owned(), metadata.clone());
        }
        (kind, rest)
    };
    let viewer_role = json!({"name": "system:aggregated-metrics-reader", "labels": {
        "rbac.authorization.k8s.io/aggregate-to-view": "true",
        "rbac.authorization.k8s.io/aggregate-to-edit": "true",
        "rbac.authorization.k8s.io/aggregate-to-admin": "true",
    }});
    let viewing = json!({"rules": [
        {"apiGroups": ["metrics.k8s.io"], "resources": ["pods", "nodes"], "verbs": ["get", "list", "watch"]},
    ]});
    let scraping = json!({"rules": [
        {"apiGroups": [""], "resources": ["nodes/metrics"], "verbs": ["get"]},
        {"apiGroups": [""], "resources": ["pods", "nodes"], "verbs": ["get", "list", "watch"]},
    ]});
    let to = |role: Value| json!({"roleRef": role, "subjects": account});
    let own_role = json!({"name": "system:metrics-server"});
    [
        object("ServiceAccount", "v1", &ours, json!({})),
        object("ClusterRole", RBAC, &viewer_role, viewing),
        object("ClusterRole", RBAC, &own_role, scraping),
        object(
            "ClusterRoleBinding",
            RBAC,
            &own_role,
            to(role("ClusterRole", "system:metrics-server")),
        ),
        object(
            "ClusterRoleBinding",
            RBAC,
            &json!({"name": "metrics-server:system:auth-delegator"}),
            to(role("ClusterRole", "system:auth-delegator")),
        ),
        object(
            "RoleBinding",
            RBAC,
            &json!({"name": "metrics-server-auth-reader", "namespace": NAMESPACE}),
            to(role("Role", "extension-apiserver-authentication-reader")),
        ),
        object(
            "Service",
            "v1",
            &ours,
            json!({"spec": {"type": "ExternalName", "externalName": Ipv4Addr::LOCALHOST.to_string()}}),
        ),
        object(
            "APIService",
            "apiregistration.k8s.io/v1",
            &json!({"name": API_SERVICE}),
            json!({"spec": {
                "group": "metrics.k8s.io",
                "version": "v1beta1",
                "service": {"name": NAME, "namespace": NAMESPACE, "port": port},
                "caBundle": STANDARD.encode(ca_pem),
                "groupPriorityMinimum": 100,
                "versionPriority": 100,
            }}),
        ),
    ]
}
