//! Programs in the guest.

use super::lifecycle::tail;
use super::{Tart, words};
use crate::error::Error;
use crate::name::VmName;
use crate::process::Process;
use crate::runtime::{Exec, ExecRequest, GuestCommand, Step, TerminalSize};
use crate::supervise::{self, NotStarted, Order, Seen};
use rustix::fs::{Mode, OFlags};
use rustix::process::Signal;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{OptionalActions, Winsize, tcgetattr, tcsetattr, tcsetwinsize};
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};
use tokio::process::Child;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// How much of a program's errors is kept, to tell them from those of `tart` itself.
const KEPT: usize = 2048;
/// What a reader that does not read may cost us, once the program has ended.
const LINGER: Duration = Duration::from_secs(2);

impl Tart {
    pub(super) async fn run_in_guest(&self, name: &VmName, request: ExecRequest) -> Result<Exec, Error> {
        let text = name.to_string();
        self.require_running(name).await?;
        let mut arguments = vec!["exec"];
        if request.stdin {
            arguments.push("-i");
        }
        if request.terminal.is_some() {
            arguments.push("-t");
        }
        arguments.push(&text);
        arguments.extend(request.words.iter().map(String::as_str));
        let mut command = self.command(&arguments);
        match request.terminal {
            None => {
                command
                    .stdin(if request.stdin { Stdio::piped() } else { Stdio::null() })
                    .stdout(Stdio::piped())
                    .stderr(Stdio::piped());
                let mut child = command.spawn().map_err(self.not_started())?;
                let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
                let (Some(stdout), Some(stderr)) = (stdout, stderr) else {
                    return Err(Error::NotRunning(text));
                };
                let (stderr, heard) = overheard(stderr);
                Ok(Exec {
                    stdin: stdin.map(|stdin| Box::new(stdin) as _),
                    stdout: Box::new(stdout),
                    stderr: Box::new(stderr),
                    resize: None,
                    exit: Box::pin(exit(text, child, Some(heard))),
                })
            }
            Some(size) => {
                let (master, slave) = terminal(size).map_err(Error::file("/dev/ptmx"))?;
                let copy = |file: &File| file.try_clone().map_err(Error::file("/dev/ptmx"));
                command.stdin(copy(&slave)?).stdout(copy(&slave)?).stderr(slave);
                let child = command.spawn().map_err(self.not_started())?;
                // Its copies of the terminal would keep the output from ending.
                drop(command);
                let (resize, sizes) = watch::channel(size);
                let process = child.id().and_then(Process::look_up);
                tokio::spawn(follow_size(copy(&master)?, process, sizes));
                Ok(Exec {
                    stdin: request
                        .stdin
                        .then(|| copy(&master))
                        .transpose()?
                        .map(|file| Box::new(tokio::fs::File::from_std(file)) as _),
                    stdout: Box::new(tokio::fs::File::from_std(master)),
                    stderr: Box::new(tokio::io::empty()),
                    resize: Some(resize),
                    exit: Box::pin(exit(text, child, None)),
                })
            }
        }
    }

    fn not_started(&self) -> impl FnOnce(io::Error) -> Error {
        let program = self.options.program.clone();
        move |source| Error::Program { program, source }
    }

    fn step_folder(&self, name: &VmName, id: &str) -> Result<PathBuf, Error> {
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        if id.is_empty() || id.len() > 63 || !id.chars().all(plain) {
            return Err(Error::Unsuitable(format!(
                "{id:?} cannot name a program; use at most 63 of a-z, 0-9 and -"
            )));
        }
        Ok(self.folder(name).join("steps").join(id))
    }

