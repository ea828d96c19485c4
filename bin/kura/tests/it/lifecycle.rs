//! Starting, ending, and what survives.

use crate::node::{Node, Options, command, command_of, until};
use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

const PLAIN: Options<'static> = Options { args: &[], env: &[] };

#[test]
fn a_restart_keeps_everything() {
    let dir = tempfile::tempdir().unwrap();
    let mut node = Node::start_in(dir.path(), &PLAIN);
    let mut client = node.client();
    for size in [10, 100_000, 1_000_000] {
        let target = format!("/api/cache/gradle/k{size}?tenant_id=a");
        assert_eq!(client.send("PUT", &target, &[], &vec![1; size]).status, 201);
    }
    node.signal("TERM");
    assert!(node.wait().success());
    let node = Node::start_in(dir.path(), &PLAIN);
    for size in [10, 100_000, 1_000_000] {
        assert_eq!(
            node.send("GET", &format!("/api/cache/gradle/k{size}?tenant_id=a"), b"")
                .body,
            vec![1; size]
        );
    }
}

/// Writes until the node is gone; what it acknowledged. Every tenth body is streamed; every third request overwrites one
/// document, of which the last acknowledged version counts.
fn write_until_gone(address: std::net::SocketAddr, name: &str, stop: &AtomicBool) -> BTreeMap<String, Vec<u8>> {
    let mut acknowledged = BTreeMap::new();
    let Ok(mut stream) = std::net::TcpStream::connect(address) else {
        return acknowledged;
    };
    for number in 0.. {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let size = if number % 10 == 9 { 200_000 } else { 1000 };
        let (target, body, kept) = if number % 3 == 2 {
            let document = format!(r#"{{"cas_id":"{name}","entries":[{{"value":"{number}"}}]}}"#);
            let kept = format!(r#"{{"entries":[{{"value":"{number}"}}]}}"#).into_bytes();
            ("/api/cache/keyvalue".to_owned(), document.into_bytes(), kept)
        } else {
            let body = vec![u8::try_from(number % 251).unwrap(); size];
            (format!("/api/cache/gradle/{name}-{number}"), body.clone(), body)
        };
        let length = body.len();
        let head = format!("PUT {target}?tenant_id=a HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n");
        let written = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(&body));
        let mut answer = [0; 512];
        match written.and_then(|()| stream.read(&mut answer)) {
            Ok(count) if answer[..count].starts_with(b"HTTP/1.1 20") => {
                let target = if number % 3 == 2 {
                    format!("{target}/{name}")
                } else {
                    target
                };
                acknowledged.insert(target, kept);
            }
            _ => break,
        }
    }
    acknowledged
}

/// Killed again and again, each time in the middle of writes and on top of what the last recovery left.
#[test]
fn what_was_acknowledged_survives_kill_9_under_load_again_and_again() {
    let dir = tempfile::tempdir().unwrap();
    let mut everything = BTreeMap::new();
    for round in 0..4 {
        let mut node = Node::start_in(dir.path(), &PLAIN);
        let stop = Arc::new(AtomicBool::new(false));
        let before = entries(&node);
        let writers: Vec<_> = (0..8)
            .map(|writer| {
                let (address, stop) = (node.address, Arc::clone(&stop));
                std::thread::spawn(move || write_until_gone(address, &format!("r{round}-w{writer}"), &stop))
            })
            .collect();
        until("a few hundred more are stored", || {
            (entries(&node) > before + 200.0).then_some(())
        });
        node.kill();
        stop.store(true, Ordering::Relaxed);
        let acknowledged = writers.into_iter().flat_map(|writer| writer.join().unwrap());
        let known = everything.len();
        everything.extend(acknowledged);
        assert!(everything.len() > known + 100, "round {round}");
        // A version that was sent and not acknowledged may have been stored: then it is newer than the one we know.
        let node = Node::start_in(dir.path(), &PLAIN);
        let mut client = node.client();
        for (target, body) in &everything {
            let hit = client.send("GET", &format!("{target}?tenant_id=a"), &[], b"");
            assert_eq!(hit.status, 200, "round {round}: {target}");
            let newer = target.contains("keyvalue") && value(&hit.body) >= value(body);
            assert!(newer || hit.body == *body, "round {round}: {target}");
        }
    }
}

/// The number in a key-value document of this test.
fn value(document: &[u8]) -> u64 {
    let digits = document.iter().filter(|byte| byte.is_ascii_digit());
    digits.fold(0, |sum, digit| sum * 10 + u64::from(digit - b'0'))
}

fn entries(node: &Node) -> f64 {
    let text = String::from_utf8(node.send("GET", "/metrics", b"").body).unwrap();
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("kura_manifest_index_entries "));
    line.unwrap().parse().unwrap()
}

