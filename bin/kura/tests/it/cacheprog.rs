//! `kura cacheprog` under the real go command: hits, and every way a server can let a build down.

use crate::node::{Node, until};
use crate::tools::{READER, WRITER, guarded};
use aws_lc_rs::digest;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::sync::LazyLock;

/// A module without imports: what it needs of the standard library is the runtime.
struct Module {
    dir: tempfile::TempDir,
    /// Beside the module, since Go looks at every folder in it.
    local: tempfile::TempDir,
}

impl Module {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("go.mod"), "module example.test/hello\n\ngo 1.24\n").unwrap();
        let program = "package main\n\nfunc main() { println(\"hello\") }\n";
        std::fs::write(dir.path().join("main.go"), program).unwrap();
        let local = tempfile::tempdir().unwrap();
        Self { dir, local }
    }

    /// A module whose helper has the runtime on its disk already: only the module itself is to be built, in no time.
    fn prepared() -> Self {
        static RUNTIME: LazyLock<Module> = LazyLock::new(|| {
            let module = Module::new();
            module.build("", &[]);
            module
        });
        let module = Self::new();
        let copied = Command::new("cp")
            .arg("-r")
            .arg(RUNTIME.local.path().join("go"))
            .arg(module.local.path())
            .status();
        assert!(copied.unwrap().success());
        module
    }

    fn forget(&self) {
        std::fs::remove_dir_all(self.local.path().join("go")).unwrap();
    }

    fn go(&self, url: &str, environment: &[(&str, &str)]) -> Command {
        let mut command = Command::new("go");
        command
            .current_dir(self.dir.path())
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap())
            .env("HOME", self.local.path())
            .env("GOCACHE", self.local.path().join("unused"))
            .env("GOENV", "off")
            .env("GOFLAGS", "-mod=mod")
            .env("GOTOOLCHAIN", "local")
            .env("CGO_ENABLED", "0")
            .env(
                "GOCACHEPROG",
                concat!(env!("CARGO_BIN_EXE_kura"), " cacheprog --verbose"),
            )
            .env("KURA_CACHEPROG_URL", url)
            .env("KURA_CACHEPROG_DIR", self.local.path().join("go"))
            .envs(environment.iter().copied())
            .args(["build", "-trimpath", "-x", "-o"])
            .arg(self.local.path().join("hello"))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    /// A build that must succeed; what it said.
    fn build(&self, url: &str, environment: &[(&str, &str)]) -> String {
        self.check(&self.go(url, environment).output().unwrap())
    }

    fn check(&self, output: &Output) -> String {
        let said = crate::node::said(output);
        assert!(output.status.success(), "the build failed: {said}");
        let binary = self.local.path().join("hello");
        let ran = Command::new(&binary).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&ran.stderr), "hello\n");
        std::fs::remove_file(binary).unwrap();
        said
    }
}

/// The helper alone, spoken to as Go does.
struct Helper {
    child: Child,
    output: BufReader<ChildStdout>,
}

