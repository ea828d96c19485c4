//! Does what jobs lead to: starts processes, sends signals, waits.

use super::domain::Domain;
use super::job::{Effect, Job, State, Timer};
use super::{Key, SSHD, World, at_start};
use crate::macos::amfi::Verdict;
use crate::macos::boot::Job as Program;
use crate::macos::image::UID;
use crate::macos::mac::Inner;
use crate::macos::orders::Ending;
use crate::macos::sudo;
use crate::macos::tree::Identity;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

/// Between two runs of a job that is started by the clock.
const BREATH: Duration = Duration::from_secs(5);

impl Inner {
    /// Seconds of launchd since the Mac exists.
    pub(in crate::macos) fn launchd_now(&self) -> f64 {
        self.since.elapsed().as_secs_f64() / self.kit.second.as_secs_f64()
    }

    fn launchd_time(&self, seconds: f64) -> Duration {
        self.kit.second.mul_f64(seconds.clamp(0.0, 1e6))
    }

    /// How long a timer takes. What runs every minute would run many times a second on a Mac that is in a hurry, and many Macs
    /// would do little else; nobody waits for such a timer longer than [`BREATH`].
    fn pause(&self, seconds: f64, timer: Timer) -> Duration {
        let quick = self.launchd_time(seconds);
        match timer {
            Timer::Interval => quick.max(BREATH.min(Duration::from_secs_f64(seconds.clamp(0.0, 1e6)))),
            _ => quick,
        }
    }

    /// Loads what is loaded at boot.
    pub(in crate::macos) fn launchd_boots(self: &Arc<Self>) {
        if self.state().faults.btm_database_broken {
            return;
        }
        self.load_folders(Domain::System);
    }

    /// Loads the property lists of a domain that just came to be.
    pub(in crate::macos) fn load_folders(self: &Arc<Self>, domain: Domain) {
        for path in at_start(&self.tree, domain, &self.host.username) {
            let loaded = self.bootstrap(domain, &path, false);
            if let Err(code) = loaded {
                self.tree.log(
                    "/var/log/system.log",
                    &format!("launchd: {path}: {}", super::domain::text(code)),
                );
            }
        }
    }

    /// Loads one property list. At boot, launchd knows it from before and Background Task Management is not told again.
    pub(in crate::macos) fn bootstrap(self: &Arc<Self>, domain: Domain, path: &str, new: bool) -> Result<(), i32> {
        let loaded = {
            let mut state = self.state();
            let state = &mut *state;
            let world = World {
                tree: &self.tree,
                quirks: &state.quirks,
            };
            state.launchd.bootstrap(&world, domain, path, new)
        };
        let (key, effects) = loaded.map_err(|refused| refused.0)?;
        let capped = self
            .state()
            .launchd
            .jobs
            .get(&key)
            .is_some_and(|job| job.loses_keep_alive);
        if capped {
            let line = format!("backgroundtaskmanagementd: Exceeded max notifications for {}", key.1);
            self.tree.log("/var/log/system.log", &line);
        }
        self.perform(&key, effects);
        self.launchd_changed();
        if key.1 == SSHD {
            self.refresh_door();
        }
        Ok(())
    }

    /// Wakes whoever waits for a job to become something.
    pub(in crate::macos) fn launchd_changed(&self) {
        self.changes.send_modify(|number| *number += 1);
    }

    /// Changes a job and does what follows. None if there is no such job.
    pub(in crate::macos) fn with_job<T>(
        self: &Arc<Self>,
        key: &Key,
        change: impl FnOnce(&mut Job, f64) -> (T, Vec<Effect>),
    ) -> Option<T> {
        let now = self.launchd_now();
        let (answer, effects) = {
            let mut state = self.state();
            let job = state.launchd.jobs.get_mut(key)?;
            change(job, now)
        };
        self.perform(key, effects);
        self.launchd_changed();
        Some(answer)
    }

