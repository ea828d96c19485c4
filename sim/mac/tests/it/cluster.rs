//! Emulated Macs on a real cluster: certificates that somebody has to approve, the Node authorizer, NodeRestriction, and
//! kube-controller-manager, which notices when a machine falls silent.

use anyhow::{Context, Result, bail, ensure};
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, Secret};
use k8s_openapi::api::rbac::v1::ClusterRoleBinding;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, ResourceExt};
use russet_sim_mac::{Fleet, Options, Phase, State};
use russet_sim_scaleway::{Factor, Host, Minis, Sim};
use russet_testkit::TestCluster;
use russet_testkit::wait::{self, Look, PATIENCE};
use serde_json::{Value, json};
use std::time::Duration;

const GROUP: &str = "system:bootstrappers:sim-mac";

/// One emulated mini beside the shared cluster, and a bootstrap token of its own.
struct World {
    cluster: &'static TestCluster,
    client: Client,
    sim: Sim,
    fleet: Fleet,
    host: Host,
    token: String,
    node: String,
}

impl World {
    async fn start(name: &str) -> Result<Self> {
        let cluster = TestCluster::shared().await?;
        let client = cluster.client().await?;
        // Quicker than a real machine, so that a test does not wait for a tenth of a minute.
        let fleet = Fleet::new(Options {
            lease_every: Duration::from_millis(500),
            ..Options::default()
        })
        .await?;
        let options = russet_sim_scaleway::Options {
            clock_factor: Factor::MANUAL,
            ..russet_sim_scaleway::Options::default()
        };
        let sim = Sim::start_with(options, fleet.clone()).await?;
        sim.handle().add_minis(Minis::default())?;
        let host = sim.handle().host("tuist-pool").context("the mini")?;
        let token = invite(&client, name).await?;
        let node = format!("mac-{name}");
        let world = Self {
            cluster,
            client,
            sim,
            fleet,
            host,
            token,
            node,
        };
        wait::until_true("the mini to answer", PATIENCE, || async {
            Ok(world.fleet.state(&world.host.server_id).await.is_some())
        })
        .await?;
        Ok(world)
    }

    fn orders(&self) -> Value {
        let plane = self.cluster.control_plane();
        let kubeconfig = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "tart-kubelet",
            "clusters": [{"name": "c", "cluster": {
                "server": plane.server(),
                "certificate-authority-data": k8s_openapi::ByteString(plane.ca_pem().as_bytes().to_vec()),
            }}],
            "users": [{"name": "u", "user": {"token": self.token}}],
            "contexts": [{"name": "tart-kubelet", "context": {"cluster": "c", "user": "u"}}],
        });
        json!({
            "nodeName": self.node,
            "providerID": self.provider_id(),
            "labels": {"tuist.dev/fleet": "runners", "node.cluster.x-k8s.io/pool": "macs"},
            "taints": [{"key": "tuist.dev/builder", "value": "yes", "effect": "NoSchedule"}],
            "kubeconfig": kubeconfig.to_string(),
            "hash": "first",
        })
    }

    fn provider_id(&self) -> String {
        format!("scw-applesilicon://{}/{}", self.host.zone, self.host.server_id)
    }

    async fn join(&self, orders: &Value) -> Result<u16> {
        let url = format!("http://{}:{}/join", self.host.address, self.fleet.port());
        let request = reqwest::Client::builder().no_proxy().build()?.post(url).json(orders);
        let answer = request
            .basic_auth(&self.host.username, Some(&self.host.password))
            .send()
            .await?;
        Ok(answer.status().as_u16())
    }

    async fn state(&self) -> Result<State> {
        self.fleet
            .state(&self.host.server_id)
            .await
            .context("the machine is gone")
    }

    async fn is(&self, phase: Phase, hash: &str) -> Result<State> {
        wait::until(&format!("{phase:?}"), PATIENCE, || async {
            let state = self.state().await?;
            Ok(if state.phase == phase && state.hash == hash {
                Look::Done(state)
            } else {
                Look::not_yet(state)
            })
        })
        .await
    }

    /// The certificate request of this node that nobody has decided about.
    async fn pending(&self) -> Result<CertificateSigningRequest> {
        let requests: Api<CertificateSigningRequest> = Api::all(self.client.clone());
        let (id, _) = self.token.split_once('.').context("a token")?;
        let user = format!("system:bootstrap:{id}");
        wait::until("a certificate request", PATIENCE, || async {
            let all = requests.list(&ListParams::default()).await?.items;
            let ours = all
                .into_iter()
                .find(|request| request.spec.username.as_deref() == Some(&user));
            Ok(ours.map_or_else(|| Look::not_yet("none"), Look::Done))
        })
        .await
    }

    async fn decide(&self, request: &CertificateSigningRequest, verdict: &str) -> Result<()> {
        let requests: Api<CertificateSigningRequest> = Api::all(self.client.clone());
        let patch = json!({"status": {"conditions": [{
            "type": verdict, "status": "True", "reason": "Test", "message": "the test decided so",
        }]}});
        requests
            .patch_approval(&request.name_any(), &PatchParams::default(), &Patch::Merge(patch))
            .await?;
        Ok(())
    }

    /// Joins, with the approval of the test.
    async fn joined(name: &str) -> Result<Self> {
        let world = Self::start(name).await?;
        ensure!(world.join(&world.orders()).await? == 202);
        let request = world.pending().await?;
        world.decide(&request, "Approved").await?;
        world.is(Phase::Joined, "first").await?;
        Ok(world)
    }

    fn nodes(&self) -> Api<Node> {
        Api::all(self.client.clone())
    }

    fn leases(&self) -> Api<Lease> {
        Api::namespaced(self.client.clone(), "kube-node-lease")
    }

    /// Waits for a status of the Ready condition.
    async fn ready_is(&self, wanted: &str) -> Result<()> {
        wait::until(&format!("Ready={wanted}"), PATIENCE * 2, || async {
            let node = self.nodes().get(&self.node).await?;
            let found = condition(&node, "Ready");
            Ok(if found.as_deref() == Some(wanted) {
                Look::Done(())
            } else {
                Look::not_yet(found)
            })
        })
        .await
    }
}

