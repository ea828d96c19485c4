//! The certificate that the kubelet API shows: asked for as the node, approved by whoever approves, renewed in time.

use std::convert::Infallible;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::Timestamp;
use russet_kubelet_api::Serving;
use russet_node::ServingIdentity;
use russet_telemetry::Secret;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use crate::pods::folder;

const FILE: &str = "serving.json";
/// How often the address is looked at: a certificate is for one address.
const LOOK: Duration = Duration::from_mins(1);
const AGAIN: Duration = Duration::from_secs(10);

/// The file.
#[derive(Serialize, Deserialize)]
struct Papers {
    addresses: Vec<IpAddr>,
    key_pem: String,
    certificate_pem: Option<String>,
}

/// Keeps a certificate that is good for the address of the Node.
pub(crate) async fn keep(
    node: String,
    state: PathBuf,
    mut client: watch::Receiver<Option<kube::Client>>,
    address: impl Fn() -> Option<IpAddr>,
    serving: Serving,
) -> Infallible {
    loop {
        if client.wait_for(Option::is_some).await.is_err() {
            std::future::pending::<()>().await;
        }
        let joined = client.borrow().clone();
        let (Some(joined), Some(here)) = (joined, address()) else {
            tokio::time::sleep(AGAIN).await;
            continue;
        };
        let known = load(&node, &state).filter(|known| known.addresses == [here]);
        let due = |identity: &ServingIdentity| identity.renew_at().is_none_or(|at| Timestamp::now() >= at);
        let identity = match known {
            Some(known) if known.certificate_pem.is_none() || !due(&known) => known,
            _ => match ServingIdentity::generate(&node, vec![here]) {
                Ok(fresh) => fresh,
                Err(error) => {
                    tracing::warn!(%error, "no key for the kubelet API could be made");
                    tokio::time::sleep(AGAIN).await;
                    continue;
                }
            },
        };
        // The key is kept before it is asked with, so that an agent that was cut finds its request again.
        let kept = save(&state, &identity);
        let asked = async {
            match &identity.certificate_pem {
                Some(certificate) => Ok(certificate.clone()),
                None => identity.ask(joined).await,
            }
        };
        let certificate = match (kept, asked.await) {
            (Ok(()), Ok(certificate)) => certificate,
            (Err(error), _) => {
                tracing::warn!(%error, "the key of the kubelet API could not be kept");
                tokio::time::sleep(AGAIN).await;
                continue;
            }
            (_, Err(error)) => {
                tracing::warn!(%error, "the kubelet API has no certificate; it is asked for again");
                // Another key: the request of this one was decided about.
                let _ = std::fs::remove_file(state.join(FILE));
                tokio::time::sleep(AGAIN).await;
                continue;
            }
        };
        let identity = ServingIdentity {
            certificate_pem: Some(certificate.clone()),
            ..identity
        };
        match serving.replace(&certificate, identity.key_pem.expose()) {
            Ok(()) => tracing::info!(address = %here, "the kubelet API has its certificate"),
            Err(error) => tracing::warn!(%error, "the certificate of the kubelet API cannot be used"),
        }
        if let Err(error) = save(&state, &identity) {
            tracing::warn!(%error, "the certificate of the kubelet API could not be kept");
        }
        while address() == Some(here) && !due(&identity) {
            tokio::time::sleep(LOOK).await;
        }
    }
}

fn load(node: &str, state: &Path) -> Option<ServingIdentity> {
    let papers: Papers = serde_json::from_slice(&std::fs::read(state.join(FILE)).ok()?).ok()?;
    Some(ServingIdentity {
        node_name: node.to_owned(),
        addresses: papers.addresses,
        key_pem: Secret::new(papers.key_pem),
        certificate_pem: papers.certificate_pem,
    })
}

fn save(state: &Path, identity: &ServingIdentity) -> io::Result<()> {
    let papers = Papers {
        addresses: identity.addresses.clone(),
        key_pem: identity.key_pem.expose().clone(),
        certificate_pem: identity.certificate_pem.clone(),
    };
    folder::make(state)?;
    folder::write(&state.join(FILE), &serde_json::to_vec(&papers)?)
}
