//! Objects a Pod refers to: which they are, and their contents once somebody has read them.

use crate::quantity::Amount;
use crate::time::after;
use jiff::Timestamp;
use k8s_openapi::api::certificates::v1beta1::ClusterTrustBundle;
use k8s_openapi::api::core::v1::{
    ConfigMap, Container, PersistentVolume, PersistentVolumeClaim, Pod, Secret as SecretObject, Service,
};
use russet_telemetry::Secret;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

/// What a Pod's containers and volumes can be filled from, besides objects.
#[derive(Clone, Copy, Debug)]
pub struct Context<'a> {
    /// The Pod.
    pub pod: &'a Pod,
    /// Addresses of the node.
    pub host_ips: &'a [IpAddr],
    /// Addresses of the Pod; empty while it has none.
    pub pod_ips: &'a [IpAddr],
    /// What the node can give, for containers without limits.
    pub allocatable: &'a BTreeMap<String, Amount>,
}

impl Context<'_> {
    pub(crate) fn namespace(&self) -> &str {
        self.pod.metadata.namespace.as_deref().unwrap_or("default")
    }
}

/// Objects of the Pod's namespace, by name. What is not here does not exist.
#[derive(Clone, Default)]
pub struct Objects {
    /// ConfigMaps.
    pub config_maps: BTreeMap<String, ConfigMap>,
    /// Secrets.
    pub secrets: BTreeMap<String, SecretObject>,
    /// Tokens of the Pod's ServiceAccount.
    pub tokens: BTreeMap<TokenKey, Token>,
    /// Services of the namespace, and `default/kubernetes`.
    pub services: Vec<Service>,
    /// Claims, with the volumes they are bound to.
    pub claims: BTreeMap<String, Claim>,
    /// Trust anchors of the cluster.
    pub trust_bundles: BTreeMap<String, Arc<ClusterTrustBundle>>,
    /// Labels of the node, needed only beside claims: a volume may belong to some nodes.
    pub node_labels: BTreeMap<String, String>,
}

/// A claim, and what it is bound to.
#[derive(Clone, Debug)]
pub struct Claim {
    /// The claim.
    pub claim: PersistentVolumeClaim,
    /// Its volume, if it has one yet.
    pub volume: Option<PersistentVolume>,
}

/// Names only: contents may be secret.
impl fmt::Debug for Objects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Objects")
            .field("config_maps", &self.config_maps.keys().collect::<Vec<_>>())
            .field("secrets", &self.secrets.keys().collect::<Vec<_>>())
            .field("tokens", &self.tokens.keys().collect::<Vec<_>>())
            .field("services", &self.services.len())
            .field("claims", &self.claims.keys().collect::<Vec<_>>())
            .field("trust_bundles", &self.trust_bundles.keys().collect::<Vec<_>>())
            .finish_non_exhaustive()
    }
}

/// Which token of the Pod's ServiceAccount.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TokenKey {
    /// For whom; the API server itself if empty.
    pub audience: String,
    /// For how many seconds.
    pub seconds: i64,
}

/// A token.
#[derive(Clone, Debug)]
pub struct Token {
    /// What is shown to the audience.
    pub value: Secret<String>,
    /// Until when, as the reply to its request said. The token itself may say something later.
    pub expires: Timestamp,
}

/// The oldest a token may get before it is replaced.
const OLDEST: Duration = Duration::from_hours(24);

impl Token {
    /// When to ask for the next one: after 80 % of its life or a day, and earlier by `jitter` (up to 10 s) so that a thousand
    /// Pods do not ask at once.
    pub fn refresh_at(&self, key: &TokenKey, jitter: Duration) -> Timestamp {
        let life = Duration::from_secs(u64::try_from(key.seconds).unwrap_or(0));
        let before = |at: Timestamp, by: Duration| at.checked_sub(by).unwrap_or(Timestamp::MIN);
        let issued = before(self.expires, life);
        before(self.expires, life / 5)
            .min(after(issued, OLDEST))
            .checked_sub(jitter)
            .unwrap_or(Timestamp::MIN)
    }