#[test]
fn a_second_process_on_the_same_folder_is_refused() {
    let node = Node::start(&[]);
    let second = command(&["serve", "--port", "0", "--data-dir", node.data.to_str().unwrap()])
        .output()
        .unwrap();
    assert!(!second.status.success());
    let text = String::from_utf8_lossy(&second.stderr);
    assert!(text.contains(&format!("in use by process {}", node.pid())), "{text}");
    assert!(text.contains("stop that process or choose another folder"), "{text}");
    assert_eq!(node.send("GET", "/up", b"").status, 200);
}

#[test]
fn draining_refuses_work_and_answers_probes() {
    let mut node = Node::start(&[]);
    let mut idle = node.client();
    assert_eq!(idle.send("GET", "/up", &[], b"").status, 200);
    node.signal("USR1");
    until("the node drains", || {
        (node.send("GET", "/ready", b"").status == 503).then_some(())
    });
    assert!(idle.is_closed(), "an idle connection is closed when draining begins");
    let refused = node.send("GET", "/api/cache/gradle/k?tenant_id=a", b"");
    assert_eq!(
        (refused.status, refused.message().as_str()),
        (503, "server is draining")
    );
    assert_eq!(
        (refused.field("connection"), refused.field("retry-after")),
        (Some("close"), Some("1"))
    );
    let ready = node.send("GET", "/ready", b"").json();
    assert_eq!(
        (&ready["state"], &ready["draining"]),
        (&"draining".into(), &true.into())
    );
    assert_eq!(node.send("GET", "/up", b"").status, 200);
    assert_eq!(node.send("GET", "/metrics", b"").status, 200);
    node.signal("TERM");
    assert!(node.wait().success());
}

#[test]
fn requests_in_flight_are_finished_before_the_end() {
    let mut node = Node::start(&[]);
    let mut client = node.client();
    client.raw(b"PUT /api/cache/gradle/last?tenant_id=a HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhel");
    until("the request is in flight", || {
        (node.send("GET", "/ready", b"").json()["http_inflight_requests"] == 1).then_some(())
    });
    node.signal("TERM");
    until("the node drains", || {
        (node.send("GET", "/ready", b"").status == 503).then_some(())
    });
    client.raw(b"lo");
    assert_eq!(client.response().status, 201);
    assert!(node.wait().success());
}

#[test]
fn a_taken_port_is_an_error_that_says_what_to_do() {
    let node = Node::start(&[]);
    let dir = tempfile::tempdir().unwrap();
    let port = node.address.port().to_string();
    let second = command(&["--port", &port, "--data-dir", dir.path().to_str().unwrap()])
        .stdout(Stdio::null())
        .output()
        .unwrap();
    assert!(String::from_utf8_lossy(&second.stderr).contains("--port"), "{second:?}");
}

/// A small file system of its own; `None` where that is not allowed.
struct Disk(tempfile::TempDir);

impl Disk {
    fn mount(megabytes: u32) -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        let size = format!("size={megabytes}m");
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &size, "tmpfs"])
            .arg(dir.path())
            .output()
            .ok()?;
        mounted.status.success().then(|| Self(dir))
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.0.path()).status();
    }
}

