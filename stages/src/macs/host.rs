//! A Mac whose agent is the program that ships: a folder, the emulated `tart` in it, a kubeconfig to join with.
//!
//! What Pods do on it is up to its user.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};

use anyhow::{Context, Result};
use jiff::Timestamp;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use kube::api::{Api, ListParams, Patch, PatchParams};
use kube::{Client, ResourceExt as _};
use russet_cluster::kubeconfig;
use russet_cluster::node::join::{self, Token};
use russet_sim_tart::Control;
use russet_testkit::TestCluster;
use russet_testkit::wait::{self, Look, PATIENCE};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use tokio::process::{Child, Command};

/// Who a Node's agent is for the API server.
pub fn node_user(node: &str) -> String {
    format!("system:node:{node}")
}

/// A Mac. Its VMs outlive their agent, as they should, but not this.
#[derive(Debug)]
pub struct MacHost {
    pub node: String,
    pub control: Control,
    dir: PathBuf,
}

impl MacHost {
    /// In a folder that is there; `tart` is a program that poses as the real one.
    pub fn new(dir: &Path, node: &str, tart: &Path) -> Result<Self> {
        let control = Control::new(dir.join("tart-home"))?;
        Control::install(tart, &dir.join("bin/tart"))?;
        // Whatever the disk of this machine is like.
        control.switch(|switches| switches.capacity_gb = Some(1000))?;
        Ok(Self {
            node: node.to_owned(),
            control,
            dir: dir.to_owned(),
        })
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// The volume `work` of a Pod.
    pub fn work(&self, uid: &str) -> PathBuf {
        self.path("state/pods").join(uid).join("volumes/work")
    }

    /// Writes the kubeconfig with which the agent may join, once.
    pub async fn invite(&self, cluster: &TestCluster, client: &Client) -> Result<Token> {
        let token = join::invite(client, Timestamp::now()).await?;
        let plane = cluster.control_plane();
        let path = self.path("kubeconfig");
        kubeconfig::for_token(plane.server(), plane.ca_pem(), "bootstrap", &token.bearer(), &path)?;
        Ok(token)
    }

    /// Starts the agent with further flags.
    pub fn start(&self, program: &Path, flags: &[&str]) -> Result<Agent> {
        let mut words = flagged(&[
            ("node-name", Path::new(&self.node)),
            ("kubeconfig", &self.path("kubeconfig")),
            ("state-dir", &self.path("state")),
            ("tart-binary", &self.path("bin/tart")),
            ("tart-home", self.control.home()),
            ("disk-report", &self.control.disk_report()),
        ]);
        words.extend(flags.iter().map(OsString::from));
        Agent::start(program, &words, &[], &self.path("log"))
    }

    /// The end of what the agent said.
    pub fn log(&self) -> String {
        tail(&self.path("log"), 20)
    }

    /// Approves the certificate that the kubelet API serves with, as the provider does.
    pub async fn approve_serving(&self, client: &Client) -> Result<()> {
        let requests: Api<CertificateSigningRequest> = Api::all(client.clone());
        let user = node_user(&self.node);
        let name = wait::until("a request for a serving certificate", PATIENCE, || async {
            let all = requests.list(&ListParams::default()).await?;
            let asked = all.items.into_iter().find(|request| {
                request.spec.signer_name == "kubernetes.io/kubelet-serving"
                    && request.spec.username.as_deref() == Some(&user)
            });
            Ok(asked.map_or_else(|| Look::NotYet(self.log()), |request| Look::Done(request.name_any())))
        })
        .await?;
        let approval = json!({"status": {"conditions": [{
            "type": "Approved", "status": "True", "reason": "Ours", "message": "it is a Mac of ours",
        }]}});
        requests
            .patch_approval(&name, &PatchParams::default(), &Patch::Strategic(approval))
            .await?;
        Ok(())
    }
}

impl Drop for MacHost {
    fn drop(&mut self) {
        let _ = self.control.reboot();
    }
}

/// The last lines of a file that may not be there yet.
pub fn tail(path: &Path, count: usize) -> String {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines
        .get(lines.len().saturating_sub(count)..)
        .unwrap_or_default()
        .join("\n")
}

/// Flags that name files.
pub fn flagged(all: &[(&str, &Path)]) -> Vec<OsString> {
    let flag = |(name, path): &(&str, &Path)| {
        let mut word = OsString::from(format!("--{name}="));
        word.push(path);
        word
    };
    all.iter().map(flag).collect()
}

/// A running agent. Dropped, it is killed.
#[derive(Debug)]
pub struct Agent(Child);

impl Agent {
    /// Starts one as launchd has it: with no more environment than this, and all it says at the end of a file.
    pub fn start(program: &Path, words: &[OsString], env: &[(String, String)], log: &Path) -> Result<Self> {
        let log = std::fs::OpenOptions::new().create(true).append(true).open(log)?;
        let child = Command::new(program)
            .args(words)
            .env_clear()
            .envs(env.iter().cloned())
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .kill_on_drop(true)
            .spawn()
            .context("start the agent")?;
        Ok(Self(child))
    }

    /// None when it has ended.
    pub fn pid(&self) -> Option<u32> {
        self.0.id()
    }

    pub fn is_running(&mut self) -> bool {
        matches!(self.0.try_wait(), Ok(None))
    }

    /// How it ended by itself.
    pub async fn ended(mut self) -> Result<ExitStatus> {
        tokio::time::timeout(PATIENCE, self.0.wait())
            .await
            .context("the agent does not end")?
            .context("wait for the agent")
    }

    /// Ends it as launchd does.
    pub async fn terminated(self) -> Result<ExitStatus> {
        let pid = self.0.id().context("it has ended")?;
        kill_process(Pid::from_raw(i32::try_from(pid)?).context("a pid")?, Signal::TERM)?;
        self.ended().await
    }

    /// Kills it as nothing can be prepared for.
    pub async fn killed(mut self) -> Result<()> {
        self.0.kill().await.context("kill the agent")
    }
}