impl Helper {
    fn start(dir: &Path, arguments: &[&str], environment: &[(&str, &str)]) -> Self {
        let mut child = crate::node::command(&["cacheprog", "--verbose", "--dir", dir.to_str().unwrap()])
            .args(arguments)
            .envs(environment.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let mut greeting = String::new();
        output.read_line(&mut greeting).unwrap();
        assert_eq!(greeting, "{\"ID\":0,\"KnownCommands\":[\"get\",\"put\",\"close\"]}\n");
        Self { child, output }
    }

    fn ask(&mut self, request: &serde_json::Value, body: Option<&[u8]>) -> serde_json::Value {
        let input = self.child.stdin.as_mut().unwrap();
        writeln!(input, "{request}").unwrap();
        if let Some(body) = body {
            writeln!(input, "\"{}\"", STANDARD.encode(body)).unwrap();
        }
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap()
    }

    fn get(&mut self, action: u8) -> serde_json::Value {
        let action = STANDARD.encode([action; 32]);
        self.ask(
            &serde_json::json!({"ID": 1, "Command": "get", "ActionID": action}),
            None,
        )
    }

    fn put(&mut self, action: u8, body: &[u8]) {
        let output = digest::digest(&digest::SHA256, body);
        let (action, output) = (STANDARD.encode([action; 32]), STANDARD.encode(output));
        let request = serde_json::json!({"ID": 2, "Command": "put", "ActionID": action, "OutputID": output, "BodySize": body.len()});
        let answer = self.ask(&request, (!body.is_empty()).then_some(body));
        assert_eq!(std::fs::read(answer["DiskPath"].as_str().unwrap()).unwrap(), body);
    }

    /// Ends it; what it said.
    fn close(mut self) -> String {
        let answer = self.ask(&serde_json::json!({"ID": 3, "Command": "close"}), None);
        assert_eq!(answer, serde_json::json!({"ID": 3}));
        let output = self.child.wait_with_output().unwrap();
        assert!(output.status.success());
        String::from_utf8(output.stderr).unwrap()
    }
}

/// Whether a build that shows its commands ran the compiler.
fn compiles(said: &str) -> bool {
    said.lines().any(|line| line.contains("/compile -o "))
}

/// The number in front of some words of the summary.
fn summed(said: &str, words: &str) -> u64 {
    let line = said.lines().find(|line| line.contains("local hits"));
    let (_, summary) = line
        .unwrap_or_else(|| panic!("no summary: {said}"))
        .split_once(": ")
        .unwrap();
    let part = summary.split(", ").find(|part| part.ends_with(words));
    part.unwrap().split(' ').next().unwrap().parse().unwrap()
}

fn url(node: &Node, project: &str) -> String {
    format!("http://{}/go/{project}", node.address)
}

#[test]
fn a_second_machine_builds_from_hits_and_a_second_build_from_its_own_disk() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let options = crate::node::Options::default();
    let mut node = Node::start_in(&data, &options);
    let module = Module::new();
    let cold = module.build(&url(&node, "p"), &[]);
    assert!(summed(&cold, "misses") > 0, "{cold}");
    assert_eq!(summed(&cold, "remote hits"), 0, "{cold}");
    assert_eq!(summed(&cold, "stored"), summed(&cold, "uploaded"), "{cold}");
    assert_eq!(node.count("go", "p", "hit"), 0);
    let (stored, known) = (node.count("go", "p", "stored"), node.count("go", "p", "known"));
    assert_eq!(stored + known, summed(&cold, "uploaded"));
    module.forget();
    let warm = module.build(&url(&node, "p"), &[]);
    assert!(summed(&warm, "remote hits") > 0, "{warm}");
    // Go may still ask for what it never stores, as the linked program; but nothing is compiled.
    assert!(compiles(&cold) && !compiles(&warm), "{warm}");
    assert_eq!(node.count("go", "p", "hit"), summed(&warm, "remote hits"));
    let local = module.build("", &[]);
    assert_eq!(summed(&local, "remote hits"), 0, "{local}");
    assert!(summed(&local, "local hits") > 0 && !compiles(&local), "{local}");
    // Outputs damaged on the server's disk are misses; the build makes them anew.
    node.stop();
    for segment in std::fs::read_dir(data.join("store/segments")).unwrap() {
        flip(&segment.unwrap().path());
    }
    node = Node::start_in(&data, &options);
    module.forget();
    let damaged = module.build(&url(&node, "p"), &[]);
    assert!(compiles(&damaged), "{damaged}");
    let quiet = !damaged.contains("going on without");
    assert!(quiet, "damage is a miss and no fault: {damaged}");
}

#[test]
fn a_server_killed_in_the_middle_costs_hits_only() {
    let mut node = Node::start(&[]);
    let module = Module::new();
    let child = module.go(&url(&node, "p"), &[]).spawn().unwrap();
    until("the build has stored something", || {
        (node.count("go", "p", "stored") > 0).then_some(())
    });
    node.kill();
    module.check(&child.wait_with_output().unwrap());
}

#[test]
fn wrong_credentials_cost_hits_and_are_never_printed() {
    let (node, _dir) = guarded();
    let token = "0123456789abcdef-wrong";
    let said = Module::prepared().build(&url(&node, "ios"), &[("KURA_CACHEPROG_TOKEN", token)]);
    assert!(said.contains("it answers 401"), "{said}");
    assert!(!said.contains(token), "{said}");
    assert_eq!(node.count("go", "ios", "stored"), 0);
}

#[test]
fn garbage_never_reaches_the_compiler() {
    let url = parrot(&garbage());
    let said = Module::prepared().build(&url, &[]);
    assert_eq!(summed(&said, "remote hits"), 0, "{said}");
    assert!(summed(&said, "misses") > 0, "{said}");
}

#[test]
fn what_one_helper_stores_another_finds() {
    let node = Node::start(&[]);
    let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let url = url(&node, "p");
    let large = crate::tools::bytes(300_000);
    let bodies = [(1, &b"output"[..]), (2, b""), (3, &large)];
    let mut helper = Helper::start(one.path(), &["--url", &url], &[]);
    for (action, body) in bodies {
        assert_eq!(helper.get(action)["Miss"], true);
        helper.put(action, body);
    }
    let said = helper.close();
    assert_eq!(summed(&said, "uploaded"), 3, "{said}");
    let mut helper = Helper::start(two.path(), &["--url", &url], &[]);
    for (action, body) in bodies {
        let hit = helper.get(action);
        assert_eq!(hit["Size"].as_u64().unwrap_or(0), body.len() as u64, "{hit}");
        assert_eq!(hit["OutputID"], STANDARD.encode(digest::digest(&digest::SHA256, body)));
        assert_eq!(std::fs::read(hit["DiskPath"].as_str().unwrap()).unwrap(), body);
        assert!(hit["Time"].as_str().unwrap().starts_with("20"), "{hit}");
    }
    let said = helper.close();
    assert_eq!(summed(&said, "remote hits"), 3, "{said}");
}

