//! The kubeconfig Secret: how ours looks, and what one of somebody else may lack. Pure.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret as KubeSecret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::ObjectMeta;
use kube::config::Kubeconfig;
use kube::{Resource as _, ResourceExt as _};
use russet_api::groups::SECRET_TYPE_CLUSTER_API;
use russet_api::labels::{MANAGED_BY, MANAGED_BY_CAPI, cluster_api::CLUSTER_NAME};
use russet_telemetry::Secret;
use serde::Deserialize;

use crate::api_server::ApiServer;
use crate::capi::Cluster;
use crate::kubeconfig;

const KEY: &str = "value";
const USER: &str = "capi-remote";

/// The name core looks for.
pub(super) fn name(cluster: &Cluster) -> String {
    format!("{}-kubeconfig", cluster.name_any())
}

/// Whether we made it.
pub(super) fn is_ours(secret: &KubeSecret) -> bool {
    secret.labels().get(MANAGED_BY).is_some_and(|by| by == MANAGED_BY_CAPI)
}

/// The Secret with this token.
pub(super) fn render(cluster: &Cluster, server: &ApiServer, token: &Secret<String>) -> KubeSecret {
    let text = kubeconfig::with_token(server, &cluster.name_any(), USER, token);
    KubeSecret {
        metadata: ObjectMeta {
            name: Some(name(cluster)),
            namespace: cluster.namespace(),
            labels: Some(BTreeMap::from([
                (CLUSTER_NAME.to_owned(), cluster.name_any()),
                (MANAGED_BY.to_owned(), MANAGED_BY_CAPI.to_owned()),
            ])),
            owner_references: Some(vec![owner(cluster)]),
            ..ObjectMeta::default()
        },
        type_: Some(SECRET_TYPE_CLUSTER_API.to_owned()),
        string_data: Some(BTreeMap::from([(KEY.to_owned(), text.expose().clone())])),
        ..KubeSecret::default()
    }
}

/// The Cluster takes its Secret along when it goes, and `clusterctl move` finds it.
fn owner(cluster: &Cluster) -> OwnerReference {
    OwnerReference {
        api_version: Cluster::api_version(&()).into_owned(),
        kind: Cluster::kind(&()).into_owned(),
        name: cluster.name_any(),
        uid: cluster.uid().unwrap_or_default(),
        ..OwnerReference::default()
    }
}

/// Whether a Secret of ours may stay as it is: complete, for this API server, and not past half of its token's life.
pub(super) fn is_current(secret: &KubeSecret, cluster: &Cluster, server: &ApiServer, now: Timestamp) -> bool {
    let Some(token) = token(secret) else { return false };
    let Some(life) = Life::of(token.expose()) else {
        return false;
    };
    let wanted = render(cluster, server, &token);
    let text = wanted.string_data.as_ref().and_then(|data| data.get(KEY));
    let labelled = wanted
        .labels()
        .iter()
        .all(|(key, value)| secret.labels().get(key) == Some(value));
    let owned = secret.owner_references().contains(&owner(cluster));
    labelled && owned && value(secret) == text.map(String::as_str) && !life.is_due(now)
}

/// Whether the token of a Secret of ours is still good.
pub(super) fn is_alive(secret: &KubeSecret, now: Timestamp) -> bool {
    token(secret)
        .and_then(|token| Life::of(token.expose()))
        .is_some_and(|life| life.ends > now.as_second())
}

/// The kubeconfig.
pub(super) fn value(secret: &KubeSecret) -> Option<&str> {
    let bytes = &secret.data.as_ref()?.get(KEY)?.0;
    str::from_utf8(bytes).ok().filter(|text| !text.trim().is_empty())
}

fn token(secret: &KubeSecret) -> Option<Secret<String>> {
    #[derive(Deserialize)]
    struct Config {
        users: Vec<Named>,
    }
    #[derive(Deserialize)]
    struct Named {
        user: User,
    }
    #[derive(Deserialize)]
    struct User {
        token: Secret<String>,
    }
    let config: Config = serde_yaml_ng::from_str(value(secret)?).ok()?;
    Some(config.users.into_iter().next()?.user.token)
}

