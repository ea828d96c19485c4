//! What the hand-written HTTP/1.1 engine promises.

use crate::doors::{BOTH, Doors};
use crate::node::Node;
use std::fmt::Write as _;
use std::io::Read as _;
use std::time::{Duration, Instant};

const GET: &str = "GET /api/cache/gradle/k?tenant_id=a HTTP/1.1\r\nHost: x\r\n\r\n";

fn put(client: &mut crate::wire::Client, key: &str, body: &[u8]) {
    assert_eq!(
        client
            .send("PUT", &format!("/api/cache/gradle/{key}?tenant_id=a"), &[], body)
            .status,
        201
    );
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    let node = Node::start(&[]);
    let mut client = node.client();
    put(&mut client, "small", b"small");
    put(&mut client, "large", &vec![7; 500_000]);
    let mut requests = String::new();
    for round in 0..50 {
        let key = ["small", "large", "none"][round % 3];
        let _ = write!(
            requests,
            "GET /api/cache/gradle/{key}?tenant_id=a HTTP/1.1\r\nHost: x\r\n\r\n"
        );
    }
    let mut writer = client.stream.try_clone().unwrap();
    let sender = std::thread::spawn(move || std::io::Write::write_all(&mut writer, requests.as_bytes()).unwrap());
    for round in 0..50 {
        let expected = [(200, 5), (200, 500_000), (404, 32)][round % 3];
        let response = client.response();
        assert_eq!((response.status, response.body.len()), expected, "round {round}");
    }
    sender.join().unwrap();
}

/// The conformance suite found it: the message of a 404 followed the answer to HEAD, and the client read it as its next answer.
#[test]
fn an_answer_to_head_is_followed_by_nothing() {
    let node = Node::start(&[]);
    let mut client = node.client();
    for target in [
        "/up",
        "/api/cache/gradle/none?tenant_id=a",
        "/api/cache/gradle/none",
        "/api/cache/clean?tenant_id=a",
    ] {
        let get = client.send("GET", target, &[], b"");
        let head = client.send("HEAD", target, &[], b"");
        assert_eq!(head.status, get.status, "{target}");
        assert_eq!(head.field("content-length"), get.field("content-length"), "{target}");
        assert_eq!(client.send("GET", "/up", &[], b"").status, 200, "{target}");
    }
}

#[test]
fn a_request_cut_at_every_byte_is_one_request() {
    let node = Node::start(&[]);
    let mut client = node.client();
    let request = "PUT /api/cache/gradle/cut?tenant_id=a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n";
    for byte in request.bytes() {
        client.raw(&[byte]);
    }
    assert_eq!(client.response().status, 201);
    assert_eq!(
        client.send("GET", "/api/cache/gradle/cut?tenant_id=a", &[], b"").text(),
        "abcde"
    );
}

#[test]
fn chunked_bodies_of_any_size_are_stored() {
    let node = Node::start(&[]);
    let mut client = node.client();
    for chunks in [0, 1, 40, 2000] {
        let target = format!("/api/cache/gradle/chunked-{chunks}?tenant_id=a");
        let mut request =
            format!("PUT {target} HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n").into_bytes();
        for number in 0..chunks {
            request.extend_from_slice(b"3e8\r\n");
            request.extend_from_slice(&[u8::try_from(number % 256).unwrap(); 1000]);
            request.extend_from_slice(b"\r\n");
        }
        request.extend_from_slice(b"0\r\n\r\n");
        client.raw(&request);
        assert_eq!(client.response().status, 201, "{chunks}");
        let body = client.send("GET", &target, &[], b"").body;
        assert_eq!(body.len(), chunks * 1000);
        assert!(
            body.chunks(1000)
                .enumerate()
                .all(|(at, chunk)| chunk.iter().all(|byte| usize::from(*byte) == at % 256))
        );
    }
}

