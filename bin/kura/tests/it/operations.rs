//! Probes, metrics, inspect, verify, configuration.

use crate::node::{Node, Options, command, until};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};

#[test]
fn probes_have_their_fields() {
    let node = Node::start(&[
        "--tenant-id",
        "acme",
        "--region",
        "eu",
        "--node-url",
        "http://node-1:7443",
        "--bind-address",
        "127.0.0.1",
    ]);
    let up = node.send("GET", "/up", b"").json();
    assert_eq!(
        up,
        serde_json::json!({"status":"ok","tenant_id":"acme","region":"eu","node":"eu","node_url":"http://node-1:7443"})
    );
    let ready = node.send("GET", "/ready", b"");
    assert_eq!(ready.status, 200);
    let ready = ready.json();
    assert_eq!(
        (&ready["status"], &ready["state"], &ready["ready"]),
        (&"ok".into(), &"serving".into(), &true.into())
    );
    let rollout = node.send("GET", "/status/rollout", b"").json();
    for field in [
        "generation",
        "ready",
        "state",
        "ring_members",
        "initial_discovery_completed",
        "writer_lock_owned",
        "http_inflight_requests",
        "grpc_inflight_requests",
        "outbox_messages",
        "memory_pressure_state",
        "fd_timeout_count",
        "backfill_initial_cycle",
        "backfill_backfilling_peers",
        "backfill_budget_exhausted_real_peers",
        "backfill_budget_exhausted_capability_peers",
        "backfill_ring_fullness_percent",
    ] {
        assert!(!rollout[field].is_null(), "{field}");
    }
    let cluster = node.send("GET", "/status/cluster", b"").json();
    for field in [
        "status",
        "generation",
        "tenant_id",
        "region",
        "node",
        "node_url",
        "connected_nodes",
        "ring_members",
        "members",
        "regions",
        "nodes",
    ] {
        assert!(!cluster[field].is_null(), "{field}");
    }
    let head = node.client().send("HEAD", "/up", &[], b"");
    assert_eq!((head.status, head.body.len()), (200, 0));
}

#[test]
fn unknown_paths_are_bare_and_grpc_gets_a_status() {
    let node = Node::start(&[]);
    for target in ["/", "/nothing", "/_internal/backfill", "/api/cache/gradle/"] {
        let missing = node.send("GET", target, b"");
        assert_eq!(
            (missing.status, missing.body.len(), missing.field("content-type")),
            (404, 0, None),
            "{target}"
        );
    }
    let grpc = node.client().send(
        "POST",
        "/some.Service/Call",
        &["Content-Type: application/grpc+proto"],
        b"",
    );
    assert_eq!((grpc.status, grpc.field("grpc-status")), (200, Some("12")));
    let refused = node.send("POST", "/api/cache/clean?tenant_id=a", b"");
    assert_eq!((refused.status, refused.field("allow")), (405, Some("DELETE")));
}

#[test]
fn metrics_count_under_the_names_dashboards_know() {
    let node = Node::start(&[]);
    node.send("PUT", "/api/cache/gradle/k?tenant_id=a", b"hello");
    node.send("GET", "/api/cache/gradle/k?tenant_id=a", b"");
    node.send("GET", "/api/cache/gradle/none?tenant_id=a", b"");
    let response = node.send("GET", "/metrics", b"");
    assert_eq!(response.field("content-type"), Some("text/plain; version=0.0.4"));
    // A request is counted when its answer is out, so the client may be a moment ahead of the counter.
    for line in [
        "kura_http_requests_total_total{route=\"/api/cache/gradle/{cache_key}\",status=\"201\"} 1",
        "kura_http_requests_total_total{route=\"/api/cache/gradle/{cache_key}\",status=\"200\"} 1",
        "kura_http_requests_total_total{route=\"/api/cache/gradle/{cache_key}\",status=\"404\"} 1",
        "kura_artifact_reads_total_total{producer=\"gradle\",result=\"hit\"} 1",
        "kura_artifact_reads_total_total{producer=\"gradle\",result=\"miss\"} 1",
        "kura_artifact_writes_total_total{producer=\"gradle\",result=\"created\"} 1",
        "kura_artifact_write_bytes_total_total{producer=\"gradle\",result=\"created\"} 5",
        "kura_manifest_index_entries 1",
        "kura_ready_state 1",
        "kura_node_info{region=\"local\",tenant_id=\"default\"} 1",
    ] {
        until(line, || {
            let response = node.send("GET", "/metrics", b"");
            response.text().lines().any(|found| found == line).then_some(())
        });
    }
}

