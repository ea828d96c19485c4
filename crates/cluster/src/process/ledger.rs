//! `pids.json`: who runs, written before anything can go wrong, so that a later run can end what a dead one left.
//!
//! A process id alone proves nothing, since ids are reused. An entry is only believed when the id, the kernel's start time (with
//! the boot it belongs to) and the program all match; anything else is somebody else's process and is left alone.

use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::{Pid, Signal};
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use super::Error;
use crate::files::{self, Access};

const FILE: &str = "pids.json";

/// How long left-over processes get to end by themselves.
const GRACE: Duration = Duration::from_secs(5);
const AFTER_KILL: Duration = Duration::from_secs(5);
const POLL: Duration = Duration::from_millis(20);

/// One process that can be recognised later.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Entry {
    pub(super) name: String,
    pub(super) pid: u32,
    /// The kernel's start time, opaque: boot and clock ticks on Linux, a date elsewhere.
    pub(super) started: String,
    /// What may stand first on its command line: the program, or, when that is a launcher that replaces itself by another
    /// (`nsenter`), one of its arguments.
    pub(super) programs: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Content {
    /// The supervising process.
    owner: Entry,
    children: Vec<Entry>,
}

/// The ledger of a live supervisor.
#[derive(Debug)]
pub(super) struct Ledger {
    path: PathBuf,
    content: Content,
}

impl Ledger {
    /// Takes over `dir`. Call [`sweep`] first: what an earlier run noted is forgotten here.
    pub(super) fn take(dir: &Path) -> Result<Self, Error> {
        files::create_dir(dir)?;
        let ledger = Self {
            path: dir.join(FILE),
            content: Content {
                owner: this_process(),
                children: Vec::new(),
            },
        };
        ledger.save()?;
        Ok(ledger)
    }

    /// Notes a child that was just started.
    pub(super) fn add(&mut self, name: &str, pid: u32, programs: Vec<String>) -> Result<(), Error> {
        // A child that has already ended has nothing to be remembered by.
        let Some(seen) = look(pid) else { return Ok(()) };
        let entry = Entry {
            name: name.to_owned(),
            pid,
            started: seen.started,
            programs,
        };
        self.content.children.push(entry);
        self.save()
    }

    /// Forgets a child that has ended.
    pub(super) fn remove(&mut self, pid: u32) -> Result<(), Error> {
        self.content.children.retain(|child| child.pid != pid);
        self.save()
    }

    /// The end of an orderly run: nothing is left to sweep.
    pub(super) fn finish(&self) {
        if self.content.children.is_empty() {
            // A ledger without children is harmless, so failing to remove it is too.
            let _ = std::fs::remove_file(&self.path);
        }
    }

    fn save(&self) -> Result<(), Error> {
        let json = serde_json::to_vec_pretty(&self.content).unwrap_or_default();
        Ok(files::write(&self.path, &json, Access::Private)?)
    }
}

/// A process that [`sweep`] ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Swept {
    /// Its name in the run that left it.
    pub name: String,
    /// Its process id.
    pub pid: u32,
}

/// Ends what a dead run left behind in `state_dir`: first SIGTERM, then SIGKILL, to each process group.
///
/// Fails with [`Error::InUse`] when the run is alive. A missing or unreadable ledger means there is nothing we may end.
pub async fn sweep(state_dir: &Path) -> Result<Vec<Swept>, Error> {
    let path = state_dir.join(FILE);
    let Some(bytes) = files::read(&path)? else {
        return Ok(Vec::new());
    };
    let Ok(content) = serde_json::from_slice::<Content>(&bytes) else {
        tracing::warn!(path = %path.display(), "the ledger is not readable and is ignored");
        return Ok(Vec::new());
    };
    let left: Vec<&Entry> = content.children.iter().filter(|child| is_alive(child)).collect();
    let owner_is_us = content.owner.pid == std::process::id();
    if is_alive(&content.owner) && (!owner_is_us || !left.is_empty()) {
        return Err(Error::InUse {
            dir: state_dir.to_owned(),
            pid: content.owner.pid,
        });
    }
    // Started last, ended first, as in an orderly shutdown; but all at once, since there is nobody to serve any more.
    for child in left.iter().rev() {
        tracing::info!(
            name = child.name,
            pid = child.pid,
            "ending a process left over from an earlier run"
        );
        signal(child.pid, Signal::TERM);
    }
    if let Some(stuck) = wait_for_end(&left, GRACE).await {
        tracing::debug!(name = stuck.name, pid = stuck.pid, "ignores SIGTERM");
        left.iter()
            .filter(|child| is_alive(child))
            .for_each(|child| signal(child.pid, Signal::KILL));
        if let Some(stuck) = wait_for_end(&left, AFTER_KILL).await {
            return Err(Error::WillNotEnd {
                name: stuck.name.clone(),
                pid: stuck.pid,
            });
        }
    }
    let swept = left
        .iter()
        .map(|child| Swept {
            name: child.name.clone(),
            pid: child.pid,
        })
        .collect();
    match std::fs::remove_file(&path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(files::Error::new("remove", &path, error).into())
        }
        _ => Ok(swept),
    }
}

