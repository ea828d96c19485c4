use std::convert::Infallible;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::{Request, Response};
use kube::client::Body;
use serde_json::{Value, json};

use super::*;

/// What `kube-public/cluster-info` is now; nothing: it does not exist.
type Published = Arc<Mutex<Option<Value>>>;

fn info(url: &str) -> Value {
    let config = json!({"clusters": [{"name": "", "cluster": {
        "server": url, "certificate-authority-data": STANDARD.encode("PEM"),
    }}]});
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "cluster-info"},
        "data": {"kubeconfig": config.to_string()}})
}

/// A cluster that has this ConfigMap and nothing else.
fn cluster(published: &Published) -> kube::Client {
    let published = Arc::clone(published);
    let service = tower::service_fn(move |request: Request<Body>| {
        assert!(request.uri().path().ends_with("/kube-public/configmaps/cluster-info"));
        let found = published.lock().unwrap().clone();
        let missing = json!({"kind": "Status", "status": "Failure", "code": 404, "reason": "NotFound", "message": ""});
        let (code, body) = found.map_or((404, missing), |found| (200, found));
        let answer = Response::builder()
            .status(code)
            .body(Body::from(body.to_string().into_bytes()));
        async move { Ok::<_, Infallible>(answer.unwrap()) }
    });
    kube::Client::new(service, "default")
}

fn url(place: &Whereabouts) -> Option<String> {
    place.known().map(|server| server.url.clone())
}

#[tokio::test]
async fn what_was_found_stays_while_nothing_better_is_published() {
    let published: Published = Arc::default();
    let place = Whereabouts::new(cluster(&published), Settings::default());
    assert!(matches!(place.learn().await, Err(Error::Unpublished)));
    assert_eq!(url(&place), None);

    *published.lock().unwrap() = Some(info("https://203.0.113.7:6443"));
    place.learn().await.unwrap();
    assert_eq!(url(&place).as_deref(), Some("https://203.0.113.7:6443"));
    assert!(!place.look().await.unwrap(), "the same place is no news");

    *published.lock().unwrap() = None;
    assert!(place.look().await.is_err());
    *published.lock().unwrap() = Some(info("not an address"));
    assert!(place.look().await.is_err());
    assert_eq!(url(&place).as_deref(), Some("https://203.0.113.7:6443"));
}

#[tokio::test]
async fn an_api_server_that_moves_is_noticed() {
    let published: Published = Arc::new(Mutex::new(Some(info("https://203.0.113.7:6443"))));
    let place = Whereabouts::new(cluster(&published), Settings::default());
    place.learn().await.unwrap();
    let (registry, stop) = (Registry::default(), CancellationToken::new());
    *published.lock().unwrap() = Some(info("https://203.0.113.8:6443"));
    let noticed = async {
        while url(&place).as_deref() != Some("https://203.0.113.8:6443") {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        stop.cancel();
    };
    let within = Duration::from_mins(2);
    let followed = async { tokio::join!(place.follow(Duration::from_millis(5), &registry, &stop), noticed) };
    tokio::time::timeout(within, followed).await.expect("it is noticed");
}

#[tokio::test]
async fn what_the_flags_say_is_not_asked_for() {
    let settings = Settings {
        url: Some("https://api.example:6443/".to_owned()),
        ca_pem: Some("PEM".to_owned()),
    };
    let place = Whereabouts::new(cluster(&Published::default()), settings);
    place
        .learn()
        .await
        .expect("the cluster, which publishes nothing, is not asked");
    assert_eq!(url(&place).as_deref(), Some("https://api.example:6443"));
}