#[test]
fn inspect_and_verify_look_at_a_stopped_node() {
    let dir = tempfile::tempdir().unwrap();
    let mut node = Node::start_in(dir.path(), &Options { args: &[], env: &[] });
    node.send("PUT", "/api/cache/gradle/k?tenant_id=a&namespace_id=ios", b"hello");
    node.send("PUT", "/v1/cache/k", b"hi");
    let data = dir.path().to_str().unwrap().to_owned();
    let busy = command(&["inspect", "--data-dir", &data]).output().unwrap();
    assert!(
        String::from_utf8_lossy(&busy.stderr).contains("in use by process"),
        "{busy:?}"
    );
    node.signal("TERM");
    node.wait();
    let json = command(&["inspect", "--json", "--data-dir", &data]).output().unwrap();
    let json: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!((&json["entries"], &json["bytes"]), (&2.into(), &7.into()));
    assert_eq!(
        json["rows"][0],
        serde_json::json!({"kind":"gradle","namespace":"ios","entries":1,"bytes":5})
    );
    let table = command(&["inspect", "--data-dir", &data]).output().unwrap();
    assert!(String::from_utf8_lossy(&table.stdout).contains("nx"), "{table:?}");
    let sound = command(&["verify", "--data-dir", &data]).output().unwrap();
    assert!(sound.status.success(), "{sound:?}");
    // One flipped bit in a body is found, named in the exit code, and never served.
    let segment = std::fs::read_dir(dir.path().join("store/segments"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .find(|path| std::fs::read(path).unwrap().windows(5).any(|window| window == b"hello"))
        .unwrap();
    let mut bytes = std::fs::read(&segment).unwrap();
    let at = bytes.windows(5).position(|window| window == b"hello").unwrap();
    bytes[at] ^= 1;
    std::fs::write(&segment, bytes).unwrap();
    let damaged = command(&["verify", "--data-dir", &data]).output().unwrap();
    assert!(!damaged.status.success(), "{damaged:?}");
    let node = Node::start_in(dir.path(), &Options { args: &[], env: &[] });
    assert_eq!(
        node.send("GET", "/api/cache/gradle/k?tenant_id=a&namespace_id=ios", b"")
            .status,
        404
    );
    assert_eq!(node.send("GET", "/v1/cache/k", b"").text(), "hi");
}

#[test]
fn the_configuration_can_be_checked_and_printed() {
    let printed = command(&["serve", "--print-config"])
        .env("KURA_PORT", "4321")
        .env("KURA_TENANT_ID", "Acme")
        .env("KURA_AUTH_JWT_SECRET", "very-secret-value")
        .env("KURA_GRPC_PORT", "50051")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&printed.stdout);
    let json: serde_json::Value = serde_json::from_slice(&printed.stdout).unwrap();
    assert_eq!(
        (&json["tenant_id"], &json["address"], &json["jwt"]),
        (&"acme".into(), &"[::]:4321".into(), &true.into())
    );
    assert!(!text.contains("very-secret"), "{text}");
    assert!(command(&["--check-config"]).output().unwrap().status.success());
    let bad = command(&["--check-config", "--tenant-id", "not a handle"])
        .output()
        .unwrap();
    assert_eq!(bad.status.code(), Some(64));
    assert!(
        String::from_utf8_lossy(&bad.stderr).contains("KURA_TENANT_ID"),
        "{bad:?}"
    );
    let version = command(&["version"]).output().unwrap();
    assert!(version.status.success() && !version.stdout.is_empty());
}

#[test]
fn a_disk_without_room_is_read_only_and_says_so() {
    let node = Node::start(&["--multipart-max-stored-bytes", "10"]);
    let started = node
        .send("POST", "/api/cache/module/start?tenant_id=a&hash=h&name=n", b"")
        .json();
    let id = started["upload_id"].as_str().unwrap().to_owned();
    let target = format!("/api/cache/module/part?tenant_id=a&upload_id={id}&part_number=1");
    let refused = node.send("POST", &target, b"more than ten bytes");
    assert_eq!((refused.status, refused.field("retry-after")), (503, Some("1")));
    assert_eq!(refused.message(), "Temporary storage budget exhausted");
    assert_eq!(node.send("POST", &target, b"few").status, 204);
}

/// A control plane that accepts one report and hands it over.
fn control_plane() -> (String, std::sync::mpsc::Receiver<(String, serde_json::Value)>) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (reports, received) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let mut reader = BufReader::new(stream);
            let (mut head, mut line) = (String::new(), String::new());
            while reader.read_line(&mut line).unwrap_or(0) > 2 {
                head.push_str(&line);
                line.clear();
            }
            let length = head
                .lines()
                .find_map(|line| line.to_lowercase().strip_prefix("content-length: ")?.parse().ok());
            let mut body = vec![0; length.unwrap_or(0)];
            reader.read_exact(&mut body).unwrap();
            let _ = reports.send((head, serde_json::from_slice(&body).unwrap()));
            let answer = b"HTTP/1.1 202 Accepted\r\nContent-Length: 14\r\nConnection: close\r\n\r\n{\"accepted\":1}";
            let _ = reader.get_mut().write_all(answer);
        }
    });
    (url, received)
}

