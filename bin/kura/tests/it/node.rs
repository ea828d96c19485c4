//! Starts the real binary on a free port and ends it by its own pid.

use crate::wire::{Client, Response};
use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// Nothing a test waits for takes this long unless it is broken.
pub(crate) const DEADLINE: Duration = Duration::from_secs(30);

pub(crate) struct Node {
    child: Child,
    pub(crate) address: SocketAddr,
    pub(crate) secure: Option<SocketAddr>,
    dir: Option<tempfile::TempDir>,
    pub(crate) data: PathBuf,
    log: Mutex<Receiver<String>>,
}

pub(crate) struct Options<'a> {
    pub(crate) args: &'a [&'a str],
    pub(crate) env: &'a [(&'a str, &'a str)],
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

    pub(crate) fn start_with(options: &Options<'_>) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let data = dir.path().join("data");
        let mut node = Self::start_in(&data, options);
        node.dir = Some(dir);
        node
    }

    /// Starts on a folder that outlives the node.
    pub(crate) fn start_in(data: &Path, options: &Options<'_>) -> Self {
        let mut child = command(&[
            "serve",
            "--port",
            "0",
            "--https-port",
            "0",
            "--log-format",
            "json",
            "--cas-capacity-bytes",
            "4294967296",
        ])
        .args(["--data-dir", data.to_str().unwrap()])
        .args(options.args)
        .envs(options.env.iter().copied())
        .stderr(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
        let (lines, log) = channel();
        let stderr = BufReader::new(child.stderr.take().unwrap());
        std::thread::spawn(move || {
            for line in stderr.lines().map_while(Result::ok) {
                let _ = lines.send(line);
            }
        });
        let mut seen = Vec::new();
        let deadline = Instant::now() + DEADLINE;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let Ok(line) = log.recv_timeout(left) else {
                let _ = child.kill();
                let _ = child.wait();
                panic!("the node did not start: {seen:#?}");
            };
            let event: serde_json::Value = serde_json::from_str(&line).unwrap_or_default();
            if event["message"] == "serving" {
                let parse = |name: &str| event[name].as_str().and_then(|text| text.parse().ok());
                let address = parse("address").unwrap();
                return Self {
                    child,
                    address,
                    secure: parse("secure_address"),
                    dir: None,
                    data: data.to_owned(),
                    log: Mutex::new(log),
                };
            }
            seen.push(line);
        }
    }

    pub(crate) fn client(&self) -> Client {
        Client::connect(self.address)
    }

    /// One request on a connection of its own.
    pub(crate) fn send(&self, method: &str, target: &str, body: &[u8]) -> Response {
        self.client().send(method, target, &[], body)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn signal(&self, name: &str) {
        let status = Command::new("kill")
            .args([&format!("-{name}"), &self.pid().to_string()])
            .status()
            .unwrap();
        assert!(status.success());
    }

    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    pub(crate) fn wait(&mut self) -> ExitStatus {
        until("the node ends", || self.child.try_wait().unwrap())
    }

    /// Seconds of processor time the node has used.
    pub(crate) fn cpu(&self) -> f64 {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.pid())).unwrap();
        let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
        let ticks: f64 = fields[11].parse::<f64>().unwrap() + fields[12].parse::<f64>().unwrap();
        ticks / 100.0
    }

    pub(crate) fn log(&self) -> Vec<String> {
        self.log.lock().unwrap().try_iter().collect()
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
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
