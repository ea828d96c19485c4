//! One test's corner of a cluster: a namespace, clients, child programs, and their logs when the test panics.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{Api, ObjectMeta, PostParams};
use russet_cluster::process::{Probe, Restart, Snapshot, Spec, State};

use crate::cluster::TestCluster;
use crate::identity::Identity;
use crate::wait::{self, Look};

/// Dropped at the end of the test; when the test panicked, the logs of all parts and of its own programs go to stderr.
#[derive(Debug)]
pub struct Sandbox<'a> {
    cluster: &'a TestCluster,
    namespace: String,
}

impl<'a> Sandbox<'a> {
    pub(crate) async fn create(cluster: &'a TestCluster, namespace: &str) -> Result<Self> {
        let namespaces: Api<Namespace> = Api::all(cluster.client().await?);
        let object = Namespace {
            metadata: ObjectMeta {
                name: Some(namespace.to_owned()),
                ..ObjectMeta::default()
            },
            ..Namespace::default()
        };
        namespaces
            .create(&PostParams::default(), &object)
            .await
            .with_context(|| format!("failed to create namespace {namespace}"))?;
        Ok(Self {
            cluster,
            namespace: namespace.to_owned(),
        })
    }

    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    pub fn cluster(&self) -> &'a TestCluster {
        self.cluster
    }

    pub async fn client(&self) -> Result<kube::Client> {
        self.cluster.client().await
    }

    /// Starts describing a ServiceAccount of this namespace that may do only what it is given.
    pub fn identity(&self, name: &str) -> Identity<'_> {
        Identity::new(self, name)
    }

    /// Starts a program under the cluster's supervisor, never restarted, with a log of its own.
    pub async fn run(&self, name: &str, program: PathBuf, args: Vec<String>, probe: Probe) -> Result<Program<'_>> {
        let name = format!("{}.{name}", self.namespace);
        let log = self.cluster.dir().join(format!("{name}.log"));
        let spec = Spec::new(&name, program, log)
            .args(args)
            .env("RUST_LOG", "info,russet_controller=debug")
            .probe(probe)
            .restart(Restart::Never);
        self.cluster.supervisor().start(spec).await?;
        Ok(Program { sandbox: self, name })
    }

    fn snapshot(&self, name: &str) -> Option<Snapshot> {
        self.cluster
            .supervisor()
            .snapshot()
            .into_iter()
            .find(|part| part.name == name)
    }
}

impl Drop for Sandbox<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!(
                "--- sandbox {} failed; the parts said:\n{}",
                self.namespace,
                self.cluster.log_tails(40)
            );
        }
    }
}

/// A child program of a test. Ended when dropped.
#[derive(Debug)]
pub struct Program<'a> {
    sandbox: &'a Sandbox<'a>,
    name: String,
}

impl Program<'_> {
    pub fn pid(&self) -> Result<u32> {
        self.sandbox
            .snapshot(&self.name)
            .and_then(|part| part.pid)
            .with_context(|| format!("{} is not running", self.name))
    }

    /// Sends a signal to exactly this process, the way an operator or the kernel would.
    pub fn signal(&self, signal: rustix::process::Signal) -> Result<()> {
        let Some(pid) = i32::try_from(self.pid()?).ok().and_then(rustix::process::Pid::from_raw) else {
            bail!("{} has no usable pid", self.name);
        };
        rustix::process::kill_process(pid, signal).with_context(|| format!("failed to signal {}", self.name))
    }

    /// Waits for the process to end and returns how it ended.
    pub async fn ended(&self, patience: Duration) -> Result<String> {
        wait::until(&format!("{} to end", self.name), patience, || async {
            let Some(part) = self.sandbox.snapshot(&self.name) else {
                return Ok(Look::Done("gone".to_owned()));
            };
            Ok(match part.state {
                State::Stopped | State::Failed => Look::Done(part.last_exit.unwrap_or_default()),
                state => Look::not_yet(state),
            })
        })
        .await
    }

    pub fn log(&self) -> String {
        self.sandbox
            .snapshot(&self.name)
            .and_then(|part| std::fs::read_to_string(part.log).ok())
            .unwrap_or_default()
    }

    pub async fn stop(&self) -> Result<()> {
        Ok(self.sandbox.cluster.supervisor().stop(&self.name).await?)
    }
}

impl Drop for Program<'_> {
    fn drop(&mut self) {
        // SIGKILL also ends a process that a test has paused.
        let _ = self.signal(rustix::process::Signal::KILL);
    }
}
