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
    let checked = command(&["--check-config"])
        .env("KURA_GRPC_PORT", "50051")
        .env("KURA_SENTRY_DSN", "https://canary@sentry.example/1")
        .env("KURA_MEMORY_SOFT_LIMIT_BYTES", "")
        .env("KURA_PEERS", "")
        .output()
        .unwrap();
    assert!(checked.status.success(), "{checked:?}");
    let text = String::from_utf8_lossy(&checked.stdout);
    let lines: Vec<_> = text.lines().collect();
    assert!(lines[0].starts_with("configuration is valid: 127.0.0.1:4000"), "{text}");
    assert_eq!(lines[1], "KURA_GRPC_PORT has no effect: gRPC shares the port of HTTP");
    assert!(lines[2].starts_with("KURA_SENTRY_DSN has no effect: "), "{text}");
    assert!(lines.len() == 3 && !text.contains("canary"), "{text}");
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

/// What is given up at each state, seen from outside.
#[test]
fn memory_pressure_is_told_and_acted_upon() {
    let gauge = |node: &Node, name: &str| {
        let text = String::from_utf8(node.send("GET", "/metrics", b"").body).unwrap();
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix(&format!("kura_{name} ")));
        line.unwrap_or_else(|| panic!("{name} is not in {text}")).to_owned()
    };
    let (small, large) = (vec![1; 1000], vec![1; 1_000_000]);
    for (forced, state, refused) in [("normal", 0, false), ("constrained", 1, false), ("critical", 2, true)] {
        let node = Node::start_with(&Options {
            args: &[],
            env: &[("KURA_TEST_FORCE_MEMORY_PRESSURE", forced)],
        });
        assert_eq!(gauge(&node, "memory_pressure_state"), state.to_string());
        assert_eq!(
            node.send("GET", "/status/rollout", b"").json()["memory_pressure_state"],
            state
        );
        assert_eq!(
            node.send("PUT", "/api/cache/gradle/small?tenant_id=a", &small).status,
            201
        );
        assert_eq!(node.send("GET", "/api/cache/gradle/small?tenant_id=a", b"").body, small);
        let answer = node.send("PUT", "/api/cache/gradle/large?tenant_id=a", &large);
        assert_eq!(answer.status, if refused { 503 } else { 201 }, "{forced}");
        if refused {
            assert_eq!(answer.field("retry-after"), Some("1"));
            assert_eq!(
                gauge(&node, "memory_actions_total_total{action=\"refuse_upload\"}"),
                "1"
            );
        }
    }
    // Unforced: a limit below what any process needs is measured as critical, without being asked.
    let node = Node::start(&["--memory-hard-limit-bytes", "1048576"]);
    until("the pressure is noticed", || {
        (gauge(&node, "memory_pressure_state") == "2").then_some(())
    });
    assert_ne!(gauge(&node, "memory_pressure_transitions_total_total"), "0");
    assert!(gauge(&node, "process_resident_memory_bytes").parse::<u64>().unwrap() > 1_048_576);
}

#[test]
fn egress_is_measured_under_the_names_dashboards_know() {
    let node = Node::start(&[]);
    node.send("PUT", "/api/cache/gradle/k?tenant_id=a", &vec![7; 300_000]);
    node.send("GET", "/api/cache/gradle/k?tenant_id=a", b"");
    let started = node.send("POST", "/api/cache/module/start?tenant_id=a&hash=h&name=n", b"");
    let id = started.json()["upload_id"].as_str().unwrap().to_owned();
    let part = format!("/api/cache/module/part?tenant_id=a&upload_id={id}&part_number=1");
    assert_eq!(node.send("POST", &part, b"12345").status, 204);
    for line in [
        "kura_artifact_egress_completions_total_total{producer=\"gradle\",result=\"ok\"} 1",
        "kura_artifact_egress_bytes_total_total{producer=\"gradle\",result=\"ok\"} 300000",
        "kura_artifact_egress_duration_seconds_count{producer=\"gradle\"} 1",
        "kura_artifact_egress_throughput_bytes_per_second_count{producer=\"gradle\"} 1",
        "kura_artifact_serving_paths_total_total{path=\"accelerated\"} 1",
        "kura_multipart_parts_total_total{result=\"ok\"} 1",
        "kura_multipart_uploads 1",
        "kura_tmp_dir_bytes 5",
        "kura_public_request_latency_seconds_count{transport=\"http\",route=\"/api/cache/gradle/{cache_key}\"} 2",
    ] {
        until(line, || {
            let response = node.send("GET", "/metrics", b"");
            response.text().lines().any(|found| found == line).then_some(())
        });
    }
    let text = String::from_utf8(node.send("GET", "/metrics", b"").body).unwrap();
    let latency = text
        .lines()
        .find_map(|line| line.strip_prefix("kura_public_request_latency_ewma_ms "));
    assert!(latency.unwrap().parse::<f64>().unwrap() > 0.0);
    // A name is described once, and before its values.
    let mut described = std::collections::HashSet::new();
    for line in text.lines().filter_map(|line| line.strip_prefix("# TYPE ")) {
        assert!(described.insert(line.split(' ').next().unwrap()), "{line} twice");
    }
}

#[test]
fn inspect_asks_a_running_node_for_its_hit_rate() {
    let node = Node::start(&[]);
    for (method, times) in [("GET", 1), ("PUT", 1), ("GET", 3)] {
        for _ in 0..times {
            node.send(method, "/gradle/ios/k", b"hello");
        }
    }
    let url = format!("http://{}/", node.address);
    let json = command(&["inspect", "--json", "--node", &url]).output().unwrap();
    let json: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(
        json["tools"][0],
        serde_json::json!({"tool":"gradle","project":"ios","hits":3,"misses":1,"hit_percent":75,"stored":1,
            "bytes_sent":15,"bytes_received":5})
    );
    let table = command(&["inspect", "--node", &url]).output().unwrap();
    assert!(String::from_utf8_lossy(&table.stdout).contains("75%"), "{table:?}");
    drop(node);
    let gone = command(&["inspect", "--node", &url]).output().unwrap();
    assert!(!gone.status.success());
    assert!(
        String::from_utf8_lossy(&gone.stderr).contains("does not answer"),
        "{gone:?}"
    );
}