    /// What time it is for a token that came so long ago, whatever the clock on the wall says: that one can be set back.
    pub fn at_age(&self, key: &TokenKey, age: Duration) -> Timestamp {
        let life = Duration::from_secs(u64::try_from(key.seconds).unwrap_or(0));
        let issued = self.expires.checked_sub(life).unwrap_or(Timestamp::MIN);
        after(issued, age)
    }

    /// Whether it still opens anything. An old one is kept until then if no new one can be had.
    pub fn is_valid(&self, now: Timestamp) -> bool {
        now < self.expires
    }
}

/// What a Pod refers to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct References {
    /// ConfigMaps.
    pub config_maps: BTreeSet<String>,
    /// Secrets, without those for pulls.
    pub secrets: BTreeSet<String>,
    /// Tokens.
    pub tokens: BTreeSet<TokenKey>,
    /// Secrets for pulls, in their order. A missing one is worth a warning, no more.
    pub pull_secrets: Vec<String>,
    /// Claims of persistent volumes, those of generic ephemeral volumes included.
    pub claims: BTreeSet<String>,
    /// Whether trust anchors of the cluster are among it. Which of them is not known before all are.
    pub trust_bundles: bool,
}

/// Everything a Pod refers to, so that it can be read and watched.
pub fn references(pod: &Pod) -> References {
    let mut found = References::default();
    let Some(spec) = &pod.spec else { return found };
    for (_, container) in crate::spec::containers(pod) {
        for source in container.env_from.iter().flatten() {
            found
                .config_maps
                .extend(source.config_map_ref.as_ref().map(|source| source.name.clone()));
            found
                .secrets
                .extend(source.secret_ref.as_ref().map(|source| source.name.clone()));
        }
        for source in container.env.iter().flatten().filter_map(|var| var.value_from.as_ref()) {
            found
                .config_maps
                .extend(source.config_map_key_ref.as_ref().map(|source| source.name.clone()));
            found
                .secrets
                .extend(source.secret_key_ref.as_ref().map(|source| source.name.clone()));
        }
    }
    for volume in spec.volumes.iter().flatten() {
        found
            .config_maps
            .extend(volume.config_map.as_ref().map(|source| source.name.clone()));
        found
            .secrets
            .extend(volume.secret.as_ref().and_then(|source| source.secret_name.clone()));
        found
            .claims
            .extend(crate::volumes::claim_of(pod, volume).map(|(name, _)| name));
        let projected = volume.projected.as_ref().and_then(|source| source.sources.as_ref());
        for source in projected.into_iter().flatten() {
            found
                .config_maps
                .extend(source.config_map.as_ref().map(|source| source.name.clone()));
            found
                .secrets
                .extend(source.secret.as_ref().map(|source| source.name.clone()));
            found
                .tokens
                .extend(source.service_account_token.as_ref().map(TokenKey::of));
            found.trust_bundles |= source.cluster_trust_bundle.is_some();
        }
    }
    let pulls = spec
        .image_pull_secrets
        .iter()
        .flatten()
        .map(|secret| secret.name.clone());
    found.pull_secrets = pulls.filter(|name| !name.is_empty()).collect();
    found
}

/// The tokens that a container can read: those in volumes that it mounts.
pub fn mounted_tokens(pod: &Pod, container: &Container) -> BTreeSet<TokenKey> {
    let mounts = container.volume_mounts.as_deref().unwrap_or_default();
    let volumes = pod.spec.as_ref().and_then(|spec| spec.volumes.as_deref());
    volumes
        .unwrap_or_default()
        .iter()
        .filter(|volume| mounts.iter().any(|mount| mount.name == volume.name))
        .filter_map(|volume| volume.projected.as_ref()?.sources.as_ref())
        .flatten()
        .filter_map(|source| source.service_account_token.as_ref().map(TokenKey::of))
        .collect()
}