async fn wait_for_end<'a>(children: &[&'a Entry], limit: Duration) -> Option<&'a Entry> {
    let deadline = Instant::now() + limit;
    loop {
        let alive = *children.iter().find(|child| is_alive(child))?;
        if Instant::now() >= deadline {
            return Some(alive);
        }
        tokio::time::sleep(POLL).await;
    }
}

/// Signals the process group a child leads. A group that has ended already is what we wanted.
pub(super) fn signal(pid: u32, signal: Signal) {
    let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) else {
        return;
    };
    let _ = rustix::process::kill_process_group(pid, signal);
}

fn is_alive(entry: &Entry) -> bool {
    look(entry.pid).is_some_and(|seen| seen.is(entry))
}

/// What the system says about a live process.
struct Seen {
    started: String,
    /// Its command line. The program is the first word, unless it is a script, which is an argument of its interpreter, or
    /// our own launcher (`setpriv`) has not replaced itself yet.
    words: Vec<String>,
}

impl Seen {
    fn is(&self, entry: &Entry) -> bool {
        let first_fits = self.words.first().is_some_and(|word| entry.programs.contains(word));
        let program_named = entry
            .programs
            .first()
            .is_some_and(|program| self.words.contains(program));
        // For a moment inside `exec` a process has no command line at all; what else it could be would have another start time.
        let between_programs = self.words.iter().all(String::is_empty);
        self.started == entry.started && (first_fits || program_named || between_programs)
    }
}

fn this_process() -> Entry {
    let pid = std::process::id();
    let (started, words) = look(pid).map(|seen| (seen.started, seen.words)).unwrap_or_default();
    Entry {
        name: "supervisor".to_owned(),
        pid,
        started,
        programs: words.into_iter().take(1).collect(),
    }
}

#[cfg(target_os = "linux")]
fn look(pid: u32) -> Option<Seen> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // Ticks count from the boot, so without it a process of the next boot could look the same.
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let (state, ticks) = start_time(&stat)?;
    // A zombie is only waiting to be read, unless a thread of it still runs.
    if matches!(state, "Z" | "X") && !super::has_live_threads(pid) {
        return None;
    }
    let started = format!("{}/{ticks}", boot.trim());
    let cmdline = std::fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let words = cmdline
        .split(|byte| *byte == 0)
        .map(|word| String::from_utf8_lossy(word).into_owned())
        .collect();
    Some(Seen { started, words })
}

/// Fields 3 and 22 of `/proc/<pid>/stat`: the state and the start. The second field is the program's name in parentheses and may
/// itself contain spaces and parentheses, so counting begins after the last one.
#[cfg(target_os = "linux")]
fn start_time(stat: &str) -> Option<(&str, &str)> {
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_ascii_whitespace();
    Some((fields.next()?, fields.nth(18)?))
}

