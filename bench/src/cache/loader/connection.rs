//! One connection: a request out, its answer in, counted and dropped.

use crate::cache::key::Bodies;
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};
use std::io::{self, IoSlice, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::ops::Range;
use std::time::{Duration, Instant};

/// Headers of an answer must fit; the first piece of the body rides along.
const HEAD: usize = 8 * 1024;
/// How often one connection may read before the others get their turn.
const READS: usize = 4;

/// What a request sends and expects.
#[derive(Debug, Clone)]
pub(crate) struct Ask {
    /// Part of the common bytes.
    pub(crate) body: Option<Range<usize>>,
    /// Any of these statuses is right.
    pub(crate) statuses: &'static [u16],
    /// The body of the answer has this length, if that is known.
    pub(crate) length: Option<u64>,
}

/// A whole answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) took: Duration,
    pub(crate) bytes: u64,
    pub(crate) wrote: bool,
    status: u16,
    length: u64,
    ask: Ask,
}

impl Answer {
    /// What is wrong with it, if anything.
    pub(crate) fn surprise(&self) -> Option<String> {
        if !self.ask.statuses.contains(&self.status) {
            return Some(format!("status {}", self.status));
        }
        let expected = self.ask.length.filter(|length| *length != self.length)?;
        Some(format!("a body of {} bytes instead of {expected}", self.length))
    }
}

/// What came of moving on.
#[derive(Debug)]
pub(super) enum Step {
    /// More will come.
    Wait,
    /// The socket takes nothing more just now.
    Blocked,
    Done(Answer),
    Broken(String),
}

#[derive(Debug)]
struct Incoming {
    status: u16,
    length: u64,
    left: u64,
}

/// A socket and where it is in its one request.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) stream: TcpStream,
    began: Instant,
    head: Vec<u8>,
    sent: usize,
    ask: Option<Ask>,
    received: Vec<u8>,
    filled: usize,
    incoming: Option<Incoming>,
}

impl Connection {
    pub(super) fn open(address: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        Ok(Self {
            stream,
            began: Instant::now(),
            head: Vec::new(),
            sent: 0,
            ask: None,
            received: vec![0; HEAD],
            filled: 0,
            incoming: None,
        })
    }

    pub(super) fn is_idle(&self) -> bool {
        self.ask.is_none()
    }

    pub(super) fn is_sending(&self) -> bool {
        self.ask.as_ref().is_some_and(|ask| self.sent < self.total(ask))
    }

    fn total(&self, ask: &Ask) -> usize {
        self.head.len() + ask.body.as_ref().map_or(0, Range::len)
    }

    /// Ready for the next head.
    pub(super) fn start(&mut self, now: Instant) -> &mut Vec<u8> {
        self.began = now;
        self.sent = 0;
        self.filled = 0;
        self.incoming = None;
        self.head.clear();
        &mut self.head
    }

    pub(super) fn send(&mut self, ask: Ask, bodies: &Bodies) -> Step {
        self.ask = Some(ask);
        self.send_more(bodies)
    }

    pub(super) fn send_more(&mut self, bodies: &Bodies) -> Step {
        let Some(ask) = &self.ask else { return Step::Wait };
        let body = ask.body.as_ref().map(|range| bodies.bytes(range)).unwrap_or_default();
        let total = self.total(ask);
        while self.sent < total {
            let head = self.head.get(self.sent..).unwrap_or_default();
            let rest = body
                .get(self.sent.saturating_sub(self.head.len())..)
                .unwrap_or_default();
            match self.stream.write_vectored(&[IoSlice::new(head), IoSlice::new(rest)]) {
                Ok(count) => self.sent += count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Step::Blocked,
                Err(error) => return self.broken(&format!("a failed send ({error})")),
            }
        }
        Step::Wait
    }

