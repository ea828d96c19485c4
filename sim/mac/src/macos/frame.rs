//! Messages between the emulator and what runs inside a Mac: a length, a JSON value, and open files that travel along.
//!
//! One end is blocking (process 1 and the tools inside), the other asynchronous (the emulator). Files ride on the first bytes of a
//! message, which is all that the kernel promises for a stream of a Unix socket.

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io::{self, IoSlice, IoSliceMut, Read as _, Write as _};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, Interest};

/// More than any command line Linux accepts, and far less than what would hurt.
const LONGEST: usize = 16 << 20;
/// Standard input, output and error.
const FILES: usize = 3;

fn encode(value: &impl Serialize) -> io::Result<Vec<u8>> {
    let body = serde_json::to_vec(value)?;
    let length = u32::try_from(body.len()).map_err(io::Error::other)?;
    let mut bytes = Vec::with_capacity(body.len() + 4);
    bytes.extend(length.to_be_bytes());
    bytes.extend(body);
    Ok(bytes)
}

fn length(header: [u8; 4]) -> io::Result<usize> {
    let length = usize::try_from(u32::from_be_bytes(header)).map_err(io::Error::other)?;
    if length > LONGEST {
        return Err(io::Error::other(format!("a message of {length} bytes is too long")));
    }
    Ok(length)
}

fn send_first(socket: impl AsFd, bytes: &[u8], files: &[OwnedFd]) -> io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FILES))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let borrowed: Vec<_> = files.iter().map(AsFd::as_fd).collect();
    if !borrowed.is_empty() && !control.push(SendAncillaryMessage::ScmRights(&borrowed)) {
        return Err(io::Error::other("too many files for one message"));
    }
    Ok(rustix::net::sendmsg(
        socket,
        &[IoSlice::new(bytes)],
        &mut control,
        SendFlags::NOSIGNAL,
    )?)
}

fn receive_first(socket: impl AsFd, buffer: &mut [u8], files: &mut Vec<OwnedFd>) -> io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FILES))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received = rustix::net::recvmsg(
        socket,
        &mut [IoSliceMut::new(buffer)],
        &mut control,
        RecvFlags::CMSG_CLOEXEC,
    )?;
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(received) = message {
            files.extend(received);
        }
    }
    Ok(received.bytes)
}

/// Sends one message from inside.
pub(super) fn send(mut socket: &UnixStream, value: &impl Serialize, files: &[OwnedFd]) -> io::Result<()> {
    let bytes = encode(value)?;
    let sent = send_first(socket, &bytes, files)?;
    socket.write_all(bytes.get(sent..).unwrap_or_default())
}

/// The next message inside; none at the end.
pub(super) fn receive<T: DeserializeOwned>(mut socket: &UnixStream) -> io::Result<Option<(T, Vec<OwnedFd>)>> {
    let (mut header, mut files) = ([0; 4], Vec::new());
    let got = loop {
        match receive_first(socket, &mut header, &mut files) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            other => break other?,
        }
    };
    if got == 0 {
        return Ok(None);
    }
    socket.read_exact(header.get_mut(got..).unwrap_or_default())?;
    let mut body = vec![0; length(header)?];
    socket.read_exact(&mut body)?;
    Ok(Some((serde_json::from_slice(&body)?, files)))
}

/// Sends one message from the emulator.
pub(super) async fn post(
    socket: &mut (impl AsyncSocket + Unpin),
    value: &impl Serialize,
    files: &[OwnedFd],
) -> io::Result<()> {
    let bytes = encode(value)?;
    let sent = socket.first_out(&bytes, files).await?;
    socket.rest_out(bytes.get(sent..).unwrap_or_default()).await
}

/// The next message at the emulator; none at the end.
pub(super) async fn take<T: DeserializeOwned>(
    socket: &mut tokio::net::UnixStream,
) -> io::Result<Option<(T, Vec<OwnedFd>)>> {
    let (mut header, mut files) = ([0; 4], Vec::new());
    let got = socket
        .async_io(Interest::READABLE, || receive_first(&*socket, &mut header, &mut files))
        .await?;
    if got == 0 {
        return Ok(None);
    }
    socket.read_exact(header.get_mut(got..).unwrap_or_default()).await?;
    let mut body = vec![0; length(header)?];
    socket.read_exact(&mut body).await?;
    Ok(Some((serde_json::from_slice(&body)?, files)))
}

/// The next message of a half that carries no files.
pub(super) async fn take_plain<T: DeserializeOwned>(
    socket: &mut (impl tokio::io::AsyncRead + Unpin),
) -> io::Result<Option<T>> {
    let mut header = [0; 4];
    match socket.read_exact(&mut header).await {
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        Err(error) => return Err(error),
    }
    let mut body = vec![0; length(header)?];
    socket.read_exact(&mut body).await?;
    Ok(Some(serde_json::from_slice(&body)?))
}

/// A Unix stream, whole or its writing half.
pub(super) trait AsyncSocket {
    async fn first_out(&mut self, bytes: &[u8], files: &[OwnedFd]) -> io::Result<usize>;
    async fn rest_out(&mut self, bytes: &[u8]) -> io::Result<()>;
}

impl AsyncSocket for tokio::net::UnixStream {
    async fn first_out(&mut self, bytes: &[u8], files: &[OwnedFd]) -> io::Result<usize> {
        self.async_io(Interest::WRITABLE, || send_first(&*self, bytes, files))
            .await
    }

    async fn rest_out(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.write_all(bytes).await
    }
}

impl AsyncSocket for tokio::net::unix::OwnedWriteHalf {
    async fn first_out(&mut self, bytes: &[u8], files: &[OwnedFd]) -> io::Result<usize> {
        let socket = self.as_ref();
        socket
            .async_io(Interest::WRITABLE, || send_first(socket, bytes, files))
            .await
    }

    async fn rest_out(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.write_all(bytes).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::io::Seek as _;

    #[test]
    fn a_message_of_a_megabyte_arrives_whole_with_its_files() {
        let (one, other) = UnixStream::pair().unwrap();
        let text = "x".repeat(1 << 20);
        let sent = text.clone();
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"along").unwrap();
        file.rewind().unwrap();
        let writer = std::thread::spawn(move || send(&one, &sent, &[OwnedFd::from(file)]).unwrap());
        let (received, files) = receive::<String>(&other).unwrap().unwrap();
        writer.join().unwrap();
        assert_eq!(received, text);
        let mut read = String::new();
        File::from(files.into_iter().next().unwrap())
            .read_to_string(&mut read)
            .unwrap();
        assert_eq!(read, "along");
    }

    #[test]
    fn a_closed_socket_is_the_end_and_no_error() {
        let (one, other) = UnixStream::pair().unwrap();
        drop(one);
        assert!(receive::<String>(&other).unwrap().is_none());
    }
}
