//! A directory of its own, and the binary run in it.

use russet::process;
use russet::state::Layout;
use russet::status::document::{Document, Health};
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;
use tempfile::TempDir;
use tokio::time::Instant;

/// A cluster start is the slowest thing waited for; on a busy two-core machine it has taken half a minute.
pub(crate) const PATIENCE: Duration = Duration::from_mins(3);

const POLL: Duration = Duration::from_millis(50);

/// A user that owns nothing here.
const NOBODY: u32 = 65_534;

pub(crate) struct Sandbox {
    dir: TempDir,
    /// Commands are run by nobody, not by whoever runs the test.
    by_nobody: bool,
    program: PathBuf,
}

impl Sandbox {
    pub(crate) fn new() -> Self {
        Self {
            dir: tempfile::Builder::new().prefix("russet-it-").tempdir().unwrap(),
            by_nobody: false,
            program: PathBuf::from(env!("CARGO_BIN_EXE_russet")),
        }
    }

    /// One in which nothing runs as root. None, with the reason, where that cannot be.
    pub(crate) fn without_root() -> Result<Self, String> {
        let mut sandbox = Self::new();
        sandbox.by_nobody = rustix::process::geteuid().is_root();
        if sandbox.by_nobody {
            sandbox.give_to_nobody();
        }
        let said = |args: &[&str]| {
            let mut command = sandbox.plain(args.first().unwrap());
            command.args(args.get(1..).unwrap()).output()
        };
        // Not `setpriv` itself: until it has become another program it may still run whatever root may.
        let version = ["sh", "-c", "exec \"$0\" version", sandbox.program.to_str().unwrap()];
        if !said(&version).is_ok_and(|output| output.status.success()) {
            return Err("others may not run what was built here".to_owned());
        }
        let namespaces = ["unshare", "--user", "--map-root-user", "--mount", "true"];
        if !said(&namespaces).is_ok_and(|output| output.status.success()) {
            return Err("this system keeps namespaces for root".to_owned());
        }
        Ok(sandbox)
    }

    /// Also the parts of the cluster and our programs, which may be where only root can look. Parts are linked where that can be, and copied
    /// elsewhere; programs are linked, or stay where they are.
    fn give_to_nobody(&mut self) {
        if let Ok(program) = self.linked_programs() {
            self.program = program;
        }
        let cache = russet_parts::Options::from_env().cache;
        let (from, to) = (cache.join("parts"), self.path().join("cache"));
        std::fs::create_dir(&to).unwrap();
        let copied = |how: &str| {
            let copy = Command::new("cp").args(["--archive", how]).arg(&from).arg(&to).output();
            copy.is_ok_and(|copy| copy.status.success())
        };
        // Without parts, what runs by nobody gets its own.
        let _ = copied("--link") || copied("--force");
        let folders = Command::new("find")
            .arg(self.path())
            .args(["-type", "d", "-exec", "chown", "--no-dereference"])
            .args([&format!("{NOBODY}:{NOBODY}"), "{}", "+"])
            .status();
        assert!(folders.unwrap().success());
    }

    /// Our program among all that it looks for beside itself.
    fn linked_programs(&self) -> io::Result<PathBuf> {
        let (from, to) = (self.program.parent().unwrap(), self.path().join("bin"));
        std::fs::create_dir(&to)?;
        for entry in from.read_dir()? {
            let entry = entry?;
            let found = entry.metadata()?;
            if found.is_file() && found.permissions().mode() & 0o100 != 0 {
                std::fs::hard_link(entry.path(), to.join(entry.file_name()))?;
            }
        }
        Ok(to.join(self.program.file_name().unwrap()))
    }

    /// A program, run as whoever this sandbox belongs to.
    fn plain(&self, program: &str) -> Command {
        if !self.by_nobody {
            return Command::new(program);
        }
        let id = NOBODY.to_string();
        let mut command = Command::new("setpriv");
        command
            .args(["--reuid", &id, "--regid", &id, "--clear-groups", "--", program])
            .env("HOME", self.path())
            .env("RUSSET_CACHE_DIR", self.path().join("cache"));
        command
    }

    pub(crate) fn path(&self) -> &Path {
        self.dir.path()
    }

    pub(crate) fn layout(&self) -> Layout {
        Layout::new(self.path(), Path::new(".russet"))
    }