    pub(super) fn receive(&mut self, sink: &mut [u8]) -> Step {
        for _ in 0..READS {
            let got = match &self.incoming {
                None => recv(
                    &self.stream,
                    self.received.get_mut(self.filled..).unwrap_or_default(),
                    RecvFlags::empty(),
                ),
                Some(incoming) => {
                    let most = usize::try_from(incoming.left).unwrap_or(usize::MAX).min(sink.len());
                    recv(&self.stream, sink.get_mut(..most).unwrap_or_default(), RecvFlags::TRUNC)
                }
            };
            let count = match got {
                Ok((_, 0)) => return self.broken("a closed connection"),
                Ok((_, count)) => count,
                Err(Errno::AGAIN | Errno::INTR) => return Step::Wait,
                Err(errno) => return self.broken(&format!("a failed receive ({errno})")),
            };
            if let Some(step) = self.took(count) {
                return step;
            }
        }
        Step::Wait
    }

    /// Counts what was received; `None` while there is more to come.
    fn took(&mut self, count: usize) -> Option<Step> {
        if let Some(incoming) = &mut self.incoming {
            incoming.left = incoming.left.saturating_sub(count as u64);
        } else {
            self.filled += count;
            let text = self.received.get(..self.filled).unwrap_or_default();
            match parse(text) {
                Parsed::Head { status, length, end } => {
                    let here = (self.filled - end) as u64;
                    if here > length {
                        return Some(self.broken("more bytes than its header announced"));
                    }
                    self.incoming = Some(Incoming {
                        status,
                        length,
                        left: length - here,
                    });
                }
                Parsed::Partial if self.filled < HEAD => return None,
                Parsed::Partial => return Some(self.broken("a header that is too long")),
                Parsed::Nonsense => return Some(self.broken("an answer that is not HTTP/1.1 with a length")),
            }
        }
        let incoming = self.incoming.take_if(|incoming| incoming.left == 0)?;
        let ask = self.ask.take()?;
        Some(Step::Done(Answer {
            took: self.began.elapsed(),
            bytes: incoming.length + ask.body.as_ref().map_or(0, |range| range.len() as u64),
            wrote: ask.body.is_some(),
            status: incoming.status,
            length: incoming.length,
            ask,
        }))
    }

    fn broken(&mut self, reason: &str) -> Step {
        self.ask = None;
        Step::Broken(reason.to_owned())
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Parsed {
    Partial,
    Nonsense,
    Head { status: u16, length: u64, end: usize },
}

/// Status, length of the body and where it begins.
fn parse(text: &[u8]) -> Parsed {
    let Some(end) = text.windows(4).position(|four| four == b"\r\n\r\n") else {
        return Parsed::Partial;
    };
    let head = text.get(..end).unwrap_or_default();
    let status = head
        .strip_prefix(b"HTTP/1.1 ")
        .and_then(|rest| number(rest.get(..3)?))
        .and_then(|status| u16::try_from(status).ok());
    // A status without a body may leave the length out.
    let length = length(head).or_else(|| status.filter(|status| matches!(status, 204 | 304)).map(|_| 0));
    match (status, length) {
        (Some(status), Some(length)) => Parsed::Head {
            status,
            length,
            end: end + 4,
        },
        _ => Parsed::Nonsense,
    }
}

fn length(head: &[u8]) -> Option<u64> {
    const NAME: &[u8] = b"content-length:";
    head.split(|&byte| byte == b'\n').find_map(|line| {
        let (name, value) = line.split_at_checked(NAME.len())?;
        name.eq_ignore_ascii_case(NAME)
            .then(|| number(value.trim_ascii()))
            .flatten()
    })
}

fn number(digits: &[u8]) -> Option<u64> {
    std::str::from_utf8(digits).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_understood() {
        let text = b"HTTP/1.1 200 OK\r\nDate: x\r\nContent-Length: 12\r\n\r\nabc";
        assert_eq!(
            parse(text),
            Parsed::Head {
                status: 200,
                length: 12,
                end: text.len() - 3
            }
        );
        assert_eq!(parse(b"HTTP/1.1 200 OK\r\ncontent-le"), Parsed::Partial);
        assert_eq!(parse(b"HTTP/1.1 200 OK\r\n\r\n"), Parsed::Nonsense);
        assert_eq!(parse(b"SSH-2.0\r\n\r\n"), Parsed::Nonsense);
        assert!(matches!(
            parse(b"HTTP/1.1 204 No Content\r\n\r\n"),
            Parsed::Head {
                status: 204,
                length: 0,
                ..
            }
        ));
    }
}
