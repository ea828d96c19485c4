//! Answers on the wire: header and small body in one write, large bodies from file to socket by the kernel.
//!
//! A slow reader of a large body holds no memory: all that waits is a position in a file. Of a small body only the bytes the
//! socket did not take are kept, and those are reserved from the budget.

use super::wait::{Ended, Wire};
use crate::http::reply::{Payload, Reply, Slice, reason};
use crate::http::service::Service;
use crate::metrics::Path;
use std::cell::RefCell;
use std::io::{self, Write as _};
use std::time::{SystemTime, UNIX_EPOCH};
use tokio::time::Instant;

/// What is moved at a time where the kernel cannot do it.
const PIECE: usize = 64 * 1024;
/// The most that is moved before other connections get their turn.
const TURN: u64 = 1024 * 1024;
/// What a thread keeps for headers and documents between answers.
const DOCUMENT_ROOM: usize = 64 * 1024;

thread_local! {
    /// Header and body of the answer being made. One per thread: it is filled and written without waiting in between.
    static SCRATCH: RefCell<Scratch> = RefCell::new(Scratch::default());
}

#[derive(Default)]
struct Scratch {
    /// The header, and a document that follows it.
    head: Vec<u8>,
    /// Pieces of a blob where the kernel cannot move them.
    piece: Vec<u8>,
    date: Date,
}

/// The `Date` field, made once a second.
#[derive(Default)]
struct Date {
    second: u64,
    text: String,
}

impl Date {
    fn now(&mut self) -> &str {
        let now = SystemTime::now();
        let second = now.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        if second != self.second || self.text.is_empty() {
            self.second = second;
            self.text = http_date(second);
        }
        &self.text
    }
}

/// How the connection goes on, as the header says it.
#[derive(Debug, Clone, Copy)]
pub struct Manner {
    /// More requests may follow.
    pub keep_alive: bool,
    /// The client speaks HTTP/1.0, to which keeping the connection is news.
    pub old: bool,
}

/// Sends an answer. [`Wire::written`] says how much of it the socket took, whatever happens.
pub async fn send(wire: &mut Wire, mut reply: Reply, manner: Manner, service: &Service) -> Result<(), Ended> {
    let shard = &service.shard;
    wire.written = 0;
    wire.head = 0;
    match reply.payload {
        Payload::Blob(ref slice) if !slice.described_only && (slice.hit.file().is_some() || slice.hit.is_packed()) => {
            shard.path(if slice.hit.is_packed() {
                Path::Streaming
            } else {
                Path::Accelerated
            });
            let head = SCRATCH.with_borrow_mut(|scratch| head_of(scratch, &reply, manner).clone());
            wire.head = head.len() as u64;
            send_head_before_file(wire, &head).await?;
            send_file(wire, slice).await?;
            wire.flush().await
        }
        Payload::Blob(ref slice) if !slice.described_only => {
            shard.path(Path::Memory);
            let rest = SCRATCH.with_borrow_mut(|scratch| {
                let head = head_of(scratch, &reply, manner);
                let Payload::Blob(slice) = &mut reply.payload else {
                    return Err(Ended::Failed);
                };
                wire.head = head.len() as u64;
                let whole = slice.hit.behind(head, slice.start, slice.length).ok_or(Ended::Failed)?;
                first_write(wire, whole)
            })?;
            // The shared buffer goes back before a slow reader is waited for.
            drop(reply);
            send_rest(wire, &rest, service).await
        }
        Payload::Document { ref body, .. } => {
            let rest = SCRATCH.with_borrow_mut(|scratch| {
                let head = head_of(scratch, &reply, manner);
                wire.head = head.len() as u64;
                head.extend_from_slice(body);
                let rest = first_write(wire, head);
                head.shrink_to(DOCUMENT_ROOM);
                rest
            })?;
            send_rest(wire, &rest, service).await
        }
        _ => {
            let rest = SCRATCH.with_borrow_mut(|scratch| {
                let head = head_of(scratch, &reply, manner);
                wire.head = head.len() as u64;
                first_write(wire, head)
            })?;
            wire.write_all(&rest).await
        }
    }
}

/// Writes what the socket takes at once; a copy of what it did not.
fn first_write(wire: &mut Wire, bytes: &[u8]) -> Result<Vec<u8>, Ended> {
    let count = match wire.stream.try_write(bytes) {
        Ok(count) => count,
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => 0,
        Err(error) => return Err(error.into()),
    };
    wire.written += count as u64;
    Ok(bytes.get(count..).unwrap_or_default().to_vec())
}

