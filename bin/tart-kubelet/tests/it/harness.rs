//! A host of its own beside the shared cluster: a kubeconfig, a folder, an agent.

use anyhow::{Context, Result};
use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::Client;
use kube::api::{Api, ListParams};
use rcgen::{CertificateParams, DistinguishedName, DnType, Issuer, KeyPair};
use russet_cluster::kubeconfig;
use russet_cluster::node::join;
use russet_stages::macs::host::{flagged, node_user};
use russet_testkit::TestCluster;
use russet_testkit::wait::{self, Look, PATIENCE};
use serde_json::{Value, json};
use std::ffi::OsString;
use std::fmt::Debug;
use std::path::{Path, PathBuf};
use std::time::SystemTime;
use tempfile::TempDir;

pub(crate) use russet_stages::macs::host::Agent;

pub(crate) struct Host {
    pub(crate) cluster: &'static TestCluster,
    pub(crate) client: Client,
    pub(crate) node: String,
    pub(crate) token: String,
    pub(crate) dir: TempDir,
    /// What the agent's environment has, which is nothing else.
    pub(crate) env: Vec<(String, String)>,
}

impl Host {
    /// A host whose bootstrap token is good and whose requests kube-controller-manager approves.
    pub(crate) async fn invited(name: &str) -> Result<Self> {
        Self::invited_to(TestCluster::shared().await?, name).await
    }

    /// The same, beside a cluster of its own kind.
    pub(crate) async fn invited_to(cluster: &'static TestCluster, name: &str) -> Result<Self> {
        let client = cluster.client().await?;
        let token = join::invite(&client, Timestamp::now()).await?.bearer();
        let host = Self {
            cluster,
            client,
            node: format!("mac-{name}"),
            token,
            dir: tempfile::tempdir()?,
            env: Vec::new(),
        };
        host.write_kubeconfig()?;
        Ok(host)
    }

    pub(crate) fn write_kubeconfig(&self) -> Result<()> {
        self.write_kubeconfig_for(self.cluster.control_plane().server())
    }

    /// What a host joined with while the API server was there.
    pub(crate) fn write_kubeconfig_for(&self, server: &str) -> Result<()> {
        let ca = self.cluster.control_plane().ca_pem();
        kubeconfig::for_token(server, ca, "bootstrap", &self.token, &self.path("kubeconfig"))?;
        Ok(())
    }

