//! Keeps the kubeconfig Secret, and says how the connection through it is.

use jiff::Timestamp;
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{Secret as KubeSecret, ServiceAccount};
use kube::ResourceExt as _;
use kube::api::{Api, PostParams};
use russet_api::conditions::reasons::{NOT_READY, cluster as reasons};
use russet_controller::{Class, Classify};
use russet_telemetry::Secret;
use tracing::{info, warn};

use super::probe::Answer;
use super::reconcile::Context;
use super::{Error, secret};
use crate::api_server::{ApiServer, brief};
use crate::capi::Cluster;

/// Something that was looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Finding {
    /// All is well.
    Good(String),
    /// It cannot be told.
    Unknown { reason: &'static str, message: String },
    /// Something is wrong; the message says what to do.
    Bad { reason: &'static str, message: String },
}

fn bad(reason: &'static str, message: impl Into<String>) -> Finding {
    Finding::Bad {
        reason,
        message: message.into(),
    }
}

/// How Cluster API reaches the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Connection {
    /// Whether there is a Secret that core can read.
    pub(super) secret: Finding,
    /// Whether core may do with it what it does.
    pub(super) rights: Finding,
    /// Whether the API server answers to it.
    pub(super) answers: Finding,
}

impl Connection {
    /// Without a usable Secret nothing else is known.
    fn absent(secret: Finding) -> Self {
        let unknown = || Finding::Unknown {
            reason: NOT_READY,
            message: "there is no usable kubeconfig to try".to_owned(),
        };
        Self {
            secret,
            rights: unknown(),
            answers: unknown(),
        }
    }
}

/// Why no token was given.
enum NoToken {
    /// A person has to do something.
    Advice(String),
    /// It may work next time.
    Failed(Error),
}

impl Context {
    /// Brings about the Secret and tries it.
    pub(super) async fn connect(
        &self,
        cluster: &Cluster,
        server: Result<&ApiServer, &Finding>,
    ) -> Result<Connection, Error> {
        let name = secret::name(cluster);
        let secrets: Api<KubeSecret> = Api::namespaced(self.client.clone(), &cluster.namespace().unwrap_or_default());
        let live = secrets
            .get_opt(&name)
            .await
            .map_err(Error::request("read", format!("Secret {name}")))?;
        match live {
            Some(live) if !secret::is_ours(&live) => Ok(self.supplied(cluster, &live).await),
            live => match server {
                Ok(server) => self.own(cluster, server, &secrets, live).await,
                Err(unknown) => Ok(Connection::absent(unknown.clone())),
            },
        }
    }

    /// A Secret of somebody else: looked at, never written.
    async fn supplied(&self, cluster: &Cluster, live: &KubeSecret) -> Connection {
        let lacks = secret::lacks(live, cluster);
        if !lacks.is_empty() {
            let message = format!(
                "Secret {} is supplied from outside and lacks {}; complete it, or delete it and one is made",
                live.name_any(),
                lacks.join(", and ")
            );
            return Connection::absent(bad(reasons::KUBECONFIG_INCOMPLETE, message));
        }
        let good = Finding::Good(format!("Secret {} is supplied from outside", live.name_any()));
        self.tried(live, good).await.0
    }

    /// A Secret of ours: made, completed, renewed.
    async fn own(
        &self,
        cluster: &Cluster,
        server: &ApiServer,
        secrets: &Api<KubeSecret>,
        live: Option<KubeSecret>,
    ) -> Result<Connection, Error> {
        let now = Timestamp::now();
        let mut note = String::new();
        let live = match live {
            Some(live) if secret::is_current(&live, cluster, server, now) => live,
            live => match self.renew(cluster, server, secrets, live.as_ref()).await? {
                Ok(written) => written,
                // What is there works on; there is time until it ends.
                Err(advice) => match live.filter(|live| secret::is_alive(live, now)) {
                    Some(live) => {
                        warn!(
                            cluster = cluster.name_any(),
                            advice, "the kubeconfig Secret could not be renewed"
                        );
                        note = format!("; it could not be renewed: {advice}");
                        live
                    }
                    None => return Ok(Connection::absent(bad(reasons::CREDENTIAL_UNAVAILABLE, advice))),
                },
            },
        };
        let good =
            |live: &KubeSecret, note: &str| Finding::Good(format!("Secret {} is kept up{note}", live.name_any()));
        let (connection, refused) = self.tried(&live, good(&live, &note)).await;
        if !refused || !note.is_empty() {
            return Ok(connection);
        }
        // A token dies with its ServiceAccount; one made anew under the same name gives new ones.
        match self.renew(cluster, server, secrets, Some(&live)).await? {
            Ok(written) => Ok(self.tried(&written, good(&written, "")).await.0),
            Err(advice) => Ok(Connection::absent(bad(reasons::CREDENTIAL_UNAVAILABLE, advice))),
        }
    }

    /// Writes the Secret with a new token. Advice instead, if a person has to do something first.
    async fn renew(
        &self,
        cluster: &Cluster,
        server: &ApiServer,
        secrets: &Api<KubeSecret>,
        live: Option<&KubeSecret>,
    ) -> Result<Result<KubeSecret, String>, Error> {
        let token = match self.token().await {
            Ok(token) => token,
            Err(NoToken::Advice(advice)) => return Ok(Err(advice)),
            Err(NoToken::Failed(error)) => return Err(error),
        };
        let mut wanted = secret::render(cluster, server, &token);
        let name = wanted.name_any();
        let params = PostParams::default();
        let written = match live {
            // Created, not applied: whoever supplies one of their own at this moment wins.
            None => secrets.create(&params, &wanted).await,
            Some(live) if live.type_ != wanted.type_ => {
                // The type of a Secret cannot be changed.
                secrets
                    .delete(&name, &kube::api::DeleteParams::default())
                    .await
                    .map_err(Error::request("delete", format!("Secret {name}")))?;
                secrets.create(&params, &wanted).await
            }
            Some(live) => {
                wanted.metadata.resource_version = live.resource_version();
                secrets.replace(&name, &params, &wanted).await
            }
        };
        let written = written.map_err(Error::request("write", format!("Secret {name}")))?;
        info!(
            cluster = cluster.name_any(),
            secret = name,
            "wrote the kubeconfig for Cluster API"
        );
        Ok(Ok(written))
    }