/// Waits for a slow reader. What waits in memory comes out of the budget; when there is none left, the reader is cut off:
/// its answer has begun, so it can no longer be told to come back.
async fn send_rest(wire: &mut Wire, rest: &[u8], service: &Service) -> Result<(), Ended> {
    let _held = if rest.is_empty() {
        None
    } else {
        let held = service.shared.budget.try_reserve(rest.len() as u64);
        Some(held.map_err(|_| Ended::GivenUp)?)
    };
    wire.write_all(rest).await
}

/// Sends the header and tells the kernel that the file follows, so that both travel together.
#[cfg(target_os = "linux")]
async fn send_head_before_file(wire: &mut Wire, mut head: &[u8]) -> Result<(), Ended> {
    use rustix::net::SendFlags;
    let since = Instant::now();
    while !head.is_empty() {
        let Some(stream) = wire.stream.plain() else {
            return wire.write_all(head).await;
        };
        let sent = stream.try_io(tokio::io::Interest::WRITABLE, || {
            Ok(rustix::net::send(stream, head, SendFlags::MORE | SendFlags::NOSIGNAL)?)
        });
        match sent {
            Ok(count) => {
                wire.written += count as u64;
                head = head.get(count..).unwrap_or_default();
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                wire.until_progress(since, 0);
                wire.writable().await?;
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

#[cfg(not(target_os = "linux"))]
async fn send_head_before_file(wire: &mut Wire, head: &[u8]) -> Result<(), Ended> {
    wire.write_all(head).await
}

/// Sends a slice of a file.
async fn send_file(wire: &mut Wire, slice: &Slice) -> Result<(), Ended> {
    let since = Instant::now();
    let (mut sent, mut turn) = (0, 0);
    while sent < slice.length {
        match move_some(wire, slice, sent) {
            // The file is shorter than the index says: the client must notice, so the connection ends here.
            Ok(0) => return Err(Ended::Failed),
            Ok(count) => {
                sent += count;
                wire.written += count;
                turn += count;
                if turn >= TURN && sent < slice.length {
                    turn = 0;
                    tokio::task::yield_now().await;
                }
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                turn = 0;
                wire.until_progress(since, sent);
                wire.writable().await?;
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Moves as much as the socket takes now.
fn move_some(wire: &mut Wire, slice: &Slice, sent: u64) -> io::Result<u64> {
    let left = (slice.length - sent).min(TURN);
    #[cfg(target_os = "linux")]
    if let (Some((file, base)), Some(stream)) = (slice.hit.file(), wire.stream.plain()) {
        let mut position = base + slice.start + sent;
        let count = usize::try_from(left).unwrap_or(usize::MAX);
        return stream.try_io(tokio::io::Interest::WRITABLE, || {
            Ok(rustix::fs::sendfile(stream, file, Some(&mut position), count)? as u64)
        });
    }
    SCRATCH.with_borrow_mut(|scratch| {
        let room = usize::try_from(left).unwrap_or(PIECE).min(PIECE);
        if scratch.piece.len() < room {
            scratch.piece.resize(room, 0);
        }
        let bytes = scratch.piece.get_mut(..room).unwrap_or_default();
        slice.hit.read_at(slice.start + sent, bytes).map_err(io::Error::other)?;
        wire.stream.try_write(bytes).map(|count| count as u64)
    })
}

/// Makes the header of an answer.
fn head_of<'a>(scratch: &'a mut Scratch, reply: &Reply, manner: Manner) -> &'a mut Vec<u8> {
    let Scratch { head, date, .. } = scratch;
    head.clear();
    write_head(head, reply, manner, date.now());
    head
}

fn write_head(out: &mut Vec<u8>, reply: &Reply, manner: Manner, date: &str) {
    match reply.status {
        200 => out.extend_from_slice(b"HTTP/1.1 200 OK\r\ndate: "),
        404 => out.extend_from_slice(b"HTTP/1.1 404 Not Found\r\ndate: "),
        // Writing into a vector cannot fail; the same holds for every `write!` below.
        status => drop(write!(out, "HTTP/1.1 {status} {}\r\ndate: ", reason(status))),
    }
    out.extend_from_slice(date.as_bytes());
    out.extend_from_slice(b"\r\n");
    match &reply.payload {
        // These two never have a body, and say so by themselves.
        Payload::Empty if matches!(reply.status, 204 | 304) => {}
        Payload::Empty => out.extend_from_slice(b"content-length: 0\r\n"),
        Payload::Document { content_type, body } => {
            field(out, "content-type", content_type);
            number(out, body.len() as u64);
        }
        Payload::Described { content_type, length } => {
            field(out, "content-type", content_type);
            number(out, *length);
        }
        Payload::Blob(slice) => {
            field(out, "content-type", slice.content_type);
            number(out, slice.length);
            field(out, "accept-ranges", "bytes");
            field(out, "etag", slice.hit.tag().as_str());
            if reply.status == 206 {
                let last = slice.start + slice.length.saturating_sub(1);
                let _ = write!(
                    out,
                    "content-range: bytes {}-{last}/{}\r\n",
                    slice.start,
                    slice.hit.length()
                );
            }
        }
        Payload::Tag(tag) => field(out, "etag", tag.as_str()),
        Payload::Beyond(total) => drop(write!(out, "content-range: bytes */{total}\r\ncontent-length: 0\r\n")),
        Payload::Grpc(message) => {
            out.extend_from_slice(b"content-type: application/grpc\r\ngrpc-status: 12\r\ncontent-length: 0\r\n");
            field(out, "grpc-message", message);
        }
    }
    if let Some(digest) = &reply.digest {
        field(out, "content-digest", digest);
    }
    if let Some((name, value)) = reply.extra {
        field(out, name, value);
    }
    for (name, value) in &reply.more {
        field(out, name, value);
    }
    if !manner.keep_alive {
        out.extend_from_slice(b"connection: close\r\n");
    } else if manner.old {
        out.extend_from_slice(b"connection: keep-alive\r\n");
    }
    out.extend_from_slice(b"\r\n");
}

fn field(out: &mut Vec<u8>, name: &str, value: &str) {
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b": ");
    out.extend_from_slice(value.as_bytes());
    out.extend_from_slice(b"\r\n");
}

fn number(out: &mut Vec<u8>, value: u64) {
    let _ = write!(out, "content-length: {value}\r\n");
}

/// Seconds since 1970 in the one format RFC 9110 lets a server send.
fn http_date(second: u64) -> String {
    const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
    const MONTHS: [&str; 12] = [
        "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
    ];
    let (days, time) = (second / 86_400, second % 86_400);
    let (year, month, day) = civil(days);
    let name = |list: &[&'static str], at: u64| {
        usize::try_from(at)
            .ok()
            .and_then(|at| list.get(at).copied())
            .unwrap_or_default()
    };
    format!(
        "{}, {day:02} {} {year:04} {:02}:{:02}:{:02} GMT",
        name(&DAYS, days % 7),
        name(&MONTHS, month - 1),
        time / 3600,
        time / 60 % 60,
        time % 60
    )
}

/// Year, month and day of a day counted from 1970-01-01, in the calendar that starts its years in March: the leap day is
/// then the last of a year, and months follow a straight line.
fn civil(days: u64) -> (u64, u64, u64) {
    let shifted = days + 719_468;
    let era = shifted / 146_097;
    let day_of_era = shifted % 146_097;
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 {
        month_from_march + 3
    } else {
        month_from_march - 9
    };
    (year_of_era + era * 400 + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_what_the_rfc_shows() {
        assert_eq!(http_date(784_111_777), "Sun, 06 Nov 1994 08:49:37 GMT");
        assert_eq!(http_date(0), "Thu, 01 Jan 1970 00:00:00 GMT");
        assert_eq!(http_date(1_709_164_800), "Thu, 29 Feb 2024 00:00:00 GMT");
        assert_eq!(http_date(1_709_251_200), "Fri, 01 Mar 2024 00:00:00 GMT");
    }

    fn head(reply: &Reply, manner: Manner) -> String {
        let mut out = Vec::new();
        write_head(&mut out, reply, manner, "now");
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn headers_say_how_the_body_ends_and_how_the_connection_goes_on() {
        let manner = |keep_alive, old| Manner { keep_alive, old };
        let (keep, close, old) = (manner(true, false), manner(false, false), manner(true, true));
        let empty = "HTTP/1.1 204 No Content\r\ndate: now\r\n\r\n";
        assert_eq!(head(&Reply::empty(204), keep), empty);
        let zero = "HTTP/1.1 200 OK\r\ndate: now\r\ncontent-length: 0\r\n\r\n";
        assert_eq!(head(&Reply::empty(200), keep), zero);
        let json = "date: now\r\ncontent-type: application/json\r\ncontent-length: 2\r\nconnection: close";
        let last = format!("HTTP/1.1 404 Not Found\r\n{json}\r\n\r\n");
        assert_eq!(head(&Reply::json(404, "{}"), close), last);
        assert!(head(&Reply::empty(201), old).ends_with("connection: keep-alive\r\n\r\n"));
    }
}
