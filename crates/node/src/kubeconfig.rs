//! The kubeconfig a machine joins with: it may ask for a certificate and nothing else.

use std::time::Duration;

use http::Uri;
use kube::Config;
use kube::config::{Cluster, KubeConfigOptions, Kubeconfig};
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
    connect(kubeconfig).await
}

async fn connect(kubeconfig: Kubeconfig) -> Result<Config, Error> {
    // What remains is, for example, a certificate authority that is no PEM.
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
        .await
        .map_err(|error| Error::Kubeconfig(error.to_string()))?;
    config.connect_timeout = Some(CONNECT);
    config.read_timeout = Some(ANSWER);
    config.write_timeout = Some(ANSWER);
    Ok(config)
}

/// The connection a kubeconfig describes, to where a `cluster-info` says that the API server is by now; and that place. The
/// connection keeps the address in the kubeconfig, which names the cluster.
pub async fn connection_to(text: &Secret<String>, cluster_info: &str) -> Result<(Config, Uri), Error> {
    check(text).map_err(|Unusable(why)| Error::Kubeconfig(why.to_owned()))?;
    let mut config =
        Kubeconfig::from_yaml(text.expose()).map_err(|_| Error::Kubeconfig("it is not a kubeconfig".to_owned()))?;
    let (place, authority) = read_place(cluster_info).map_err(|Unusable(why)| Error::ClusterInfo(why.to_owned()))?;
    for named in &mut config.clusters {
        if let Some(cluster) = &mut named.cluster {
            cluster.certificate_authority_data.clone_from(&authority);
        }
    }
    Ok((connect(config).await?, place))
}

/// Address and authority in a `cluster-info`.
fn read_place(text: &str) -> Result<(Uri, Option<String>), Unusable> {
    let config = Kubeconfig::from_yaml(text).map_err(|_| Unusable("it is not a kubeconfig"))?;
    let cluster = config.clusters.into_iter().next().and_then(|named| named.cluster);
    let Cluster {
        server,
        certificate_authority_data,
        ..
    } = cluster.ok_or(Unusable("it names no cluster"))?;
    let server = server.and_then(|server| server.parse::<Uri>().ok());
    let server = server.filter(|server| server.scheme_str() == Some("https") && server.host().is_some());
    let server = server.ok_or(Unusable("its cluster has no server such as https://203.0.113.7:6443"))?;
    if certificate_authority_data.is_none() {
        return Err(Unusable("it has no certificate-authority-data"));
    }
    Ok((server, certificate_authority_data))
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

    fn cluster_info(cluster: &Value) -> String {
        json!({"apiVersion": "v1", "kind": "Config", "clusters": [{"name": "", "cluster": cluster}]}).to_string()
    }

    #[tokio::test]
    async fn a_cluster_info_says_where_the_server_is_and_the_kubeconfig_who_we_are() {
        let authority = rcgen::generate_simple_self_signed(["api".to_owned()]).unwrap();
        let ca = base64::Engine::encode(&base64::engine::general_purpose::STANDARD, authority.cert.pem());
        let info = cluster_info(&json!({"server": "https://203.0.113.8:6443", "certificate-authority-data": ca}));
        let joins = kubeconfig(&json!({"token": "s3cret"}));
        let (config, place) = connection_to(&joins, &info).await.unwrap();
        assert_eq!(place.authority().unwrap(), "203.0.113.8:6443");
        assert_eq!(config.cluster_url.authority().unwrap(), "127.0.0.1:6443");
        assert_eq!(config.root_cert, Some(vec![authority.cert.der().to_vec()]));
    }

    #[tokio::test]
    async fn a_cluster_info_that_says_nothing_useful_is_refused_with_what_is_missing() {
        let joins = kubeconfig(&json!({"token": "s3cret"}));
        for (info, word) in [
            ("[".to_owned(), "not a kubeconfig"),
            ("{}".to_owned(), "names no cluster"),
            (cluster_info(&json!({"server": "http://plain:1"})), "no server"),
            (
                cluster_info(&json!({"server": "https://a:1"})),
                "certificate-authority-data",
            ),
        ] {
            let error = connection_to(&joins, &info).await.unwrap_err();
            assert!(error.to_string().contains(word), "{error}");
            assert!(error.is_final(), "{error}");
        }
    }
}