fn condition(node: &Node, kind: &str) -> Option<String> {
    let conditions = node.status.as_ref()?.conditions.as_ref()?;
    Some(
        conditions
            .iter()
            .find(|condition| condition.type_ == kind)?
            .status
            .clone(),
    )
}

/// A bootstrap token whose holder may ask for certificates and do nothing else.
async fn invite(client: &Client, name: &str) -> Result<String> {
    let params = PatchParams::apply("test").force();
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": {"name": "sim-mac-bootstrap"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "system:node-bootstrapper"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": GROUP}],
    });
    let bindings: Api<ClusterRoleBinding> = Api::all(client.clone());
    bindings
        .patch("sim-mac-bootstrap", &params, &Patch::Apply(binding))
        .await?;
    let id: String = name.chars().chain("000000".chars()).take(6).collect();
    let secret = "0123456789abcdef";
    let object = json!({
        "apiVersion": "v1", "kind": "Secret", "type": "bootstrap.kubernetes.io/token",
        "metadata": {"name": format!("bootstrap-token-{id}"), "namespace": "kube-system"},
        "stringData": {
            "token-id": id, "token-secret": secret,
            "usage-bootstrap-authentication": "true", "auth-extra-groups": GROUP,
        },
    });
    let secrets: Api<Secret> = Api::namespaced(client.clone(), "kube-system");
    secrets
        .patch(&format!("bootstrap-token-{id}"), &params, &Patch::Apply(object))
        .await?;
    Ok(format!("{id}.{secret}"))
}

