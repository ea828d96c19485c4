//! Probes, metrics, inspect, verify, configuration.

use crate::node::{CLIENT_SECRET, Node, Options, command, damage, reports_usage, said, until};
use crate::sink::Sink;
use prost::Message as _;
use russet_reapi::Function;
use russet_reapi::proto::reapi::{ActionResult, Directory, FileNode, OutputDirectory, Tree};
use std::io::{Read as _, Write as _};
use std::net::TcpStream;

#[test]
fn probes_say_what_the_flags_said() {
    let flags = "--tenant-id acme --region eu --node-url http://node-1:7443 --bind-address 127.0.0.1";
    let node = Node::told(flags, &[]);
    let up = node.send("GET", "/up", b"").json().unwrap();
    assert_eq!(
        up,
        serde_json::json!({"status":"ok","tenant_id":"acme","region":"eu","node":"eu","node_url":"http://node-1:7443"})
    );
}

#[test]
fn gauges_say_what_the_node_is_and_holds() {
    let node = Node::start(&[]);
    node.send("PUT", "/api/cache/gradle/k?tenant_id=a", b"hello");
    for line in [
        "kura_artifact_write_bytes_total_total{producer=\"gradle\",result=\"created\"} 5",
        "kura_manifest_index_entries 1",
        "kura_ready_state 1",
        "kura_node_info{region=\"local\",tenant_id=\"default\"} 1",
    ] {
        node.until_metric(line);
    }
}

/// A reader that goes away in the middle counted as if it had got everything.
#[test]
fn bytes_of_a_hit_count_when_they_have_left() {
    let node = Node::start(&[]);
    let body = vec![7; 64 << 20];
    assert_eq!(node.send("PUT", "/generic/ios/large", &body).status, 200);
    read_a_little(&node, "/generic/ios/large");
    let row = "kura_tool_bytes_total{tool=\"generic\",project=\"ios\",direction=\"sent\"}";
    let sent = until("the reader is gone", || {
        Some(node.counter(row)).filter(|sent| *sent > 0)
    });
    assert!(sent < 64 << 20, "{sent}");
}

/// A hit over gRPC kept its blobs from eviction for an hour; one over HTTP promised them and kept nothing.
#[test]
fn what_a_hit_vouches_for_is_kept() {
    let node = Node::start(&[]);
    let hash = |body: &[u8]| Function::Sha256.digest(body).hex();
    let digest = |body: &[u8]| Some(crate::reapi::wire(&Function::Sha256.digest(body)));
    let leaf = FileNode {
        name: "leaf".to_owned(),
        digest: digest(b"leaf"),
        ..FileNode::default()
    };
    let tree = Tree {
        root: Some(Directory {
            files: vec![leaf],
            ..Directory::default()
        }),
        ..Tree::default()
    };
    let tree = tree.encode_to_vec();
    for body in [&b"printed"[..], b"cried", b"leaf", &tree] {
        let put = node.send("PUT", &format!("/bazel/p/cas/{}", hash(body)), body);
        assert_eq!(put.status, 200);
    }
    let flat = ActionResult {
        stdout_digest: digest(b"printed"),
        stderr_digest: digest(b"cried"),
        ..ActionResult::default()
    };
    let deep = ActionResult {
        output_directories: vec![OutputDirectory {
            path: "out".to_owned(),
            tree_digest: digest(&tree),
            ..OutputDirectory::default()
        }],
        ..ActionResult::default()
    };
    let results = [("flat", flat), ("deep", deep)].map(|(name, result)| {
        let target = format!("/bazel/p/ac/{}", hash(name.as_bytes()));
        assert_eq!(node.send("PUT", &target, &result.encode_to_vec()).status, 200);
        target
    });
    // Two blobs and the result itself; then the tree and its leaf too.
    for (target, (before, after)) in results.iter().zip([(0, 3), (3, 6)]) {
        assert_eq!(node.counter("kura_store_leases"), before);
        assert_eq!(node.send("GET", target, b"").status, 200);
        assert_eq!(node.counter("kura_store_leases"), after);
    }
}

#[test]
fn inspect_and_verify_look_at_a_stopped_node() {
    let dir = tempfile::tempdir().unwrap();
    let mut node = Node::start_in(dir.path(), &Options::default());
    node.send("PUT", ENTRY, b"hello");
    node.send("PUT", "/v1/cache/k", b"hi");
    let data = dir.path().to_str().unwrap().to_owned();
    let busy = command(&["inspect", "--data-dir", &data]).output().unwrap();
    assert!(said(&busy).contains("in use by process"), "{busy:?}");
    node.stop();
    let json = command(&["inspect", "--json", "--data-dir", &data]).output().unwrap();
    let json: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!((&json["entries"], &json["bytes"]), (&2.into(), &7.into()));
    let row = serde_json::json!({"kind":"gradle","namespace":"ios","entries":1,"bytes":5});
    assert_eq!(json["rows"][0], row);
    let table = command(&["inspect", "--data-dir", &data]).output().unwrap();
    assert!(String::from_utf8_lossy(&table.stdout).contains("nx"), "{table:?}");
    let sound = command(&["verify", "--data-dir", &data]).output().unwrap();
    assert!(sound.status.success(), "{sound:?}");
    // One flipped bit in a body is found, named in the exit code, and never served.
    damage(dir.path(), b"hello");
    let damaged = command(&["verify", "--data-dir", &data]).output().unwrap();
    assert!(!damaged.status.success(), "{damaged:?}");
    let node = Node::start_in(dir.path(), &Options::default());
    assert_eq!(node.status("GET", ENTRY, b""), 404);
    assert_eq!(node.send("GET", "/v1/cache/k", b"").text().unwrap(), "hi");
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
    let seen = (&json["tenant_id"], &json["address"], &json["jwt"]);
    assert_eq!(seen, (&"acme".into(), &"[::]:4321".into(), &true.into()));
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
    let bad = command(&["--check-config", "--tenant-id", "not a handle"]).output();
    let bad = bad.unwrap();
    assert_eq!(bad.status.code(), Some(64));
    assert!(said(&bad).contains("KURA_TENANT_ID"), "{bad:?}");
    let version = command(&["version"]).output().unwrap();
    assert!(version.status.success() && !version.stdout.is_empty());
}