/// Needs the right to mount a file system, as root in a container has it; elsewhere there is no small disk to fill.
#[test]
fn a_full_disk_refuses_writes_serves_reads_and_recovers() {
    let Some(disk) = Disk::mount(300) else { return };
    let (data, ballast) = (disk.0.path().join("data"), disk.0.path().join("ballast"));
    std::fs::write(&ballast, vec![0; 120 << 20]).unwrap();
    let node = Node::start_in(&data, &PLAIN);
    let mut client = node.client();
    let body = vec![8; 4 << 20];
    let target = |number: usize| format!("/api/cache/gradle/full-{number}?tenant_id=a&namespace_id=ios");
    let refused = (0..60)
        .map(|number| (number, client.send("PUT", &target(number), &[], &body)))
        .find(|(_, answer)| answer.status != 201);
    let (stored, refused) = refused.unwrap();
    assert!(stored > 0);
    assert_eq!((refused.status, refused.message().as_str()), (503, "Disk is full"));
    assert_eq!(refused.field("retry-after"), Some("1"));
    for number in 0..stored {
        assert!(node.send("GET", &target(number), b"").body == body, "{number}");
    }
    std::fs::remove_file(&ballast).unwrap();
    until("there is room again", || {
        (node.send("PUT", &target(999), &body).status == 201).then_some(())
    });
    drop(node);
}

/// On a disk that is full, emptying a namespace makes room at once, without a restart.
#[test]
fn cleaning_a_namespace_makes_room_on_a_full_disk() {
    let Some(disk) = Disk::mount(200) else { return };
    let node = Node::start_in(&disk.0.path().join("data"), &PLAIN);
    let mut client = node.client();
    let body = vec![8; 4 << 20];
    let target =
        |name: &str, number: usize| format!("/api/cache/gradle/{name}-{number}?tenant_id=a&namespace_id={name}");
    assert_eq!(client.send("PUT", &target("kept", 0), &[], &body).status, 201);
    let refused = (0..80)
        .map(|number| client.send("PUT", &target("full", number), &[], &body))
        .find(|answer| answer.status != 201);
    assert_eq!(refused.unwrap().message(), "Disk is full");
    let cleaned = node.send("DELETE", "/api/cache/clean?tenant_id=a&namespace_id=full", b"");
    assert_eq!(cleaned.status, 204, "{cleaned:?}");
    until("there is room again", || {
        (node.send("PUT", &target("new", 0), &body).status == 201).then_some(())
    });
    assert!(node.send("GET", &target("kept", 0), b"").body == body);
    assert_eq!(node.send("GET", &target("full", 0), b"").status, 404);
}

/// A new version started on the folder and the port of an old one, which still has a request to finish: it waits, says so, and
/// takes over with everything the old one acknowledged.
#[test]
fn an_upgrade_in_place_waits_for_the_old_process_and_takes_over() {
    let dir = tempfile::tempdir().unwrap();
    let mut old = Node::start_in(dir.path(), &PLAIN);
    assert_eq!(
        old.send("PUT", "/api/cache/gradle/before?tenant_id=a", b"1").status,
        201
    );
    let mut client = old.client();
    client.raw(b"PUT /api/cache/gradle/last?tenant_id=a HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhel");
    until("the request is in flight", || {
        (old.send("GET", "/ready", b"").json()["http_inflight_requests"] == 1).then_some(())
    });
    old.signal("TERM");
    until("the node drains", || {
        (old.send("GET", "/ready", b"").status == 503).then_some(())
    });
    let mut new = command(&["serve", "--log-format", "json", "--cas-capacity-bytes", "4294967296"])
        .args(["--port", &old.address.port().to_string()])
        .arg("--data-dir")
        .arg(dir.path())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut log = BufReader::new(new.stderr.take().unwrap()).lines().map_while(Result::ok);
    let waiting = log
        .find(|line| line.contains("waiting for the process that drains"))
        .unwrap();
    assert!(waiting.contains(&old.pid().to_string()), "{waiting}");
    client.raw(b"lo");
    assert_eq!(client.response().status, 201);
    assert!(old.wait().success());
    assert!(log.any(|line| line.contains("\"serving\"")));
    for (key, body) in [("before", "1"), ("last", "hello")] {
        let target = format!("/api/cache/gradle/{key}?tenant_id=a");
        assert_eq!(
            crate::wire::Client::connect(old.address)
                .send("GET", &target, &[], b"")
                .text(),
            body
        );
    }
    new.kill().unwrap();
    new.wait().unwrap();
}

