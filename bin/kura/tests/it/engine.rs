//! What the hand-written HTTP/1.1 engine promises.

use crate::doors::Doors;
use crate::node::{Client, Node, come_back, until};
use std::time::{Duration, Instant};

const GET: &str = "GET /api/cache/gradle/k?tenant_id=a HTTP/1.1\r\nHost: x\r\n\r\n";

fn put(client: &mut Client, key: &str, body: &[u8]) {
    let target = format!("/api/cache/gradle/{key}?tenant_id=a");
    assert_eq!(client.send("PUT", &target, &[], body).status, 201);
}

/// Incident `header-drip`: a header in pieces span a core. Here it costs nothing, and ends by its deadline however often a
/// byte comes.
#[test]
fn dripping_headers_cost_nothing_and_are_cut_off() {
    let doors = Doors::open(&["--http-header-timeout-ms", "1500"]);
    let node = &doors.node;
    let mut clients: Vec<_> = (0..10).flat_map(|_| doors.enter()).collect();
    let before = node.cpu();
    let started = Instant::now();
    let request = format!("GET /up HTTP/1.1\r\nX: {}", "a".repeat(10_000));
    let mut bytes = request.bytes();
    // A byte on each of twenty connections, about every twenty milliseconds, for longer than the deadline.
    while started.elapsed() < Duration::from_secs(2) {
        let byte = [bytes.next().unwrap()];
        for client in &mut clients {
            client.raw(&byte);
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
        timed_out
            .expect(408)
            .unwrap()
            .expect_field("connection", "close")
            .unwrap();
    }
    assert_eq!(node.status("GET", "/up", b""), 200);
}

#[test]
fn stalled_bodies_and_idle_connections_are_cut_off() {
    let doors = Doors::open(&["--http-stall-timeout-ms", "300", "--http-idle-timeout-ms", "300"]);
    let node = &doors.node;
    let mut idle = doors.enter();
    let mut stalled = Vec::new();
    for length in [100, 5_000_000] {
        for mut client in doors.enter() {
            let head = "PUT /api/cache/gradle/stall?tenant_id=a HTTP/1.1\r\nHost: x";
            client.raw(format!("{head}\r\nContent-Length: {length}\r\n\r\nabc").as_bytes());
            stalled.push(client);
        }
    }
    for client in &mut stalled {
        assert_eq!(client.response().status, 408);
    }
    assert!(idle.iter_mut().all(Client::is_closed));
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
    let read = client.send("GET", "/api/cache/gradle/k?tenant_id=a", &[], b"");
    assert_eq!(read.body.len(), body.len());
    node.until_in_flight(0);
    assert!(slow[0].rest().len() < body.len());
}

const RESERVED: &str = "kura_memory_transient_reserved_bytes";

/// 64 bodies of 128 KiB fill the smallest budget there is; each holds its place while it waits for its last byte.
fn fill_budget(node: &Node, key: &str) -> Vec<Client> {
    let hold = |number: usize| {
        let mut client = node.client();
        let target = format!("/api/cache/gradle/{key}-{number}?tenant_id=a");
        client.raw(format!("PUT {target} HTTP/1.1\r\nHost: x\r\nContent-Length: 131072\r\n\r\n").as_bytes());
        client.raw(&vec![1; 131_071]);
        client
    };
    let holding = (0..64).map(hold).collect();
    until("the budget is used up", || {
        (node.metric(RESERVED) >= 8_388_608.0).then_some(())
    });
    holding
}

/// More bytes wait than the node may hold: some clients are told to come back, none loses what was acknowledged, and the node
/// answers everybody else.
#[test]
fn overload_is_answered_with_503_and_nothing_acknowledged_is_lost() {
    let node = Node::start(&["--memory-hard-limit-bytes", "1048576"]);
    let mut holding = fill_budget(&node, "over");
    let (more, last) = (
        "/api/cache/gradle/over-more?tenant_id=a",
        "/api/cache/gradle/over-63?tenant_id=a",
    );
    come_back(&node.send("PUT", more, &vec![1; 131_072]));
    for client in &mut holding {
        client.raw(&[1]);
    }
    for client in &mut holding {
        assert_eq!(client.response().status, 201);
    }
    assert_eq!(node.status("PUT", more, &vec![1; 131_072]), 201);
    assert_eq!(node.send("GET", last, b"").body.len(), 131_072);
}

/// A reader of a small answer that stops reading holds its bytes in our memory: they come out of the same budget as
/// everything else, and when that is used up the reader is cut off rather than the node.
#[test]
fn what_waits_for_slow_readers_is_within_the_budget() {
    let node = Node::start(&["--memory-hard-limit-bytes", "1048576"]);
    put(&mut node.client(), "k", &vec![3; 130_000]);
    let gauge = || node.metric(RESERVED);
    // More than sockets buffer: the rest waits, and is accounted for.
    let mut patient = node.client();
    patient.raw(GET.repeat(200).as_bytes());
    until("bytes wait for the slow reader", || (gauge() > 0.0).then_some(()));
    for _ in 0..200 {
        assert_eq!(patient.response().body.len(), 130_000);
    }
    until("they are given back", || (gauge() < 1.0).then_some(()));
    let mut holding = fill_budget(&node, "hold");
    let mut slow = node.client();
    slow.raw(GET.repeat(200).as_bytes());
    node.until_metric("kura_artifact_egress_completions_total_total{producer=\"gradle\",result=\"error\"} 1");
    assert!(slow.rest().len() < 200 * 130_000);
    for client in &mut holding {
        client.raw(&[1]);
        assert_eq!(client.response().status, 201);
    }
    assert_eq!(node.send("GET", "/up", b"").status, 200);
}