impl TokenKey {
    pub(crate) fn of(source: &k8s_openapi::api::core::v1::ServiceAccountTokenProjection) -> Self {
        Self {
            audience: source.audience.clone().unwrap_or_default(),
            seconds: source.expiration_seconds.unwrap_or(3600),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{at, pod};
    use serde_json::json;

    fn key(seconds: i64) -> TokenKey {
        TokenKey {
            audience: String::new(),
            seconds,
        }
    }

    fn token(expires: i64) -> Token {
        Token {
            value: Secret::from("canary"),
            expires: at(expires),
        }
    }

    #[test]
    fn a_token_is_replaced_after_four_fifths_of_its_life() {
        let refresh = token(1_000_000 + 3607).refresh_at(&key(3607), Duration::ZERO);
        assert_eq!(refresh.as_second(), 1_000_000 + 2885);
        let earlier = token(1_000_000 + 3607).refresh_at(&key(3607), Duration::from_secs(10));
        assert_eq!(refresh.as_second() - earlier.as_second(), 10);
    }

    #[test]
    fn a_long_lived_token_is_replaced_after_a_day() {
        let (issued, week) = (1_000_000, 7 * 86_400);
        let found = token(issued + week).refresh_at(&key(week), Duration::ZERO);
        assert_eq!(found, at(issued + 86_400));
        assert!(
            token(issued + week).is_valid(at(issued + 86_401)),
            "the old one still works meanwhile"
        );
    }

    #[test]
    fn everything_a_pod_refers_to_is_found() {
        let found = references(&pod(json!({
            "imagePullSecrets": [{"name": "pull"}],
            "initContainers": [{"name": "i", "envFrom": [{"secretRef": {"name": "s1"}}]}],
            "containers": [{"name": "a", "env": [
                {"name": "A", "valueFrom": {"configMapKeyRef": {"name": "c1", "key": "k"}}},
                {"name": "B", "valueFrom": {"secretKeyRef": {"name": "s2", "key": "k"}}},
            ], "envFrom": [{"configMapRef": {"name": "c2"}}]}],
            "volumes": [
                {"name": "v1", "configMap": {"name": "c3"}},
                {"name": "v2", "secret": {"secretName": "s3"}},
                {"name": "v3", "projected": {"sources": [
                    {"configMap": {"name": "c4"}}, {"secret": {"name": "s4"}},
                    {"serviceAccountToken": {"path": "t", "audience": "tuist-runners-dispatch"}},
                    {"clusterTrustBundle": {"path": "ca.pem", "name": "corporate"}},
                ]}},
                {"name": "v4", "persistentVolumeClaim": {"claimName": "p1"}},
                {"name": "v5", "ephemeral": {}},
            ],
        })));
        assert_eq!(Vec::from_iter(found.claims), ["job-v5", "p1"]);
        assert_eq!(Vec::from_iter(found.config_maps), ["c1", "c2", "c3", "c4"]);
        assert_eq!(Vec::from_iter(found.secrets), ["s1", "s2", "s3", "s4"]);
        assert_eq!(found.pull_secrets, ["pull"]);
        assert!(found.trust_bundles);
        let tokens = [TokenKey {
            audience: "tuist-runners-dispatch".into(),
            seconds: 3600,
        }];
        assert_eq!(Vec::from_iter(found.tokens), tokens);
    }

    #[test]
    fn a_container_has_the_tokens_of_the_volumes_that_it_mounts() {
        let pod = pod(json!({
            "containers": [
                {"name": "runner", "volumeMounts": [{"name": "dispatch", "mountPath": "/d"}]},
                {"name": "other", "volumeMounts": [{"name": "empty", "mountPath": "/e"}]},
            ],
            "volumes": [
                {"name": "empty", "emptyDir": {}},
                {"name": "dispatch", "projected": {"sources": [
                    {"serviceAccountToken": {"path": "t", "audience": "dispatch", "expirationSeconds": 600}},
                ]}},
            ],
        }));
        let of = |name: &str| {
            let (_, container) = crate::spec::container(&pod, name).unwrap();
            Vec::from_iter(mounted_tokens(&pod, container))
        };
        let dispatch = TokenKey {
            audience: "dispatch".into(),
            seconds: 600,
        };
        assert_eq!(of("runner"), [dispatch]);
        assert_eq!(of("other"), []);
    }

    #[test]
    fn contents_of_objects_are_never_printed() {
        let mut objects = Objects::default();
        let secret = SecretObject {
            string_data: Some([("k".into(), "canary".into())].into()),
            ..Default::default()
        };
        objects.secrets.insert("name".into(), secret);
        objects.tokens.insert(key(1), token(1));
        let text = format!("{objects:?} {:?}", token(1));
        assert!(text.contains("name") && !text.contains("canary"), "{text}");
    }
}
