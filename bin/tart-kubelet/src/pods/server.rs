//! The API server as a node may use it: its own Pods and what they name, nothing else.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{Event, Node, PersistentVolume, PersistentVolumeClaim, Pod, ServiceAccount};
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::{Client, ResourceExt as _};
use russet_pod::Claim;
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::meters::Meters;

/// An answer that takes longer is asked for again.
const PATIENCE: Duration = Duration::from_secs(20);

/// Pauses after which a node asks again for what it was refused: whoever decides what a node may have watches the Pods, too, and may
/// hear of one a moment after its node has. Every seventh Pod of a busy cluster waited a second for its token.
pub(crate) fn settling() -> impl Iterator<Item = Duration> + Send {
    [20, 40, 80, 160, 320].into_iter().map(Duration::from_millis)
}

/// Why the API server did not do it.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ServerError {
    /// The node has no certificate yet.
    #[error("the node has not joined yet")]
    NotJoined,
    /// It said no, or was not reached.
    #[error("could not {what}: {}", said(source))]
    Kube { what: String, source: Box<kube::Error> },
    /// It did not answer.
    #[error("could not {what}: the API server did not answer in time")]
    Late { what: String },
    /// A watch was refused.
    #[error("could not {what}: {why}")]
    Refused { what: String, why: String },
}

fn said(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => status.message.clone(),
        other => other.to_string(),
    }
}

impl ServerError {
    fn code(&self) -> Option<u16> {
        match self {
            Self::Kube { source, .. } => match source.as_ref() {
                kube::Error::Api(status) => Some(status.code),
                _ => None,
            },
            _ => None,
        }
    }
}

/// The API server. The client changes with each certificate.
#[derive(Clone)]
pub(crate) struct Server {
    client: watch::Receiver<Option<Client>>,
    node: String,
    meters: Arc<Meters>,
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server")
            .field("node", &self.node)
            .finish_non_exhaustive()
    }
}

impl Server {
    pub(crate) fn new(client: watch::Receiver<Option<Client>>, node: String, meters: Arc<Meters>) -> Self {
        Self { client, node, meters }
    }

    fn client(&self) -> Result<Client, ServerError> {
        self.client.borrow().clone().ok_or(ServerError::NotJoined)
    }