    pub(in crate::macos) fn perform(self: &Arc<Self>, key: &Key, effects: Vec<Effect>) {
        let serial = self.state().launchd.jobs.get(key).map(|job| job.serial);
        for effect in effects {
            let (mac, key) = (Arc::clone(self), key.clone());
            match effect {
                Effect::Start => self.start_soon(async move { mac.launch(key, serial).await }),
                Effect::Signal { pid, group, signal } => {
                    let hangs = self.state().faults.bootout_never_ends;
                    let leaving = self.state().launchd.jobs.get(&key).is_some_and(Job::is_leaving);
                    if hangs && leaving && !group {
                        continue;
                    }
                    self.start_soon(async move {
                        if let Ok(boot) = mac.boot().await {
                            boot.signal(pid, group, signal);
                        }
                    });
                }
                Effect::After { seconds, timer } => {
                    let pause = self.pause(seconds, timer);
                    self.start_soon(async move {
                        tokio::time::sleep(pause).await;
                        mac.fire(&key, serial, timer);
                    });
                }
                Effect::Remove => {
                    let mut state = self.state();
                    if state.launchd.jobs.get(&key).map(|job| job.serial) == serial {
                        state.launchd.jobs.remove(&key);
                    }
                    drop(state);
                    if key.1 == SSHD {
                        self.refresh_door();
                    }
                }
            }
        }
    }

    fn start_soon(self: &Arc<Self>, task: impl Future<Output = ()> + Send + 'static) {
        let mac = Arc::clone(self);
        tokio::spawn(async move { mac.spawn(task).await });
    }

    fn fire(self: &Arc<Self>, key: &Key, serial: Option<u64>, timer: Timer) {
        self.with_job(key, |job, now| {
            if Some(job.serial) == serial {
                ((), job.timer(timer, now))
            } else {
                ((), Vec::new())
            }
        });
    }

    /// Starts the process of a job, or finds out why there can be none.
    async fn launch(self: Arc<Self>, key: Key, serial: Option<u64>) {
        let attempt = self.prepare(&key, serial);
        let outcome = match attempt {
            Attempt::Gone => return,
            Attempt::Misconfigured => {
                self.with_job(&key, |job, now| ((), job.misconfigured(now)));
                return;
            }
            Attempt::Killed => {
                self.state().launchd.amfi.kills += 1;
                self.with_job(&key, |job, now| ((), job.killed_at_start(now)));
                return;
            }
            Attempt::Run(program, identity) => (self.run(*program).await, identity),
        };
        match outcome {
            (Ok(process), identity) => {
                let pid = process.pid;
                self.with_job(&key, |job, now| {
                    job.executing = identity;
                    ((), job.started(pid, now))
                });
                self.crash_later(&key, pid);
                if let Ok(ending) = process.ended.await {
                    self.job_ended(&key, serial, identity, ending);
                }
            }
            (Err(error), identity) => {
                tracing::debug!(%error, label = key.1, "a job did not start");
                if let Some(identity) = identity {
                    self.state().launchd.amfi.ended(identity);
                }
                self.with_job(&key, |job, now| ((), job.misconfigured(now)));
            }
        }
    }

    /// The fault of a crash loop: every process dies a little later, for its signature.
    fn crash_later(self: &Arc<Self>, key: &Key, pid: i32) {
        let Some(seconds) = self.state().faults.crash_loop_after else {
            return;
        };
        let (mac, key) = (Arc::clone(self), key.clone());
        let pause = self.launchd_time(f64::from(seconds));
        self.start_soon(async move {
            tokio::time::sleep(pause).await;
            let same = mac.with_job(&key, |job, _| {
                let same = job.state == State::Running { pid };
                if same {
                    job.doom();
                }
                (same, Vec::new())
            });
            if same == Some(true)
                && let Ok(boot) = mac.boot().await
            {
                mac.state().launchd.amfi.kills += 1;
                boot.signal(pid, false, 9);
            }
        });
    }

    fn job_ended(self: &Arc<Self>, key: &Key, serial: Option<u64>, identity: Option<Identity>, ending: Ending) {
        let capped = {
            let mut state = self.state();
            if let Some(identity) = identity {
                state.launchd.amfi.ended(identity);
            }
            state.faults.btm_cap_reached || state.launchd.btm.again(&key.1) >= state.quirks.btm_cap
        };
        self.with_job(key, |job, now| {
            if Some(job.serial) != serial {
                return ((), Vec::new());
            }
            job.loses_keep_alive = capped;
            job.executing = None;
            ((), job.ended(ending, now))
        });
    }

