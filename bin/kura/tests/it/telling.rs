//! What the node tells others: traces, webhooks, usage.

use crate::node::{CLIENT_SECRET, Node, OPEN, Options, reports_usage, until, words};
use crate::sink::Sink;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::{KeyValue, any_value::Value};
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message as _;
use std::collections::BTreeMap;

fn facts(attributes: &[KeyValue]) -> BTreeMap<String, String> {
    attributes
        .iter()
        .map(|pair| {
            let value = pair.value.as_ref().and_then(|value| value.value.clone());
            let text = match value {
                Some(Value::StringValue(text)) => text,
                Some(Value::IntValue(number)) => number.to_string(),
                other => format!("{other:?}"),
            };
            (pair.key.clone(), text)
        })
        .collect()
}

/// Fails unless the span has that attribute.
fn says(span: &Span, name: &str, value: &str) {
    let facts = facts(&span.attributes);
    assert_eq!(facts.get(name).map(String::as_str), Some(value), "{facts:?}");
}

/// Spans as they come in, with what their sender says about itself.
fn spans(sink: &Sink, count: usize) -> (BTreeMap<String, String>, Vec<Span>) {
    let (mut sender, mut spans) = (BTreeMap::new(), Vec::new());
    while spans.len() < count {
        let told = sink.next();
        assert!(told.head.starts_with("POST /v1/traces HTTP/1.1"), "{}", told.head);
        assert_eq!(told.field("content-type"), Some("application/x-protobuf"));
        let request = ExportTraceServiceRequest::decode(told.body.as_slice()).unwrap();
        for resource in request.resource_spans {
            sender = facts(&resource.resource.unwrap().attributes);
            spans.extend(resource.scope_spans.into_iter().flat_map(|scope| scope.spans));
        }
    }
    (sender, spans)
}

fn hex(bytes: &[u8]) -> String {
    bytes
        .iter()
        .fold(String::new(), |text, byte| text + &format!("{byte:02x}"))
}

#[test]
fn requests_are_traced_without_keys_or_tokens() {
    let collector = Sink::start(|_| 200);
    let names = [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url()),
        ("KURA_OTEL_SERVICE_NAME", "my-cache".to_owned()),
        ("KURA_OTEL_DEPLOYMENT_ENVIRONMENT", "testing".to_owned()),
    ];
    let names = names.each_ref().map(|(name, value)| (*name, value.as_str()));
    let node = Node::told(&format!("--region eu {OPEN}"), &names);
    let mut client = node.client();
    let fields = [
        "traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        "Authorization: Bearer canary-token",
    ];
    let target = "/api/cache/gradle/canary-key?tenant_id=default&namespace_id=ios";
    client.send("PUT", target, &fields, b"hello");
    client.send("GET", target, &["traceparent: nonsense"], b"");
    client.send("GET", "/canary-path", &[], b"");
    let (sender, mut spans) = spans(&collector, 3);
    assert_eq!(sender["service.name"], "my-cache");
    assert_eq!(sender["deployment.environment.name"], "testing");
    assert_eq!(sender["cloud.region"], "eu");
    spans.sort_by_key(|span| span.start_time_unix_nano);
    let put = &spans[0];
    assert_eq!(put.name, "PUT /api/cache/gradle/{cache_key}");
    assert_eq!(hex(&put.trace_id), "0af7651916cd43dd8448eb211c80319c");
    assert_eq!(hex(&put.parent_span_id), "b7ad6b7169203331");
    assert!(put.end_time_unix_nano >= put.start_time_unix_nano);
    for (name, value) in [
        ("http.request.method", "PUT"),
        ("http.route", "/api/cache/gradle/{cache_key}"),
        ("http.response.status_code", "201"),
        ("kura.tenant_id", "default"),
        ("kura.namespace_id", "ios"),
        ("network.protocol.version", "1.1"),
    ] {
        says(put, name, value);
    }
    says(&spans[1], "http.response.status_code", "200");
    says(&spans[1], "http.response.body.size", "5");
    assert_ne!(spans[1].trace_id, put.trace_id, "a trace of its own");
    assert!(spans[1].parent_span_id.is_empty());
    assert_eq!(spans[2].name, "GET");
    let everything = format!("{spans:?}");
    assert!(!everything.contains("canary"), "{everything}");
}