#[tokio::test]
async fn an_emulated_mac_joins_by_csr_and_lives_under_the_node_authorizer() -> Result<()> {
    let world = World::start("joins1").await?;
    ensure!(world.join(&world.orders()).await? == 202);
    let request = world.pending().await?;
    ensure!(request.spec.signer_name == "kubernetes.io/kube-apiserver-client-kubelet");
    ensure!(
        world.state().await?.phase == Phase::Joining,
        "it joined before anybody approved"
    );
    ensure!(world.nodes().get_opt(&world.node).await?.is_none());
    world.decide(&request, "Approved").await?;
    world.is(Phase::Joined, "first").await?;

    let node = world.nodes().get(&world.node).await?;
    for (key, value) in [
        ("kubernetes.io/os", "darwin"),
        ("kubernetes.io/arch", "arm64"),
        ("kubernetes.io/hostname", world.node.as_str()),
        ("tuist.dev/runtime", "tart"),
        ("tuist.dev/fleet", "runners"),
        ("node.cluster.x-k8s.io/pool", "macs"),
    ] {
        ensure!(
            node.labels().get(key).map(String::as_str) == Some(value),
            "{key} in {:?}",
            node.labels()
        );
    }
    let spec = node.spec.clone().context("a spec")?;
    ensure!(spec.provider_id == Some(world.provider_id()));
    let taints = spec.taints.unwrap_or_default();
    for key in [
        "tuist.dev/macos",
        "node.cluster.x-k8s.io/uninitialized",
        "tuist.dev/builder",
    ] {
        let found = taints
            .iter()
            .any(|taint| taint.key == key && taint.effect == "NoSchedule");
        ensure!(found, "{key} in {taints:?}");
    }
    for (kind, status) in [
        ("Ready", "True"),
        ("MemoryPressure", "False"),
        ("DiskPressure", "False"),
        ("PIDPressure", "False"),
    ] {
        ensure!(condition(&node, kind).as_deref() == Some(status), "{kind}");
    }
    let info = node.status.and_then(|status| status.node_info).context("nodeInfo")?;
    ensure!(info.kubelet_version == russet_sim_mac::DEFAULT_KUBELET_VERSION);

    let renewed = || async {
        anyhow::Ok(
            world
                .leases()
                .get(&world.node)
                .await?
                .spec
                .and_then(|spec| spec.renew_time),
        )
    };
    let first = renewed().await?;
    wait::until_true("the Lease to be renewed", PATIENCE, || async {
        Ok(renewed().await? > first)
    })
    .await?;

    // All of it with the node's own certificate, and nothing that was refused.
    let audit = world.cluster.audit()?;
    let user = format!("system:node:{}", world.node);
    let requests = audit.of_user(&user)?;
    ensure!(
        requests
            .iter()
            .any(|entry| entry.verb == "create" && entry.object().resource == "nodes"),
        "the Node was not created by {user}: {requests:#?}"
    );
    ensure!(audit.denials(&user)?.is_empty(), "{:#?}", audit.denials(&user)?);
    Ok(())
}

#[tokio::test]
async fn an_emulated_mac_registers_again_when_its_node_is_deleted() -> Result<()> {
    let world = World::joined("again1").await?;
    let before = world.nodes().get(&world.node).await?;
    world.nodes().delete(&world.node, &DeleteParams::default()).await?;
    wait::until_true("another Node", PATIENCE, || async {
        let node = world.nodes().get_opt(&world.node).await?;
        Ok(node.is_some_and(|node| node.uid() != before.uid()))
    })
    .await?;
    let node = world.nodes().get(&world.node).await?;
    let lease = wait::until("a Lease of the new Node", PATIENCE, || async {
        let lease = world.leases().get(&world.node).await?;
        let ours = lease
            .owner_references()
            .iter()
            .any(|owner| Some(&owner.uid) == node.uid().as_ref());
        Ok(if ours {
            Look::Done(lease)
        } else {
            Look::not_yet(lease.metadata)
        })
    })
    .await?;
    ensure!(lease.spec.and_then(|spec| spec.holder_identity) == Some(world.node.clone()));
    Ok(())
}

/// kube-controller-manager declares a node lost only when its Lease is not renewed for 40 seconds or more.
#[tokio::test]
async fn an_emulated_mac_without_power_is_lost_and_one_that_was_wiped_leaves_its_node_behind() -> Result<()> {
    let world = World::joined("silent").await?;
    world.ready_is("True").await?;
    world.fleet.cut_power(&world.host.server_id).await;
    world.ready_is("Unknown").await?;
    world.fleet.restore_power(&world.host.server_id).await;
    world.ready_is("True").await?;
    ensure!(world.state().await?.phase == Phase::Joined);

    let url = format!(
        "{}/apple-silicon/v1alpha1/zones/{}/servers/{}/reinstall",
        world.sim.url(),
        world.host.zone,
        world.host.server_id
    );
    let answer = reqwest::Client::builder()
        .no_proxy()
        .build()?
        .post(url)
        .header("x-auth-token", russet_sim_scaleway::DEFAULT_SECRET_KEY)
        .json(&json!({}))
        .send()
        .await?;
    ensure!(answer.status().is_success(), "{}", answer.text().await?);
    wait::until_true("the wipe", PATIENCE, || async {
        Ok(world.fleet.state(&world.host.server_id).await.is_none())
    })
    .await?;
    world.sim.handle().advance(Duration::from_hours(1));
    wait::until_true("the machine to be back", PATIENCE, || async {
        Ok(world.state().await?.phase == Phase::Idle)
    })
    .await?;
    world.ready_is("Unknown").await?;
    Ok(())
}