    async fn ask<T>(
        &self,
        what: impl FnOnce() -> String,
        call: impl Future<Output = kube::Result<T>>,
    ) -> Result<T, ServerError> {
        match tokio::time::timeout(PATIENCE, call).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(source)) => Err(ServerError::Kube {
                what: what(),
                source: Box::new(source),
            }),
            Err(_) => Err(ServerError::Late { what: what() }),
        }
    }

    /// Writes the status of a Pod. `None` means that this very Pod is there no more.
    pub(crate) async fn write_status(&self, pod: &Pod, patch: &Value) -> Result<Option<Pod>, ServerError> {
        let pods = self.pods(pod)?;
        let (name, params) = (pod.name_any(), PatchParams::default());
        let patch = Patch::Strategic(patch);
        let call = pods.patch_status(&name, &params, &patch);
        match self.ask(|| format!("write the status of the Pod {name}"), call).await {
            Ok(pod) => {
                self.meters.wrote();
                Ok(Some(pod))
            }
            // The uid guards: a Pod of the same name and another uid is a conflict.
            Err(error) if matches!(error.code(), Some(404 | 409)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Takes a Pod away for good, once nothing of it is left here.
    pub(crate) async fn delete(&self, pod: &Pod) -> Result<(), ServerError> {
        let pods = self.pods(pod)?;
        let name = pod.name_any();
        let params = DeleteParams {
            grace_period_seconds: Some(0),
            preconditions: Some(Preconditions {
                uid: pod.uid(),
                resource_version: None,
            }),
            ..DeleteParams::default()
        };
        let call = pods.delete(&name, &params);
        match self.ask(|| format!("delete the Pod {name}"), call).await {
            // Gone, or another one by now.
            Err(error) if matches!(error.code(), Some(404 | 409)) => Ok(()),
            answer => answer.map(|_| ()),
        }
    }

    fn pods(&self, pod: &Pod) -> Result<Api<Pod>, ServerError> {
        Ok(Api::namespaced(self.client()?, &pod.namespace().unwrap_or_default()))
    }

    /// The Node itself, as everybody sees it.
    pub(crate) async fn node(&self) -> Result<Node, ServerError> {
        let api: Api<Node> = Api::all(self.client()?);
        self.ask(|| "read the Node".to_owned(), api.get(&self.node)).await
    }

    /// A claim, and the volume it is bound to.
    pub(crate) async fn claim(&self, namespace: &str, name: &str) -> Result<Option<Claim>, ServerError> {
        let api: Api<PersistentVolumeClaim> = Api::namespaced(self.client()?, namespace);
        let what = || format!("read the PersistentVolumeClaim {name}");
        let Some(claim) = self.ask(what, api.get_opt(name)).await? else {
            return Ok(None);
        };
        let bound = claim.spec.as_ref().and_then(|spec| spec.volume_name.clone());
        let volume = match bound.filter(|name| !name.is_empty()) {
            Some(name) => {
                let api: Api<PersistentVolume> = Api::all(self.client()?);
                self.ask(|| format!("read the PersistentVolume {name}"), api.get_opt(&name))
                    .await?
            }
            None => None,
        };
        Ok(Some(Claim { claim, volume }))
    }

    /// A token of a Pod's ServiceAccount, and until when it is good. It dies with the Pod.
    pub(crate) async fn token(
        &self,
        pod: &Pod,
        account: &str,
        audience: &str,
        seconds: i64,
    ) -> Result<(String, Timestamp), ServerError> {
        let api: Api<ServiceAccount> = Api::namespaced(self.client()?, &pod.namespace().unwrap_or_default());
        let request = TokenRequest {
            spec: TokenRequestSpec {
                audiences: Some(audience)
                    .filter(|audience| !audience.is_empty())
                    .map(|audience| vec![audience.to_owned()])
                    .unwrap_or_default(),
                expiration_seconds: Some(seconds),
                bound_object_ref: Some(BoundObjectReference {
                    api_version: Some("v1".to_owned()),
                    kind: Some("Pod".to_owned()),
                    name: Some(pod.name_any()),
                    uid: pod.uid(),
                }),
            },
            ..TokenRequest::default()
        };
        let params = PostParams::default();
        let what = || format!("get a token of the ServiceAccount {account}");
        let mut settling = settling();
        let answer = loop {
            let answer = self
                .ask(what, api.create_token_request(account, &params, &request))
                .await;
            match answer {
                Err(error) if error.code() == Some(403) => match settling.next() {
                    Some(pause) => tokio::time::sleep(pause).await,
                    None => return Err(error),
                },
                answer => break answer?,
            }
        };
        match answer.status {
            Some(status) => Ok((status.token, status.expiration_timestamp.0)),
            None => Err(ServerError::Late { what: what() }),
        }
    }

    /// Tells of something that happened to a Pod. Nobody waits for it, and nothing depends on it.
    pub(crate) fn tell(&self, pod: &Pod, kind: &'static str, reason: &str, message: &str) {
        let (namespace, name) = (pod.namespace().unwrap_or_default(), pod.name_any());
        let about = json!({
            "apiVersion": "v1", "kind": "Pod", "namespace": namespace, "name": name,
            "uid": pod.uid(), "resourceVersion": pod.resource_version(),
        });
        self.tell_of(namespace, &name, &about, kind, reason, message);
    }

    /// Tells of something that happened to the Node. By the custom of kubelets its uid is its name.
    pub(crate) fn tell_node(&self, kind: &'static str, reason: &str, message: &str) {
        let about = json!({"apiVersion": "v1", "kind": "Node", "name": self.node, "uid": self.node});
        self.tell_of("default".to_owned(), &self.node, &about, kind, reason, message);
    }

    fn tell_of(&self, namespace: String, name: &str, about: &Value, kind: &'static str, reason: &str, message: &str) {
        let Ok(client) = self.client() else { return };
        let now = Timestamp::now();
        let at = now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let event = json!({
            "metadata": {
                "name": format!("{}.{:x}", name.chars().take(200).collect::<String>(), now.as_nanosecond()),
                "namespace": namespace,
            },
            "involvedObject": about,
            "type": kind, "reason": reason,
            "message": message.chars().take(1000).collect::<String>(),
            "source": {"component": "kubelet", "host": self.node},
            "reportingComponent": "kubelet", "reportingInstance": self.node,
            "firstTimestamp": at, "lastTimestamp": at, "count": 1,
        });
        tokio::spawn(async move {
            let Ok(event) = serde_json::from_value::<Event>(event) else {
                return;
            };
            let api: Api<Event> = Api::namespaced(client, &namespace);
            let params = PostParams::default();
            let sent = tokio::time::timeout(PATIENCE, api.create(&params, &event)).await;
            if let Ok(Err(error)) = sent {
                tracing::debug!(%error, "an event was not written");
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::super::pretended::{api_server, refusal};
    use super::*;
    use russet_telemetry::Metrics;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use tokio::time::Instant;

    /// A server that hears of a Pod only after so many questions about it.
    fn late(refusals: usize) -> Server {
        let left = AtomicUsize::new(refusals);
        let (client, _) = api_server(move |_| {
            let one_less = |left: usize| left.checked_sub(1);
            if left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, one_less).is_ok() {
                return (403, Some(refusal()));
            }
            let token = json!({
                "kind": "TokenRequest", "apiVersion": "authentication.k8s.io/v1", "metadata": {}, "spec": {"audiences": []},
                "status": {"token": "t", "expirationTimestamp": "2026-01-01T00:00:00Z"},
            });
            (201, Some(token))
        });
        Server::new(client, "mac".to_owned(), Arc::new(Meters::new(&Metrics::new())))
    }

    /// Every seventh Pod of a busy cluster waited a second for its token, since the API server had not heard of it yet.
    #[tokio::test(start_paused = true)]
    async fn a_token_that_is_refused_at_first_is_asked_for_again_at_once() {
        let pod = Pod::default();
        let begun = Instant::now();
        let (token, _) = late(2).token(&pod, "default", "", 3600).await.unwrap();
        assert_eq!(token, "t");
        assert!(begun.elapsed() < Duration::from_millis(100), "{:?}", begun.elapsed());
        let error = late(100).token(&pod, "default", "", 3600).await.unwrap_err();
        assert!(error.to_string().contains("no relationship found"), "{error}");
        assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
    }
}
