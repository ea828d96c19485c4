//! How hosts are set up here: a login as far as the ledger lets it, and a join with what the host was given.

use std::sync::{Arc, Mutex};

use anyhow::Result;
use futures::future::BoxFuture;
use k8s_openapi::ByteString;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use kube::Client;
use kube::api::{Api, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use russet_capi_provider::bootstrap::{Bootstrapper, Done, Failed, HostConfigHash, HostFacts, Job, Kind, Progress};
use serde_json::json;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::ledger::Ledger;
use crate::life::Life;
use crate::stage;
use crate::world::BROKEN;

pub(crate) struct Setter {
    pub(crate) life: Arc<Life>,
    pub(crate) ledger: Arc<Ledger>,
    pub(crate) client: Client,
    pub(crate) doors: watch::Receiver<bool>,
    pub(crate) wanted: Arc<Mutex<String>>,
}

impl Bootstrapper for Setter {
    fn desired(&self, _: &HostFacts) -> HostConfigHash {
        HostConfigHash::new(self.wanted.lock().unwrap().clone())
    }

    fn run(&self, job: Job, _: Progress, _: CancellationToken) -> BoxFuture<'static, Result<Done, Failed>> {
        let (life, ledger, client) = (Arc::clone(&self.life), Arc::clone(&self.ledger), self.client.clone());
        let mut doors = self.doors.clone();
        Box::pin(async move {
            ledger.knock();
            // Fails only when the world is gone.
            let _ = doors.wait_for(|open| *open).await;
            if life.is_over() {
                return std::future::pending().await;
            }
            let failed = |message: &str| Failed {
                step: "join".to_owned(),
                message: message.to_owned(),
                fingerprint: None,
            };
            let (Some(_), Some(join)) = (&job.key, &job.join_kubeconfig) else {
                return Err(failed("there is no key, or nothing to join with"));
            };
            let server = job.provider_id.rsplit('/').next().unwrap_or_default().to_owned();
            let password = job.sudo_password.map(|password| password.expose().clone());
            if !ledger.log_in(&job.machine.name, &server, &password.unwrap_or_default()) {
                return Err(failed("the host does not know the password"));
            }
            if job.kind == Kind::First {
                let asked = ask(join.expose(), &job.node_name).await;
                asked.map_err(|error| failed(&format!("{error:#}")))?;
            }
            if job.kind == Kind::Update {
                ledger.updates(&job.machine.name, job.hash.as_str());
            }
            if job.hash.as_str() == BROKEN {
                return Err(failed("this configuration works nowhere"));
            }
            let joined = stage::join(&client, &job.node_name, &job.provider_id).await;
            joined.map_err(|error| failed(&error.to_string()))?;
            Ok(Done::default())
        })
    }
}

/// Asks for a certificate with what a host was given; nobody approves it here.
async fn ask(kubeconfig: &str, node: &str) -> Result<()> {
    let kubeconfig = Kubeconfig::from_yaml(kubeconfig)?;
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    let mut params = rcgen::CertificateParams::default();
    let mut name = rcgen::DistinguishedName::new();
    name.push(rcgen::DnType::OrganizationName, "system:nodes");
    name.push(rcgen::DnType::CommonName, format!("system:node:{node}"));
    params.distinguished_name = name;
    let pem = params.serialize_request(&rcgen::KeyPair::generate()?)?.pem()?;
    let request: CertificateSigningRequest = serde_json::from_value(json!({
        "metadata": {"generateName": format!("{node}-")},
        "spec": {
            "request": ByteString(pem.into_bytes()),
            "signerName": "kubernetes.io/kube-apiserver-client-kubelet",
            "usages": ["digital signature", "client auth"],
        },
    }))?;
    let requests: Api<CertificateSigningRequest> = Api::all(Client::try_from(config)?);
    requests.create(&PostParams::default(), &request).await?;
    Ok(())
}
