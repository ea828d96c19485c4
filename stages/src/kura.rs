//! Real `kura` processes for tests and stories: on ports of their own choice, in folders of ours, gone with us.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context, Result, bail, ensure};
use russet_cluster::process::{Restart, Snapshot, Spec, State, Supervisor};
use russet_testkit::program::{built, program};
use russet_testkit::wait::{self, Look, PATIENCE};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// The program.
#[derive(Debug, Clone)]
pub struct Program(PathBuf);

impl Program {
    /// Where cargo and packages put it: beside the program that runs, or one folder up, where tests have theirs.
    pub fn find() -> Result<Self> {
        program("kura", "kura").map(Self)
    }

    /// The same for tests: built now if it never was.
    pub fn built() -> Result<Self> {
        built("kura", "kura").map(Self)
    }

    /// Another one.
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self(path.into())
    }

    pub fn path(&self) -> &Path {
        &self.0
    }
}

/// How a node is started.
#[derive(Debug, Clone, Default)]
pub struct Options {
    args: Vec<String>,
    env: Vec<(String, String)>,
    data: Option<PathBuf>,
}

impl Options {
    #[must_use]
    pub fn args<S: Into<String>>(mut self, args: impl IntoIterator<Item = S>) -> Self {
        self.args.extend(args.into_iter().map(Into::into));
        self
    }

    /// A data folder outside the node's home.
    #[must_use]
    pub fn data(mut self, folder: impl Into<PathBuf>) -> Self {
        self.data = Some(folder.into());
        self
    }

    /// Secrets go here: an argument list is world-readable.
    #[must_use]
    pub fn env(mut self, name: &str, value: impl Into<String>) -> Self {
        self.env.push((name.to_owned(), value.into()));
        self
    }
}

/// A running node. Dropping it ends the process; its data folder belongs to the caller.
#[derive(Debug)]
pub struct Node {
    supervisor: Supervisor,
    name: String,
    log: PathBuf,
    pub address: SocketAddr,
    /// Where TLS is spoken, if it was given a certificate.
    pub secure: Option<SocketAddr>,
}

impl Node {
    /// Starts on `home`, whose `data` folder may hold what an earlier node left.
    pub async fn start(program: &Program, home: &Path, options: &Options) -> Result<Self> {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let name = format!("kura-{}", COUNT.fetch_add(1, Ordering::Relaxed));
        let log = home.join(format!("{name}.log"));
        std::fs::create_dir_all(home).with_context(|| format!("failed to make {}", home.display()))?;
        let data = options.data.clone().unwrap_or_else(|| home.join("data"));
        let supervisor = Supervisor::new(home);
        let mut spec = Spec::new(&name, program.path(), &log)
            .args(["serve", "--port", "0", "--https-port", "0", "--log-format", "json"])
            .args(["--cas-capacity-bytes", "4294967296"])
            .args(["--data-dir".to_owned(), data.display().to_string()])
            .args(options.args.clone())
            .restart(Restart::Never);
        for (name, value) in &options.env {
            spec = spec.env(name, value);
        }
        supervisor.start(spec).await.context("failed to start kura")?;
        let mut node = Self {
            supervisor,
            name,
            log,
            address: SocketAddr::from(([127, 0, 0, 1], 0)),
            secure: None,
        };
        (node.address, node.secure) = node.serving().await?;
        Ok(node)
    }

    /// The addresses it logs when it serves.
    async fn serving(&self) -> Result<(SocketAddr, Option<SocketAddr>)> {
        wait::until("kura to serve", PATIENCE, || async {
            if let Some(exit) = self.exit() {
                return Ok(Look::Done(Err(exit)));
            }
            let said = self.log().lines().find_map(|line| {
                let event: Value = serde_json::from_str(line).ok()?;
                (event.get("message")?.as_str()? == "serving").then_some(event)
            });
            let Some(event) = said else {
                return Ok(Look::NotYet(self.log()));
            };
            let address = |name: &str| {
                event
                    .get(name)
                    .and_then(Value::as_str)
                    .and_then(|text| text.parse().ok())
            };
            Ok(Look::Done(Ok((
                address("address").context("kura does not say where it listens")?,
                address("secure_address"),
            ))))
        })
        .await?
        .map_err(|exit| anyhow::anyhow!("kura did not start: {exit}\n{}", self.log()))
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Everything it said so far.
    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    fn snapshot(&self) -> Option<Snapshot> {
        self.supervisor
            .snapshot()
            .into_iter()
            .find(|part| part.name == self.name)
    }

    /// How it ended, if it has.
    pub fn exit(&self) -> Option<String> {
        let part = self.snapshot()?;
        matches!(part.state, State::Stopped | State::Failed).then(|| part.last_exit.unwrap_or_default())
    }

    pub fn pid(&self) -> Result<u32> {
        self.snapshot().and_then(|part| part.pid).context("kura is not running")
    }

    /// Ends it without a chance to write anything, and waits until it is gone.
    pub async fn kill(&self) -> Result<()> {
        let Some(pid) = i32::try_from(self.pid()?).ok().and_then(Pid::from_raw) else {
            bail!("kura has no usable pid");
        };
        kill_process(pid, Signal::KILL).context("failed to kill kura")?;
        self.ended().await.map(drop)
    }

    /// Waits until it has ended; how it did.
    pub async fn ended(&self) -> Result<String> {
        wait::until("kura to be gone", PATIENCE, || async {
            Ok(self
                .exit()
                .map_or_else(|| Look::NotYet("still there".to_owned()), Look::Done))
        })
        .await
    }

    /// Asks it to end, and waits until it has.
    pub async fn stop(&self) -> Result<()> {
        self.supervisor.stop(&self.name).await.context("failed to stop kura")
    }

    /// Fails if the process has ended.
    pub fn alive(&self) -> Result<()> {
        ensure!(self.exit().is_none(), "kura ended: {}", self.log());
        Ok(())
    }
}