/// Calls had no spans at all.
#[tokio::test]
async fn grpc_calls_are_traced_like_requests() {
    use russet_reapi::proto::reapi;
    let collector = Sink::start(|_| 200);
    let endpoint = [("OTEL_EXPORTER_OTLP_ENDPOINT", &*collector.url())];
    let node = Node::told(&format!("--tenant-id acme {OPEN}"), &endpoint);
    let world = crate::reapi::World::with(node);
    let mut request = russet_reapi::client::tonic::Request::new(reapi::GetActionResultRequest {
        instance_name: "ios".to_owned(),
        action_digest: Some(reapi::Digest {
            hash: "ca".repeat(32),
            size_bytes: 7,
        }),
        ..Default::default()
    });
    let fields = request.metadata_mut();
    let parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    fields.insert("traceparent", parent.parse().unwrap());
    fields.insert("authorization", "Bearer canary-token".parse().unwrap());
    assert!(world.actions().get_action_result(request).await.is_err());
    let content = vec![7; 300_000];
    let digest = world.store(&content).await;
    let read = world.read(&format!("blobs/{digest}"), 0, 0).await.unwrap();
    assert_eq!(read.len(), 300_000);
    let (_, mut spans) = spans(&collector, 3);
    spans.sort_by_key(|span| span.start_time_unix_nano);
    let miss = &spans[0];
    assert_eq!(miss.name, "build.bazel.remote.execution.v2.ActionCache/GetActionResult");
    assert_eq!(hex(&miss.trace_id), "0af7651916cd43dd8448eb211c80319c");
    assert_eq!(hex(&miss.parent_span_id), "b7ad6b7169203331");
    let failed = miss.status.as_ref().map_or(0, |status| status.code);
    assert_eq!(failed, 0, "a miss is no failure");
    for (name, value) in [
        ("rpc.system", "grpc"),
        ("rpc.service", "build.bazel.remote.execution.v2.ActionCache"),
        ("rpc.method", "GetActionResult"),
        ("rpc.grpc.status_code", "5"),
        ("kura.tenant_id", "acme"),
        ("kura.namespace_id", "ios"),
        ("network.protocol.version", "2"),
    ] {
        says(miss, name, value);
    }
    let mut named = spans.iter();
    let read = named
        .find(|span| span.name == "google.bytestream.ByteStream/Read")
        .unwrap();
    says(read, "rpc.grpc.status_code", "0");
    let size = &facts(&read.attributes)["http.response.body.size"];
    assert!(size.parse::<u64>().unwrap() >= 300_000);
    let everything = format!("{spans:?}");
    let leaks = everything.contains("canary") || everything.contains("caca");
    assert!(!leaks, "{everything}");
}

/// A collector that takes connections and never answers: requests go on, the queue is bounded, and what is lost is counted.
#[test]
fn a_dead_collector_is_in_nobodys_way() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/v1/traces", silent.local_addr().unwrap());
    let mut node = Node::start(&["--otel-exporter-otlp-traces-endpoint", &url]);
    let mut client = node.client();
    for _ in 0..4000 {
        let missed = client.send("GET", "/api/cache/gradle/none?tenant_id=a", &[], b"");
        assert_eq!(missed.status, 404);
    }
    let dropped = "kura_trace_spans_total_total{result=\"dropped\"}";
    until("spans are dropped", || (node.metric(dropped) > 500.0).then_some(()));
    // The end waits for nobody but the one request under way.
    node.stop();
}

/// A node of the account `acme` that tells that server of its projects.
fn analytics(server: &Sink, more: &str) -> Node {
    let url = server.url();
    let told = format!("--analytics-server-url {url} --analytics-batch-timeout-ms 50 --node-url http://node-1:4000");
    Node::told(&format!("{told} --tenant-id acme {OPEN} {more}"), &[KEY])
}

const KEY: (&str, &str) = ("KURA_ANALYTICS_SIGNING_KEY", "signing-key-value");

/// What is told about the artifact of that key.
fn webhook(sink: &Sink, key: &str, count: usize) -> Vec<(String, serde_json::Value)> {
    let mut events = Vec::new();
    while events.len() < count {
        let told = sink.next();
        let key_of = aws_lc_rs::hmac::Key::new(aws_lc_rs::hmac::HMAC_SHA256, KEY.1.as_bytes());
        let expected = hex(aws_lc_rs::hmac::sign(&key_of, &told.body).as_ref());
        assert_eq!(told.field("x-cache-signature"), Some(expected.as_str()));
        assert_eq!(told.field("x-cache-endpoint"), Some("node-1:4000"));
        let door = told.head.split(' ').nth(1).unwrap().to_owned();
        for event in told.json()["events"].as_array().unwrap() {
            assert!(event.to_string().contains(key), "{event}");
            events.push((door.clone(), event.clone()));
        }
    }
    events
}

