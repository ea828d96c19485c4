//! The certificate that the kubelet API shows: asked for as the node, approved by whoever approves, renewed in time.
//!
//! ```text
//! serving.json        the key and the certificate that are shown, until there is a better pair
//! serving-next.json   a key that a certificate was asked for with, until that is decided
//! ```
//!
//! The two are apart because the decision may take days: whoever approves may be away, and the old pair is good meanwhile.

use std::convert::Infallible;
use std::io;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use jiff::Timestamp;
use kube::Client;
use russet_kubelet_api::Serving;
use russet_node::ServingIdentity;
use russet_telemetry::Secret;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use crate::file;
use crate::pods::folder;

const SHOWN: &str = "serving.json";
const NEXT: &str = "serving-next.json";
/// How often the address is looked at: a certificate is for one address.
const LOOK: Duration = Duration::from_mins(1);
const AGAIN: Duration = Duration::from_secs(10);

/// A file.
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
    mut client: watch::Receiver<Option<Client>>,
    address: impl Fn() -> Option<IpAddr>,
    serving: Serving,
) -> Infallible {
    let case = Case { node, state, serving };
    // Before anybody is asked for another one: whatever it is good for, it is better than none.
    if let Some(known) = case.load(SHOWN)
        && let Err(error) = case.show(&known)
    {
        tracing::debug!(%error, "no certificate of the kubelet API is left from before");
    }
    loop {
        if client.wait_for(Option::is_some).await.is_err() {
            std::future::pending::<()>().await;
        }
        let joined = client.borrow().clone();
        let (Some(joined), Some(here)) = (joined, address()) else {
            tokio::time::sleep(AGAIN).await;
            continue;
        };
        if case.load(SHOWN).is_some_and(|known| is_good(&known, here)) {
            tokio::time::sleep(LOOK).await;
            continue;
        }
        let moved = async {
            while address() == Some(here) {
                tokio::time::sleep(LOOK).await;
            }
        };
        tokio::select! {
            renewed = case.renew(joined, here) => match renewed {
                Ok(()) => tracing::info!(address = %here, "the kubelet API has its certificate"),
                Err(error) => tracing::warn!(
                    error = format!("{error:#}"),
                    "the kubelet API has no new certificate; it is asked for again"
                ),
            },
            () = moved => {}
        }
        // Also after a success: a certificate that is over as soon as it is there must not be asked for without a pause.
        tokio::time::sleep(AGAIN).await;
    }
}

/// Whether a pair can be shown for a while.
fn is_good(identity: &ServingIdentity, here: IpAddr) -> bool {
    identity.addresses == [here] && identity.renew_at().is_some_and(|at| Timestamp::now() < at)
}

/// Where the papers are, and who shows them.
struct Case {
    node: String,
    state: PathBuf,
    serving: Serving,
}

impl Case {
    /// Asks for a certificate, and shows it once it is there. The key is kept before it is asked with, so that an agent that was cut
    /// finds its request again; and after a failure, unless it is decided that nobody will ever sign it.
    async fn renew(&self, client: Client, here: IpAddr) -> anyhow::Result<()> {
        let begun = self.load(NEXT).filter(|begun| begun.addresses == [here]);
        let asking = if let Some(begun) = begun {
            begun
        } else {
            let fresh = ServingIdentity::generate(&self.node, vec![here])?;
            self.save(NEXT, &fresh).context("its key could not be kept")?;
            fresh
        };
        let certificate = match asking.ask(client).await {
            Ok(certificate) => certificate,
            Err(error) => {
                if error.is_final() {
                    self.discard(NEXT)?;
                }
                return Err(error.into());
            }
        };
        let granted = ServingIdentity {
            certificate_pem: Some(certificate),
            ..asking
        };
        if let Err(error) = self.show(&granted) {
            self.discard(NEXT)?;
            return Err(error);
        }
        self.save(SHOWN, &granted).context("it could not be kept")?;
        Ok(self.discard(NEXT)?)
    }

    fn show(&self, identity: &ServingIdentity) -> anyhow::Result<()> {
        let certificate = identity.certificate_pem.as_deref().context("there is no certificate")?;
        Ok(self.serving.replace(certificate, identity.key_pem.expose())?)
    }

    fn path(&self, file: &str) -> PathBuf {
        self.state.join(file)
    }