    fn prepare(self: &Arc<Self>, key: &Key, serial: Option<u64>) -> Attempt {
        let mut state = self.state();
        let state = &mut *state;
        let Some(job) = state.launchd.jobs.get_mut(key) else {
            return Attempt::Gone;
        };
        if Some(job.serial) != serial || job.state != State::Starting {
            return Attempt::Gone;
        }
        let spec = job.spec.clone();
        let owner = key.0.owner();
        let user = match (&spec.user, owner) {
            (Some(user), 0) => user.clone(),
            (Some(user), _) if user != self.name_of(owner) => return Attempt::Misconfigured,
            _ => self.name_of(owner).to_owned(),
        };
        let Some((uid, gid, groups, home)) = sudo::account(&user, &self.host.username) else {
            return Attempt::Misconfigured;
        };
        let Some(files) = self.outputs(&spec, uid, gid, &groups) else {
            return Attempt::Misconfigured;
        };
        if !spec.program.starts_with('/') || !self.tree.inside_exists(&spec.program) {
            return Attempt::Misconfigured;
        }
        let mut program = spec.program.clone();
        let mut identity = None;
        // Apple's own programs are not ours to judge.
        if self.tree.meta(&spec.program).is_some() {
            if self.tree.meta(&spec.program).is_some_and(|meta| meta.mode & 0o111 == 0) {
                return Attempt::Misconfigured;
            }
            let copies = self.kit.dir.join("exec");
            match state.launchd.amfi.execute(&self.tree, &spec.program, &copies) {
                Ok(Verdict::Killed) => return Attempt::Killed,
                Ok(Verdict::Runs { copy, cdhash, file }) => {
                    if job.pinned.is_some() && job.pinned != cdhash {
                        job.needs_new_pin = true;
                        if let Some(file) = file {
                            state.launchd.amfi.ended(file);
                        }
                        return Attempt::Killed;
                    }
                    identity = file;
                    program = copy.unwrap_or(program);
                }
                Err(_) => return Attempt::Misconfigured,
            }
        }
        let mut env = spec.environment.clone();
        for (name, value) in [
            ("PATH", "/usr/bin:/bin:/usr/sbin:/sbin"),
            ("XPC_SERVICE_NAME", spec.label.as_str()),
            ("XPC_FLAGS", "0x0"),
        ] {
            env.entry(name.to_owned()).or_insert_with(|| value.to_owned());
        }
        if uid == UID {
            for (name, value) in [
                ("USER", &user),
                ("LOGNAME", &user),
                ("HOME", &home),
                ("SHELL", &"/bin/zsh".to_owned()),
            ] {
                env.entry(name.to_owned()).or_insert_with(|| value.clone());
            }
        }
        let folder = spec.folder.clone().unwrap_or_else(|| "/".to_owned());
        if self.tree.meta(&folder).is_none() {
            return Attempt::Misconfigured;
        }
        let mut run_as = self.run_as(uid);
        (run_as.gid, run_as.groups) = (gid, groups);
        Attempt::Run(
            Box::new(Program {
                program,
                argv: spec.arguments,
                env,
                folder,
                run_as,
                files,
            }),
            identity,
        )
    }

    /// Input, output and error of a job; none if one of them cannot be had. The folder of a log is made by root with mode 0744,
    /// which a job of another user cannot write to. [facts 1.4]
    fn outputs(&self, spec: &super::spec::Spec, uid: u32, gid: u32, groups: &[u32]) -> Option<Vec<OwnedFd>> {
        let mut files = vec![OwnedFd::from(File::open("/dev/null").ok()?)];
        for path in [&spec.stdout, &spec.stderr] {
            let Some(path) = path else {
                files.push(File::options().write(true).open("/dev/null").ok()?.into());
                continue;
            };
            let folder = path.rsplit_once('/').map_or("/", |(folder, _)| folder);
            if !folder.is_empty() && self.tree.meta(folder).is_none() {
                self.tree.make_folders(folder, 0o744).ok()?;
            }
            let may = match self.tree.meta(path) {
                Some(meta) => meta.writable_by(uid, groups),
                None => self.tree.meta(folder)?.writable_by(uid, groups),
            };
            if may || !self.tree.has_owners() {
                files.push(self.tree.open_append(path, uid, gid).ok()?.into());
            } else {
                return None;
            }
        }
        Some(files)
    }
}

enum Attempt {
    /// The job went away or moved on.
    Gone,
    Misconfigured,
    Killed,
    Run(Box<Program>, Option<Identity>),
}
