use russet_sim_tart::{Control, Image, Switches};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

pub(crate) const IMAGE: &str = "ghcr.io/acme/mac:v1";
/// Generous: the machine may be busy with other things.
pub(crate) const DEADLINE: Duration = Duration::from_mins(2);

/// A host with its own home.
pub(crate) struct Host {
    dir: tempfile::TempDir,
    pub(crate) control: Control,
}

/// What a command left behind.
#[derive(Debug)]
pub(crate) struct Said {
    pub(crate) out: String,
    pub(crate) err: String,
    pub(crate) code: Option<i32>,
}

impl From<Output> for Said {
    fn from(output: Output) -> Self {
        Self {
            out: String::from_utf8(output.stdout).unwrap(),
            err: String::from_utf8(output.stderr).unwrap(),
            code: output.status.code(),
        }
    }
}

impl Host {
    /// A host whose registry holds one image.
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let control = Control::new(dir.path().join("home")).unwrap();
        control.push(IMAGE, &Image::default()).unwrap();
        Self { dir, control }
    }

    /// One that has a VM of that image, called `vm`.
    pub(crate) fn with_vm() -> Self {
        let host = Self::new();
        host.clone("vm");
        host
    }

    pub(crate) fn switch(&self, change: impl FnOnce(&mut Switches)) {
        self.control.switch(change).unwrap();
    }

    /// Puts an image that differs from the usual one into the registry.
    pub(crate) fn push(&self, name: &str, change: impl FnOnce(&mut Image)) {
        let mut image = Image::default();
        change(&mut image);
        self.control.push(name, &image).unwrap();
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sim-tart"));
        command
            .args(words)
            .env("TART_HOME", self.control.home())
            .env("HOME", self.dir.path())
            .env_remove("CI")
            .stdin(Stdio::null());
        command
    }

    pub(crate) fn tart(&self, words: &[&str]) -> Said {
        self.command(words).output().unwrap().into()
    }

    /// Runs a command with this on its standard input.
    pub(crate) fn feed(&self, words: &[&str], input: &[u8]) -> Said {
        let mut command = self.command(words);
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        child.stdin.take().unwrap().write_all(input).unwrap();
        child.wait_with_output().unwrap().into()
    }

    /// Runs a command that must succeed, and gives its output.
    #[track_caller]
    pub(crate) fn good(&self, words: &[&str]) -> String {
        let said = self.tart(words);
        assert_eq!(said.code, Some(0), "{words:?}: {said:?}");
        said.out
    }

    /// Runs a command that must fail with these words and this code.
    #[track_caller]
    pub(crate) fn bad(&self, words: &[&str], err: &str, code: i32) {
        let said = self.tart(words);
        assert_eq!((said.err.trim_end(), said.code), (err, Some(code)), "{words:?}");
    }

    /// A VM made from the image.
    #[track_caller]
    pub(crate) fn clone(&self, name: &str) {
        self.good(&["clone", IMAGE, name]);
    }

    /// `tart run` in the background, once its guest is up.
    #[track_caller]
    pub(crate) fn run(&self, name: &str, more: &[&str]) -> Running<'_> {
        let running = self.begin(name, more);
        let socket = self.control.home().join("vms").join(name).join("control.sock");
        wait(&format!("{name} is up: {}", running.log()), || {
            socket.exists() || !running.log().is_empty()
        });
        running
    }

    pub(crate) fn begin(&self, name: &str, more: &[&str]) -> Running<'_> {
        let log = self.path(&format!("{name}.log"));
        let file = std::fs::File::create(&log).unwrap();
        let mut words = vec!["run", name, "--no-graphics"];
        words.extend(more);
        let mut command = self.command(&words);
        let child = command.stdout(file.try_clone().unwrap()).stderr(file).spawn().unwrap();
        let (host, name) = (self, name.to_owned());
        Running { host, name, child, log }
    }

    pub(crate) fn list(&self) -> serde_json::Value {
        serde_json::from_str(&self.good(&["list", "--format", "json"])).unwrap()
    }

    /// What `tart get` tells of a VM.
    #[track_caller]
    pub(crate) fn get(&self, name: &str) -> serde_json::Value {
        serde_json::from_str(&self.good(&["get", name, "--format", "json"])).unwrap()
    }

    #[track_caller]
    pub(crate) fn state(&self, name: &str) -> String {
        self.get(name)["State"].as_str().unwrap().to_owned()
    }

    /// Moves the tag of the image to another one, of six CPUs.
    pub(crate) fn push_other(&self) {
        self.push(IMAGE, |image| image.cpu = 6);
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = self.control.reboot();
    }
}

/// A `tart run` of ours. It ends with the test.
pub(crate) struct Running<'a> {
    pub(crate) host: &'a Host,
    pub(crate) name: String,
    child: Child,
    log: PathBuf,
}

impl Running<'_> {
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap()
    }

    pub(crate) fn pid(&self) -> rustix::process::Pid {
        rustix::process::Pid::from_child(&self.child)
    }

    pub(crate) fn signal(&self, signal: rustix::process::Signal) {
        rustix::process::kill_process(self.pid(), signal).unwrap();
    }

    /// Waits for the end; the exit code, none after a signal.
    pub(crate) fn end(mut self) -> (Option<i32>, String) {
        let mut status = None;
        wait("tart run ends", || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        (status.unwrap().code(), self.log())
    }

    #[track_caller]
    pub(crate) fn exec(&self, words: &[&str]) -> Said {
        let mut all = vec!["exec", self.name.as_str()];
        all.extend(words);
        self.host.tart(&all)
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[track_caller]
pub(crate) fn wait(what: &str, mut until: impl FnMut() -> bool) {
    let deadline = Instant::now() + DEADLINE;
    while !until() {
        assert!(Instant::now() < deadline, "in vain: {what}");
        pause();
    }
}

#[expect(clippy::disallowed_methods, reason = "between two looks at a condition")]
fn pause() {
    std::thread::sleep(Duration::from_millis(20));
}

pub(crate) fn write(path: &Path, text: &str) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
}
