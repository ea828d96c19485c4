//! Who may ask the node directly, by certificate or token, decided by the real apiserver.

use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use kube::api::{Api, PostParams};
use reqwest::{Certificate, Client, Identity, StatusCode};
use serde_json::json;

use crate::stage::{Stage, on_stage, read};

fn client(stage: &Stage) -> reqwest::ClientBuilder {
    let ca = Certificate::from_pem(stage.control_plane.ca_pem().as_bytes()).unwrap();
    Client::builder().tls_certs_only([ca])
}

async fn get(stage: &Stage, client: &Client, path: &str, token: Option<&str>) -> (StatusCode, String) {
    let mut request = client.get(format!("https://{}{path}", stage.address));
    if let Some(token) = token {
        request = request.bearer_auth(token);
    }
    let response = request.send().await.unwrap();
    (response.status(), response.text().await.unwrap())
}

async fn token(stage: &Stage, account: &str) -> String {
    stage.service_account(account).await;
    let accounts: Api<ServiceAccount> = Api::default_namespaced(stage.client());
    let request = TokenRequest {
        spec: TokenRequestSpec::default(),
        ..TokenRequest::default()
    };
    let answer = accounts
        .create_token_request(account, &PostParams::default(), &request)
        .await
        .unwrap();
    answer.status.unwrap().token
}

#[test]
fn a_token_opens_what_its_role_allows_and_nothing_else() {
    on_stage(async |stage| {
        let scraper = token(stage, "scraper").await;
        let nobody = token(stage, "nobody").await;
        let role: ClusterRole = serde_json::from_value(json!({
            "metadata": {"name": "scraper"},
            "rules": [{"apiGroups": [""], "resources": ["nodes/metrics"], "verbs": ["get"]}],
        }))
        .unwrap();
        let binding: ClusterRoleBinding = serde_json::from_value(json!({
            "metadata": {"name": "scraper"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "scraper"},
            "subjects": [{"kind": "ServiceAccount", "name": "scraper", "namespace": "default"}],
        }))
        .unwrap();
        Api::all(stage.client())
            .create(&PostParams::default(), &role)
            .await
            .unwrap();
        Api::all(stage.client())
            .create(&PostParams::default(), &binding)
            .await
            .unwrap();

        let client = client(stage).build().unwrap();
        let path = "/metrics/resource";
        // The role reaches the apiserver's authorizer through a watch, and a no is kept for half a minute.
        let page = loop {
            match get(stage, &client, path, Some(&scraper)).await {
                (StatusCode::OK, page) => break page,
                (StatusCode::FORBIDDEN, _) => tokio::time::sleep(std::time::Duration::from_millis(200)).await,
                other => panic!("{other:?}"),
            }
        };
        assert!(page.contains("\nnode_cpu_usage_seconds_total "), "{page}");
        let user = |name| format!("user=system:serviceaccount:default:{name}");
        let (status, text) = get(stage, &client, "/pods", Some(&scraper)).await;
        assert_eq!(status, StatusCode::FORBIDDEN);
        assert_eq!(
            text,
            format!(
                "Forbidden ({}, verb=get, resource=nodes, subresource(s)=[pods proxy])",
                user("scraper")
            )
        );
        let (status, text) = get(stage, &client, path, Some(&nobody)).await;
        assert_eq!((status, text.contains(&user("nobody"))), (StatusCode::FORBIDDEN, true));
        for token in [None, Some("made-up")] {
            let answer = get(stage, &client, path, token).await;
            assert_eq!(answer, (StatusCode::UNAUTHORIZED, "Unauthorized".to_owned()));
        }
    });
}

#[test]
fn the_apiservers_certificate_opens_everything_a_kubelet_serves() {
    on_stage(async |stage| {
        stage.backend.add("listed", 1);
        let pair = &stage.control_plane.pki().apiserver_kubelet_client;
        let identity = Identity::from_pem(format!("{}{}", read(&pair.cert), read(&pair.key)).as_bytes()).unwrap();
        let client = client(stage).identity(identity).build().unwrap();
        let get = async |path| get(stage, &client, path, None).await;
        let ok = async |path| {
            let (status, text) = get(path).await;
            assert_eq!(status, StatusCode::OK, "{path}: {text}");
            text
        };
        let parse = |text: String| serde_json::from_str::<serde_json::Value>(&text).unwrap();
        for path in ["/pods", "/pods/", "/runningpods/"] {
            let list = parse(ok(path).await);
            assert_eq!(list["kind"], "PodList");
            let items = list["items"].as_array().unwrap();
            assert!(items.iter().any(|item| item["metadata"]["name"] == "listed"), "{path}");
        }
        assert_eq!(ok("/healthz").await, "ok");
        assert_eq!(ok("/healthz/syncloop").await, "ok");
        let found = ok("/healthz?verbose").await;
        assert_eq!(found, "[+]ping ok\n[+]log ok\n[+]syncloop ok\nhealthz check passed\n");
        assert_eq!(parse(ok("/stats/summary").await)["node"]["nodeName"], "mac1");
        let config = parse(ok("/configz").await);
        assert_eq!(config["kubeletconfig"]["kind"], "KubeletConfiguration");
        assert!(ok("/metrics").await.contains("up 1"));
        ok("/metrics/cadvisor").await;

        let refused = async |path, status: u16, text: &str| {
            let (got, said) = get(path).await;
            assert_eq!((got.as_u16(), said.trim_end()), (status, text), "{path}");
        };
        refused("/nothing", 404, "404 page not found").await;
        refused("/run/default/listed/c", 405, "405: Method Not Allowed").await;
        refused(
            "/exec/default/listed/c?command=true&output=1",
            500,
            "Upgrade request required",
        )
        .await;
        refused(
            "/exec/default/absent/c?command=true&output=1",
            404,
            "pod does not exist",
        )
        .await;
        refused(
            "/exec/default/listed/zz?command=true&output=1",
            404,
            "container \"zz\" not found in pod \"listed\"",
        )
        .await;
        refused("/containerLogs/default/absent/c", 404, "pod \"absent\" does not exist").await;
        let run = client.post(format!("https://{}/run/default/listed/c?cmd=echo+a+b", stage.address));
        assert_eq!(run.send().await.unwrap().text().await.unwrap(), "a b\n");
    });
}
