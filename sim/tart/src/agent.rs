//! The guest agent and the line to it. The real one speaks gRPC over vsock behind `control.sock`; here the messages are the
//! same and the frames are a byte for the kind, four for the length, and the bytes.

use crate::guest;
use crate::terminal;
use crate::vm::VmDir;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::net::Ipv4Addr;
use std::os::fd::AsRawFd as _;
use std::os::unix::process::ExitStatusExt as _;
use std::process::Stdio;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, BufReader};
use tokio::net::UnixStream;
use tokio::process::{Child, Command};
use tokio::sync::mpsc;

pub(crate) const COMMAND: u8 = 0;
pub(crate) const STDIN: u8 = 1;
pub(crate) const RESIZE: u8 = 2;
pub(crate) const STDOUT: u8 = 3;
pub(crate) const STDERR: u8 = 4;
pub(crate) const EXIT: u8 = 5;
pub(crate) const REFUSED: u8 = 6;
pub(crate) const RESOLVE: u8 = 7;

/// What a message begins with: its kind and its length.
const HEAD: usize = 5;
/// How much is read at a time: as much as a pipe holds.
pub(crate) const PIECE: usize = 64 * 1024;
/// The longest message; whoever sends more is no agent.
const LONGEST: u32 = 1 << 20;
/// What a background process may hold the output open for, once the command itself has ended.
const LINGER: Duration = Duration::from_secs(2);

#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct Order {
    pub(crate) words: Vec<String>,
    pub(crate) interactive: bool,
    /// Columns and rows, for a terminal.
    pub(crate) terminal: Option<(u16, u16)>,
}

pub(crate) async fn send(to: &mut (impl AsyncWrite + Unpin), kind: u8, bytes: &[u8]) -> io::Result<()> {
    let length = u32::try_from(bytes.len()).map_err(io::Error::other)?;
    let mut message = Vec::with_capacity(HEAD + bytes.len());
    message.push(kind);
    message.extend_from_slice(&length.to_be_bytes());
    message.extend_from_slice(bytes);
    to.write_all(&message).await?;
    to.flush().await
}

pub(crate) async fn receive(from: &mut (impl AsyncRead + Unpin)) -> io::Result<(u8, Vec<u8>)> {
    let kind = from.read_u8().await?;
    let length = from.read_u32().await?;
    if length > LONGEST {
        return Err(io::Error::other("a message is too long"));
    }
    let mut bytes = vec![0; usize::try_from(length).map_err(io::Error::other)?];
    from.read_exact(&mut bytes).await?;
    Ok((kind, bytes))
}

/// A path to the socket that is short enough, however deep the home lies. Valid while the folder is open.
pub(crate) fn socket(dir: &VmDir) -> io::Result<(File, String)> {
    let folder = File::open(&dir.0)?;
    let path = format!("/proc/self/fd/{}/control.sock", folder.as_raw_fd());
    Ok((folder, path))
}

/// `tart ip --resolver agent`.
pub(crate) fn resolve(dir: &VmDir) -> Option<Ipv4Addr> {
    let (_folder, path) = socket(dir).ok()?;
    let mut stream = std::os::unix::net::UnixStream::connect(path).ok()?;
    stream.write_all(&[RESOLVE, 0, 0, 0, 0]).ok()?;
    let mut head = [0; 5];
    stream.read_exact(&mut head).ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    text.parse().ok()
}

/// One connection: one question, or one command until it has ended. Whoever hangs up kills it.
pub(crate) async fn serve(mut stream: UnixStream, address: Ipv4Addr) {
    let Ok((kind, bytes)) = receive(&mut stream).await else {
        return;
    };
    if kind == RESOLVE {
        let _ = send(&mut stream, RESOLVE, address.to_string().as_bytes()).await;
        return;
    }
    let Ok(order) = serde_json::from_slice::<Order>(&bytes) else {
        return;
    };
    if let Err(error) = execute(&mut stream, &order, address).await {
        let _ = send(&mut stream, REFUSED, error.to_string().as_bytes()).await;
    }
}

type Output = mpsc::Sender<(u8, Vec<u8>)>;

struct Started {
    child: Child,
    input: Option<Box<dyn AsyncWrite + Send + Unpin>>,
    /// The terminal, if it has one.
    master: Option<File>,
}

