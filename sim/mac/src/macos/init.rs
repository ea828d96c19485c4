//! Process 1 of an emulated Mac, inside its namespaces: arranges the files, starts programs, reaps them.
//!
//! It decides nothing. What launchd would decide is decided by the emulator, outside, so that it survives a reboot and can be
//! asked by tests. Here is only what has to be inside: a child of process 1 has the number that `ps` and `kill` of the Mac see.
//!
//! ```text
//! emulator ──socket on standard input──▶ orders ── spawn ──▶ child
//!          ◀── started, ended ────────── reaper ◀── ends ────┘
//! ```
//!
//! The socket ends with the emulator, however that ends; then this process ends, and the kernel takes everything inside along.

use super::frame;
use super::orders::{Ending, Layout, Notice, Order, RunAs, Start};
use rustix::fs::StatVfsMountFlags;
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags, mount, mount_bind, mount_remount, unmount};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, WaitOptions};
use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// Where the programs of Linux are inside.
const SETPRIV: &str = "/.sim/linux/usr/bin/setpriv";
const BASH: &str = "/.sim/linux/usr/bin/bash";

/// What orders and reaper share. The lock is held from before a child exists until its start was told, so that nobody hears of
/// the end of a process before they heard of its start.
struct Shared {
    socket: UnixStream,
    gate: Mutex<u64>,
    born: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, u64> {
        self.gate.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell(&self, notice: &Notice) {
        // Nobody there: the next read ends this process.
        let _ = frame::send(&self.socket, notice, &[]);
    }
}

/// Runs as process 1 until the emulator is gone.
pub(super) fn run() -> ExitCode {
    let Ok(socket) = io::stdin().as_fd().try_clone_to_owned().map(UnixStream::from) else {
        return ExitCode::FAILURE;
    };
    let shared = Arc::new(Shared {
        socket,
        gate: Mutex::new(0),
        born: Condvar::new(),
    });
    rustix::process::umask(rustix::fs::Mode::from_bits_truncate(0o022));
    let reaper = Arc::clone(&shared);
    if std::thread::Builder::new().spawn(move || reap(&reaper)).is_err() {
        return ExitCode::FAILURE;
    }
    while let Ok(Some((order, files))) = frame::receive::<Order>(&shared.socket) {
        obey(&shared, order, files);
    }
    ExitCode::SUCCESS
}

fn obey(shared: &Shared, order: Order, files: Vec<OwnedFd>) {
    match order {
        Order::Boot(layout) => shared.tell(&match arrange(&layout) {
            Ok(()) => Notice::Booted,
            Err(error) => Notice::NotBooted(error),
        }),
        Order::Start(start) => {
            let mut births = shared.lock();
            let notice = match spawn(&start, files) {
                Ok(pid) => Notice::Started { id: start.id, pid },
                Err(error) => Notice::NotStarted {
                    id: start.id,
                    error: error.to_string(),
                },
            };
            shared.tell(&notice);
            *births += 1;
            drop(births);
            shared.born.notify_all();
        }
        Order::Signal { pid, group, signal } => {
            let (Some(pid), Some(signal)) = (Pid::from_raw(pid), Signal::from_named_raw(signal)) else {
                return;
            };
            // A process that is gone needs no signal.
            let _ = if group {
                rustix::process::kill_process_group(pid, signal)
            } else {
                rustix::process::kill_process(pid, signal)
            };
        }
    }
}

fn arrange(layout: &Layout) -> Result<(), String> {
    let root = &layout.root;
    let what = |what: &str, path: &Path, error: Errno| format!("could not {what} {}: {error}", path.display());
    mount_bind(root, root).map_err(|error| what("mount", root, error))?;
    for bind in &layout.binds {
        let target = root.join(&bind.to);
        mount_bind(&bind.from, &target).map_err(|error| what("mount", &target, error))?;
        if bind.read_only {
            lock_down(&target).map_err(|error| what("protect", &target, error))?;
        }
    }
    let proc = root.join("proc");
    mount("proc", &proc, "proc", MountFlags::NOSUID, None).map_err(|error| what("mount", &proc, error))?;
    // Without terminals of its own a Mac is a Mac all the same.
    let _ = mount(
        "devpts",
        root.join("dev/pts"),
        "devpts",
        MountFlags::NOSUID | MountFlags::NOEXEC,
        Some(c"newinstance,ptmxmode=0666,mode=0620"),
    );
    lock_down(root).map_err(|error| what("protect", root, error))?;
    enter(root).map_err(|error| what("enter", root, error))
}

/// Makes a folder the root of everything, and forgets the old one. With chroot the kernel would let nobody inside make a namespace of
/// users, in which the guests of an emulated `tart` live.
fn enter(root: &Path) -> Result<(), Errno> {
    rustix::process::chdir(root)?;
    match rustix::process::pivot_root(".", ".") {
        Ok(()) => unmount(".", UnmountFlags::DETACH)?,
        // A system that still runs from its first memory disk cannot.
        Err(Errno::INVAL) => rustix::process::chroot(".")?,
        Err(error) => return Err(error),
    }
    rustix::process::chdir("/")
}

/// Makes a bind mount read-only. Flags of what is below must be repeated: without root the kernel lets nobody drop them.
fn lock_down(target: &Path) -> Result<(), Errno> {
    let found = rustix::fs::statvfs(target)?.f_flag;
    let mut flags = MountFlags::BIND | MountFlags::RDONLY;
    for (below, flag) in [
        (StatVfsMountFlags::NOSUID, MountFlags::NOSUID),
        (StatVfsMountFlags::NODEV, MountFlags::NODEV),
        (StatVfsMountFlags::NOEXEC, MountFlags::NOEXEC),
        (StatVfsMountFlags::NOATIME, MountFlags::NOATIME),
        (StatVfsMountFlags::RELATIME, MountFlags::RELATIME),
    ] {
        if found.contains(below) {
            flags |= flag;
        }
    }
    mount_remount(target, flags, CString::default())
}

/// The number of the new process.
fn spawn(start: &Start, files: Vec<OwnedFd>) -> io::Result<i32> {
    let mut files = files.into_iter().map(Stdio::from);
    let mut next = || files.next().unwrap_or_else(Stdio::null);
    let (input, output, error) = (next(), next(), next());
    let child = command(start)
        .env_clear()
        .envs(&start.env)
        .current_dir(&start.folder)
        .stdin(input)
        .stdout(output)
        .stderr(error)
        .process_group(0)
        .spawn()?;
    i32::try_from(child.id()).map_err(io::Error::other)
}

fn command(start: &Start) -> Command {
    let RunAs {
        uid,
        gid,
        groups,
        switch,
    } = &start.run_as;
    let name = start.argv.first().map_or(start.program.as_str(), String::as_str);
    let rest = start.argv.iter().skip(1);
    if !switch || *uid == 0 {
        let mut command = Command::new(&start.program);
        command.arg0(name).args(rest);
        return command;
    }
    let mut command = Command::new(SETPRIV);
    let groups: Vec<String> = groups.iter().map(u32::to_string).collect();
    command
        .arg(format!("--reuid={uid}"))
        .arg(format!("--regid={gid}"))
        .arg(format!("--groups={}", groups.join(",")))
        .arg("--");
    if name == start.program {
        command.arg(&start.program);
    } else {
        // No other program of every Linux gives a program another name.
        command.args([BASH, "--norc", "-c", "exec -a \"$1\" \"$0\" \"${@:2}\""]);
        command.arg(&start.program).arg(name);
    }
    command.args(rest);
    command
}

/// Reaps every process, adopted ones too. It looks first and takes later: a child whose program could not be started belongs to
/// the spawn that is still under way.
fn reap(shared: &Shared) {
    loop {
        let seen = *shared.lock();
        match rustix::process::waitid(WaitId::All, WaitIdOptions::EXITED | WaitIdOptions::NOWAIT) {
            Ok(_) => {
                let _gate = shared.lock();
                while let Ok(Some((pid, status))) = rustix::process::wait(WaitOptions::NOHANG) {
                    let how = match status.terminating_signal() {
                        Some(signal) => Ending::Signal(signal),
                        None => Ending::Code(status.exit_status().unwrap_or(0)),
                    };
                    shared.tell(&Notice::Ended {
                        pid: pid.as_raw_nonzero().get(),
                        how,
                    });
                }
            }
            Err(Errno::CHILD) => {
                let mut births = shared.lock();
                while *births == seen {
                    births = shared.born.wait(births).unwrap_or_else(PoisonError::into_inner);
                }
            }
            Err(_) => {}
        }
    }
}
