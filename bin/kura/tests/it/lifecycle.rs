//! Starting, ending, and what survives.

use crate::node::{Node, Options, command, until};
use std::io::{Read as _, Write as _};
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

#[test]
fn what_was_acknowledged_survives_kill_9_under_load() {
    let dir = tempfile::tempdir().unwrap();
    let mut node = Node::start_in(dir.path(), &PLAIN);
    let stop = Arc::new(AtomicBool::new(false));
    let writers: Vec<_> = (0..8)
        .map(|writer| {
            let (address, stop) = (node.address, Arc::clone(&stop));
            std::thread::spawn(move || {
                let mut acknowledged = Vec::new();
                let Ok(mut stream) = std::net::TcpStream::connect(address) else {
                    return acknowledged;
                };
                for number in 0.. {
                    if stop.load(Ordering::Relaxed) {
                        break;
                    }
                    let size = if number % 10 == 9 { 200_000 } else { 1000 };
                    let key = format!("w{writer}-{number}");
                    let head = format!(
                        "PUT /api/cache/gradle/{key}?tenant_id=a HTTP/1.1\r\nHost: x\r\nContent-Length: {size}\r\n\r\n"
                    );
                    let body = vec![u8::try_from(number % 251).unwrap(); size];
                    if stream
                        .write_all(head.as_bytes())
                        .and_then(|()| stream.write_all(&body))
                        .is_err()
                    {
                        break;
                    }
                    let mut answer = [0; 512];
                    match stream.read(&mut answer) {
                        Ok(count) if answer[..count].starts_with(b"HTTP/1.1 201") => acknowledged.push((key, body)),
                        _ => break,
                    }
                }
                acknowledged
            })
        })
        .collect();
    until("a few hundred are stored", || {
        let text = String::from_utf8(node.send("GET", "/metrics", b"").body).unwrap();
        let stored = text
            .lines()
            .find_map(|line| line.strip_prefix("kura_manifest_index_entries "))?
            .parse::<f64>()
            .ok()?;
        (stored > 300.0).then_some(())
    });
    node.kill();
    stop.store(true, Ordering::Relaxed);
    let acknowledged: Vec<_> = writers.into_iter().flat_map(|writer| writer.join().unwrap()).collect();
    assert!(acknowledged.len() > 200);
    let node = Node::start_in(dir.path(), &PLAIN);
    let mut client = node.client();
    for (key, body) in acknowledged {
        let hit = client.send("GET", &format!("/api/cache/gradle/{key}?tenant_id=a"), &[], b"");
        assert!(hit.status == 200 && hit.body == body, "{key}: {}", hit.status);
    }
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
