//! Kubeconfigs with a token, as text.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use russet_telemetry::Secret;
use serde_json::json;

use crate::api_server::ApiServer;

/// A kubeconfig with one cluster, one user and one context, which bears the cluster's name too.
pub fn with_token(server: &ApiServer, context: &str, user: &str, token: &Secret<String>) -> Secret<String> {
    token.map(|token| {
        let config = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{
                "name": context,
                "cluster": { "server": server.url, "certificate-authority-data": STANDARD.encode(&server.ca_pem) },
            }],
            "users": [{ "name": user, "user": { "token": token } }],
            "contexts": [{ "name": context, "context": { "cluster": context, "user": user } }],
            "current-context": context,
        });
        // JSON is YAML too: should the printer ever refuse, the text is merely less pretty.
        serde_yaml_ng::to_string(&config).unwrap_or_else(|_| config.to_string())
    })
}

#[cfg(test)]
mod tests {
    use kube::config::Kubeconfig;

    use super::*;

    #[test]
    fn the_client_library_reads_what_we_write() {
        let server = ApiServer {
            url: "https://10.0.0.1:6443".into(),
            ca_pem: "PEM".into(),
        };
        let text = with_token(&server, "tart-kubelet", "tart-kubelet-mac-1", &Secret::from("abc.def"));
        let parsed = Kubeconfig::from_yaml(text.expose()).unwrap();
        assert_eq!(parsed.current_context.as_deref(), Some("tart-kubelet"));
        assert_eq!(parsed.auth_infos[0].name, "tart-kubelet-mac-1");
        let cluster = parsed.clusters[0].cluster.as_ref().unwrap();
        assert_eq!(cluster.server.as_deref(), Some("https://10.0.0.1:6443"));
        assert_eq!(
            cluster.certificate_authority_data.as_deref(),
            Some(STANDARD.encode("PEM").as_str())
        );
    }
}
