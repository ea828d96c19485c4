//! Tries a kubeconfig the way Cluster API core will use it.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use futures::future::try_join_all;
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec};
use kube::Client;
use kube::api::{Api, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use tokio::time::Instant;

/// As long as core waits for an answer.
const TIMEOUT: Duration = Duration::from_secs(5);

/// What core does in the workload cluster: verb, group, resource, subresource.
const RIGHTS: [(&str, &str, &str, &str); 11] = [
    ("list", "", "nodes", ""),
    ("watch", "", "nodes", ""),
    ("patch", "", "nodes", ""),
    ("delete", "", "nodes", ""),
    ("list", "", "pods", ""),
    ("create", "", "pods", "eviction"),
    ("list", "", "namespaces", ""),
    ("watch", "", "namespaces", ""),
    ("list", "", "persistentvolumes", ""),
    // Without it, a drain evicts the Pods of DaemonSets, which come back, and never ends.
    ("get", "apps", "daemonsets", ""),
    ("list", "storage.k8s.io", "volumeattachments", ""),
];

/// How a try ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// It works; these rights are missing.
    Works { missing: Vec<String> },
    /// 401: the credential is not, or no longer, valid.
    Refused,
    /// 403 on `/`, with which core tells whether the cluster is there.
    Forbidden,
    /// Nobody answers, or not as an API server.
    Silent { problem: String },
}

/// Tries that went well, by the version of their Secret.
#[derive(Debug, Default)]
pub(super) struct Probes(Mutex<HashMap<String, (String, Instant)>>);

impl Probes {
    /// Tries a kubeconfig, unless this very one worked fully a short while ago.
    pub(super) async fn answer(&self, key: &str, version: &str, believed: Duration, config: Kubeconfig) -> Answer {
        let known = self
            .lock()
            .get(key)
            .is_some_and(|(seen, at)| seen == version && at.elapsed() < believed);
        if known {
            return Answer::Works { missing: Vec::new() };
        }
        let answer = probe(config).await;
        let mut seen = self.lock();
        if answer == (Answer::Works { missing: Vec::new() }) {
            seen.insert(key.to_owned(), (version.to_owned(), Instant::now()));
        } else {
            seen.remove(key);
        }
        answer
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<String, (String, Instant)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn probe(config: Kubeconfig) -> Answer {
    let client = match client(config).await {
        Ok(client) => client,
        Err(problem) => {
            return Answer::Silent {
                problem: problem.to_owned(),
            };
        }
    };
    let Ok(request) = http::Request::get("/").body(Vec::new()) else {
        return Answer::Silent {
            problem: "its server is not an address".to_owned(),
        };
    };
    let silent = |error: &kube::Error| Answer::Silent {
        problem: crate::api_server::brief(error),
    };
    match tokio::time::timeout(TIMEOUT, client.request_text(request)).await {
        Ok(Ok(_)) => {}
        Ok(Err(kube::Error::Api(status))) if status.code == 401 => return Answer::Refused,
        Ok(Err(kube::Error::Api(status))) if status.code == 403 => return Answer::Forbidden,
        Ok(Err(error)) => return silent(&error),
        Err(_) => {
            return Answer::Silent {
                problem: format!("no answer within {} seconds", TIMEOUT.as_secs()),
            };
        }
    }
    let reviews = RIGHTS.iter().map(|right| review(&client, right));
    match try_join_all(reviews).await {
        Ok(missing) => Answer::Works {
            missing: missing.into_iter().flatten().collect(),
        },
        Err(error) => silent(&error),
    }
}

async fn client(config: Kubeconfig) -> Result<Client, &'static str> {
    let unusable = "it cannot be used: its certificates or its server cannot be read";
    let mut config = kube::Config::from_custom_kubeconfig(config, &KubeConfigOptions::default())
        .await
        .map_err(|_| unusable)?;
    config.default_retry = false;
    config.connect_timeout = Some(TIMEOUT);
    config.read_timeout = Some(TIMEOUT);
    Client::try_from(config).map_err(|_| unusable)
}

/// Asks whether we may; the answer is a right we lack, in words.
async fn review(
    client: &Client,
    (verb, group, resource, subresource): &(&str, &str, &str, &str),
) -> Result<Option<String>, kube::Error> {
    let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    let question = SelfSubjectAccessReview {
        spec: SelfSubjectAccessReviewSpec {
            resource_attributes: Some(ResourceAttributes {
                verb: some(verb),
                group: some(group),
                resource: some(resource),
                subresource: some(subresource),
                ..ResourceAttributes::default()
            }),
            ..SelfSubjectAccessReviewSpec::default()
        },
        ..SelfSubjectAccessReview::default()
    };
    let reviews: Api<SelfSubjectAccessReview> = Api::all(client.clone());
    let answer = reviews.create(&PostParams::default(), &question).await?;
    let allowed = answer.status.is_some_and(|status| status.allowed);
    Ok((!allowed).then(|| {
        let slash = if subresource.is_empty() { "" } else { "/" };
        let dot = if group.is_empty() { "" } else { "." };
        format!("{verb} {resource}{slash}{subresource}{dot}{group}")
    }))
}