    pub(super) async fn leave_in_guest(&self, name: &VmName, id: &str, command: &GuestCommand) -> Result<(), Error> {
        let folder = self.step_folder(name, id)?;
        self.require_running(name).await?;
        let mut words = vec!["exec".to_owned(), name.to_string()];
        words.extend(command.words.iter().cloned());
        std::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&folder)
            .map_err(Error::file(&folder))?;
        let home = self.options.home.to_string_lossy().into_owned();
        let order = Order {
            dir: folder,
            program: self.options.program.clone(),
            words,
            environment: BTreeMap::from([("TART_HOME".to_owned(), home)]),
            log: std::path::absolute(&command.log).map_err(Error::file(&command.log))?,
            rotation: command.rotation,
        };
        // Where its last words are looked for after an accident.
        let note = order.dir.join("log");
        std::fs::write(&note, order.log.as_os_str().as_encoded_bytes()).map_err(Error::file(&note))?;
        match supervise::launch(&self.options.supervisor, &order).await {
            Ok(_) => Ok(()),
            Err(NotStarted::Busy) => Err(Error::Running(format!("{name}/{id}"))),
            Err(NotStarted::Failed(error)) => Err(error),
        }
    }

    pub(super) fn step_of(&self, name: &VmName, id: &str) -> Result<Option<Step>, Error> {
        let folder = self.step_folder(name, id)?;
        Ok(match supervise::look(&folder)? {
            Seen::Never => None,
            Seen::Running(started) => Some(Step::Running {
                since: started.map_or(jiff::Timestamp::UNIX_EPOCH, |started| started.at),
            }),
            Seen::Ended(started, Some(finished)) => {
                let log = std::fs::read_to_string(folder.join("log")).unwrap_or_default();
                let log = PathBuf::from(log);
                let parts = crate::log::parts(&log).unwrap_or_default();
                // What it said last is in the file that was written last.
                let begins = parts.last().map_or(0, |part| part.begins);
                let output = tail(&log, started.log_offset.saturating_sub(begins));
                match finished.code {
                    Some(code) if !words::is_lost_line(&name.to_string(), Some(code), &output) => Some(Step::Ended {
                        code,
                        finished: finished.at,
                    }),
                    _ => Some(Step::Lost),
                }
            }
            Seen::Ended(_, None) => Some(Step::Lost),
        })
    }
}

/// The exit code of the program, or why there was none.
async fn exit(vm: String, mut child: Child, heard: Option<JoinHandle<Vec<u8>>>) -> Result<i32, Error> {
    let status = child.wait().await.map_err(|source| Error::Program {
        program: "tart".into(),
        source,
    })?;
    let said = match heard {
        Some(heard) => tokio::time::timeout(LINGER, heard)
            .await
            .ok()
            .and_then(Result::ok)
            .unwrap_or_default(),
        None => Vec::new(),
    };
    let said = String::from_utf8_lossy(&said);
    match status.code() {
        Some(2) if words::is_lost_line(&vm, Some(2), &said) => Err(Error::NotRunning(vm)),
        code if words::is_lost_line(&vm, code, &said) => Err(Error::NoAgent {
            vm,
            why: words::first_useful(&said),
        }),
        Some(code) => Ok(code),
        None => Err(Error::NoAgent {
            vm,
            why: "the line to the guest was killed".to_owned(),
        }),
    }
}

/// Passes everything on, and in the end gives the last of it.
fn overheard(mut from: impl AsyncRead + Send + Unpin + 'static) -> (DuplexStream, JoinHandle<Vec<u8>>) {
    let (mut to, reader) = tokio::io::duplex(16 * 1024);
    let heard = tokio::spawn(async move {
        let mut buffer = [0; 8192];
        let mut kept = Vec::new();
        while let Ok(count @ 1..) = from.read(&mut buffer).await {
            let bytes = buffer.get(..count).unwrap_or_default();
            kept.extend_from_slice(bytes);
            let surplus = kept.len().saturating_sub(KEPT);
            kept.drain(..surplus);
            if to.write_all(bytes).await.is_err() {
                break;
            }
        }
        kept
    });
    (reader, heard)
}

fn terminal(size: TerminalSize) -> io::Result<(File, File)> {
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY)?;
    rustix::io::fcntl_setfd(&master, rustix::io::FdFlags::CLOEXEC)?;
    grantpt(&master)?;
    unlockpt(&master)?;
    let name = ptsname(&master, Vec::new())?;
    let slave = rustix::fs::open(name, OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC, Mode::empty())?;
    // `tart` does the same a moment later. What is typed before that would be shown twice, and some of it taken for orders.
    let mut modes = tcgetattr(&slave)?;
    let output = modes.output_modes;
    modes.make_raw();
    modes.output_modes = output;
    tcsetattr(&slave, OptionalActions::Now, &modes)?;
    let master = File::from(master);
    resize(&master, size)?;
    Ok((master, File::from(slave)))
}

fn resize(master: &File, size: TerminalSize) -> io::Result<()> {
    Ok(tcsetwinsize(
        master,
        Winsize {
            ws_row: size.rows,
            ws_col: size.columns,
            ws_xpixel: 0,
            ws_ypixel: 0,
        },
    )?)
}

/// The terminal is not the controlling one of `tart`, so it has to be told about a new size. Ends with the [`Exec`].
async fn follow_size(master: File, process: Option<Process>, mut sizes: watch::Receiver<TerminalSize>) {
    while sizes.changed().await.is_ok() {
        let size = *sizes.borrow_and_update();
        if resize(&master, size).is_err() {
            return;
        }
        if let Some(process) = &process {
            process.signal(Signal::WINCH);
        }
    }
}
