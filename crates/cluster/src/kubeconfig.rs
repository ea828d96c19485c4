//! Kubeconfig files: one cluster, one user, one context, readable by their owner only.
//!
//! Credentials are embedded, so a file can be copied or handed to a container and still works.

use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::api::{Api, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::{Value, json};

use crate::control_plane::ControlPlane;
use crate::files::{self, Access};
use crate::pki::Pair;

/// How long the token of a ServiceAccount kubeconfig is valid. kube-apiserver would shorten it if it was started with
/// `--service-account-max-token-expiration`; ours is not. Every start asks for a new token, so only a run of more than a year
/// would notice.
const TOKEN_SECONDS: i64 = 365 * 24 * 3600;

/// Why a kubeconfig could not be made or used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The apiserver gave no token.
    #[error("could not get a token for the ServiceAccount {namespace}/{name}; does it exist?")]
    Token {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
        /// What the apiserver said.
        #[source]
        source: Box<kube::Error>,
    },
    /// The apiserver answered a token request without a token.
    #[error("the apiserver answered the token request for {namespace}/{name} without a token")]
    EmptyToken {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
    },
    /// A kubeconfig could not be turned into a client.
    #[error("could not use the kubeconfig {}", path.display())]
    Unusable {
        /// The file.
        path: PathBuf,
        /// Why not.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// A file could not be read or written.
    #[error(transparent)]
    File(#[from] files::Error),
}

/// Writes a kubeconfig for a client certificate.
pub fn for_client_cert(server: &str, ca_pem: &str, pair: &Pair, dest: &Path) -> Result<PathBuf, Error> {
    let read = |path: &Path| -> Result<String, Error> {
        let absent = || files::Error::new("read", path, std::io::ErrorKind::NotFound.into());
        Ok(STANDARD.encode(files::read(path)?.ok_or_else(absent)?))
    };
    let user = json!({
        "client-certificate-data": read(&pair.cert)?,
        "client-key-data": read(&pair.key)?,
    });
    let name = pair
        .cert
        .file_stem()
        .map_or_else(|| "user".to_owned(), |stem| stem.to_string_lossy().into_owned());
    write(server, ca_pem, &name, &user, dest)
}

/// Writes a kubeconfig for a token.
pub fn for_token(server: &str, ca_pem: &str, user: &str, token: &str, dest: &Path) -> Result<PathBuf, Error> {
    write(server, ca_pem, user, &json!({ "token": token }), dest)
}

/// Writes a kubeconfig that acts as a ServiceAccount, with its rights and no others.
pub async fn for_service_account(
    client: kube::Client,
    control_plane: &ControlPlane,
    namespace: &str,
    name: &str,
    dest: &Path,
) -> Result<PathBuf, Error> {
    let token = token(client, namespace, name).await?;
    let user = format!("system:serviceaccount:{namespace}:{name}");
    for_token(control_plane.server(), control_plane.ca_pem(), &user, &token, dest)
}

async fn token(client: kube::Client, namespace: &str, name: &str) -> Result<String, Error> {
    let accounts: Api<ServiceAccount> = Api::namespaced(client, namespace);
    let request = TokenRequest {
        spec: TokenRequestSpec {
            expiration_seconds: Some(TOKEN_SECONDS),
            ..TokenRequestSpec::default()
        },
        ..TokenRequest::default()
    };
    let answer = accounts
        .create_token_request(name, &PostParams::default(), &request)
        .await
        .map_err(|source| Error::Token {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            source: Box::new(source),
        })?;
    match answer.status {
        Some(status) if !status.token.is_empty() => Ok(status.token),
        _ => Err(Error::EmptyToken {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        }),
    }
}

/// A client from a kubeconfig file.
pub async fn client(path: &Path) -> Result<kube::Client, Error> {
    let unusable = |source: Box<dyn std::error::Error + Send + Sync>| Error::Unusable {
        path: path.to_owned(),
        source,
    };
    let kubeconfig = Kubeconfig::read_from(path).map_err(|error| unusable(error.into()))?;
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
        .await
        .map_err(|error| unusable(error.into()))?;
    kube::Client::try_from(config).map_err(|error| unusable(error.into()))
}

fn write(server: &str, ca_pem: &str, user_name: &str, user: &Value, dest: &Path) -> Result<PathBuf, Error> {
    files::write(
        dest,
        render(server, ca_pem, user_name, user).as_bytes(),
        Access::Private,
    )?;
    Ok(dest.to_owned())
}

fn render(server: &str, ca_pem: &str, user_name: &str, user: &Value) -> String {
    let config = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "russet",
        "clusters": [{
            "name": "russet",
            "cluster": { "server": server, "certificate-authority-data": STANDARD.encode(ca_pem) },
        }],
        "users": [{ "name": user_name, "user": user }],
        "contexts": [{ "name": "russet", "context": { "cluster": "russet", "user": user_name } }],
    });
    // JSON is YAML too: should the printer ever refuse, the file is merely less pretty.
    serde_yaml_ng::to_string(&config).unwrap_or_else(|_| config.to_string())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_token_kubeconfig_is_private_and_understood_by_the_client_library() {
        let dir = tempfile::tempdir().unwrap();
        let path = for_token(
            "https://127.0.0.1:6443",
            "PEM",
            "system:serviceaccount:a:b",
            "tok",
            &dir.path().join("k"),
        )
        .unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let parsed = Kubeconfig::read_from(&path).unwrap();
        assert_eq!(parsed.current_context.as_deref(), Some("russet"));
        let cluster = parsed.clusters[0].cluster.as_ref().unwrap();
        assert_eq!(cluster.server.as_deref(), Some("https://127.0.0.1:6443"));
        assert!(parsed.auth_infos[0].auth_info.as_ref().unwrap().token.is_some());
    }
}
