//! How a node gets its identity: by a bootstrap token that buys one signed certificate and nothing else.

use std::{io::Read as _, path::Path, time::Duration};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::{core::v1::Secret, rbac::v1::ClusterRoleBinding};
use kube::{
    Api, Client,
    api::{DeleteParams, Patch, PatchParams},
};
use serde_json::{Value, json};

use super::Error;

const MANAGER: &str = "russet-node";
const GROUP: &str = "system:bootstrappers:russet";
/// Long enough to join; afterwards the token is deleted anyway.
const VALID: SignedDuration = SignedDuration::from_mins(15);
/// kube-apiserver creates `kube-system` a moment after it reports ready.
const NAMESPACE_WAIT: Duration = Duration::from_secs(20);

/// A bootstrap token. Not printable: half of it is a secret.
pub struct Token {
    id: String,
    secret: String,
}

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Token").field("id", &self.id).finish_non_exhaustive()
    }
}

impl Token {
    pub fn random() -> Result<Self, Error> {
        let source = Path::new("/dev/urandom");
        let mut bytes = [0; 22];
        std::fs::File::open(source)
            .and_then(|mut file| file.read_exact(&mut bytes))
            .map_err(Error::io("read random bytes", source))?;
        Ok(Self::from_bytes(bytes))
    }

    /// 32 of the 36 allowed characters, so that each byte maps evenly; the secret part has 80 bits.
    fn from_bytes(bytes: [u8; 22]) -> Self {
        const ALPHABET: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";
        let text: String = bytes
            .iter()
            .filter_map(|byte| ALPHABET.get(usize::from(byte % 32)))
            .map(|&c| char::from(c))
            .collect();
        let (id, secret) = text.split_at(6);
        Self {
            id: id.to_owned(),
            secret: secret.to_owned(),
        }
    }

    /// As it goes into the bootstrap kubeconfig.
    pub fn bearer(&self) -> String {
        format!("{}.{}", self.id, self.secret)
    }

    fn object_name(&self) -> String {
        format!("bootstrap-token-{}", self.id)
    }

    fn object(&self, now: Timestamp) -> Value {
        json!({
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": { "name": self.object_name(), "namespace": "kube-system" },
            "type": "bootstrap.kubernetes.io/token",
            "stringData": {
                "description": "joins one Linux node",
                "token-id": self.id,
                "token-secret": self.secret,
                "expiration": (now + VALID).strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
                "usage-bootstrap-authentication": "true",
                "auth-extra-groups": GROUP,
            },
        })
    }
}

/// Lets holders of a token ask for a node's certificate, nodes renew theirs, and kube-controller-manager approve both.
fn bindings() -> [Value; 3] {
    let signing = "system:certificates.k8s.io:certificatesigningrequests";
    [
        binding("russet:node-bootstrapper", "system:node-bootstrapper", GROUP),
        binding("russet:node-approval", &format!("{signing}:nodeclient"), GROUP),
        binding(
            "russet:node-renewal",
            &format!("{signing}:selfnodeclient"),
            "system:nodes",
        ),
    ]
}

fn binding(name: &str, role: &str, group: &str) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": { "name": name },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role },
        "subjects": [{ "apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": group }],
    })
}

/// Makes a token with which one node may join.
pub async fn invite(client: &Client, now: Timestamp) -> Result<Token, Error> {
    let params = PatchParams::apply(MANAGER).force();
    let roles: Api<ClusterRoleBinding> = Api::all(client.clone());
    for object in bindings() {
        let name = object
            .pointer("/metadata/name")
            .and_then(Value::as_str)
            .unwrap_or_default();
        roles
            .patch(name, &params, &Patch::Apply(&object))
            .await
            .map_err(Error::kubernetes(format!("allow nodes to join ({name})")))?;
    }

    let token = Token::random()?;
    let secrets: Api<Secret> = Api::namespaced(client.clone(), "kube-system");
    let object = token.object(now);
    let deadline = tokio::time::Instant::now() + NAMESPACE_WAIT;
    loop {
        match secrets
            .patch(&token.object_name(), &params, &Patch::Apply(&object))
            .await
        {
            Ok(_) => return Ok(token),
            Err(kube::Error::Api(status)) if status.is_not_found() && tokio::time::Instant::now() < deadline => {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            Err(error) => return Err(Error::kubernetes("make a bootstrap token")(error)),
        }
    }
}

/// Makes the token worthless. A failure is only logged: it expires soon by itself.
pub async fn revoke(client: &Client, token: &Token) {
    let secrets: Api<Secret> = Api::namespaced(client.clone(), "kube-system");
    if let Err(error) = secrets.delete(&token.object_name(), &DeleteParams::default()).await {
        tracing::warn!(%error, "could not delete a used bootstrap token; it expires by itself");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_has_the_form_that_kubernetes_demands() {
        let token = Token::from_bytes(std::array::from_fn(|index| u8::try_from(index * 11).unwrap()));
        let bearer = token.bearer();
        let (id, secret) = bearer.split_once('.').unwrap();
        assert_eq!((id.len(), secret.len()), (6, 16));
        assert!(
            bearer
                .chars()
                .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '.'),
            "{bearer}"
        );
        assert_ne!(token.bearer(), Token::from_bytes([7; 22]).bearer());
    }

    #[test]
    fn a_token_expires_soon() {
        let now: Timestamp = "2026-01-02T03:04:05Z".parse().unwrap();
        assert_eq!(
            Token::from_bytes([0; 22]).object(now)["stringData"]["expiration"],
            "2026-01-02T03:19:05Z"
        );
    }
}
