//! The very program that production servers run, in emulated ones, against a real control plane.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use kube::api::{Api, ListParams, Patch, PatchParams};
use russet_bootstrap::linux::{self, Data, Form, Join, KubernetesChannel, NodeAddress, PrivateNet, Taint};
use russet_cluster::control_plane::{self, Durability, Extras};
use russet_cluster::node::{self, Network, join};
use russet_cluster::pki::Profile;
use russet_cluster::{ControlPlane, Supervisor, kubeconfig};
use russet_parts::Tools;
use russet_sim_linux::{CloudInit, Filesystem, Kind, PrivateLeg, Row};
use russet_sim_scaleway::Id;
use russet_skip::{can_run, test_name};
use russet_telemetry::Secret;
use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;
use tokio::task::AbortHandle;

use crate::harness::{Site, Traces, eventually, parts};

/// Fields end in order of declaration: servers before the control plane, that before the network it listens on.
struct Cluster {
    site: Site,
    tools: Tools,
    control_plane: ControlPlane,
    supervisor: Supervisor,
    approver: AbortHandle,
}

impl Cluster {
    async fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let tools = parts(&[
            "etcd",
            "kube-apiserver",
            "kube-controller-manager",
            "kube-scheduler",
            "kubectl",
        ])
        .await;
        let network = Network::create(dir.path()).await.unwrap();
        let supervisor = Supervisor::new(dir.path());
        let options = control_plane::Options {
            address: network.gateway(),
            extras: Extras {
                controller_manager: Some(network.controller_manager_args()),
                scheduler: true,
            },
            durability: Durability::Throwaway,
            ..control_plane::Options::new(dir.path().join("cluster"))
        };
        let control_plane = ControlPlane::start(&tools, &supervisor, options)
            .await
            .unwrap_or_else(|error| panic!("{error}"));
        let proxy = proxy_kubeconfig(&control_plane, dir.path());
        let approver = tokio::spawn(approve_serving(control_plane.client().await.unwrap())).abort_handle();
        let site = Site::on(dir, network, tools.clone(), Some(proxy)).await;
        Self {
            site,
            tools,
            control_plane,
            supervisor,
            approver,
        }
    }

    /// A Join for a server, with a token of its own.
    async fn join(&self, row: &Row, private_network: PrivateNet, form: Form) -> Join {
        let client = self.control_plane.client().await.unwrap();
        let token = join::invite(&client, Timestamp::now()).await.unwrap();
        let file = self.site.dir.path().join("bootstrap-kubeconfig");
        let (server, ca) = (self.control_plane.server(), self.control_plane.ca_pem());
        kubeconfig::for_token(server, ca, "bootstrap", &token.bearer(), &file).unwrap();
        Join {
            node_name: row.name.clone(),
            provider_id: format!("scaleway://instance/fr-par-1/{}", row.server_id),
            labels: BTreeMap::from([("node.cluster.x-k8s.io/instance-type".to_owned(), "scaleway".to_owned())]),
            taints: vec![Taint {
                key: "tuist.dev/runner-cache".to_owned(),
                value: "true".to_owned(),
                effect: "NoSchedule".to_owned(),
            }],
            bootstrap_kubeconfig: Secret::new(std::fs::read_to_string(&file).unwrap()),
            cluster_ca_pem: ca.to_owned(),
            cluster_dns: vec!["10.96.0.10".parse().unwrap()],
            cluster_domain: "cluster.local".to_owned(),
            kubernetes: KubernetesChannel::v1(35),
            private_network,
            node_address: NodeAddress::PrivateNetwork,
            data: Data::None,
            form,
        }
    }

    async fn kubectl(&self, args: &[&str]) -> Result<String, String> {
        self.kubectl_with(args, "").await
    }

    async fn kubectl_with(&self, args: &[&str], input: &str) -> Result<String, String> {
        let mut kubectl = Command::new(self.tools.path("kubectl").unwrap())
            .arg("--kubeconfig")
            .arg(self.control_plane.admin_kubeconfig())
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        kubectl.stdin.take().unwrap().write_all(input.as_bytes()).await.unwrap();
        let output = kubectl.wait_with_output().await.unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        if output.status.success() {
            Ok(text(&output.stdout))
        } else {
            Err(text(&output.stderr))
        }
    }

    async fn must(&self, args: &[&str]) -> String {
        let done = self.kubectl(args).await;
        done.unwrap_or_else(|why| panic!("kubectl {args:?}: {why}\n{}", self.site.consoles()))
    }

    /// Waits until a Node says that it is Ready, and said so after the given time.
    async fn ready(&self, node: &str, since: Timestamp) {
        let path = "jsonpath={.status.conditions[?(@.type==\"Ready\")].status} \
                    {.status.conditions[?(@.type==\"Ready\")].lastHeartbeatTime}";
        eventually(&format!("{node} is Ready\n{}", self.site.consoles()), async || {
            let said = self
                .kubectl(&["get", "node", node, "-o", path])
                .await
                .unwrap_or_default();
            said.strip_prefix("True ")
                .and_then(|at| at.parse::<Timestamp>().ok())
                .is_some_and(|at| at > since)
        })
        .await;
    }

    async fn stop(self) {
        self.approver.abort();
        drop(self.site.fleet);
        self.supervisor.shutdown().await;
    }
}

