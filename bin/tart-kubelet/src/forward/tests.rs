use std::collections::VecDeque;
use std::net::Ipv4Addr;

use super::*;

const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// Answers of one who is asked for a guest's address, in their order; then the last for ever.
struct Says(Mutex<(VecDeque<Result<IpAddr, String>>, u32)>);

impl Says {
    fn these(answers: impl IntoIterator<Item = Result<IpAddr, String>>) -> Arc<Self> {
        Arc::new(Self(Mutex::new((answers.into_iter().collect(), 0))))
    }

    fn asked(&self) -> u32 {
        self.0.lock().unwrap().1
    }
}

impl Whereabouts for Says {
    fn address(&self) -> BoxFuture<'_, Result<IpAddr, String>> {
        let mut state = self.0.lock().unwrap();
        state.1 += 1;
        let answer = if state.0.len() > 1 {
            state.0.pop_front()
        } else {
            state.0.front().cloned()
        };
        let answer = answer.unwrap();
        Box::pin(async move { answer })
    }
}

/// A guest that tells what it was asked, on a port of its own.
async fn guest() -> u16 {
    let listener = TcpListener::bind((HERE, 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let service = service_fn(|request: Request<Incoming>| async move {
                let accept = request
                    .headers()
                    .get("accept")
                    .map(|value| value.to_str().unwrap().to_owned());
                let secret = request.headers().contains_key("authorization");
                let said = format!(
                    "{} {} accept={accept:?} secret={secret}\n",
                    request.method(),
                    request.uri()
                );
                Response::builder()
                    .header("content-type", "text/plain; version=0.0.4")
                    .header("set-cookie", "guest=1")
                    .body(Full::new(Bytes::from(said)))
            });
            tokio::spawn(hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service));
        }
    });
    port
}

fn ranges(texts: &[&str]) -> Vec<Cidr> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

fn from_here() -> Allowed {
    Allowed::new(ranges(&["127.0.0.0/8"]), ranges(&["192.168.64.0/24"]))
}

/// A forward to a port of a guest that is here; where it listens.
async fn forward(port: u16, allowed: Allowed, says: &Arc<Says>) -> SocketAddr {
    let forward = Forward::bind((HERE, 0).into()).await.unwrap();
    let address = forward.address().unwrap();
    tokio::spawn(forward.run(port, allowed, Arc::clone(says) as Arc<dyn Whereabouts>));
    address
}

/// Status, headers and text of an answer.
async fn ask(address: SocketAddr, method: &str, path: &str) -> (u16, HeaderMap, String) {
    let stream = TcpStream::connect(address).await.unwrap();
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
        .await
        .unwrap();
    tokio::spawn(connection);
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("host", "mac-1")
        .header("accept", "application/openmetrics-text")
        .header("authorization", "Bearer for-the-node-only")
        .body(Empty::<Bytes>::new())
        .unwrap();
    let (head, body) = sender.send_request(request).await.unwrap().into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    (
        head.status.as_u16(),
        head.headers,
        String::from_utf8(body.to_vec()).unwrap(),
    )
}

#[tokio::test]
async fn a_scraper_reads_the_metrics_of_a_guest_and_nothing_of_it_but_these() {
    let says = Says::these([Ok(HERE)]);
    let address = forward(guest().await, from_here(), &says).await;
    let (status, headers, said) = ask(address, "GET", "/metrics?name=up").await;
    assert_eq!(status, 200);
    assert_eq!(
        said,
        "GET /metrics?name=up accept=Some(\"application/openmetrics-text\") secret=false\n"
    );
    assert_eq!(headers.get("content-type").unwrap(), "text/plain; version=0.0.4");
    assert!(!headers.contains_key("set-cookie"), "{headers:?}");
    let (status, _, said) = ask(address, "HEAD", "/metrics").await;
    assert_eq!((status, said.as_str()), (200, ""));
    assert_eq!(ask(address, "GET", "/debug/vars").await.0, 404);
    assert_eq!(ask(address, "GET", "/metrics/../debug").await.0, 404);
    assert_eq!(ask(address, "POST", "/metrics").await.0, 405);
    assert_eq!(says.asked(), 1, "an address that is known is not asked for again");
}

#[tokio::test]
async fn who_is_not_allowed_learns_nothing() {
    let says = Says::these([Ok(HERE)]);
    let allowed = Allowed::new(ranges(&["10.0.0.0/8"]), Vec::new());
    let address = forward(guest().await, allowed, &says).await;
    for path in ["/metrics", "/elsewhere"] {
        assert_eq!(ask(address, "GET", path).await.0, 403, "{path}");
    }
    assert_eq!(says.asked(), 0);
}

/// A guest held as many connections as there are places, and nobody could scrape its neighbour.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn who_is_not_allowed_takes_no_place_from_those_who_are() {
    let says = Says::these([Ok(HERE)]);
    let allowed = Allowed::new(ranges(&["127.0.0.1/32"]), Vec::new());
    let address = forward(guest().await, allowed, &says).await;
    let mut held = Vec::new();
    for _ in 0..3 * MOST_CONNECTIONS {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.bind((Ipv4Addr::new(127, 0, 0, 2), 0).into()).unwrap();
        held.push(socket.connect(address).await.unwrap());
    }
    assert_eq!(ask(address, "GET", "/metrics").await.0, 200);
}

#[tokio::test]
async fn a_guest_that_cannot_be_found_is_a_bad_gateway_and_is_looked_for_again() {
    let says = Says::these([Err("no lease".to_owned()), Ok(HERE)]);
    let address = forward(guest().await, from_here(), &says).await;
    let (status, _, said) = ask(address, "GET", "/metrics").await;
    assert_eq!((status, said.as_str()), (502, "bad gateway\n"));
    assert_eq!(ask(address, "GET", "/metrics").await.0, 200);
}

/// A guest that was replaced has another address: the one that was believed is forgotten once it does not answer.
#[tokio::test]
async fn an_address_nobody_answers_at_is_not_believed_any_longer() {
    // Bound, so that no other test gets this port, and never listening.
    let closed = tokio::net::TcpSocket::new_v4().unwrap();
    closed.bind((HERE, 0).into()).unwrap();
    let port = closed.local_addr().unwrap().port();
    let says = Says::these([Ok(HERE)]);
    let address = forward(port, from_here(), &says).await;
    assert_eq!(ask(address, "GET", "/metrics").await.0, 502);
    assert_eq!(ask(address, "GET", "/metrics").await.0, 502);
    assert_eq!(says.asked(), 2);
}

#[test]
fn guests_are_never_allowed_whatever_the_ranges_say() {
    let allowed = Allowed::new(ranges(&["0.0.0.0/0"]), ranges(&["192.168.64.0/24"]));
    assert!(allowed.admits("203.0.113.9".parse().unwrap()));
    assert!(!allowed.admits("192.168.64.7".parse().unwrap()));
    assert!(!allowed.admits("::ffff:192.168.64.7".parse().unwrap()));
}

#[tokio::test]
async fn a_port_somebody_else_has_is_an_error_and_not_a_panic() {
    let taken = TcpListener::bind((HERE, 0)).await.unwrap();
    assert!(Forward::bind(taken.local_addr().unwrap()).await.is_err());
}
