//! Where Nodes and Cluster API find the API server, and whom they trust there.
//!
//! Inside a Pod the API server is a Service address that a Mac cannot dial. The address that works from outside is either given
//! by the operator or stands in ConfigMap `kube-public/cluster-info`, which kubeadm and most distributions publish.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::Uri;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::Api;
use kube::config::Kubeconfig;
use russet_controller::{Class, Classify};

const NAMESPACE: &str = "kube-public";
const NAME: &str = "cluster-info";
const KEY: &str = "kubeconfig";

/// An API server as somebody outside the cluster dials it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiServer {
    /// Its address, such as `https://203.0.113.7:6443`.
    pub url: String,
    /// The certificates that vouch for it, PEM.
    pub ca_pem: String,
}

/// What is given; the rest is looked up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// The address. Wins over what the cluster says of itself.
    pub url: Option<String>,
    /// The certificates. Win over what the cluster says of itself.
    pub ca_pem: Option<String>,
}

/// Why it is not known.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Neither given nor published.
    #[error(
        "the API server's address is not known: ConfigMap {NAMESPACE}/{NAME} does not exist; set --api-server-url (and the CA), or publish it as kubeadm does"
    )]
    Unpublished,
    /// The ConfigMap is not what it should be.
    #[error("ConfigMap {NAMESPACE}/{NAME} is not usable: {problem}; correct it or set --api-server-url")]
    Malformed {
        /// What is wrong with it.
        problem: &'static str,
    },
    /// The address is not one.
    #[error("{url:?} is not the address of an API server: use https://host:port without a path")]
    Url {
        /// The text.
        url: String,
    },
    /// The ConfigMap could not be read.
    #[error("failed to read ConfigMap {NAMESPACE}/{NAME}: {}", brief(source))]
    Read {
        /// Why.
        source: Box<kube::Error>,
    },
}

impl Classify for Error {
    fn class(&self) -> Class {
        match self {
            // Nothing that is watched changes when these are put right, so they are looked at again, seldom.
            Self::Unpublished | Self::Malformed { .. } | Self::Url { .. } => Class::Forbidden,
            Self::Read { source } => source.class(),
        }
    }

    fn reason(&self) -> &'static str {
        "EndpointUnknown"
    }
}

/// What the API server said, without the rest of its answer.
pub(crate) fn brief(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) if !status.message.is_empty() => format!("{} (HTTP {})", status.message, status.code),
        other => other.to_string(),
    }
}

impl ApiServer {
    /// Puts together what is given and what the cluster publishes. Makes no request when everything is given.
    pub async fn find(client: &kube::Client, settings: &Settings) -> Result<Self, Error> {
        if let Settings {
            url: Some(url),
            ca_pem: Some(ca_pem),
        } = settings
        {
            return Ok(Self {
                url: checked(url)?,
                ca_pem: ca_pem.clone(),
            });
        }
        let maps: Api<ConfigMap> = Api::namespaced(client.clone(), NAMESPACE);
        let map = maps.get_opt(NAME).await.map_err(|source| Error::Read {
            source: Box::new(source),
        })?;
        let published = published(&map.ok_or(Error::Unpublished)?)?;
        let url = settings.url.as_deref().unwrap_or(&published.url);
        Ok(Self {
            url: checked(url)?,
            ca_pem: settings.ca_pem.clone().unwrap_or(published.ca_pem),
        })
    }

    /// Host and port.
    pub fn endpoint(&self) -> Option<(String, u16)> {
        let uri: Uri = self.url.parse().ok()?;
        let host = uri.host()?.trim_start_matches('[').trim_end_matches(']');
        Some((host.to_owned(), uri.port_u16().unwrap_or(443)))
    }
}