fn proxy_kubeconfig(control_plane: &ControlPlane, dir: &Path) -> std::path::PathBuf {
    let pair = control_plane
        .pki()
        .pair_in(dir, "kube-proxy", &Profile::client("system:kube-proxy", None))
        .unwrap();
    let (server, ca) = (control_plane.server(), control_plane.ca_pem());
    kubeconfig::for_client_cert(server, ca, &pair, &dir.join("kube-proxy.kubeconfig")).unwrap()
}

/// Kubernetes itself approves no serving certificates; in production our provider does.
async fn approve_serving(client: kube::Client) {
    let requests: Api<CertificateSigningRequest> = Api::all(client);
    loop {
        for request in requests.list(&ListParams::default()).await.into_iter().flatten() {
            let undecided = request.status.as_ref().is_none_or(|status| status.conditions.is_none());
            if request.spec.signer_name != "kubernetes.io/kubelet-serving" || !undecided {
                continue;
            }
            let name = request.metadata.name.clone().unwrap();
            let approved = serde_json::json!({"status": {
                "conditions": [{"type": "Approved", "status": "True", "reason": "Test"}],
            }});
            let _ = requests
                .patch_approval(&name, &PatchParams::default(), &Patch::Strategic(approved))
                .await;
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

const POD: &str = r#"
apiVersion: v1
kind: Pod
metadata: { name: web }
spec:
  nodeName: cache-1
  tolerations: [{ key: tuist.dev/runner-cache, operator: Exists }]
  containers:
  - name: web
    image: localhost/busybox:1
    command: [sh, -c, "echo serving; mkdir -p /www; echo hello >/www/index.html; exec httpd -f -p 8080 -h /www"]
    readinessProbe: { httpGet: { port: 8080 }, periodSeconds: 1 }
"#;

#[tokio::test(flavor = "multi_thread")]
async fn the_join_program_makes_a_server_a_node_that_survives_a_reboot() {
    if !can_run(test_name!(), node::check()) {
        return;
    }
    let cluster = Cluster::start().await;
    let site = &cluster.site;
    let mut row = site.row("cache-1", 201);
    row.private = Some(PrivateLeg {
        private_network_id: Id::named("pn-1"),
        address: format!("172.29.{}.5/24", site.network.nodes().base().octets()[2]),
        mac: "02:00:00:00:29:05".to_owned(),
        vlan: None,
    });
    let nic = PrivateNet::Nic {
        mac: "02:00:00:00:29:05".to_owned(),
        address: None,
    };
    let orders = cluster.join(&row, nic, Form::CloudInit).await;
    let rendered = linux::render(&orders).unwrap();
    row.user_data = Some(linux::cloud_init(&rendered).expose().clone());
    let began = Timestamp::now();
    site.fleet.apply(row.clone()).await;
    let state = site
        .until(&row, "the join program", |state| state.cloud_init.is_some())
        .await;
    assert_eq!(state.cloud_init, Some(CloudInit::Done), "{}", site.consoles());
    cluster.ready("cache-1", began).await;

    let status = site.ssh(&row, linux::REPORT_COMMAND).await.unwrap();
    let report = linux::parse_report(&status).unwrap().unwrap();
    assert_eq!(
        (report.state, report.config_hash),
        (linux::JoinState::Done, rendered.config_hash.clone())
    );
    let path = "jsonpath={.spec.providerID} {.spec.taints[?(@.key==\"tuist.dev/runner-cache\")].effect} \
                {.metadata.labels.node\\.cluster\\.x-k8s\\.io/instance-type} \
                {.status.addresses[?(@.type==\"InternalIP\")].address}";
    let node = cluster.must(&["get", "node", "cache-1", "-o", path]).await;
    let address = row
        .private
        .as_ref()
        .unwrap()
        .address
        .split('/')
        .next()
        .unwrap()
        .to_owned();
    assert_eq!(
        node,
        format!(
            "scaleway://instance/fr-par-1/{} NoSchedule scaleway {address}",
            row.server_id
        )
    );

    cluster.kubectl_with(&["apply", "-f", "-"], POD).await.unwrap();
    cluster
        .must(&["wait", "--for=condition=Ready", "--timeout=170s", "pod/web"])
        .await;
    assert_eq!(cluster.must(&["logs", "web"]).await.trim(), "serving");
    assert_eq!(
        cluster
            .must(&["exec", "web", "--", "cat", "/www/index.html"])
            .await
            .trim(),
        "hello"
    );

    let began = Timestamp::now();
    row.boots += 1;
    row.user_data = None;
    site.fleet.apply(row.clone()).await;
    cluster.ready("cache-1", began).await;
    eventually("the Pod serves again", async || {
        let said = cluster.kubectl(&["exec", "web", "--", "cat", "/www/index.html"]).await;
        said.is_ok_and(|said| said.trim() == "hello")
    })
    .await;

    let traces = Traces::of(&site.fleet, &row).await;
    site.fleet.remove(&row.server_id).await;
    traces.vanish().await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_elastic_metal_server_joins_over_ssh_through_its_vlan_and_keeps_its_data_on_a_disk_of_its_own() {
    if !can_run(test_name!(), node::check()) {
        return;
    }
    if !can_run(test_name!(), russet_sim_linux::check_data().await) {
        return;
    }
    let cluster = Cluster::start().await;
    let site = &cluster.site;
    let mut row = site.row("metal-1", 202);
    row.kind = Kind::Metal;
    row.ssh_user = "ubuntu".to_owned();
    let address = format!("172.29.{}.6/24", site.network.nodes().base().octets()[2]);
    row.private = Some(PrivateLeg {
        private_network_id: Id::named("pn-1"),
        address: address.clone(),
        mac: "02:00:00:00:29:06".to_owned(),
        vlan: Some(1234),
    });
    row.filesystems = vec![Filesystem {
        format: "xfs".to_owned(),
        mountpoint: "/data".to_owned(),
    }];
    site.fleet.apply(row.clone()).await;
    site.booted(&row).await;
    let vlan = PrivateNet::Vlan {
        id: 1234,
        address: Some(address),
    };
    let mut orders = cluster.join(&row, vlan, Form::Ssh).await;
    orders.data = Data::Nvme {
        images_gib: Data::IMAGES_GIB,
    };
    let rendered = linux::render(&orders).unwrap();
    let began = Timestamp::now();
    let said = site.ssh_with(&row, linux::SSH_COMMAND, rendered.script.expose()).await;
    said.unwrap_or_else(|why| panic!("{why}\n{}", site.consoles()));
    cluster.ready("metal-1", began).await;
    on_its_own_disk(site, &row).await;
    let said = site.ssh_with(&row, linux::SSH_COMMAND, rendered.script.expose()).await;
    said.unwrap_or_else(|why| panic!("a second run: {why}\n{}", site.consoles()));

    let began = Timestamp::now();
    row.boots += 1;
    site.fleet.apply(row.clone()).await;
    cluster.ready("metal-1", began).await;
    on_its_own_disk(site, &row).await;
    let traces = Traces::of(&site.fleet, &row).await;
    cluster.stop().await;
    traces.vanish().await;
}

/// What fills a disk is on the one for it, with quotas as far as the join program can see.
async fn on_its_own_disk(site: &Site, row: &Row) {
    for folder in ["/data", "/var/lib/kubelet", "/opt/local-path-provisioner"] {
        let look = format!("findmnt --noheadings --output FSTYPE --mountpoint {folder}");
        let said = site.ssh(row, &look).await;
        assert_eq!(said.as_deref().map(str::trim), Ok("xfs"), "{folder}");
    }
    let options = "findmnt --noheadings --output OPTIONS --mountpoint /data";
    let said = site.ssh(row, options).await.unwrap();
    assert!(said.trim().split(',').any(|option| option == "prjquota"), "{said}");
    let images = site.ssh(row, "sudo ls /data/containerd").await.unwrap();
    assert!(images.contains("io.containerd.metadata"), "{images}");
}