    /// The binary, with the surroundings of a plain shell.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = self.plain(self.program.to_str().unwrap());
        command.args(args).current_dir(self.path()).stdin(Stdio::null());
        for name in ["KUBECONFIG", "RUSSET_DIR", "NO_COLOR"] {
            command.env_remove(name);
        }
        command
    }

    pub(crate) fn run(&self, args: &[&str]) -> Ran {
        Ran::from(self.command(args).output().unwrap())
    }

    /// A command of plain words, which must succeed.
    #[track_caller]
    pub(crate) fn ok(&self, words: &str) -> Ran {
        let args: Vec<&str> = words.split(' ').collect();
        self.run(&args).expect(0)
    }

    /// Starts it and returns at once; its output goes to a file.
    pub(crate) fn spawn(&self, args: &[&str], output: &Path) -> Child {
        let file = std::fs::File::create(output).unwrap();
        let same = file.try_clone().unwrap();
        self.command(args).stdout(file).stderr(same).spawn().unwrap()
    }

    pub(crate) fn status(&self) -> Document {
        let ran = self.run(&["status", "--json"]);
        serde_json::from_str(&ran.stdout).unwrap_or_else(|error| panic!("{error}\n{ran:?}"))
    }

    /// How it is once all is well: on a machine that does much else, the API server may miss the few seconds that a look takes.
    pub(crate) async fn until_well(&self) -> Document {
        until("everything to be well", || {
            let status = self.status();
            let problems = format!("{:?}", status.problems);
            met(status.state == Health::Ready, problems).map(|()| status)
        })
        .await
    }
}

impl Drop for Sandbox {
    /// Also after a failed assertion: nothing keeps running.
    fn drop(&mut self) {
        if self.layout().root().exists() {
            if std::thread::panicking() {
                self.show_logs();
            }
            let _ = self.command(&["down"]).output();
        }
    }
}

impl Sandbox {
    fn show_logs(&self) {
        for entry in std::fs::read_dir(self.layout().logs()).into_iter().flatten().flatten() {
            let text = std::fs::read_to_string(entry.path()).unwrap_or_default();
            let lines: Vec<&str> = text.lines().collect();
            let tail = lines
                .get(lines.len().saturating_sub(15)..)
                .unwrap_or_default()
                .join("\n");
            eprintln!("--- {}\n{tail}", entry.path().display());
        }
    }
}

/// What a finished command said.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl From<Output> for Ran {
    fn from(output: Output) -> Self {
        Self {
            code: output.status.code(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

impl Ran {
    #[track_caller]
    pub(crate) fn expect(self, code: i32) -> Self {
        let Self { stdout, stderr, .. } = &self;
        assert_eq!(self.code, Some(code), "stdout:\n{stdout}\nstderr:\n{stderr}");
        self
    }
}

/// One process, recognisable after its pid has been used again.
#[derive(Debug, Clone)]
pub(crate) struct Identity {
    pub(crate) name: String,
    pub(crate) pid: u32,
    started: u64,
}

impl Identity {
    fn of(name: &str, pid: u32) -> Self {
        let started = process::start_time(pid).unwrap_or_else(|| panic!("{name} ({pid}) is not running"));
        Self {
            name: name.to_owned(),
            pid,
            started,
        }
    }

    pub(crate) fn is_alive(&self) -> bool {
        process::is_alive(self.pid, self.started)
    }

    pub(crate) fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_raw(self.pid.try_into().unwrap()).unwrap();
        assert!(self.is_alive());
        rustix::process::kill_process(pid, signal).unwrap();
    }
}

/// `up` itself (first) and every part of it.
pub(crate) fn processes(document: &Document) -> Vec<Identity> {
    let up = document.up.as_ref().expect("up is running");
    let parts = document.parts.iter();
    let parts = parts.map(|part| Identity::of(&part.name, part.pid.expect("the part runs")));
    std::iter::once(Identity::of("up", up.pid)).chain(parts).collect()
}

/// For [`until`]: whether it holds now, and what was seen if not.
pub(crate) fn met(holds: bool, seen: impl Into<String>) -> Result<(), String> {
    if holds { Ok(()) } else { Err(seen.into()) }
}

/// Waits for a condition; the last answer is shown when it does not come true.
pub(crate) async fn until<T>(what: &str, mut look: impl FnMut() -> Result<T, String>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match look() {
            Ok(value) => return value,
            Err(last) => assert!(
                Instant::now() < deadline,
                "waited {PATIENCE:?} for {what}; last: {last}"
            ),
        }
        tokio::time::sleep(POLL).await;
    }
}

pub(crate) async fn until_gone(processes: &[Identity]) {
    until("every process to be gone", || {
        let left: Vec<&Identity> = processes.iter().filter(|process| process.is_alive()).collect();
        met(left.is_empty(), format!("{left:?}"))
    })
    .await;
}

/// A file, as text.
pub(crate) fn text(path: &PathBuf) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}
