//! A server that takes what the node tells others and hands it to the test.

use crate::node::DEADLINE;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::sync::mpsc::{Receiver, channel};

pub(crate) struct Sink {
    pub(crate) address: SocketAddr,
    received: Receiver<Told>,
}

/// One request.
#[derive(Debug)]
pub(crate) struct Told {
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Told {
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| {
            let (found, value) = line.split_once(": ")?;
            found.eq_ignore_ascii_case(name).then_some(value.trim())
        })
    }

    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap()
    }
}

impl Sink {
    /// The n-th request is answered with `answer(n)`.
    pub(crate) fn start(answer: impl Fn(usize) -> u16 + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (told, received) = channel();
        std::thread::spawn(move || {
            for (number, stream) in listener.incoming().map_while(Result::ok).enumerate() {
                let mut reader = BufReader::new(stream);
                let (mut head, mut line) = (String::new(), String::new());
                while reader.read_line(&mut line).unwrap_or(0) > 2 {
                    head.push_str(&line);
                    line.clear();
                }
                let length = head
                    .lines()
                    .find_map(|line| line.to_lowercase().strip_prefix("content-length: ")?.parse().ok());
                let mut body = vec![0; length.unwrap_or(0)];
                if reader.read_exact(&mut body).is_err() {
                    continue;
                }
                let status = answer(number);
                let _ = told.send(Told { head, body });
                let text = format!("HTTP/1.1 {status} X\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
                let _ = reader.get_mut().write_all(text.as_bytes());
            }
        });
        Self { address, received }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(crate) fn next(&self) -> Told {
        self.received.recv_timeout(DEADLINE).unwrap()
    }

    pub(crate) fn try_next(&self) -> Option<Told> {
        self.received.try_recv().ok()
    }
}