#[test]
fn a_broken_chunk_is_400_and_nothing_is_stored() {
    let node = Node::start(&[]);
    let mut client = node.client();
    client.raw(
        b"PUT /api/cache/gradle/broken?tenant_id=a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabcX",
    );
    let refused = client.response();
    assert_eq!((refused.status, refused.field("connection")), (400, Some("close")));
    assert!(client.is_closed());
    assert_eq!(
        node.send("GET", "/api/cache/gradle/broken?tenant_id=a", b"").status,
        404
    );
}

#[test]
fn a_body_that_ends_early_is_not_stored() {
    let node = Node::start(&[]);
    for length in [100, 1_000_000] {
        let mut client = node.client();
        client.raw(
            format!(
                "PUT /api/cache/gradle/short?tenant_id=a HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\nabc"
            )
            .as_bytes(),
        );
        client.stream.shutdown(std::net::Shutdown::Write).unwrap();
        let mut rest = Vec::new();
        let _ = client.stream.read_to_end(&mut rest);
        assert_eq!(node.send("GET", "/api/cache/gradle/short?tenant_id=a", b"").status, 404);
    }
}

#[test]
fn a_waiting_client_is_told_to_continue_unless_the_body_is_not_wanted() {
    let node = Node::start(&[]);
    let mut client = node.client();
    let head = "PUT /api/cache/gradle/expect?tenant_id=a HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n";
    client.raw(head.as_bytes());
    assert_eq!(client.response().status, 100);
    client.raw(b"hello");
    assert_eq!(client.response().status, 201);
    // Now it is there: the final answer comes at once, and says that the connection ends.
    client.raw(head.as_bytes());
    let known = client.response();
    assert_eq!((known.status, known.field("connection")), (200, Some("close")));
    let mut refused = node.client();
    refused
        .raw(b"PUT /api/cache/gradle/e?x=1 HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n");
    assert_eq!(refused.response().status, 400);
}

#[test]
fn an_existing_key_never_closes_the_connection_unannounced() {
    let node = Node::start(&[]);
    let mut client = node.client();
    put(&mut client, "k", b"first");
    // Small: the body is read and forgotten, and the connection goes on.
    for _ in 0..3 {
        let known = client.send("PUT", "/api/cache/gradle/k?tenant_id=a", &[], &vec![1; 300_000]);
        assert_eq!((known.status, known.field("connection")), (200, None));
    }
    // Large: announced.
    let known = client.send("PUT", "/api/cache/gradle/k?tenant_id=a", &[], &vec![1; 8_000_000]);
    assert_eq!((known.status, known.field("connection")), (200, Some("close")));
}