    fn load(&self, file: &str) -> Option<ServingIdentity> {
        let papers: Papers = serde_json::from_slice(&std::fs::read(self.path(file)).ok()?).ok()?;
        Some(ServingIdentity {
            node_name: self.node.clone(),
            addresses: papers.addresses,
            key_pem: Secret::new(papers.key_pem),
            certificate_pem: papers.certificate_pem,
        })
    }

    fn save(&self, file: &str, identity: &ServingIdentity) -> io::Result<()> {
        let papers = Papers {
            addresses: identity.addresses.clone(),
            key_pem: identity.key_pem.expose().clone(),
            certificate_pem: identity.certificate_pem.clone(),
        };
        folder::make(&self.state)?;
        file::write(&self.path(file), &serde_json::to_vec(&papers)?)
    }

    fn discard(&self, file: &str) -> io::Result<()> {
        match std::fs::remove_file(self.path(file)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base64::Engine as _;
    use bytes::Bytes;
    use http::{Request, Response};
    use http_body_util::Full;
    use kube::client::Body;
    use serde_json::{Value, json};

    /// A client of an API server that has one answer.
    fn client(answer: impl Fn() -> (u16, Value) + Send + Sync + 'static) -> Client {
        let service = tower::service_fn(move |_: Request<Body>| {
            let (code, object) = answer();
            let body = Full::<Bytes>::from(object.to_string());
            let response = Response::builder().status(code).body(body).unwrap();
            std::future::ready(Ok::<_, Infallible>(response))
        });
        Client::new(service, "default")
    }

    /// What became of the request.
    fn request(status: &Value) -> Value {
        json!({
            "apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest", "metadata": {"name": "asked"},
            "spec": {"request": "", "signerName": "kubernetes.io/kubelet-serving"}, "status": status,
        })
    }

    /// A certificate for the key that is asked with.
    fn signed(asking: &ServingIdentity) -> String {
        let key = rcgen::KeyPair::from_pem(asking.key_pem.expose()).unwrap();
        let certificate = rcgen::CertificateParams::default().self_signed(&key).unwrap();
        base64::engine::general_purpose::STANDARD.encode(certificate.pem())
    }

    /// A certificate that was due for renewal gave way to a key that had none: an agent that was started again before somebody
    /// approved could talk to nobody, though its old certificate was good for weeks. And whenever the API server failed to answer,
    /// the key was thrown away, and with it the request that waited for approval.
    #[tokio::test]
    async fn the_old_pair_stays_until_another_is_granted_and_a_key_until_it_is_decided_about() {
        let dir = tempfile::tempdir().unwrap();
        let case = || Case {
            node: "mac".to_owned(),
            state: dir.path().to_owned(),
            serving: Serving::empty(),
        };
        let here = IpAddr::from([127, 0, 0, 1]);
        let old = ServingIdentity {
            certificate_pem: Some("old".to_owned()),
            ..ServingIdentity::generate("mac", vec![here]).unwrap()
        };
        case().save(SHOWN, &old).unwrap();
        let key = |file: &str| case().load(file).map(|known| known.key_pem.expose().clone());
        let old = key(SHOWN);
        assert!(old.is_some());

        let away = || {
            let answer = json!({"kind": "Status", "status": "Failure", "message": "away", "code": 500});
            client(move || (500, answer.clone()))
        };
        case().renew(away(), here).await.unwrap_err();
        let asked = key(NEXT);
        assert!(asked.is_some() && asked != old);
        // Another agent.
        case().renew(away(), here).await.unwrap_err();
        assert_eq!((&key(SHOWN), &key(NEXT)), (&old, &asked));

        let denied = json!({"conditions": [{"type": "Denied", "status": "True", "reason": "Stranger"}]});
        let denied = client(move || (200, request(&denied)));
        case().renew(denied, here).await.unwrap_err();
        assert_eq!((key(SHOWN), key(NEXT)), (old.clone(), None));

        let asking = case();
        let granted = client(move || {
            (
                200,
                request(&json!({"certificate": signed(&asking.load(NEXT).unwrap())})),
            )
        });
        case().renew(granted, here).await.unwrap();
        assert_eq!(key(NEXT), None);
        assert_ne!(key(SHOWN), old);
        assert!(is_good(&case().load(SHOWN).unwrap(), here));
    }
}