/// Somebody changed the owner of the folder under a running node: reads go on, writes are refused with a reason, and when the
/// permission is back so are writes. A start without permission says what to check.
#[test]
fn a_lost_permission_costs_writes_and_nothing_else() {
    use std::os::unix::fs::{PermissionsExt as _, chown};
    use std::os::unix::process::CommandExt as _;
    const NOBODY: u32 = 65534;
    let dir = tempfile::tempdir().unwrap();
    // Root may write anywhere, so the node runs as somebody else; that takes the right to become somebody else.
    if chown(dir.path(), Some(NOBODY), Some(NOBODY)).is_err() {
        return;
    }
    let data = dir.path().join("data");
    // What was built here may be where only root can look. Linked, since what was only just written may not be run while another test forks.
    let program = dir.path().join("kura");
    let built = env!("CARGO_BIN_EXE_kura");
    if std::fs::hard_link(built, &program).is_err() {
        std::fs::copy(built, &program).unwrap();
    }
    let start = || {
        let mut command = command_of(&program);
        command
            .args(["serve", "--port", "0", "--log-format", "json"])
            .args(["--cas-capacity-bytes", "4294967296"])
            .arg("--data-dir")
            .arg(&data)
            .stderr(Stdio::piped())
            .uid(NOBODY)
            .gid(NOBODY);
        command
    };
    let mut node = start().spawn().unwrap();
    let mut log = BufReader::new(node.stderr.take().unwrap())
        .lines()
        .map_while(Result::ok);
    let serving = log.find(|line| line.contains("\"serving\"")).unwrap();
    let serving: serde_json::Value = serde_json::from_str(&serving).unwrap();
    let address = serving["address"].as_str().unwrap().parse().unwrap();
    // Nobody reads the rest of its log; a full pipe must not stop it.
    std::thread::spawn(move || log.for_each(drop));
    let mut client = crate::wire::Client::connect(address);
    let target = |number: usize| format!("/api/cache/gradle/k{number}?tenant_id=a");
    let body = vec![5; 8 << 20];
    assert_eq!(client.send("PUT", &target(0), &[], &body).status, 201);
    let segments = data.join("store/segments");
    let permit = |mode: u32| std::fs::set_permissions(&segments, std::fs::Permissions::from_mode(mode)).unwrap();
    permit(0o500);
    let refused = (1..60)
        .map(|number| crate::wire::Client::connect(address).send("PUT", &target(number), &[], &body))
        .find(|answer| answer.status != 201)
        .unwrap();
    assert!(matches!(refused.status, 500 | 503), "{refused:?}");
    assert!(!refused.message().contains("store/"), "{refused:?}");
    assert!(client.send("GET", &target(0), &[], b"").body == body);
    assert_eq!(client.send("GET", "/up", &[], b"").status, 200);
    permit(0o700);
    until("writes are back", || {
        let answer = crate::wire::Client::connect(address).send("PUT", &target(100), &[], &body);
        (answer.status == 201).then_some(())
    });
    node.kill().unwrap();
    node.wait().unwrap();
    std::fs::set_permissions(&data, std::fs::Permissions::from_mode(0o000)).unwrap();
    let failed = start().output().unwrap();
    let text = String::from_utf8_lossy(&failed.stderr);
    assert!(
        !failed.status.success() && text.contains("belongs to this user"),
        "{text}"
    );
    std::fs::set_permissions(&data, std::fs::Permissions::from_mode(0o700)).unwrap();
}

/// A frozen client never says that it heard the farewell. It has no request under way, so nobody waits for it for long.
#[test]
fn a_frozen_http2_client_does_not_hold_up_the_end() {
    let mut node = Node::start(&[]);
    let mut client = TcpStream::connect(node.address).unwrap();
    client.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").unwrap();
    client.write_all(&[0, 0, 0, 4, 0, 0, 0, 0, 0]).unwrap();
    // The server has begun to speak HTTP/2; from here on the client is silent.
    client.read_exact(&mut [0; 9]).unwrap();
    node.signal("TERM");
    assert!(node.wait().success());
}