#[test]
fn a_token_that_reads_is_good_enough_and_may_come_from_a_file() {
    let (node, dir) = guarded();
    let file = dir.path().join("token");
    let url = url(&node, "ios");
    let run = |token: &str, more: &[&str], action: u8| {
        std::fs::write(&file, format!("{token}\n")).unwrap();
        let local = tempfile::tempdir().unwrap();
        let arguments = [&["--url", &url, "--token-file", file.to_str().unwrap()], more].concat();
        let mut helper = Helper::start(local.path(), &arguments, &[]);
        helper.get(action);
        helper.put(action, &[action; 10]);
        let said = helper.close();
        assert!(!said.contains("going on without"), "{said}");
        said
    };
    assert_eq!(summed(&run(READER, &[], 1), "uploaded"), 0);
    assert_eq!(summed(&run(WRITER, &["--read-only"], 1), "uploaded"), 0);
    assert_eq!(node.count("go", "ios", "stored"), 0);
    assert_eq!(summed(&run(WRITER, &[], 1), "uploaded"), 1);
    assert_eq!(summed(&run(READER, &[], 1), "remote hits"), 1);
}

/// A server that gives everyone the same answer.
fn parrot(answer: &str) -> String {
    let answer = answer.to_owned();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/go/p", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let answer = answer.clone();
            std::thread::spawn(move || {
                let mut asked = vec![0; 64 * 1024];
                let _ = stream.read(&mut asked);
                let _ = stream.write_all(answer.as_bytes());
            });
        }
    });
    url
}

fn garbage() -> String {
    let id = "0".repeat(64);
    format!("HTTP/1.1 200 OK\r\nx-kura-output-id: {id}\r\nContent-Length: 7\r\nConnection: close\r\n\r\ngarbage")
}

#[test]
fn every_fault_of_the_server_is_a_miss_and_then_it_is_left_alone() {
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let cut = garbage().replace("Content-Length: 7", "Content-Length: 700");
    let empty = "Content-Length: 0\r\nConnection: close\r\n\r\n";
    for url in [
        parrot(&format!("HTTP/1.1 500 Oops\r\n{empty}")),
        parrot(&format!(
            "HTTP/1.1 302 Elsewhere\r\nLocation: http://127.0.0.1:1/\r\n{empty}"
        )),
        parrot("HTTP/1.1 200 OK\r\nContent-Length: 7\r\nConnection: close\r\n\r\ngarbage"),
        parrot(&garbage()),
        parrot(&cut),
        parrot("not HTTP at all"),
        parrot(""),
        format!("http://{nobody}/go/p"),
        format!("http://{}/go/p", silent.local_addr().unwrap()),
    ] {
        let local = tempfile::tempdir().unwrap();
        let mut helper = Helper::start(local.path(), &["--url", &url, "--timeout-ms", "200"], &[]);
        for action in 0..6 {
            assert_eq!(helper.get(action)["Miss"], true, "{url}");
        }
        helper.put(1, b"made here");
        assert_eq!(helper.get(1)["Size"], 9, "what was made here is found here");
        let said = helper.close();
        assert_eq!(said.matches("going on without the cache").count(), 1, "{url}: {said}");
        assert_eq!(summed(&said, "uploaded"), 0, "{url}: {said}");
        let drafts = std::fs::read_dir(local.path().join("new")).unwrap().count();
        assert_eq!(drafts, 0, "{url}: half a file was left");
    }
}

/// Flips a bit in every archive of compiled code.
fn flip(path: &Path) {
    let mut bytes = std::fs::read(path).unwrap();
    let mut at = 0;
    while let Some(found) = bytes[at..].windows(8).position(|window| window == b"!<arch>\n") {
        at += found + 8;
        if let Some(byte) = bytes.get_mut(at + 100) {
            *byte ^= 1;
        }
    }
    std::fs::write(path, bytes).unwrap();
}

#[test]
fn a_wrong_setting_is_said_before_the_build() {
    for (arguments, expected) in [
        ("--url http://u:secret@host/go/p", "must not hold a password"),
        ("--url host/go/p", "URL"),
        (
            "--url http://h/go/p --token-file /nonexistent/token",
            "cannot read the token",
        ),
        ("", "name one with --dir"),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let mut command = crate::node::command(&["cacheprog"]);
        if !arguments.is_empty() {
            command.arg("--dir").arg(dir.path());
        }
        let output = command.args(crate::node::words(arguments)).output().unwrap();
        let told = crate::node::said(&output);
        let refused = !output.status.success() && told.contains(expected);
        assert!(refused, "{arguments}: {told}");
        assert!(!told.contains("secret"), "{told}");
    }
}