fn on_terminal(order: &Order, address: Ipv4Addr, output: Output, columns: u16, rows: u16) -> io::Result<Started> {
    let (master, slave) = terminal::open(columns, rows)?;
    let mut command = Command::new("/proc/self/exe");
    command.arg(terminal::WORD).args(&order.words);
    guest::surroundings(&mut command, address);
    command.env("TERM", "xterm-256color");
    let child = command
        .stdin(slave.try_clone()?)
        .stdout(slave.try_clone()?)
        .stderr(slave)
        .kill_on_drop(true)
        .spawn()?;
    let reader = tokio::fs::File::from_std(master.try_clone()?);
    tokio::spawn(pump(reader, STDOUT, output));
    let writer = tokio::fs::File::from_std(master.try_clone()?);
    Ok(Started {
        child,
        input: Some(Box::new(writer)),
        master: Some(master),
    })
}

fn plain(order: &Order, address: Ipv4Addr, output: Output) -> io::Result<Started> {
    let (program, rest) = order
        .words
        .split_first()
        .ok_or_else(|| io::Error::other("no command"))?;
    let mut command = Command::new(program);
    guest::surroundings(&mut command, address);
    let mut child = command
        .args(rest)
        .stdin(if order.interactive {
            Stdio::piped()
        } else {
            Stdio::null()
        })
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()?;
    if let Some(stdout) = child.stdout.take() {
        tokio::spawn(pump(stdout, STDOUT, output.clone()));
    }
    if let Some(stderr) = child.stderr.take() {
        tokio::spawn(pump(stderr, STDERR, output));
    }
    let input = child
        .stdin
        .take()
        .map(|stdin| Box::new(stdin) as Box<dyn AsyncWrite + Send + Unpin>);
    Ok(Started {
        child,
        input,
        master: None,
    })
}

async fn execute(stream: &mut UnixStream, order: &Order, address: Ipv4Addr) -> io::Result<()> {
    let (output, mut outputs) = mpsc::channel(16);
    let Started {
        mut child,
        mut input,
        master,
    } = if let Some((columns, rows)) = order.terminal {
        on_terminal(order, address, output, columns, rows)?
    } else {
        plain(order, address, output)?
    };
    let (incoming, mut outgoing) = stream.split();
    let mut incoming = BufReader::with_capacity(HEAD + PIECE, incoming);
    let listen = async {
        loop {
            match receive(&mut incoming).await? {
                (STDIN, bytes) if bytes.is_empty() => {
                    // Control-D, for a terminal; a closed pipe otherwise.
                    match (&master, &mut input) {
                        (Some(_), Some(input)) => {
                            let _ = input.write_all(b"\x04").await;
                            let _ = input.flush().await;
                        }
                        _ => input = None,
                    }
                }
                (STDIN, bytes) => {
                    if let Some(input) = &mut input {
                        // A command that does not read has closed its end.
                        let _ = input.write_all(&bytes).await;
                        let _ = input.flush().await;
                    }
                }
                (RESIZE, bytes) => {
                    if let (Some(master), Ok((columns, rows))) = (&master, serde_json::from_slice(&bytes)) {
                        terminal::resize(master, columns, rows)?;
                    }
                }
                _ => return Err::<(), _>(io::Error::other("an unexpected message")),
            }
        }
    };
    let work = relay(&mut child, &mut outputs, &mut outgoing);
    tokio::select! {
        gone = listen => gone,
        done = work => done,
    }
}

async fn relay(
    child: &mut Child,
    outputs: &mut mpsc::Receiver<(u8, Vec<u8>)>,
    outgoing: &mut (impl AsyncWrite + Unpin),
) -> io::Result<()> {
    let status = loop {
        tokio::select! {
            Some((kind, bytes)) = outputs.recv() => send(outgoing, kind, &bytes).await?,
            status = child.wait() => break status?,
        }
    };
    let rest = async {
        while let Some((kind, bytes)) = outputs.recv().await {
            send(outgoing, kind, &bytes).await?;
        }
        io::Result::Ok(())
    };
    if let Ok(result) = tokio::time::timeout(LINGER, rest).await {
        result?;
    }
    // A guest's signal becomes 255.
    let code = if status.signal().is_some() {
        255
    } else {
        status.code().unwrap_or(255)
    };
    send(outgoing, EXIT, code.to_string().as_bytes()).await
}

async fn pump(mut from: impl AsyncRead + Unpin, kind: u8, to: Output) {
    let mut buffer = vec![0; PIECE];
    // A terminal whose last program has ended gives an error instead of an end.
    while let Ok(count @ 1..) = from.read(&mut buffer).await {
        let Some(bytes) = buffer.get(..count) else { return };
        if to.send((kind, bytes.to_vec())).await.is_err() {
            return;
        }
    }
}