#[test]
fn http_1_0_is_closed_unless_asked_otherwise() {
    let node = Node::start(&[]);
    let mut client = node.client();
    client.raw(b"GET /up HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    assert_eq!(client.response().field("connection"), Some("keep-alive"));
    client.raw(b"GET /up HTTP/1.0\r\n\r\n");
    assert_eq!(client.response().field("connection"), Some("close"));
    assert!(client.is_closed());
}

#[test]
fn empty_lines_before_a_request_are_forgiven() {
    let node = Node::start(&[]);
    let mut client = node.client();
    client.raw(b"\r");
    client.raw(b"\n\r\nGET /up HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_eq!(client.response().status, 200);
}

#[test]
fn giant_headers_are_refused() {
    let doors = Doors::open(&[]);
    for door in BOTH {
        let mut client = doors.enter(door);
        client.offer(format!("GET / HTTP/1.1\r\nHost: x\r\nA: {}\r\n\r\n", "a".repeat(40_000)).as_bytes());
        assert_eq!(client.response().status, 431, "{door:?}");
        let mut client = doors.enter(door);
        client.offer(format!("GET / HTTP/1.1\r\nHost: x\r\n{}\r\n", "A: b\r\n".repeat(70)).as_bytes());
        assert_eq!(client.response().status, 431, "{door:?}");
    }
}

/// Incident `header-drip`: a header in pieces span a core. Here it costs nothing, and ends by its deadline however often a
/// byte comes.
#[test]
fn dripping_headers_cost_nothing_and_are_cut_off() {
    let doors = Doors::open(&["--http-header-timeout-ms", "1500"]);
    let node = &doors.node;
    let mut clients: Vec<_> = (0..20).map(|number| doors.enter(BOTH[number % 2])).collect();
    let before = node.cpu();
    let started = Instant::now();
    let request = format!("GET /up HTTP/1.1\r\nX: {}", "a".repeat(10_000));
    let mut bytes = request.bytes();
    // A byte on each of twenty connections, about every twenty milliseconds, for longer than the deadline.
    while started.elapsed() < Duration::from_secs(2) {
        let byte = [bytes.next().unwrap()];
        for client in &mut clients {
            client.offer(&byte);
        }
        std::thread::park_timeout(Duration::from_millis(20));
    }
    let used = node.cpu() - before;
    assert!(
        used < 0.6,
        "twenty dripping connections used {used} s of processor time in two seconds"
    );
    for client in &mut clients {
        let timed_out = client.response();
        assert_eq!((timed_out.status, timed_out.field("connection")), (408, Some("close")));
    }
    assert_eq!(node.send("GET", "/up", b"").status, 200);
}

#[test]
fn stalled_bodies_and_idle_connections_are_cut_off() {
    let doors = Doors::open(&["--http-stall-timeout-ms", "300", "--http-idle-timeout-ms", "300"]);
    let node = &doors.node;
    let mut idle = BOTH.map(|door| doors.enter(door));
    let mut stalled: Vec<_> = [100, 5_000_000]
        .iter()
        .flat_map(|length| BOTH.map(|door| (length, door)))
        .map(|(length, door)| {
            let mut client = doors.enter(door);
            client.raw(
                format!(
                    "PUT /api/cache/gradle/stall?tenant_id=a HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\nabc"
                )
                .as_bytes(),
            );
            client
        })
        .collect();
    for client in &mut stalled {
        assert_eq!(client.response().status, 408);
    }
    assert!(idle.iter_mut().all(crate::wire::Client::is_closed));
    assert_eq!(node.send("GET", "/api/cache/gradle/stall?tenant_id=a", b"").status, 404);
}

#[test]
fn a_reader_that_stops_reading_is_cut_off_and_others_are_served() {
    let node = Node::start(&["--http-stall-timeout-ms", "500"]);
    let mut client = node.client();
    let body = vec![3; 64 << 20];
    put(&mut client, "k", &body);
    let mut slow: Vec<_> = (0..10)
        .map(|_| {
            let mut client = node.client();
            client.raw(GET.as_bytes());
            client
        })
        .collect();
    assert_eq!(client.send("GET", "/up", &[], b"").status, 200);
    assert_eq!(
        client
            .send("GET", "/api/cache/gradle/k?tenant_id=a", &[], b"")
            .body
            .len(),
        body.len()
    );
    let inflight = || node.send("GET", "/ready", b"").json()["http_inflight_requests"].as_i64();
    crate::node::until("slow readers are gone", || (inflight() == Some(0)).then_some(()));
    let mut rest = Vec::new();
    let _ = slow[0].stream.read_to_end(&mut rest);
    assert!(rest.len() < body.len());
}

/// More bytes wait than the node may hold: some clients are told to come back, none loses what was acknowledged, and the node
/// answers everybody else.
#[test]
fn overload_is_answered_with_503_and_nothing_acknowledged_is_lost() {
    let node = Node::start(&["--memory-hard-limit-bytes", "1048576"]);
    // 64 bodies of 128 KiB fill the smallest budget there is; each holds its place while it waits for its last byte.
    let head = |key: usize| {
        format!("PUT /api/cache/gradle/over-{key}?tenant_id=a HTTP/1.1\r\nHost: x\r\nContent-Length: 131072\r\n\r\n")
    };
    let mut holding: Vec<_> = (0..64)
        .map(|key| {
            let mut client = node.client();
            client.raw(head(key).as_bytes());
            client.raw(&vec![1; 131_071]);
            client
        })
        .collect();
    let reserved = || {
        let text = String::from_utf8(node.send("GET", "/metrics", b"").body).unwrap();
        text.lines()
            .find_map(|line| line.strip_prefix("kura_memory_transient_reserved_bytes "))
            .unwrap()
            .parse::<f64>()
            .unwrap()
    };
    crate::node::until("the budget is used up", || (reserved() >= 8_388_608.0).then_some(()));
    let refused = node.send("PUT", "/api/cache/gradle/over-more?tenant_id=a", &vec![1; 131_072]);
    assert_eq!((refused.status, refused.field("retry-after")), (503, Some("1")));
    for client in &mut holding {
        client.raw(&[1]);
    }
    for client in &mut holding {
        assert_eq!(client.response().status, 201);
    }
    assert_eq!(
        node.send("PUT", "/api/cache/gradle/over-more?tenant_id=a", &vec![1; 131_072])
            .status,
        201
    );
    assert_eq!(
        node.send("GET", "/api/cache/gradle/over-63?tenant_id=a", b"")
            .body
            .len(),
        131_072
    );
}

#[test]
fn bodies_of_any_size_travel_through_tls() {
    let doors = Doors::open(&[]);
    let mut client = doors.enter(crate::doors::Door::Tls);
    for size in [1, 100_000, 131_072, 9_000_000] {
        let body: Vec<u8> = (0..size).map(|at: u32| u8::try_from(at % 251).unwrap()).collect();
        put(&mut client, &size.to_string(), &body);
        let target = format!("/api/cache/gradle/{size}?tenant_id=a");
        assert!(client.send("GET", &target, &[], b"").body == body, "{size}");
        let range = client.send("GET", &target, &["Range: bytes=-1"], b"");
        assert_eq!((range.status, range.body), (206, body[body.len() - 1..].to_vec()));
    }
}

/// A reader of a small answer that stops reading holds its bytes in our memory: they come out of the same budget as
/// everything else, and when that is used up the reader is cut off rather than the node.
#[test]
fn what_waits_for_slow_readers_is_within_the_budget() {
    let node = Node::start(&["--memory-hard-limit-bytes", "1048576"]);
    put(&mut node.client(), "k", &vec![3; 130_000]);
    let gauge = || {
        let text = String::from_utf8(node.send("GET", "/metrics", b"").body).unwrap();
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix("kura_memory_transient_reserved_bytes "));
        line.unwrap().parse::<f64>().unwrap()
    };
    // More than sockets buffer: the rest waits, and is accounted for.
    let mut patient = node.client();
    patient.offer(GET.repeat(200).as_bytes());
    crate::node::until("bytes wait for the slow reader", || (gauge() > 0.0).then_some(()));
    for _ in 0..200 {
        assert_eq!(patient.response().body.len(), 130_000);
    }
    crate::node::until("they are given back", || (gauge() < 1.0).then_some(()));
    // Uploads that wait for their last byte use everything up.
    let mut holding: Vec<_> = (0..64)
        .map(|key| {
            let mut client = node.client();
            client.raw(
                format!(
                    "PUT /api/cache/gradle/hold-{key}?tenant_id=a HTTP/1.1\r\nHost: x\r\nContent-Length: 131072\r\n\r\n"
                )
                .as_bytes(),
            );
            client.raw(&vec![1; 131_071]);
            client
        })
        .collect();
    crate::node::until("the budget is used up", || (gauge() >= 8_388_608.0).then_some(()));
    let mut slow = node.client();
    slow.offer(GET.repeat(200).as_bytes());
    crate::node::until("the reader is cut off", || {
        let text = String::from_utf8(node.send("GET", "/metrics", b"").body).unwrap();
        text.contains("kura_artifact_egress_completions_total_total{producer=\"gradle\",result=\"error\"} 1")
            .then_some(())
    });
    assert!(slow.drain().len() < 200 * 130_000);
    for client in &mut holding {
        client.raw(&[1]);
        assert_eq!(client.response().status, 201);
    }
    assert_eq!(node.send("GET", "/up", b"").status, 200);
}
