//! `nc`, as far as macOS has it and anybody here asks for it: every guest has one, and nothing else leads to what listens on the
//! loopback of a guest alone. That of the host would do, but not every host has one, and none has the same.

use std::fs::File;
use std::io::{self, Write as _};
use std::net::{Shutdown, TcpStream};
use std::os::fd::AsFd as _;
use std::process::ExitCode;

/// The first argument of a process that is `nc`.
pub(crate) const WORD: &str = "--sim-tart-nc";

pub(crate) fn main(words: &[String]) -> ExitCode {
    let (only_look, rest) = match words.split_first() {
        Some((first, rest)) if first == "-z" => (true, rest),
        _ => (false, words),
    };
    let done = match rest {
        [host, port] => connect(host, port).and_then(|stream| if only_look { Ok(()) } else { carry(&stream) }),
        _ => Err(io::Error::other("usage: nc [-z] hostname port")),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr(), "nc: {error}");
            ExitCode::FAILURE
        }
    }
}

fn connect(host: &str, port: &str) -> io::Result<TcpStream> {
    let port: u16 = port.parse().map_err(io::Error::other)?;
    TcpStream::connect((host, port))
}

/// Both ways, until the other end has said everything. The end of input is told to it and ends nothing.
fn carry(stream: &TcpStream) -> io::Result<()> {
    let mut to = stream.try_clone()?;
    std::thread::spawn(move || {
        let _ = io::copy(&mut io::stdin().lock(), &mut to);
        let _ = to.shutdown(Shutdown::Write);
    });
    // Without the buffer of the library, which looks for lines.
    let mut stdout = File::from(io::stdout().as_fd().try_clone_to_owned()?);
    let mut from = stream;
    io::copy(&mut from, &mut stdout)?;
    Ok(())
}