const ENTRY: &str = "/api/cache/gradle/k?tenant_id=a&namespace_id=ios";

/// Reports usage to that control plane, of windows that would be open for an hour.
fn reporting(plane: &Sink) -> Node {
    let flags = format!("--node-url http://node-1:7443 {}", reports_usage(&plane.url()));
    Node::told(&flags, &[CLIENT_SECRET])
}

/// Begins to read and goes away.
fn read_a_little(node: &Node, target: &str) {
    let mut stream = TcpStream::connect(node.address).unwrap();
    write!(stream, "GET {target} HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    stream.read_exact(&mut [0; 1000]).unwrap();
}

#[test]
fn usage_is_reported_and_the_last_window_is_not_lost() {
    let plane = Sink::start(|_| 202);
    let mut node = reporting(&plane);
    node.send("PUT", ENTRY, b"hello");
    node.send("PUT", ENTRY, b"hello");
    node.send("GET", ENTRY, b"");
    // Ending the node closes the window and delivers it.
    node.stop();
    let told = plane.next();
    let (head, report) = (&told.head, told.json());
    assert!(head.starts_with("POST /_internal/kura/usage HTTP/1.1"), "{head}");
    assert!(head.to_lowercase().contains("authorization: basic"), "{head}");
    let seen = (&report["schema_version"], &report["node_id"]);
    assert_eq!(seen, (&1.into(), &"node-1".into()));
    let mut events: Vec<_> = report["events"].as_array().unwrap().clone();
    events.sort_by_key(|event| event["direction"].as_str().map(str::to_owned));
    assert_eq!(events.len(), 2);
    // What was there before is not billed.
    for (event, direction) in events.iter().zip(["egress", "ingress"]) {
        let seen = (&event["direction"], &event["bytes"], &event["request_count"]);
        assert_eq!(seen, (&direction.into(), &5.into(), &1.into()));
    }
    assert!(!node.log().contains("client-secret-value"));
}

/// Bytes were once charged when a download was planned; a client that went away at once was charged for all of it.
#[test]
fn a_download_is_charged_for_what_was_sent() {
    let plane = Sink::start(|_| 202);
    let mut node = reporting(&plane);
    let length = 64 << 20;
    node.send("PUT", "/api/cache/gradle/k?tenant_id=a", &vec![1; length]);
    read_a_little(&node, "/api/cache/gradle/k?tenant_id=a");
    node.until_in_flight(0);
    node.stop();
    let report = plane.next().json();
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
    let gauge = |node: &Node, name: &str| node.metric(&format!("kura_{name}"));
    let (small, large) = (vec![1; 1000], vec![1; 1_000_000]);
    for (forced, state, refused) in [("normal", 0, false), ("constrained", 1, false), ("critical", 2, true)] {
        let node = Node::told("", &[("KURA_TEST_FORCE_MEMORY_PRESSURE", forced)]);
        node.until_metric(&format!("kura_memory_pressure_state {state}"));
        let rollout = node.send("GET", "/status/rollout", b"").json().unwrap();
        assert_eq!(rollout["memory_pressure_state"], state);
        assert_eq!(node.status("PUT", "/api/cache/gradle/small?tenant_id=a", &small), 201);
        assert_eq!(node.send("GET", "/api/cache/gradle/small?tenant_id=a", b"").body, small);
        let answer = node.send("PUT", "/api/cache/gradle/large?tenant_id=a", &large);
        assert_eq!(answer.status, if refused { 503 } else { 201 }, "{forced}");
        if refused {
            assert_eq!(answer.field("retry-after").as_deref(), Some("1"));
            node.until_metric("kura_memory_actions_total_total{action=\"refuse_upload\"} 1");
        }
    }
    // Unforced: a limit below what any process needs is measured as critical, without being asked.
    let node = Node::start(&["--memory-hard-limit-bytes", "1048576"]);
    node.until_metric("kura_memory_pressure_state 2");
    assert!(gauge(&node, "memory_pressure_transitions_total_total") > 0.5);
    assert!(gauge(&node, "process_resident_memory_bytes") > 1_048_576.0);
}

#[test]
fn egress_is_measured_under_the_names_dashboards_know() {
    let node = Node::start(&[]);
    node.send("PUT", "/api/cache/gradle/k?tenant_id=a", &vec![7; 300_000]);
    node.send("GET", "/api/cache/gradle/k?tenant_id=a", b"");
    let started = node.send("POST", "/api/cache/module/start?tenant_id=a&hash=h&name=n", b"");
    let id = started.json().unwrap()["upload_id"].as_str().unwrap().to_owned();
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
        node.until_metric(line);
    }
    assert!(node.metric("kura_public_request_latency_ewma_ms") > 0.0);
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
    assert!(said(&gone).contains("does not answer"), "{gone:?}");
}