#[test]
fn usage_is_reported_and_the_last_window_is_not_lost() {
    let (url, received) = control_plane();
    let mut node = Node::start_with(&Options {
        args: &[
            "--node-url",
            "http://node-1:7443",
            "--bind-address",
            "127.0.0.1",
            "--auth-anonymous",
            "read-write",
            "--control-plane-url",
            &url,
            "--control-plane-client-id",
            "node",
            "--usage-window-secs",
            "3600",
        ],
        env: &[("KURA_CONTROL_PLANE_CLIENT_SECRET", "client-secret-value")],
    });
    node.send("PUT", "/api/cache/gradle/k?tenant_id=a&namespace_id=ios", b"hello");
    node.send("PUT", "/api/cache/gradle/k?tenant_id=a&namespace_id=ios", b"hello");
    node.send("GET", "/api/cache/gradle/k?tenant_id=a&namespace_id=ios", b"");
    // The window would be open for an hour; ending the node closes and delivers it.
    node.signal("TERM");
    assert!(node.wait().success());
    let (head, report) = received.recv_timeout(crate::node::DEADLINE).unwrap();
    assert!(head.starts_with("POST /_internal/kura/usage HTTP/1.1"), "{head}");
    assert!(head.to_lowercase().contains("authorization: basic"), "{head}");
    assert_eq!(
        (&report["schema_version"], &report["node_id"]),
        (&1.into(), &"node-1".into())
    );
    let mut events: Vec<_> = report["events"].as_array().unwrap().clone();
    events.sort_by_key(|event| event["direction"].as_str().map(str::to_owned));
    let seen: Vec<_> = events
        .iter()
        .map(|event| (&event["direction"], &event["bytes"], &event["request_count"]))
        .collect();
    // What was there before is not billed.
    assert_eq!(
        seen,
        [
            (&"egress".into(), &5.into(), &1.into()),
            (&"ingress".into(), &5.into(), &1.into())
        ]
    );
    assert!(!node.log().join("").contains("client-secret-value"));
}

/// Bytes were once charged when a download was planned; a client that went away at once was charged for all of it.
#[test]
fn a_download_is_charged_for_what_was_sent() {
    let (url, received) = control_plane();
    let mut node = Node::start_with(&Options {
        args: &[
            "--bind-address",
            "127.0.0.1",
            "--auth-anonymous",
            "read-write",
            "--control-plane-url",
            &url,
            "--control-plane-client-id",
            "node",
            "--usage-window-secs",
            "3600",
        ],
        env: &[("KURA_CONTROL_PLANE_CLIENT_SECRET", "client-secret-value")],
    });
    let length = 64 << 20;
    node.send("PUT", "/api/cache/gradle/k?tenant_id=a", &vec![1; length]);
    let mut client = node.client();
    client.raw(b"GET /api/cache/gradle/k?tenant_id=a HTTP/1.1\r\nHost: x\r\n\r\n");
    let mut first = [0; 1000];
    client.stream.read_exact(&mut first).unwrap();
    drop(client);
    until("the reader's end is noticed", || {
        (node.send("GET", "/ready", b"").json()["http_inflight_requests"] == 0).then_some(())
    });
    node.signal("TERM");
    assert!(node.wait().success());
    let (_, report) = received.recv_timeout(crate::node::DEADLINE).unwrap();
    let events = report["events"].as_array().unwrap();
    let bytes = |direction: &str| {
        let event = events.iter().find(|event| event["direction"] == direction).unwrap();
        usize::try_from(event["bytes"].as_u64().unwrap()).unwrap()
    };
    assert_eq!(bytes("ingress"), length);
    assert!((1..length).contains(&bytes("egress")), "{}", bytes("egress"));
}
