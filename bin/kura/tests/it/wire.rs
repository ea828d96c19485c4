//! A client that sends exactly the bytes it is told to.

use crate::node::DEADLINE;
use std::fmt::Write as _;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;

pub(crate) struct Client {
    pub(crate) stream: TcpStream,
    tls: Option<rustls::ClientConnection>,
    buffer: Vec<u8>,
}

#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Response {
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        self.head.lines().skip(1).find_map(|line| {
            let (found, value) = line.split_once(": ")?;
            found.eq_ignore_ascii_case(name).then_some(value)
        })
    }

    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    pub(crate) fn message(&self) -> String {
        assert_eq!(self.field("content-type"), Some("application/json"), "{self:?}");
        self.json()["message"].as_str().unwrap().to_owned()
    }
}

impl Client {
    pub(crate) fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        stream.set_write_timeout(Some(DEADLINE)).unwrap();
        stream.set_nodelay(true).unwrap();
        Self {
            stream,
            tls: None,
            buffer: Vec::new(),
        }
    }

    /// The same bytes, inside TLS.
    pub(crate) fn connect_securely(address: SocketAddr, config: Arc<rustls::ClientConfig>) -> Self {
        let mut client = Self::connect(address);
        let name = "localhost".try_into().unwrap();
        let mut tls = rustls::ClientConnection::new(config, name).unwrap();
        while tls.is_handshaking() {
            tls.complete_io(&mut client.stream).unwrap();
        }
        client.tls = Some(tls);
        client
    }

    /// Sends what the other side takes; it may have closed already.
    pub(crate) fn offer(&mut self, bytes: &[u8]) {
        let _ = match &mut self.tls {
            None => self.stream.write_all(bytes),
            Some(tls) => rustls::Stream::new(tls, &mut self.stream).write_all(bytes),
        };
    }

    pub(crate) fn raw(&mut self, bytes: &[u8]) {
        match &mut self.tls {
            None => self.stream.write_all(bytes).unwrap(),
            Some(tls) => rustls::Stream::new(tls, &mut self.stream).write_all(bytes).unwrap(),
        }
    }

    pub(crate) fn send(&mut self, method: &str, target: &str, fields: &[&str], body: &[u8]) -> Response {
        let mut request = format!("{method} {target} HTTP/1.1\r\nHost: cache\r\n");
        for field in fields {
            request.push_str(field);
            request.push_str("\r\n");
        }
        if !body.is_empty() {
            let _ = write!(request, "Content-Length: {}\r\n", body.len());
        }
        request.push_str("\r\n");
        let mut bytes = request.into_bytes();
        bytes.extend_from_slice(body);
        // The node may answer and close before it has read everything; the answer is what counts.
        self.offer(&bytes);
        self.response_to(method)
    }

    /// Everything that still comes until the other side closes.
    pub(crate) fn drain(&mut self) -> Vec<u8> {
        while self.read() > 0 {}
        std::mem::take(&mut self.buffer)
    }

    pub(crate) fn response(&mut self) -> Response {
        self.response_to("GET")
    }

    pub(crate) fn response_to(&mut self, method: &str) -> Response {
        let end = loop {
            if let Some(at) = self.buffer.windows(4).position(|window| window == b"\r\n\r\n") {
                break at + 4;
            }
            assert!(
                self.read() > 0,
                "closed in the middle of a header: {:?}",
                String::from_utf8_lossy(&self.buffer)
            );
        };
        let head = String::from_utf8(self.buffer.drain(..end).collect()).unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        let mut response = Response {
            status,
            head,
            body: Vec::new(),
        };
        let length: usize = response.field("content-length").map_or(0, |text| text.parse().unwrap());
        if method != "HEAD" && status != 304 {
            while self.buffer.len() < length {
                assert!(self.read() > 0, "closed in the middle of a body");
            }
            response.body = self.buffer.drain(..length).collect();
        }
        response
    }

    fn read(&mut self) -> usize {
        let mut piece = vec![0; 64 * 1024];
        let read = match &mut self.tls {
            None => self.stream.read(&mut piece),
            Some(tls) => decrypt(tls, &mut self.stream, &mut piece),
        };
        match read {
            Ok(count) => {
                self.buffer.extend_from_slice(&piece[..count]);
                count
            }
            Err(error) if error.kind() == ErrorKind::ConnectionReset => 0,
            Err(error) => panic!("{error}"),
        }
    }

    /// Whether the other side has closed, with nothing more to say.
    pub(crate) fn is_closed(&mut self) -> bool {
        self.buffer.is_empty() && self.read() == 0
    }
}

/// Reads without writing first, which fails once the other side has closed.
fn decrypt(tls: &mut rustls::ClientConnection, stream: &mut TcpStream, into: &mut [u8]) -> std::io::Result<usize> {
    loop {
        match tls.reader().read(into) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            read => return read,
        }
        if tls.read_tls(stream)? == 0 {
            return Ok(0);
        }
        tls.process_new_packets().map_err(std::io::Error::other)?;
    }
}