#[tokio::test]
async fn orders_that_change_correct_the_node_with_the_certificate_that_is_there() -> Result<()> {
    let world = World::joined("change").await?;
    // Labels of others stay.
    let foreign = json!({"metadata": {"labels": {"tuist.dev/by-hand": "yes"}}});
    world
        .nodes()
        .patch(&world.node, &PatchParams::default(), &Patch::Merge(foreign))
        .await?;
    let mut orders = world.orders();
    orders["labels"] = json!({"tuist.dev/fleet": "builders"});
    orders["hash"] = json!("second");
    ensure!(world.join(&orders).await? == 202);
    world.is(Phase::Joined, "second").await?;
    let node = world.nodes().get(&world.node).await?;
    let label = |key: &str| node.labels().get(key).cloned().unwrap_or_default();
    ensure!(label("tuist.dev/fleet") == "builders");
    ensure!(
        label("node.cluster.x-k8s.io/pool").is_empty(),
        "a label it no longer has"
    );
    ensure!(label("tuist.dev/by-hand") == "yes", "a label of somebody else");
    let requests: Api<CertificateSigningRequest> = Api::all(world.client.clone());
    let user = world.pending().await?.spec.username;
    let all = requests.list(&ListParams::default()).await?.items;
    ensure!(all.iter().filter(|request| request.spec.username == user).count() == 1);
    Ok(())
}

#[tokio::test]
async fn an_emulated_mac_gives_up_when_it_is_denied_or_its_token_is_worthless() -> Result<()> {
    let world = World::start("denied").await?;
    world.join(&world.orders()).await?;
    let request = world.pending().await?;
    world.decide(&request, "Denied").await?;
    let state = world.is(Phase::Failed, "first").await?;
    ensure!(state.message.contains("denied: the test decided so"), "{state:?}");

    let mut world = World::start("worth1").await?;
    world.token = "abcdef.fedcba9876543210".to_owned();
    world.join(&world.orders()).await?;
    let state = world.is(Phase::Failed, "first").await?;
    ensure!(state.message.contains("Unauthorized"), "{state:?}");
    ensure!(!state.message.contains("fedcba"), "{state:?}");
    Ok(())
}

/// The machine refuses a label exactly when NodeRestriction would: a rule of ours that differs would either hide a Node that
/// never appears or forbid what is fine.
#[tokio::test]
async fn an_emulated_mac_and_node_restriction_agree_about_labels() -> Result<()> {
    let world = World::start("labels").await?;
    let node_client = {
        let kubeconfig = Kubeconfig::read_from(world.cluster.control_plane().admin_kubeconfig())?;
        let mut config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
        config.auth_info.impersonate = Some("system:node:judge".to_owned());
        config.auth_info.impersonate_groups = Some(vec!["system:nodes".to_owned()]);
        Client::try_from(config)?
    };
    let nodes: Api<Node> = Api::all(node_client);
    for key in [
        "tuist.dev/fleet",
        "plain",
        "node.cluster.x-k8s.io/pool",
        "node-role.kubernetes.io/worker",
        "node-restriction.kubernetes.io/a",
        "a.node-restriction.kubernetes.io/a",
        "kubernetes.io/unknown",
        "k8s.io/a",
        "a.k8s.io/b",
        "topology.kubernetes.io/zone",
        "topology.kubernetes.io/rack",
        "failure-domain.beta.kubernetes.io/zone",
        "node.kubernetes.io/anything",
        "a.node.kubernetes.io/b",
        "kubelet.kubernetes.io/b",
        "beta.kubernetes.io/os",
        "notkubernetes.io/a",
    ] {
        let node: Node = serde_json::from_value(json!({"metadata": {"name": "judge", "labels": {key: "x"}}}))?;
        let params = PostParams {
            dry_run: true,
            ..PostParams::default()
        };
        let judge = match nodes.create(&params, &node).await {
            Ok(_) => true,
            Err(kube::Error::Api(status)) if status.code == 403 => false,
            Err(error) => bail!("{key}: {error}"),
        };
        let mut orders = world.orders();
        orders["labels"] = json!({key: "x"});
        let ours = world.join(&orders).await? == 202;
        ensure!(
            ours == judge,
            "{key}: NodeRestriction allows it: {judge}, the machine does: {ours}"
        );
    }
    Ok(())
}

