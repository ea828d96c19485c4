//! A node of this build and raw connections to it, for tests that block: the harness of the conformance suite underneath.

use russet_conformance::http::wire::{Response, Wire};
use russet_stages::kura::{self, Program};
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::str::FromStr;
use std::sync::LazyLock;
use std::time::{Duration, Instant};
use tokio::net::TcpStream;
use tokio::runtime::Runtime;

/// Nothing a test waits for takes this long unless it is broken.
pub(crate) const DEADLINE: Duration = Duration::from_secs(30);

static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| Runtime::new().unwrap());

/// Waits for it on another thread, so that a test with a runtime of its own may block too.
pub(crate) fn wait_for<F: Future<Output: Send> + Send>(future: F) -> F::Output {
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| RUNTIME.block_on(future));
        waiting.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

pub(crate) struct Node {
    process: kura::Node,
    pub(crate) address: SocketAddr,
    pub(crate) secure: Option<SocketAddr>,
    pub(crate) data: PathBuf,
    _home: tempfile::TempDir,
}

#[derive(Default)]
pub(crate) struct Options<'a> {
    pub(crate) args: &'a [&'a str],
    pub(crate) env: &'a [(&'a str, &'a str)],
}

pub(crate) const CLIENT_SECRET: (&str, &str) = ("KURA_CONTROL_PLANE_CLIENT_SECRET", "client-secret-value");

/// Flags of an open node that reports usage there, of windows that would be open for an hour.
pub(crate) fn reports_usage(url: &str) -> String {
    format!("{OPEN} --control-plane-url {url} --control-plane-client-id node --usage-window-secs 3600")
}

/// Flags of a node that listens on this machine only and asks for no credential.
pub(crate) const OPEN: &str = "--bind-address 127.0.0.1 --auth-anonymous read-write";

/// Grants only where a token says so.
pub(crate) const GUARDED: [&str; 4] = ["--tenant-id", "acme", "--bind-address", "127.0.0.1"];

pub(crate) fn words(text: &str) -> Vec<&str> {
    text.split_whitespace().collect()
}

/// What a program said to people.
pub(crate) fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Fails unless the answer tells its client to come back.
pub(crate) fn come_back(refused: &Response) {
    refused.expect(503).unwrap().expect_field("retry-after", "1").unwrap();
}

pub(crate) fn command(args: &[&str]) -> Command {
    let mut command = command_of(Path::new(env!("CARGO_BIN_EXE_kura")));
    command.args(args);
    command
}

/// The same of a copy of the program.
pub(crate) fn command_of(program: &Path) -> Command {
    let mut command = Command::new(program);
    command.env_clear().stdin(Stdio::null());
    command
}

impl Node {
    pub(crate) fn start(args: &[&str]) -> Self {
        Self::start_with(&Options { args, env: &[] })
    }

    /// Starts with flags as a shell takes them, and these variables.
    pub(crate) fn told(flags: &str, env: &[(&str, &str)]) -> Self {
        let args = &words(flags);
        Self::start_with(&Options { args, env })
    }

    pub(crate) fn start_with(options: &Options<'_>) -> Self {
        let home = tempfile::tempdir().unwrap();
        let data = home.path().join("data");
        Self::start_at(home, &data, options)
    }

    /// Starts on a folder that outlives the node.
    pub(crate) fn start_in(data: &Path, options: &Options<'_>) -> Self {
        Self::start_at(tempfile::tempdir().unwrap(), data, options)
    }

    fn start_at(home: tempfile::TempDir, data: &Path, options: &Options<'_>) -> Self {
        let program = Program::at(env!("CARGO_BIN_EXE_kura"));
        let mut started = kura::Options::default().args(options.args.iter().copied()).data(data);
        for (name, value) in options.env {
            started = started.env(name, *value);
        }
        let process = wait_for(kura::Node::start(&program, home.path(), &started)).unwrap();
        Self {
            address: process.address,
            secure: process.secure,
            process,
            data: data.to_owned(),
            _home: home,
        }
    }

    pub(crate) fn client(&self) -> Client {
        Client::connect(self.address)
    }

    /// One request on a connection of its own.
    pub(crate) fn send(&self, method: &str, target: &str, body: &[u8]) -> Response {
        self.client().send(method, target, &[], body)
    }

    /// The same, of which only the status matters.
    pub(crate) fn status(&self, method: &str, target: &str, body: &[u8]) -> u16 {
        self.send(method, target, body).status
    }

    /// A field of `/ready`.
    pub(crate) fn ready(&self, field: &str) -> i64 {
        let ready = self.send("GET", "/ready", b"").json().unwrap();
        ready[field].as_i64().unwrap()
    }

    /// Waits until that many requests of HTTP are under way.
    pub(crate) fn until_in_flight(&self, count: i64) {
        until("so many requests are in flight", || {
            (self.ready("http_inflight_requests") == count).then_some(())
        });
    }