    /// Where the API server is by now.
    pub(crate) fn write_cluster_info(&self) -> Result<()> {
        let plane = self.cluster.control_plane();
        let info = json!({"apiVersion": "v1", "kind": "Config", "clusters": [{"name": "", "cluster": {
            "server": plane.server(),
            "certificate-authority-data": ByteString(plane.ca_pem().as_bytes().to_vec()),
        }}]});
        std::fs::write(self.path("cluster-info"), info.to_string())?;
        Ok(())
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn provider_id(&self) -> String {
        format!("scw-applesilicon://fr-par-3/{}", self.node)
    }

    /// The agent, with an address and more flags.
    pub(crate) fn start(&self, flags: &[&str]) -> Result<Agent> {
        let mut all = vec![
            "--node-ip=127.77.9.9",
            "--metrics-bind-address=0",
            "--kubelet-bind-address=0",
        ];
        all.extend(flags);
        self.start_without_address(&all)
    }

    /// The agent, with more flags. Its log goes to a file, as launchd has it.
    pub(crate) fn start_without_address(&self, flags: &[&str]) -> Result<Agent> {
        let mut words = flagged(&[
            ("node-name", Path::new(&self.node)),
            ("kubeconfig", &self.path("kubeconfig")),
            ("state-dir", &self.path("state")),
            ("provider-id", Path::new(&self.provider_id())),
        ]);
        let common = [
            "--node-labels=tuist.dev/fleet=runners",
            "--health-probe-bind-address=0",
            "--register-with-taints=node.cluster.x-k8s.io/uninitialized:NoSchedule",
        ];
        words.extend(common.iter().chain(flags).map(OsString::from));
        let program = Path::new(env!("CARGO_BIN_EXE_tart-kubelet"));
        Agent::start(program, &words, &self.env, &self.path("log"))
    }

    /// Gives the host a certificate of the cluster's own authority, as an earlier agent would have left it. The certificate.
    pub(crate) fn certify(&self, from: SystemTime, until: SystemTime) -> Result<String> {
        let plane = self.cluster.control_plane();
        let authority = KeyPair::from_pem(&std::fs::read_to_string(plane.pki().ca().key())?)?;
        let issuer = Issuer::from_ca_cert_pem(plane.pki().ca().pem(), authority)?;
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::OrganizationName, "system:nodes");
        params.distinguished_name.push(DnType::CommonName, self.node_user());
        params.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::ClientAuth];
        params.not_before = from.into();
        params.not_after = until.into();
        let certificate = params.signed_by(&key, &issuer)?.pem();
        // As the connection spells it.
        let server = format!("{}/", plane.server().trim_end_matches('/'));
        let memory = json!({
            "identity": {
                "node_name": self.node, "server": server,
                "key_pem": key.serialize_pem(), "certificate_pem": certificate,
            },
            "next": null, "labels": [],
        });
        std::fs::create_dir_all(self.path("state"))?;
        std::fs::write(self.path("state/node.json"), memory.to_string())?;
        Ok(certificate)
    }

    /// What the agent remembers.
    pub(crate) fn kept(&self) -> Result<Value> {
        Ok(serde_json::from_slice(&std::fs::read(self.path("state/node.json"))?)?)
    }

    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.path("log")).unwrap_or_default()
    }

    pub(crate) fn nodes(&self) -> Api<Node> {
        Api::all(self.client.clone())
    }

    pub(crate) fn leases(&self) -> Api<Lease> {
        Api::namespaced(self.client.clone(), "kube-node-lease")
    }

    /// The Node, once the agent made it.
    pub(crate) async fn registered(&self) -> Result<Node> {
        let node = async || Ok(self.nodes().get_opt(&self.node).await?);
        self.until("the Node", node, Option::is_some).await?.context("the Node")
    }

    /// Waits until it is so of what is seen, and gives that. In vain, the last that was seen is shown with the agent's log.
    pub(crate) async fn until<T: Debug>(
        &self,
        what: impl Into<String>,
        see: impl AsyncFn() -> Result<T>,
        is: impl Fn(&T) -> bool,
    ) -> Result<T> {
        wait::until(&what.into(), PATIENCE, || async {
            let seen = see().await?;
            Ok(if is(&seen) {
                Look::Done(seen)
            } else {
                Look::NotYet(format!("{seen:?}\n{}", self.log()))
            })
        })
        .await
    }

    /// When the Lease was renewed last.
    pub(crate) async fn renewed(&self) -> Result<Option<MicroTime>> {
        let lease = self.leases().get_opt(&self.node).await?;
        Ok(lease.and_then(|lease| lease.spec?.renew_time))
    }

    /// Waits for a renewal of the Lease after this one.
    pub(crate) async fn until_renewed(&self, since: Option<MicroTime>) -> Result<()> {
        let seen = self.until("a renewal", async || self.renewed().await, |now| *now > since);
        seen.await.map(drop)
    }

    /// Certificate requests by this user.
    pub(crate) async fn requests_of(&self, user: &str) -> Result<Vec<CertificateSigningRequest>> {
        let all: Api<CertificateSigningRequest> = Api::all(self.client.clone());
        let found = all.list(&ListParams::default()).await?.items;
        Ok(found
            .into_iter()
            .filter(|request| request.spec.username.as_deref() == Some(user))
            .collect())
    }

    pub(crate) fn bootstrap_user(&self) -> Result<String> {
        let (id, _) = self.token.split_once('.').context("a token")?;
        Ok(format!("system:bootstrap:{id}"))
    }

    pub(crate) fn node_user(&self) -> String {
        node_user(&self.node)
    }
}

/// A program of the host that does what a test wants, from now on.
pub(crate) fn script(path: &Path, text: &str) -> Result<()> {
    Ok(russet_program::write(path, &format!("#!/bin/sh\n{text}\n"))?)
}
