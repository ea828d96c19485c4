//! `kubectl` on both sides, taking turns.

use super::report::Side;
use super::{Bench, NAMESPACE, Options, PATIENCE, SIDES};
use crate::fleet::say;
use crate::pods::scratch;
use anyhow::{Context, Result, ensure};
use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, Instant};
use tokio::process::Command;

/// Times of both sides, in the order they were taken.
#[derive(Debug, Default)]
pub(super) struct Pair {
    pub(super) ours: Vec<Duration>,
    pub(super) stock: Vec<Duration>,
}

impl Pair {
    fn of(&mut self, side: Side) -> &mut Vec<Duration> {
        match side {
            Side::Ours => &mut self.ours,
            Side::Stock => &mut self.stock,
        }
    }
}

/// Everything that took turns.
#[derive(Debug, Default)]
pub(super) struct Turns {
    /// `kubectl exec -- true`.
    pub(super) exec: Pair,
    /// A file into the container.
    pub(super) up: Pair,
    /// The same file back.
    pub(super) down: Pair,
    /// What `kubectl` takes for the smallest question, which is no kubelet's.
    pub(super) kubectl: Vec<Duration>,
}

struct Kubectl {
    program: PathBuf,
    kubeconfig: PathBuf,
    home: PathBuf,
}

impl Kubectl {
    async fn run(&self, words: &[&str]) -> Result<Duration> {
        let began = Instant::now();
        let output = Command::new(&self.program)
            .arg(format!("--kubeconfig={}", self.kubeconfig.display()))
            .arg(format!("--namespace={NAMESPACE}"))
            .args(words)
            .env("HOME", &self.home)
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .output();
        let output = tokio::time::timeout(PATIENCE, output)
            .await
            .context("kubectl took too long")??;
        let took = began.elapsed();
        ensure!(
            output.status.success(),
            "kubectl {words:?} failed: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        Ok(took)
    }

    /// As often as it takes until it succeeds once: a serving certificate may be on its way.
    async fn warm(&self, words: &[&str]) -> Result<()> {
        let began = Instant::now();
        loop {
            match self.run(words).await {
                Ok(_) => return Ok(()),
                Err(error) if began.elapsed() > PATIENCE => return Err(error),
                Err(_) => tokio::time::sleep(Duration::from_secs(1)).await,
            }
        }
    }
}

impl Turns {
    pub(super) async fn take(bench: &Bench<'_>, options: &Options) -> Result<Self> {
        let dir = scratch()?;
        let tools = russet_testkit::cluster::tools(&["kubectl"]).await?;
        let kubectl = Kubectl {
            program: tools.path("kubectl")?.to_owned(),
            kubeconfig: bench.cluster.control_plane().admin_kubeconfig().to_owned(),
            home: dir.path().to_owned(),
        };
        let mut turns = Self::default();
        for (_, name) in SIDES {
            kubectl.warm(&["exec", &format!("{name}-0"), "--", "true"]).await?;
        }
        say("kubectl exec");
        for _ in 0..options.execs {
            turns.kubectl.push(kubectl.run(&["get", "--raw", "/readyz"]).await?);
            for (side, name) in SIDES {
                let took = kubectl.run(&["exec", &format!("{name}-0"), "--", "true"]).await?;
                turns.exec.of(side).push(took);
            }
        }
        say("kubectl cp");
        let file = dir.path().join("file");
        std::fs::write(&file, noise(options.mib))?;
        let (file, back) = (file.display().to_string(), dir.path().join("back"));
        for _ in 0..options.copies {
            for (side, name) in SIDES {
                let there = format!("{name}-0:/opt/work/file");
                turns.up.of(side).push(kubectl.run(&["cp", &file, &there]).await?);
                let took = kubectl.run(&["cp", &there, &back.display().to_string()]).await?;
                turns.down.of(side).push(took);
                let same = std::fs::read(&back)? == std::fs::read(&file)?;
                ensure!(same, "what came back from {name} is not what was sent");
            }
        }
        Ok(turns)
    }
}

/// Bytes that nothing can make smaller.
fn noise(mib: u32) -> Vec<u8> {
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    let words = u64::from(mib) << 17;
    let mut bytes = Vec::new();
    for _ in 0..words {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes
}
