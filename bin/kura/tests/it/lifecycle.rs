//! Starting, ending, and what survives.

use crate::node::{Client, Node, Options, come_back, command, command_of, said, until, wait_for};
use russet_conformance::http::{Server, entries};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Command, Stdio};

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
    node.stop();
    let node = Node::start_in(dir.path(), &PLAIN);
    for size in [10, 100_000, 1_000_000] {
        let target = format!("/api/cache/gradle/k{size}?tenant_id=a");
        assert_eq!(node.send("GET", &target, b"").body, vec![1; size]);
    }
}

#[test]
fn a_second_process_on_the_same_folder_is_refused() {
    let node = Node::start(&[]);
    let args = ["serve", "--port", "0", "--data-dir", node.data.to_str().unwrap()];
    let second = command(&args).output().unwrap();
    assert!(!second.status.success());
    let text = said(&second);
    assert!(text.contains(&format!("in use by process {}", node.pid())), "{text}");
    assert!(text.contains("stop that process or choose another folder"), "{text}");
    assert_eq!(node.send("GET", "/up", b"").status, 200);
}

#[test]
fn draining_refuses_work_and_answers_probes() {
    let mut node = Node::start(&[]);
    let mut idle = node.client();
    assert_eq!(idle.send("GET", "/up", &[], b"").status, 200);
    node.drain("USR1");
    assert!(idle.is_closed(), "an idle connection is closed when draining begins");
    let refused = node.send("GET", "/api/cache/gradle/k?tenant_id=a", b"");
    come_back(refused.expect_message(503, "server is draining").unwrap());
    refused.expect_field("connection", "close").unwrap();
    let ready = node.send("GET", "/ready", b"").json().unwrap();
    let seen = (&ready["state"], &ready["draining"]);
    assert_eq!(seen, (&"draining".into(), &true.into()));
    assert_eq!(node.send("GET", "/up", b"").status, 200);
    assert_eq!(node.send("GET", "/metrics", b"").status, 200);
    node.stop();
}

#[test]
fn requests_in_flight_are_finished_before_the_end() {
    let mut node = Node::start(&[]);
    let mut client = node.client();
    client.raw(b"PUT /api/cache/gradle/last?tenant_id=a HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhel");
    node.until_in_flight(1);
    node.drain("TERM");
    client.raw(b"lo");
    assert_eq!(client.response().status, 201);
    node.wait();
}