/// What the ConfigMap says.
fn published(map: &ConfigMap) -> Result<ApiServer, Error> {
    let malformed = |problem| Error::Malformed { problem };
    let text = map
        .data
        .as_ref()
        .and_then(|data| data.get(KEY))
        .ok_or(malformed("it has no key kubeconfig"))?;
    let config = Kubeconfig::from_yaml(text).map_err(|_| malformed("its kubeconfig cannot be read"))?;
    let cluster = config.clusters.into_iter().next().and_then(|named| named.cluster);
    let cluster = cluster.ok_or(malformed("its kubeconfig names no cluster"))?;
    let url = cluster.server.ok_or(malformed("its kubeconfig names no server"))?;
    let ca = cluster
        .certificate_authority_data
        .ok_or(malformed("its kubeconfig has no certificate-authority-data"))?;
    let ca = STANDARD.decode(ca).ok().and_then(|bytes| String::from_utf8(bytes).ok());
    let ca_pem = ca.ok_or(malformed("its certificate-authority-data is not base64 of a PEM text"))?;
    Ok(ApiServer { url, ca_pem })
}

/// The address without a slash at its end, if it is one.
fn checked(url: &str) -> Result<String, Error> {
    let text = url.trim().trim_end_matches('/');
    let wrong = || Error::Url { url: url.to_owned() };
    let uri: Uri = text.parse().map_err(|_| wrong())?;
    let whole = uri.scheme_str() == Some("https") && uri.host().is_some_and(|host| !host.is_empty());
    let authority_only = uri.path_and_query().is_none_or(|rest| rest.as_str() == "/")
        && uri
            .authority()
            .is_some_and(|authority| !authority.as_str().contains('@'));
    if whole && authority_only {
        Ok(text.to_owned())
    } else {
        Err(wrong())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(text: &str) -> ConfigMap {
        ConfigMap {
            data: Some([(KEY.to_owned(), text.to_owned())].into()),
            ..ConfigMap::default()
        }
    }

    #[test]
    fn what_kubeadm_publishes_is_understood() {
        let ca = STANDARD.encode("PEM");
        let text = format!(
            "apiVersion: v1\nkind: Config\nclusters:\n- name: \"\"\n  cluster:\n    server: https://10.1.2.3:6443\n    certificate-authority-data: {ca}\n"
        );
        let found = published(&map(&text)).unwrap();
        assert_eq!(found.url, "https://10.1.2.3:6443");
        assert_eq!(found.ca_pem, "PEM");
        assert_eq!(found.endpoint(), Some(("10.1.2.3".to_owned(), 6443)));
    }

    #[test]
    fn a_useless_config_map_is_refused_with_what_is_wrong() {
        for (text, word) in [
            ("", "no cluster"),
            ("clusters: []", "no cluster"),
            ("clusters: [{name: a, cluster: {}}]", "no server"),
            (
                "clusters: [{name: a, cluster: {server: \"https://a\"}}]",
                "no certificate",
            ),
            (
                "clusters: [{name: a, cluster: {server: \"https://a\", certificate-authority-data: \"!\"}}]",
                "base64",
            ),
        ] {
            let error = published(&map(text)).unwrap_err().to_string();
            assert!(error.contains(word) && error.contains("--api-server-url"), "{error}");
        }
        assert!(matches!(published(&ConfigMap::default()), Err(Error::Malformed { .. })));
    }

    #[test]
    fn only_an_https_address_without_a_path_will_do() {
        assert_eq!(
            checked("https://api.example:6443/").unwrap(),
            "https://api.example:6443"
        );
        assert_eq!(
            checked("https://[2001:db8::1]:6443").unwrap(),
            "https://[2001:db8::1]:6443"
        );
        for bad in [
            "",
            "http://a:1",
            "a:6443",
            "https://",
            "https://a/path",
            "https://a?x=1",
            "https://u@a",
        ] {
            assert!(checked(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_v6_address_loses_its_brackets_and_a_missing_port_is_that_of_https() {
        let at = |url: &str| {
            ApiServer {
                url: url.into(),
                ca_pem: String::new(),
            }
            .endpoint()
        };
        assert_eq!(at("https://[2001:db8::1]:6443"), Some(("2001:db8::1".into(), 6443)));
        assert_eq!(at("https://api.example"), Some(("api.example".into(), 443)));
    }
}
