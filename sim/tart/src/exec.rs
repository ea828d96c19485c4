//! `tart exec`: the caller's side of the line to the guest agent.

use crate::agent::{self, Order};
use crate::arguments::Parsed;
use crate::failure::Failure;
use crate::locks;
use crate::store::Home;
use crate::terminal;
use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::AsFd as _;
use tokio::io::{AsyncReadExt as _, BufReader};
use tokio::net::UnixStream;
use tokio::signal::unix::{SignalKind, signal};

pub(crate) fn exec(home: &Home, parsed: &Parsed) -> Result<u8, Failure> {
    let name = parsed.at(0);
    let dir = home.local(name)?;
    if locks::runner(&dir).is_none() {
        return Err(Failure::not_running(name));
    }
    let tty = parsed.has("--tty");
    let order = Order {
        words: parsed.positional.iter().skip(1).cloned().collect(),
        interactive: parsed.has("--interactive"),
        terminal: tty.then(|| terminal::size().unwrap_or((80, 24))),
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let result = runtime.block_on(async {
        let unreachable = |error: io::Error| {
            Failure::Own(
                format!(
                    "Failed to connect to the VM using its control socket: {error}, is the Tart Guest Agent running?"
                ),
                1,
            )
        };
        let (folder, path) = agent::socket(&dir)?;
        let stream = UnixStream::connect(path).await.map_err(unreachable)?;
        drop(folder);
        let raw = if tty { terminal::Raw::enter() } else { None };
        let result = converse(stream, &order).await;
        drop(raw);
        result
    });
    // The thread that reads standard input may never return.
    runtime.shutdown_background();
    result
}

/// A status of gRPC; its words are a guess. Whether the guest dies before it heard the order or after makes no difference.
fn unavailable(error: &io::Error) -> Failure {
    Failure::Thrown(format!("unavailable (14): {error}"))
}

async fn converse(mut stream: UnixStream, order: &Order) -> Result<u8, Failure> {
    agent::send(&mut stream, agent::COMMAND, &serde_json::to_vec(order)?)
        .await
        .map_err(|error| unavailable(&error))?;
    let mut resized = signal(SignalKind::window_change())?;
    let (from, mut to) = stream.into_split();
    let mut from = BufReader::with_capacity(2 * agent::PIECE, from);
    let talk = async {
        let mut stdin = tokio::io::stdin();
        let mut buffer = vec![0; agent::PIECE];
        let mut reading = order.interactive;
        loop {
            tokio::select! {
                count = stdin.read(&mut buffer), if reading => {
                    let count = count.unwrap_or(0);
                    reading = count > 0;
                    let bytes = buffer.get(..count).unwrap_or_default();
                    if agent::send(&mut to, agent::STDIN, bytes).await.is_err() {
                        reading = false;
                    }
                }
                _ = resized.recv() => {
                    if let (Some(_), Some(size)) = (order.terminal, terminal::size()) {
                        let size = serde_json::to_vec(&size).unwrap_or_default();
                        let _ = agent::send(&mut to, agent::RESIZE, &size).await;
                    }
                }
            }
        }
    };
    let listen = async {
        // Without the buffer of the library, which looks for lines. Whoever reads it does not wait for what we read.
        let mut stdout = File::from(io::stdout().as_fd().try_clone_to_owned()?);
        loop {
            match agent::receive(&mut from).await {
                Ok((agent::STDOUT, bytes)) => {
                    let _ = stdout.write_all(&bytes);
                }
                Ok((agent::STDERR, bytes)) => {
                    let _ = io::stderr().write_all(&bytes);
                }
                Ok((agent::EXIT, code)) => {
                    return Ok(String::from_utf8_lossy(&code).parse().unwrap_or(255));
                }
                // What the agent answers for a program that is not there; text: guess.
                Ok((_, why)) => return Err(Failure::Thrown(String::from_utf8_lossy(&why).into_owned())),
                Err(error) => return Err(unavailable(&error)),
            }
        }
    };
    tokio::select! {
        result = listen => result,
        () = talk => Ok(255),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A guest that died between the call and the order was told as a failure of the emulator, with 70: a program that had ended by itself,
    /// for whoever reads exit codes.
    #[tokio::test]
    async fn a_guest_that_dies_before_it_heard_the_order_is_unavailable() {
        let (caller, guest) = UnixStream::pair().unwrap();
        drop(guest);
        let order = Order {
            words: vec!["true".to_owned()],
            interactive: false,
            terminal: None,
        };
        let failure = converse(caller, &order).await.unwrap_err();
        assert!(
            matches!(&failure, Failure::Thrown(text) if text.starts_with("unavailable (14): ")),
            "{failure:?}"
        );
    }
}
