//! `sim-mac` under another name: process 1 of a Mac, or one of its tools.
//!
//! A tool that works on files (codesign, defaults, plutil) does its work itself, with the rights of whoever called it and on the
//! disk of the Mac, and tells the emulator afterwards. A tool that asks the system (launchctl, sudo, pfctl) is a telephone: it
//! says how it was called, and prints what the emulator answers. `tart` is an emulator of its own, `sim/tart`.

use super::call::{Answer, Call, More};
use super::{frame, init, local, system};
use std::ffi::{OsStr, OsString};
use std::io::{self, Read as _};
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

const SOCKET: &str = "/.sim/socket";
/// Says who a process is where the kernel knows one user only.
pub(super) const UID_VARIABLE: &str = "SIM_MAC_UID";
/// Tools that are not in the system folders: what people install.
pub(super) const INSTALLED: &[&str] = &["brew", TART, "tailscale", "tailscaled"];
/// The one that is an emulator of its own.
const TART: &str = "tart";
/// `EX_OSERR`: the emulator is gone, which no Mac can say.
const NOBODY_THERE: u8 = 71;

/// Plays the part this program was started for inside a Mac; none if it was started as itself.
pub fn inside() -> Option<ExitCode> {
    let mut args = std::env::args_os();
    let program = PathBuf::from(args.next()?);
    let name = program.file_name()?.to_str()?.to_owned();
    if name == "launchd" {
        return Some(init::run());
    }
    let mut args: Vec<OsString> = args.collect();
    if INSTALLED.contains(&name.as_str()) && args.first().is_some_and(|first| Path::new(first).is_absolute()) {
        // Started by the first line of a script, whose path comes first.
        args.remove(0);
    }
    if russet_sim_tart::poses(&program, args.first()) {
        return Some(russet_sim_tart::main(args.into_iter()));
    }
    if !(is_tool(&name) && Path::new(SOCKET).exists()) {
        return None;
    }
    let args = args.iter().map(|arg| arg.to_string_lossy().into_owned()).collect();
    let desk = Desk { name, args };
    Some(local::run(&desk).unwrap_or_else(|| {
        let input = desk.input();
        desk.telephone(input, None).unwrap_or(ExitCode::from(NOBODY_THERE))
    }))
}

fn is_tool(name: &str) -> bool {
    INSTALLED.contains(&name)
        || system::OURS
            .iter()
            .chain(system::OURS_WITHOUT_ROOT)
            .any(|(_, names)| names.contains(&name))
}

/// A tool at work.
pub(super) struct Desk {
    pub(super) name: String,
    pub(super) args: Vec<String>,
}

impl Desk {
    pub(super) fn words(&self) -> Vec<&str> {
        self.args.iter().map(String::as_str).collect()
    }

    /// Standard input, for a tool that was told to read its rules there.
    fn input(&self) -> Option<String> {
        let reads = self.name == "pfctl" && self.words().windows(2).any(|pair| pair == ["-f", "-"]);
        reads.then(|| String::from_utf8_lossy(&read_all().unwrap_or_default()).into_owned())
    }

    /// Tells the emulator of a call that was done here. Failing to tell changes nothing.
    pub(super) fn note(&self, unexpected: Option<&str>) {
        let quiet = Desk {
            name: self.name.clone(),
            args: self.args.clone(),
        };
        let _ = quiet.telephone(None, Some(unexpected.unwrap_or_default().to_owned()));
    }

    /// Has the conversation and ends as the emulator says.
    pub(super) fn telephone(&self, input: Option<String>, done: Option<String>) -> io::Result<ExitCode> {
        let call = Call {
            tool: self.name.clone(),
            args: self.args.clone(),
            folder: std::env::current_dir().map_or_else(|_| "/".to_owned(), |path| path.to_string_lossy().into_owned()),
            env: std::env::vars_os()
                .filter_map(|(key, value)| Some((key.into_string().ok()?, value.into_string().ok()?)))
                .collect(),
            claimed_uid: claimed_uid(),
            input,
            unexpected: done,
            uid: 0,
        };
        let socket = UnixStream::connect(SOCKET)?;
        let files = [
            io::stdin().as_fd().try_clone_to_owned()?,
            io::stdout().as_fd().try_clone_to_owned()?,
            io::stderr().as_fd().try_clone_to_owned()?,
        ];
        frame::send(&socket, &call, &files)?;
        drop(files);
        while let Some((answer, _)) = frame::receive::<Answer>(&socket)? {
            match answer {
                Answer::Out(text) => say(&mut io::stdout(), &text),
                Answer::Err(text) => say(&mut io::stderr(), &text),
                Answer::AskPassword(prompt) => {
                    say(&mut io::stderr(), &prompt);
                    frame::send(&socket, &More::Password(read_line()?), &[])?;
                }
                Answer::Exit(code) => return Ok(exit_code(code)),
                Answer::Die(signal) => die(signal),
            }
        }
        // The power was cut, or the emulator is gone.
        Ok(ExitCode::from(NOBODY_THERE))
    }
}

pub(super) fn claimed_uid() -> u32 {
    let by_name = |name: &str| std::env::var_os(OsStr::new(name))?.to_str()?.parse().ok();
    by_name(UID_VARIABLE).unwrap_or_else(|| rustix::process::getuid().as_raw())
}

/// Nobody may be reading any more, which is how a tool before `grep -q` ends.
fn say(stream: &mut impl io::Write, text: &str) {
    if stream
        .write_all(text.as_bytes())
        .and_then(|()| stream.flush())
        .is_err_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
    {
        die(rustix::process::Signal::PIPE.as_raw());
    }
}

pub(super) fn exit_code(code: i32) -> ExitCode {
    // As the kernel does: the low eight bits.
    ExitCode::from(u8::try_from(code & 0xff).unwrap_or(1))
}

/// Ends as by a signal. Rust ignores SIGPIPE, so that one is told as a shell would.
fn die(signal: i32) -> ! {
    if signal != rustix::process::Signal::PIPE.as_raw()
        && let Some(signal) = rustix::process::Signal::from_named_raw(signal)
    {
        let _ = rustix::process::kill_process(rustix::process::getpid(), signal);
    }
    std::process::exit(128 + signal)
}

/// A line, byte for byte: what follows belongs to the program that is started next.
fn read_line() -> io::Result<Option<String>> {
    let stdin = io::stdin();
    let mut line = Vec::new();
    let mut byte = [0];
    loop {
        match rustix::io::read(&stdin, &mut byte) {
            Ok(0) if line.is_empty() => return Ok(None),
            Ok(0) => break,
            Ok(_) if byte == *b"\n" => break,
            Ok(_) => line.extend(byte),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(Some(String::from_utf8_lossy(&line).into_owned()))
}

/// All of standard input.
pub(super) fn read_all() -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    io::stdin().lock().read_to_end(&mut bytes)?;
    Ok(bytes)
}
