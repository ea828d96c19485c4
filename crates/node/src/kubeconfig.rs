//! The kubeconfig a machine joins with: it may ask for a certificate and nothing else.

use std::time::Duration;

use kube::Config;
use kube::config::{KubeConfigOptions, Kubeconfig};
use russet_telemetry::Secret;

use crate::error::Error;

/// Connections and answers that hang would silence the heartbeat.
const CONNECT: Duration = Duration::from_secs(5);
const ANSWER: Duration = Duration::from_secs(20);

/// A kubeconfig that is of no use on another machine.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the kubeconfig cannot be used: {0}")]
pub struct Unusable(&'static str);

/// Whether a kubeconfig carries everything in itself: files and programs it names are on the machine that wrote it.
pub fn check(text: &Secret<String>) -> Result<(), Unusable> {
    // The error of the parser may quote what it could not read, which may be a token.
    let config = Kubeconfig::from_yaml(text.expose()).map_err(|_| Unusable("it is not a kubeconfig"))?;
    let context = config
        .current_context
        .as_deref()
        .and_then(|current| config.contexts.iter().find(|context| context.name == current))
        .and_then(|named| named.context.as_ref())
        .ok_or(Unusable("it has no current context"))?;
    let cluster = config
        .clusters
        .iter()
        .find(|named| named.name == context.cluster)
        .and_then(|named| named.cluster.as_ref())
        .ok_or(Unusable("its context names no cluster"))?;
    if cluster.server.as_deref().unwrap_or_default().is_empty() {
        return Err(Unusable("its cluster has no server"));
    }
    if cluster.certificate_authority.is_some() {
        return Err(Unusable(
            "it names a file for the certificate authority, which this machine does not have",
        ));
    }
    let user = config
        .auth_infos
        .iter()
        .find(|named| context.user.as_deref() == Some(named.name.as_str()))
        .and_then(|named| named.auth_info.as_ref())
        .ok_or(Unusable("its context names no user"))?;
    let elsewhere = [&user.token_file, &user.client_certificate, &user.client_key];
    if elsewhere.into_iter().any(Option::is_some) || user.exec.is_some() || user.auth_provider.is_some() {
        return Err(Unusable(
            "its credentials are in files or programs this machine does not have",
        ));
    }
    if user.token.is_none() && user.client_key_data.is_none() {
        return Err(Unusable("its user has neither a token nor a client certificate"));
    }
    Ok(())
}

/// The connection a kubeconfig describes.
pub async fn connection(text: &Secret<String>) -> Result<Config, Error> {
    check(text).map_err(|Unusable(why)| Error::Kubeconfig(why.to_owned()))?;
    let kubeconfig =
        Kubeconfig::from_yaml(text.expose()).map_err(|_| Error::Kubeconfig("it is not a kubeconfig".to_owned()))?;
    // What remains is, for example, a certificate authority that is no PEM.
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
        .await
        .map_err(|error| Error::Kubeconfig(error.to_string()))?;
    config.connect_timeout = Some(CONNECT);
    config.read_timeout = Some(ANSWER);
    config.write_timeout = Some(ANSWER);
    Ok(config)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn kubeconfig(user: &Value) -> Secret<String> {
        let text = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "tart-kubelet",
            "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:6443"}}],
            "users": [{"name": "u", "user": user}],
            "contexts": [{"name": "tart-kubelet", "context": {"cluster": "c", "user": "u"}}],
        });
        Secret::new(text.to_string())
    }

    #[test]
    fn a_kubeconfig_that_carries_everything_is_taken() {
        assert_eq!(check(&kubeconfig(&json!({"token": "s3cret"}))), Ok(()));
    }

    #[test]
    fn whatever_is_wrong_is_said_without_the_secret() {
        let said = |text: &Secret<String>| check(text).unwrap_err().to_string();
        assert!(said(&Secret::new("s3cret: [".to_owned())).ends_with("it is not a kubeconfig"));
        assert!(said(&Secret::new("{}".to_owned())).contains("no current context"));
        assert!(said(&kubeconfig(&json!({}))).contains("neither a token"));
        assert!(said(&kubeconfig(&json!({"tokenFile": "/x"}))).contains("does not have"));
    }
}