/// When a token was made and when it ends, as it says itself. The API server that made it has the last word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
struct Life {
    #[serde(rename = "iat")]
    began: i64,
    #[serde(rename = "exp")]
    ends: i64,
}

impl Life {
    fn of(token: &str) -> Option<Self> {
        let payload = token.split('.').nth(1)?;
        serde_json::from_slice(&URL_SAFE_NO_PAD.decode(payload).ok()?).ok()
    }

    /// Past half. The other half is for core, which goes on with the old token until it is refused.
    fn is_due(self, now: Timestamp) -> bool {
        let half = self.ends.saturating_sub(self.began) / 2;
        now.as_second() >= self.ends.saturating_sub(half)
    }
}

/// What a Secret that somebody supplied lacks, each in a few words that say what to do.
pub(super) fn lacks(secret: &KubeSecret, cluster: &Cluster) -> Vec<String> {
    let mut lacks = Vec::new();
    let cluster_name = cluster.name_any();
    if secret.labels().get(CLUSTER_NAME) != Some(&cluster_name) {
        lacks.push(format!(
            "label {CLUSTER_NAME}={cluster_name}, without which core does not see it"
        ));
    }
    let Some(text) = value(secret) else {
        lacks.push(format!("key {KEY} with a kubeconfig"));
        return lacks;
    };
    // The text of a parser's error may repeat what it read.
    let Ok(config) = serde_yaml_ng::from_str::<Kubeconfig>(text) else {
        lacks.push(format!("a kubeconfig that can be read under key {KEY}"));
        return lacks;
    };
    let Some((server, user)) = current(&config) else {
        lacks.push("a current-context that leads to a cluster and a user".to_owned());
        return lacks;
    };
    if server.is_none() {
        lacks.push("the server of its cluster".to_owned());
    }
    if user.exec.is_some() || user.auth_provider.is_some() {
        lacks.push("a token or client certificate: core refuses exec and auth-provider".to_owned());
    } else if user.token.is_none()
        && user.token_file.is_none()
        && user.client_certificate_data.is_none()
        && user.client_certificate.is_none()
    {
        lacks.push("a token or a client certificate of its user".to_owned());
    }
    lacks
}

fn current(config: &Kubeconfig) -> Option<(Option<&String>, &kube::config::AuthInfo)> {
    let wanted = config.current_context.as_ref()?;
    let context = config.contexts.iter().find(|context| context.name == *wanted)?;
    let context = context.context.as_ref()?;
    let cluster = config.clusters.iter().find(|cluster| cluster.name == context.cluster)?;
    let user = config
        .auth_infos
        .iter()
        .find(|user| Some(&user.name) == context.user.as_ref())?;
    Some((cluster.cluster.as_ref()?.server.as_ref(), user.auth_info.as_ref()?))
}