    /// The text of `/metrics`.
    pub(crate) fn metrics(&self) -> String {
        self.send("GET", "/metrics", b"").text().unwrap().to_owned()
    }

    fn value<T: FromStr + Default>(&self, row: &str) -> T {
        let value = |line: &str| line.strip_prefix(row)?.strip_prefix(' ')?.parse().ok();
        self.metrics().lines().find_map(value).unwrap_or_default()
    }

    /// The value of a metric with its labels; 0 if there is none.
    pub(crate) fn metric(&self, row: &str) -> f64 {
        self.value(row)
    }

    /// The same of one that counts whole things.
    pub(crate) fn counter(&self, row: &str) -> u64 {
        self.value(row)
    }

    /// How often a request of a tool ended so.
    pub(crate) fn count(&self, tool: &str, project: &str, result: &str) -> u64 {
        self.counter(&format!(
            "kura_tool_requests_total{{tool=\"{tool}\",project=\"{project}\",result=\"{result}\"}}"
        ))
    }

    /// Waits until a line of `/metrics` is exactly this.
    pub(crate) fn until_metric(&self, line: &str) {
        until(line, || self.metrics().lines().any(|found| found == line).then_some(()));
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.pid().unwrap()
    }

    pub(crate) fn signal(&self, name: &str) {
        let (name, pid) = (format!("-{name}"), self.pid().to_string());
        let killed = Command::new("kill").args([name, pid]).status();
        assert!(killed.unwrap().success());
    }

    /// Tells it to drain, and waits until it does.
    pub(crate) fn drain(&self, signal: &str) {
        self.signal(signal);
        until("the node drains", || {
            (self.status("GET", "/ready", b"") == 503).then_some(())
        });
    }

    pub(crate) fn kill(&mut self) {
        wait_for(self.process.kill()).unwrap();
    }

    /// Waits for an end without a fault.
    pub(crate) fn wait(&mut self) {
        let exit = wait_for(self.process.ended()).unwrap();
        assert!(exit.starts_with("exit code 0"), "{exit}");
    }

    /// Asks it to end, and waits until it has.
    pub(crate) fn stop(&mut self) {
        self.signal("TERM");
        self.wait();
    }

    /// Seconds of processor time the node has used.
    pub(crate) fn cpu(&self) -> f64 {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.pid())).unwrap();
        let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
        let ticks: f64 = fields[11].parse::<f64>().unwrap() + fields[12].parse::<f64>().unwrap();
        ticks / 100.0
    }

    pub(crate) fn log(&self) -> String {
        self.process.log()
    }
}

/// Flips a bit of the byte after that text, wherever it lies in the segments of a data folder.
pub(crate) fn damage(data: &Path, text: &[u8]) {
    let mut found = 0;
    for file in std::fs::read_dir(data.join("store/segments")).unwrap() {
        let path = file.unwrap().path();
        let mut bytes = std::fs::read(&path).unwrap();
        if let Some(at) = bytes.windows(text.len()).position(|window| window == text) {
            bytes[at] ^= 1;
            std::fs::write(&path, bytes).unwrap();
            found += 1;
        }
    }
    assert!(found > 0, "nothing to damage");
}

/// A connection on which exactly the given bytes are sent.
pub(crate) struct Client(pub(crate) Wire);

impl Client {
    pub(crate) fn connect(address: SocketAddr) -> Self {
        let stream = wait_for(TcpStream::connect(address)).unwrap();
        stream.set_nodelay(true).unwrap();
        Self(Wire::new(stream, DEADLINE))
    }

    /// The other side may have closed already.
    pub(crate) fn raw(&mut self, bytes: &[u8]) {
        wait_for(self.0.write(bytes));
    }

    pub(crate) fn send(&mut self, method: &str, target: &str, fields: &[&str], body: &[u8]) -> Response {
        let mut request = format!("{method} {target} HTTP/1.1\r\nHost: cache\r\n");
        for field in fields {
            let _ = write!(request, "{field}\r\n");
        }
        if !body.is_empty() {
            let _ = write!(request, "Content-Length: {}\r\n", body.len());
        }
        request.push_str("\r\n");
        let bytes = [request.as_bytes(), body].concat();
        wait_for(self.0.exchange(method, &bytes)).unwrap()
    }

    pub(crate) fn response(&mut self) -> Response {
        wait_for(self.0.response("GET")).unwrap()
    }

    /// Everything that still comes until the other side closes.
    pub(crate) fn rest(&mut self) -> Vec<u8> {
        wait_for(self.0.rest()).unwrap()
    }

    /// Whether the other side closes, with nothing more to say.
    pub(crate) fn is_closed(&mut self) -> bool {
        self.rest().is_empty()
    }
}

/// Asks until there is an answer.
pub(crate) fn until<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + DEADLINE;
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(Instant::now() < deadline, "waited too long until {what}");
        std::thread::park_timeout(Duration::from_millis(5));
    }
}
