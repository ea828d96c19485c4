//! The node under measurement: the real binary, with tokens checked, metrics counted and every write synced.

use super::core::Cores;
use super::ending;
use super::system::{Paths, Process, System, free_port, wait};
use anyhow::{Context as _, Result, ensure};
use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Signs the tokens of one run; nothing but these servers ever believes them.
const SECRET: &str = "a-secret-that-only-this-benchmark-uses";
/// More than all rows together write, so that eviction is no part of the figures.
const CAPACITY: u64 = 32 << 30;

/// How to start it.
#[derive(Debug, Clone)]
pub(crate) struct Launch {
    program: PathBuf,
    version: String,
    cores: Cores,
}

/// Limits a start may set.
#[derive(Debug, Clone, Default)]
pub(crate) struct Limits {
    pub(crate) memory: Option<u64>,
    /// A control group to start in.
    pub(crate) group: Option<PathBuf>,
}

#[derive(Debug)]
pub(crate) struct Kura {
    pub(crate) system: System,
    pub(crate) process: Process,
    pub(crate) spawned: Instant,
    log: PathBuf,
}

impl Launch {
    pub(crate) fn new(program: Option<&Path>, cores: Cores) -> Result<Self> {
        let hint = "build it with `cargo build --release -p kura`, or name one with --kura";
        let program = crate::machine::program("kura", program, hint)?;
        let output = Command::new(&program).arg("--version").output();
        let output = output.with_context(|| format!("failed to run {}", program.display()))?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        Ok(Self {
            program,
            version: text.trim().trim_start_matches("kura ").to_owned(),
            cores,
        })
    }

    /// Name and version.
    pub(crate) fn version(&self) -> (String, String) {
        ("kura".to_owned(), self.version.clone())
    }

    /// Starts it on a folder. Returns at once: how long it takes to serve may be the question.
    pub(crate) fn start(&self, data: &Path, limits: &Limits) -> Result<Kura> {
        let port = free_port()?;
        fs::create_dir_all(data)?;
        let log = data.with_extension("log");
        let output = fs::File::create(&log)?;
        let mut command = match &limits.group {
            None => ending::following(&self.program)?,
            Some(group) => {
                // The shell joins the group, and then becomes the server.
                let mut shell = ending::following(Path::new("/bin/sh"))?;
                shell
                    .args(["-c", "echo $$ > \"$0\" && exec \"$@\""])
                    .arg(group.join("cgroup.procs"))
                    .arg(&self.program);
                shell
            }
        };
        command
            .args(["--port", &port.to_string(), "--bind-address", "127.0.0.1"])
            .args(["--cas-capacity-bytes", &CAPACITY.to_string()])
            .args(["--durability", "power-loss"])
            .arg("--data-dir")
            .arg(data)
            .env("KURA_AUTH_JWT_SECRET", SECRET)
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output);
        if let Some(bytes) = limits.memory {
            command.args(["--memory-hard-limit-bytes", &bytes.to_string()]);
        }
        let spawned = Instant::now();
        let failed = || format!("failed to start {}", self.program.display());
        let child = self.cores.on_server(|| command.spawn().with_context(failed))?;
        let process = Process::new(child, "kura");
        Ok(Kura {
            system: System {
                name: "kura".into(),
                version: self.version.clone(),
                address: SocketAddr::from(([127, 0, 0, 1], port)),
                paths: Paths::Gradle,
                token: Some(|space| token(space, jiff::Timestamp::now().as_second())),
                pid: process.child.id(),
            },
            process,
            spawned,
            log,
        })
    }
}

/// A token as the control plane would give it: for one project, for a day.
fn token(project: &str, now: i64) -> String {
    let part = |json: serde_json::Value| URL_SAFE_NO_PAD.encode(json.to_string());
    let text = format!(
        "{}.{}",
        part(serde_json::json!({"alg": "HS256", "typ": "JWT"})),
        part(serde_json::json!({
            "exp": now + 86_400,
            "cache_grants": {"project": {"write": [format!("default/{project}")]}},
        })),
    );
    let key = hmac::Key::new(hmac::HMAC_SHA256, SECRET.as_bytes());
    format!("{text}.{}", URL_SAFE_NO_PAD.encode(hmac::sign(&key, text.as_bytes())))
}

impl Kura {
    /// How long after its start it said that it lives.
    pub(crate) fn up(&mut self, within: Duration) -> Result<Duration> {
        let request = self.system.space("").request("GET", "/up");
        self.first_success(&request, within)
    }

    /// How long after its start that request was first answered with 200.
    pub(crate) fn first_success(&mut self, request: &[u8], within: Duration) -> Result<Duration> {
        let address = self.system.address;
        let seen = wait(within, || {
            if let Err(error) = self.process.check() {
                return Err(error.context(self.last_words()));
            }
            Ok((status(address, request) == Some(200)).then(Instant::now))
        })?;
        let seen = seen.with_context(|| format!("kura did not answer within {} s", within.as_secs()))?;
        Ok(seen - self.spawned)
    }

    /// Removes what was stored in a space.
    pub(crate) fn clear(&self, space: &str) -> Result<()> {
        let path = format!("/api/cache/clean?tenant_id=default&namespace_id={space}");
        let request = self.system.space(space).request("DELETE", &path);
        let got = status(self.system.address, &request);
        ensure!(got == Some(204), "kura answered {got:?} when {space} was to be removed");
        Ok(())
    }

    /// The end of its log, for an error.
    pub(crate) fn last_words(&self) -> String {
        let text = fs::read_to_string(&self.log).unwrap_or_default();
        let mut lines: Vec<&str> = text.lines().rev().take(3).collect();
        lines.reverse();
        lines.join("\n")
    }
}

/// The status of one request on a connection of its own.
fn status(address: SocketAddr, request: &[u8]) -> Option<u16> {
    let mut stream = TcpStream::connect(address).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(30))).ok()?;
    stream.write_all(request).ok()?;
    let mut first = [0; 12];
    stream.read_exact(&mut first).ok()?;
    std::str::from_utf8(first.get(9..)?).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_token_has_three_parts_and_names_its_grant() {
        let token = token("ios", 1000);
        let parts: Vec<&str> = token.split('.').collect();
        assert_eq!(parts.len(), 3);
        let claims: serde_json::Value = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(parts[1]).unwrap()).unwrap();
        assert_eq!(claims["exp"], 87_400);
        assert_eq!(claims["cache_grants"]["project"]["write"][0], "default/ios");
    }
}