/// A kubeconfig that can be tried from here: nothing is run for it, and no file of another Pod is meant.
pub(super) fn testable(text: &str) -> Option<Kubeconfig> {
    let config: Kubeconfig = serde_yaml_ng::from_str(text).ok()?;
    let (_, user) = current(&config)?;
    let elsewhere = user.exec.is_some()
        || user.auth_provider.is_some()
        || user.token_file.is_some()
        || user.client_certificate.is_some()
        || user.client_key.is_some()
        || config.clusters.iter().any(|cluster| {
            cluster
                .cluster
                .as_ref()
                .is_some_and(|c| c.certificate_authority.is_some())
        });
    (!elsewhere).then_some(config)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::ByteString;
    use serde_json::json;

    use super::*;

    fn cluster() -> Cluster {
        serde_json::from_value(json!({
            "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster",
            "metadata": {"name": "fleet", "namespace": "macs", "uid": "u1"}, "spec": {},
        }))
        .unwrap()
    }

    fn server() -> ApiServer {
        ApiServer {
            url: "https://10.0.0.1:6443".into(),
            ca_pem: "PEM".into(),
        }
    }

    fn jwt(began: i64, ends: i64) -> Secret<String> {
        let payload = URL_SAFE_NO_PAD.encode(json!({"iat": began, "exp": ends}).to_string());
        Secret::new(format!("e30.{payload}.c2ln"))
    }

    fn stored(mut secret: KubeSecret) -> KubeSecret {
        let plain = secret.string_data.take().unwrap();
        secret.data = Some(
            plain
                .into_iter()
                .map(|(k, v)| (k, ByteString(v.into_bytes())))
                .collect(),
        );
        secret
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn ours_is_what_core_wants_and_stays_until_half_of_its_life() {
        let secret = stored(render(&cluster(), &server(), &jwt(1_000, 2_000)));
        assert_eq!(secret.type_.as_deref(), Some("cluster.x-k8s.io/secret"));
        assert_eq!(secret.name_any(), "fleet-kubeconfig");
        assert_eq!(lacks(&secret, &cluster()), Vec::<String>::new());
        assert!(is_current(&secret, &cluster(), &server(), at(1_499)));
        assert!(!is_current(&secret, &cluster(), &server(), at(1_500)));
        assert!(is_alive(&secret, at(1_999)) && !is_alive(&secret, at(2_000)));
    }

    #[test]
    fn ours_is_written_again_when_anything_about_it_changed() {
        let good = stored(render(&cluster(), &server(), &jwt(1_000, 2_000)));
        let current = |secret: &KubeSecret, server: &ApiServer| is_current(secret, &cluster(), server, at(1_001));
        assert!(current(&good, &server()));
        let moved = ApiServer {
            url: "https://10.0.0.2:6443".into(),
            ..server()
        };
        assert!(!current(&good, &moved));
        let mut unlabelled = good.clone();
        unlabelled.labels_mut().remove(CLUSTER_NAME);
        assert!(!current(&unlabelled, &server()));
        let mut orphaned = good.clone();
        orphaned.owner_references_mut().clear();
        assert!(!current(&orphaned, &server()));
        let mut emptied = good;
        emptied.data = None;
        assert!(!current(&emptied, &server()));
    }

    #[test]
    fn what_a_supplied_secret_lacks_is_named_and_nothing_of_it_repeated() {
        let supplied = |label: bool, text: Option<&str>| {
            let mut secret = KubeSecret::default();
            if label {
                secret.labels_mut().insert(CLUSTER_NAME.into(), "fleet".into());
            }
            secret.data = text.map(|text| [(KEY.to_owned(), ByteString(text.as_bytes().to_vec()))].into());
            lacks(&secret, &cluster())
        };
        let config = |user: &str| {
            format!(
                "current-context: c\ncontexts: [{{name: c, context: {{cluster: k, user: u}}}}]\nclusters: [{{name: k, cluster: {{server: \"https://a\"}}}}]\nusers: [{{name: u, user: {user}}}]\n"
            )
        };
        assert_eq!(supplied(true, Some(&config("{token: canary}"))), Vec::<String>::new());
        assert_eq!(supplied(true, Some(&config("{tokenFile: /x}"))), Vec::<String>::new());
        for (label, text, word) in [
            (
                false,
                Some(config("{token: canary}")),
                "label cluster.x-k8s.io/cluster-name=fleet",
            ),
            (true, None, "key value"),
            (true, Some("canary: [".to_owned()), "can be read"),
            (true, Some("{}".to_owned()), "current-context"),
            (
                true,
                Some(config("{exec: {command: canary, apiVersion: v1}}")),
                "refuses exec",
            ),
            (true, Some(config("{}")), "a token or a client certificate"),
        ] {
            let found = supplied(label, text.as_deref());
            assert!(found.len() == 1 && found[0].contains(word), "{word}: {found:?}");
            assert!(!found[0].contains("canary"), "{found:?}");
        }
    }

    /// A kubeconfig may name a program to run. It comes from a Secret that others write.
    #[test]
    fn nothing_is_run_for_a_supplied_kubeconfig() {
        let config = |user: &str| {
            format!(
                "current-context: c\ncontexts: [{{name: c, context: {{cluster: k, user: u}}}}]\nclusters: [{{name: k, cluster: {{server: \"https://a\"}}}}]\nusers: [{{name: u, user: {user}}}]\n"
            )
        };
        assert!(testable(&config("{token: t}")).is_some());
        assert!(testable(&config("{exec: {command: /bin/true, apiVersion: v1}}")).is_none());
        assert!(testable(&config("{tokenFile: /var/run/token}")).is_none());
    }
}