    async fn token(&self) -> Result<Secret<String>, NoToken> {
        let (namespace, name) = (&self.settings.account_namespace, &self.settings.account);
        let accounts: Api<ServiceAccount> = Api::namespaced(self.client.clone(), namespace);
        let request = TokenRequest {
            spec: TokenRequestSpec {
                expiration_seconds: i64::try_from(self.settings.token_lifetime.as_secs()).ok(),
                ..TokenRequestSpec::default()
            },
            ..TokenRequest::default()
        };
        let answer = accounts
            .create_token_request(name, &PostParams::default(), &request)
            .await;
        let what = format!("ServiceAccount {namespace}/{name}");
        match answer {
            Ok(answer) => {
                let token = answer
                    .status
                    .map(|status| status.token)
                    .filter(|token| !token.is_empty());
                token.map(Secret::new).ok_or_else(|| {
                    NoToken::Advice(format!(
                        "the API server gave an empty token for {what}; look at its log"
                    ))
                })
            }
            Err(kube::Error::Api(status)) if status.is_not_found() => Err(NoToken::Advice(format!(
                "{what} does not exist; create it with its ClusterRole (chart capi-provider does), and this heals by itself"
            ))),
            Err(error) if error.class() == Class::Forbidden => Err(NoToken::Advice(format!(
                "no right to ask for a token of {what}; grant create on serviceaccounts/token ({})",
                brief(&error)
            ))),
            Err(error) => Err(NoToken::Failed(Error::request("ask for a token of", what)(error))),
        }
    }

    /// Tries a Secret, and says whether its credential was refused.
    async fn tried(&self, live: &KubeSecret, good: Finding) -> (Connection, bool) {
        let Some(config) = secret::value(live).and_then(secret::testable) else {
            let unknown = || Finding::Unknown {
                reason: reasons::NOT_CHECKED,
                message: "the kubeconfig refers to files of another Pod and cannot be tried from here".to_owned(),
            };
            let connection = Connection {
                secret: good,
                rights: unknown(),
                answers: unknown(),
            };
            return (connection, false);
        };
        let key = format!("{}/{}", live.namespace().unwrap_or_default(), live.name_any());
        let version = live.resource_version().unwrap_or_default();
        let answer = self.probes.answer(&key, &version, self.settings.believed, config).await;
        let refused = answer == Answer::Refused;
        (judged(answer, good, &live.name_any()), refused)
    }
}

/// What an answer means.
fn judged(answer: Answer, secret: Finding, name: &str) -> Connection {
    let untold = || Finding::Unknown {
        reason: reasons::NOT_CHECKED,
        message: "rights cannot be looked at without a connection".to_owned(),
    };
    let (rights, answers) = match answer {
        Answer::Works { missing } => {
            let answers = Finding::Good("the API server answers".to_owned());
            let rights = if missing.is_empty() {
                Finding::Good(String::new())
            } else {
                let message = format!(
                    "the identity in Secret {name} may not {}; add it to its ClusterRole, or Machines cannot be drained and deleted",
                    missing.join(", ")
                );
                bad(reasons::RIGHTS_MISSING, message)
            };
            (rights, answers)
        }
        Answer::Refused => {
            let message = format!(
                "the API server refuses the credential in Secret {name}; renew it, or delete the Secret and one is made"
            );
            (untold(), bad(reasons::CREDENTIAL_REFUSED, message))
        }
        Answer::Forbidden => {
            let message = format!(
                "the identity in Secret {name} may not get \"/\", by which Cluster API tells whether the cluster is there; add nonResourceURLs [\"/\"] to its ClusterRole"
            );
            (
                bad(reasons::RIGHTS_MISSING, message.clone()),
                bad(reasons::RIGHTS_MISSING, message),
            )
        }
        Answer::Silent { problem } => {
            let message = format!(
                "nobody answers at the server in Secret {name}: {problem}; check the address (--api-server-url or kube-public/cluster-info) and the network"
            );
            (untold(), bad(reasons::CONTROL_PLANE_UNREACHABLE, message))
        }
    };
    Connection {
        secret,
        rights,
        answers,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_answer_says_what_to_do() {
        let of = |answer| judged(answer, Finding::Good(String::new()), "fleet-kubeconfig");
        let works = of(Answer::Works { missing: vec![] });
        assert!(matches!(
            (&works.rights, &works.answers),
            (Finding::Good(_), Finding::Good(_))
        ));
        let poor = of(Answer::Works {
            missing: vec!["get daemonsets.apps".into()],
        });
        assert!(matches!(&poor.rights, Finding::Bad { message, .. } if message.contains("get daemonsets.apps")));
        assert!(matches!(poor.answers, Finding::Good(_)));
        for (answer, word) in [
            (Answer::Refused, "renew it"),
            (Answer::Forbidden, "nonResourceURLs"),
            (
                Answer::Silent {
                    problem: "refused".into(),
                },
                "--api-server-url",
            ),
        ] {
            let connection = of(answer);
            assert!(matches!(&connection.answers, Finding::Bad { message, .. } if message.contains(word)));
        }
    }
}
