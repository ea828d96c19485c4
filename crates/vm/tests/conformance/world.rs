//! The two hosts on which the cases are played.

use russet_sim_tart::{Control, Image, Switches};
use russet_vm::supervise::Supervisor;
use russet_vm::synthetic::{Host, Settings, Synthetic};
use russet_vm::{Digest, ImageRef, PodVm, Runtime, Tart, VmName, tart};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Makes this program a supervisor.
pub(crate) const SUPERVISE: &str = "--supervise";
pub(crate) const UID: &str = "0b5d7f3c-8a4e-4f0c-9d1a-2b3c4d5e6f70";

pub(crate) fn image() -> ImageRef {
    ImageRef::parse("ghcr.io/acme/mac:v1").unwrap()
}

pub(crate) fn vm(pod: &str) -> VmName {
    PodVm::new("ci", pod, "main", UID, 0).unwrap().into()
}

/// A host, and the hand that reaches into it.
pub(crate) trait World {
    /// A fresh agent's runtime on this host.
    fn agent(&self) -> Arc<dyn Runtime>;
    fn publish(&self, image: &ImageRef, content: &str) -> Digest;
    fn require_login(&self, host: &str, username: &str, password: &str);
    fn add_foreign(&self, name: &str);
    fn crash(&self, name: &VmName);
    fn scratch(&self, name: &str) -> PathBuf;
}

pub(crate) struct SyntheticWorld {
    host: Host,
    dir: tempfile::TempDir,
}

impl SyntheticWorld {
    pub(crate) fn new() -> Self {
        Self {
            host: Host::new(Settings::default()),
            dir: tempfile::tempdir().unwrap(),
        }
    }
}

impl World for SyntheticWorld {
    fn agent(&self) -> Arc<dyn Runtime> {
        Arc::new(Synthetic::new(self.host.clone()))
    }

    fn publish(&self, image: &ImageRef, content: &str) -> Digest {
        self.host.publish(image, content).unwrap()
    }

    fn require_login(&self, host: &str, username: &str, password: &str) {
        self.host.require_login(host, username, password);
    }

    fn add_foreign(&self, name: &str) {
        self.host.add_foreign(name, false);
    }

    fn crash(&self, name: &VmName) {
        self.host.crash(name);
    }

    fn scratch(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }
}

pub(crate) struct TartWorld {
    pub(crate) control: Control,
    pub(crate) options: tart::Options,
    dir: tempfile::TempDir,
}

impl TartWorld {
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let control = Control::new(dir.path().join("home")).unwrap();
        let this = std::env::current_exe().unwrap();
        let program = dir.path().join("bin/tart");
        Control::install(&this, &program).unwrap();
        let options = tart::Options {
            program,
            home: control.home().to_owned(),
            state: dir.path().join("state"),
            supervisor: Supervisor {
                program: this,
                words: vec![SUPERVISE.into()],
            },
        };
        Self { control, options, dir }
    }

    pub(crate) fn switch(&self, change: impl FnOnce(&mut Switches)) {
        self.control.switch(change).unwrap();
    }

    pub(crate) fn tart(&self) -> Tart {
        Tart::new(self.options.clone())
    }
}

impl World for TartWorld {
    fn agent(&self) -> Arc<dyn Runtime> {
        Arc::new(self.tart())
    }

    fn publish(&self, image: &ImageRef, content: &str) -> Digest {
        let content = Image {
            label: content.to_owned(),
            ..Image::default()
        };
        self.control
            .push(&image.to_string(), &content)
            .unwrap()
            .parse()
            .unwrap()
    }

    fn require_login(&self, host: &str, username: &str, password: &str) {
        self.control.require_login(host, username, password).unwrap();
    }

    fn add_foreign(&self, name: &str) {
        self.control.create(name, &Image::default()).unwrap();
    }

    fn crash(&self, name: &VmName) {
        self.control.crash(&name.to_string()).unwrap();
    }

    fn scratch(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }
}

impl Drop for TartWorld {
    fn drop(&mut self) {
        let _ = self.control.reboot();
    }
}

/// Looks until it is so.
pub(crate) async fn until<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + Duration::from_mins(2);
    loop {
        if let Some(found) = look().await {
            return found;
        }
        assert!(Instant::now() < deadline, "in vain: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// A VM that is cloned but does not run.
pub(crate) async fn cloned(world: &dyn World, name: &VmName) {
    let agent = world.agent();
    let digest = world.publish(&image(), "one");
    agent.pull(&image(), russet_vm::Pull::default()).await.unwrap();
    agent
        .clone_vm(&russet_vm::Source::Image(image().at(digest)), name)
        .await
        .unwrap();
}

/// A VM that runs and whose guest answers.
pub(crate) async fn running(world: &dyn World, name: &VmName) -> russet_vm::Process {
    cloned(world, name).await;
    let agent = world.agent();
    let process = agent.start(name, &russet_vm::Launch::default()).await.unwrap();
    answers(agent.as_ref(), name).await;
    process
}

pub(crate) async fn answers(agent: &dyn Runtime, name: &VmName) {
    until("the guest answers", async || {
        let run = async { russet_vm::collect(agent.exec(name, words(&["true"])).await?, b"", 100).await };
        run.await.ok().filter(|outcome| outcome.code == 0)
    })
    .await;
}

/// Waits until a program in the guest is known to be lost.
pub(crate) async fn until_lost(agent: &dyn Runtime, name: &VmName) {
    until("the program is lost", async || {
        (agent.step(name, "main").await.unwrap() == Some(russet_vm::Step::Lost)).then_some(())
    })
    .await;
}

/// The guest shuts down by itself; whether it still answers does not matter.
pub(crate) async fn shut_down(agent: &dyn Runtime, name: &VmName) {
    let shutdown = agent
        .exec(name, words(&["sudo", "shutdown", "-h", "now"]))
        .await
        .unwrap();
    russet_vm::collect(shutdown, b"", 100).await.ok();
}

/// A program that is left in a guest.
pub(crate) fn command(world: &dyn World, line: &[&str]) -> russet_vm::GuestCommand {
    russet_vm::GuestCommand {
        words: words(line).words,
        log: world.scratch("log"),
        rotation: None,
    }
}

pub(crate) fn cpus(count: u32) -> russet_vm::Hardware {
    russet_vm::Hardware {
        cpu: Some(count),
        ..Default::default()
    }
}

pub(crate) fn words(words: &[&str]) -> russet_vm::ExecRequest {
    russet_vm::ExecRequest {
        words: words.iter().map(|word| (*word).to_owned()).collect(),
        ..Default::default()
    }
}