/// A way to the API server that can be closed.
async fn door(to: std::net::SocketAddr) -> Result<(u16, tokio::task::JoinHandle<()>)> {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let port = listener.local_addr()?.port();
    let task = tokio::spawn(async move {
        let mut open = tokio::task::JoinSet::new();
        while let Ok((mut from, _)) = listener.accept().await {
            open.spawn(async move {
                if let Ok(mut to) = tokio::net::TcpStream::connect(to).await {
                    let _ = tokio::io::copy_bidirectional(&mut from, &mut to).await;
                }
            });
        }
    });
    Ok((port, task))
}

/// `russet up` found its port taken, gave the API server another, and every Mac went on dialing the old one.
#[tokio::test]
async fn macs_find_an_api_server_that_moved_and_are_who_they_were() -> Result<()> {
    let cluster = TestCluster::shared().await?;
    let disks = tempfile::tempdir()?;
    let options = |api_server: Option<http::Uri>| Options {
        lease_every: Duration::from_millis(500),
        disks: Some(disks.path().to_owned()),
        api_server,
        ..Options::default()
    };
    let sim = Sim::start(russet_sim_scaleway::Options {
        clock_factor: Factor::MANUAL,
        ..russet_sim_scaleway::Options::default()
    })
    .await?;
    sim.handle().add_minis(Minis::default())?;
    let real: http::Uri = cluster.control_plane().server().parse()?;
    let address = format!("127.0.0.1:{}", real.port_u16().context("a port")?).parse()?;
    let (old_port, way) = door(address).await?;
    let fleet = Fleet::new(options(None)).await?;
    let url = sim.url().to_owned();
    let power = |fleet: &Fleet| {
        let (fleet, url) = (fleet.clone(), url.clone());
        tokio::spawn(async move { russet_sim_mac::follow(fleet, &url, || {}).await })
    };
    let on = power(&fleet);
    let client = cluster.client().await?;
    let mut world = World {
        host: sim.handle().host("tuist-pool").context("the mini")?,
        token: invite(&client, "moved1").await?,
        node: "mac-moved1".to_owned(),
        cluster,
        client,
        sim,
        fleet,
    };
    let mut orders = world.orders();
    let kubeconfig = orders["kubeconfig"].as_str().context("a text")?;
    let old = kubeconfig.replace(
        cluster.control_plane().server(),
        &format!("https://127.0.0.1:{old_port}"),
    );
    ensure!(old != kubeconfig, "the address is not in it");
    orders["kubeconfig"] = json!(old);
    wait::until("the mini to take its orders", PATIENCE, || async {
        let status = world.join(&orders).await?;
        Ok(if status == 202 {
            Look::Done(())
        } else {
            Look::not_yet(status)
        })
    })
    .await?;
    world.decide(&world.pending().await?, "Approved").await?;
    world.is(Phase::Joined, "first").await?;

    on.abort();
    way.abort();
    world.fleet = Fleet::new(options(Some(real))).await?;
    // Nothing new can be asked for: it has to do with what is on its disk.
    let tokens: Api<Secret> = Api::namespaced(world.client.clone(), "kube-system");
    tokens
        .delete("bootstrap-token-moved1", &DeleteParams::default())
        .await?;
    let renewed = || async {
        let lease = world.leases().get(&world.node).await?;
        anyhow::Ok(lease.spec.and_then(|spec| spec.renew_time))
    };
    let before = renewed().await?;
    let _on = power(&world.fleet);
    wait::until("the Lease to be renewed", PATIENCE, || async {
        let now = renewed().await?;
        Ok(if now > before {
            Look::Done(())
        } else {
            Look::not_yet(now)
        })
    })
    .await?;
    Ok(())
}