#[test]
fn a_taken_port_is_an_error_that_says_what_to_do() {
    let node = Node::start(&[]);
    let dir = tempfile::tempdir().unwrap();
    let port = node.address.port().to_string();
    let args = ["--port", &port, "--data-dir", dir.path().to_str().unwrap()];
    let second = command(&args).stdout(Stdio::null()).output().unwrap();
    assert!(said(&second).contains("--port"), "{second:?}");
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
    come_back(refused.expect_message(503, "Disk is full").unwrap());
    for number in 0..stored {
        assert!(node.send("GET", &target(number), b"").body == body, "{number}");
    }
    std::fs::remove_file(&ballast).unwrap();
    until("there is room again", || {
        (node.status("PUT", &target(999), &body) == 201).then_some(())
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
    assert_eq!(refused.unwrap().message().unwrap(), "Disk is full");
    let cleaned = node.send("DELETE", "/api/cache/clean?tenant_id=a&namespace_id=full", b"");
    assert_eq!(cleaned.status, 204, "{cleaned:?}");
    let again = target("new", 0);
    until("there is room again", || {
        (node.status("PUT", &again, &body) == 201).then_some(())
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
    assert_eq!(old.status("PUT", "/api/cache/gradle/before?tenant_id=a", b"1"), 201);
    let mut client = old.client();
    client.raw(b"PUT /api/cache/gradle/last?tenant_id=a HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhel");
    old.until_in_flight(1);
    old.drain("TERM");
    let mut new = command(&["serve", "--log-format", "json", "--cas-capacity-bytes", "4294967296"])
        .args(["--port", &old.address.port().to_string()])
        .arg("--data-dir")
        .arg(dir.path())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut log = BufReader::new(new.stderr.take().unwrap()).lines().map_while(Result::ok);
    let waiting = log.find(|line| line.contains("waiting for the process that drains"));
    let waiting = waiting.unwrap();
    assert!(waiting.contains(&old.pid().to_string()), "{waiting}");
    client.raw(b"lo");
    assert_eq!(client.response().status, 201);
    old.wait();
    assert!(log.any(|line| line.contains("\"serving\"")));
    for (key, body) in [("before", "1"), ("last", "hello")] {
        let target = format!("/api/cache/gradle/{key}?tenant_id=a");
        let read = Client::connect(old.address).send("GET", &target, &[], b"");
        assert_eq!(read.text().unwrap(), body);
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
    let mut client = Client::connect(address);
    let target = |number: usize| format!("/api/cache/gradle/k{number}?tenant_id=a");
    let body = vec![5; 8 << 20];
    assert_eq!(client.send("PUT", &target(0), &[], &body).status, 201);
    let segments = data.join("store/segments");
    let permit = |mode: u32| std::fs::set_permissions(&segments, std::fs::Permissions::from_mode(mode)).unwrap();
    permit(0o500);
    let refused = (1..60)
        .map(|number| Client::connect(address).send("PUT", &target(number), &[], &body))
        .find(|answer| answer.status != 201)
        .unwrap();
    assert!(matches!(refused.status, 500 | 503), "{refused:?}");
    assert!(!refused.message().unwrap().contains("store/"), "{refused:?}");
    assert!(client.send("GET", &target(0), &[], b"").body == body);
    assert_eq!(client.send("GET", "/up", &[], b"").status, 200);
    permit(0o700);
    until("writes are back", || {
        let answer = Client::connect(address).send("PUT", &target(100), &[], &body);
        (answer.status == 201).then_some(())
    });
    node.kill().unwrap();
    node.wait().unwrap();
    std::fs::set_permissions(&data, std::fs::Permissions::from_mode(0o000)).unwrap();
    let failed = start().output().unwrap();
    let text = said(&failed);
    let told = !failed.status.success() && text.contains("belongs to this user");
    assert!(told, "{text}");
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
    node.stop();
}

/// Incident: a cache that cannot serve a read now said 503, and with that failed Nx and Metro builds, kept sccache from starting
/// and switched Gradle's cache off. For a tool such a read is a miss; a write is told to come back.
#[test]
fn a_leaving_node_is_a_miss_to_every_tool() {
    let node = Node::start(&[]);
    let server = Server::new(&format!("http://{}", node.address)).unwrap();
    let stored = entries("p", "drain");
    for entry in &stored {
        assert_eq!(wait_for(entry.put(server.anonymous())).unwrap().status, 200);
    }
    for target in ["/v1/cache/1", "/api/metro/cache/1"] {
        assert_eq!(node.send("PUT", target, b"x").status, 200);
    }
    node.drain("USR1");
    for entry in &stored {
        let (target, missed) = (&entry.target, node.send("GET", &entry.target, b""));
        assert!(missed.status == 404 && missed.closes(), "{target}: {missed}");
        come_back(&wait_for(entry.put(server.anonymous())).unwrap());
    }
    for target in ["/v1/cache/1", "/api/metro/cache/1"] {
        assert_eq!(node.send("GET", target, b"").status, 404, "{target}");
    }
    let nx = node.send("PUT", "/v1/cache/2", b"x");
    assert_eq!(nx.status, 403, "Nx fails a build over anything else");
    assert_eq!(node.send("PUT", "/api/metro/cache/2", b"x").status, 503);
    node.until_metric("kura_tool_shed_reads_total{tool=\"nx\"} 1");
    let gradle = node.send("GET", "/api/cache/gradle/k?tenant_id=a", b"");
    assert_eq!(gradle.status, 503, "the original contract stays");
}