#[test]
fn webhooks_are_signed_and_tell_of_projects_only() {
    let server = Sink::start(|_| 202);
    let node = analytics(&server, "");
    // Account scope and other protocols are nobody's business.
    node.send("PUT", "/api/cache/gradle/account?tenant_id=acme", b"x");
    node.send("PUT", "/v1/cache/nx", b"x");
    let gradle = "/api/cache/gradle/k%201?tenant_id=acme&namespace_id=ios";
    node.send("PUT", gradle, b"hello");
    node.send("PUT", gradle, b"hello");
    node.send("GET", gradle, b"");
    let events = webhook(&server, "k 1", 2);
    let upload = serde_json::json!({"account_handle":"acme","project_handle":"ios","action":"upload","size":5,"cache_key":"k 1"});
    assert_eq!(events[0], ("/webhooks/gradle-cache".to_owned(), upload));
    assert_eq!(events[1].1["action"], "download");
    node.send("POST", "/api/cache/cas/x1?tenant_id=acme&namespace_id=ios", b"abc");
    let events = webhook(&server, "x1", 1);
    let told = (events[0].0.as_str(), &events[0].1["cas_id"]);
    assert_eq!(told, ("/webhooks/cache", &"x1".into()));
    assert!(!node.log().contains(KEY.1));
}

#[test]
fn a_failing_webhook_is_tried_again_and_then_left_alone() {
    // Fails twice, then works; then fails for good.
    let server = Sink::start(|number| if number == 2 { 200 } else { 500 });
    let breaker = "--analytics-circuit-breaker-failure-threshold 3 --analytics-circuit-breaker-open-ms 3600000";
    let queue = "--analytics-queue-capacity 2 --analytics-batch-size 1";
    let mut node = analytics(&server, &format!("{breaker} {queue}"));
    let put = |key: &str| {
        let target = format!("/api/cache/gradle/{key}?tenant_id=acme&namespace_id=ios");
        assert_eq!(node.send("PUT", &target, b"x").status, 201);
    };
    put("first");
    for _ in 0..3 {
        assert_eq!(server.next().json()["events"][0]["cache_key"], "first");
    }
    let metric = |line: &str| node.until_metric(line);
    metric("kura_analytics_events_total_total{pipeline=\"gradle\",result=\"sent\"} 1");
    put("second");
    metric("kura_analytics_circuit_transitions_total_total{pipeline=\"gradle\",result=\"opened\"} 1");
    metric("kura_analytics_circuit_state{pipeline=\"gradle\"} 1");
    // Nobody asks the server any more; the queue fills, and what does not fit is dropped.
    while server.try_next().is_some() {}
    for number in 0..8 {
        put(&format!("more-{number}"));
    }
    let dropped = "kura_analytics_events_total_total{pipeline=\"gradle\",result=\"dropped\"}";
    until("events are dropped", || (node.metric(dropped) >= 5.0).then_some(()));
    assert!(server.try_next().is_none());
    // An open circuit does not keep the node from ending.
    node.stop();
}

/// Of a process that is killed, the counts of its open window survive as far as they were flushed.
#[test]
fn usage_of_a_killed_process_is_reported_by_the_next() {
    let dir = tempfile::tempdir().unwrap();
    let plane = Sink::start(|_| 202);
    let flags = format!("{} --usage-flush-interval-ms 20", reports_usage(&plane.url()));
    let options = Options {
        args: &words(&flags),
        env: &[CLIENT_SECRET],
    };
    let mut node = Node::start_in(dir.path(), &options);
    node.send("PUT", "/api/cache/gradle/k?tenant_id=a", b"hello");
    until("the window is flushed", || {
        let text = std::fs::read_to_string(dir.path().join("usage-window.jsonl")).ok()?;
        text.contains("\"bytes\":5").then_some(())
    });
    node.kill();
    let _next = Node::start_in(dir.path(), &options);
    let report = plane.next().json();
    let event = &report["events"][0];
    assert_eq!((&event["operation"], &event["bytes"]), (&"upload".into(), &5.into()));
}