#[cfg(not(target_os = "linux"))]
fn look(pid: u32) -> Option<Seen> {
    let ask = |column: &str| {
        let output = std::process::Command::new("ps")
            .args(["-o", column, "-p", &pid.to_string()])
            .output()
            .ok()?;
        let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        (output.status.success() && !text.is_empty()).then_some(text)
    };
    if ask("stat=")?.starts_with('Z') {
        return None;
    }
    let words = ask("command=")?.split(' ').map(str::to_owned).collect();
    Some(Seen {
        started: ask("lstart=")?,
        words,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(target_os = "linux")]
    #[test]
    fn the_start_time_is_found_behind_an_odd_program_name() {
        let fields = "1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4711 20 21";
        assert_eq!(start_time(&format!("42 (a) b (c) S {fields}")), Some(("S", "4711")));
        assert_eq!(start_time(&format!("42 (dead) Z {fields}")), Some(("Z", "4711")));
        assert_eq!(start_time("rubbish"), None);
    }

    #[test]
    fn a_reused_process_id_is_not_believed() {
        let mine = this_process();
        assert!(is_alive(&mine));
        let (mut older, mut other) = (mine.clone(), mine);
        older.started = "0".to_owned();
        other.programs = vec!["/other".to_owned()];
        assert!(!is_alive(&older) && !is_alive(&other));
    }

    /// The story: a process that had been started a moment ago was looked at while the kernel was replacing its image. It had no
    /// command line yet, was taken for a stranger, and would have been left running by a sweep.
    #[test]
    fn a_process_that_is_just_becoming_its_program_is_recognised() {
        let mine = this_process();
        let seen = |started: &str| Seen {
            started: started.to_owned(),
            words: vec![String::new()],
        };
        assert!(seen(&mine.started).is(&mine));
        assert!(!seen("another boot/1").is(&mine));
    }

    #[tokio::test]
    async fn a_missing_or_broken_ledger_means_nothing_to_do() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(sweep(dir.path()).await.unwrap(), []);
        std::fs::write(dir.path().join(FILE), "{\"owner\":").unwrap();
        assert_eq!(sweep(dir.path()).await.unwrap(), []);
    }

    /// A child in a process group of its own, as the supervisor starts them.
    fn sleeper() -> (std::process::Child, Entry) {
        use std::os::unix::process::CommandExt as _;
        let mut sleep = std::process::Command::new("sleep");
        let child = sleep.arg("60").process_group(0).spawn().unwrap();
        let started = look(child.id()).unwrap().started;
        let entry = Entry {
            name: "sleeper".to_owned(),
            pid: child.id(),
            started,
            programs: vec!["sleep".to_owned()],
        };
        (child, entry)
    }

    fn leave(dir: &Path, owner: Entry, children: Vec<Entry>) {
        let content = serde_json::to_vec(&Content { owner, children }).unwrap();
        std::fs::write(dir.join(FILE), content).unwrap();
    }

    fn dead() -> Entry {
        Entry {
            started: "another boot/1".to_owned(),
            ..this_process()
        }
    }

    #[tokio::test]
    async fn a_directory_in_use_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let (mut child, entry) = sleeper();
        leave(dir.path(), this_process(), vec![entry]);
        assert!(matches!(sweep(dir.path()).await, Err(Error::InUse { .. })));
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(sweep(dir.path()).await.unwrap(), []);
    }

    #[tokio::test]
    async fn what_a_dead_run_left_is_ended_and_strangers_are_not() {
        let dir = tempfile::tempdir().unwrap();
        let (mut left, ours) = sleeper();
        let (mut stranger, theirs) = sleeper();
        let reused = Entry {
            name: "reused".to_owned(),
            started: ours.started.clone() + "0",
            ..theirs
        };
        leave(dir.path(), dead(), vec![ours, reused]);
        let swept = sweep(dir.path()).await.unwrap();
        let swept: Vec<_> = swept.iter().map(|swept| (swept.name.as_str(), swept.pid)).collect();
        assert_eq!(swept, [("sleeper", left.id())]);
        assert!(!left.wait().unwrap().success());
        assert!(stranger.try_wait().unwrap().is_none(), "a stranger was ended");
        assert!(!dir.path().join(FILE).exists());
        stranger.kill().unwrap();
        stranger.wait().unwrap();
    }

    #[test]
    fn a_launcher_that_became_another_program_is_recognised() {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let entry = Entry {
            name: "kubelet".to_owned(),
            pid: 1,
            started: "b/1".to_owned(),
            programs: words("/usr/bin/nsenter --net=/run/netns/n1 /parts/kubelet --v=2"),
        };
        let seen = |text: &str| Seen {
            started: "b/1".to_owned(),
            words: words(text),
        };
        assert!(seen("/usr/bin/setpriv --pdeathsig KILL -- /usr/bin/nsenter --net=x").is(&entry));
        assert!(seen("/usr/bin/nsenter --net=/run/netns/n1 /parts/kubelet").is(&entry));
        assert!(seen("/parts/kubelet --v=2").is(&entry));
        assert!(!seen("/usr/bin/vim kubelet").is(&entry));
    }
}
