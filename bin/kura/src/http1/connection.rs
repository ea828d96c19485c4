//! One connection, from its first byte to its last.

use super::body::{POLITE, Rest, SocketBody};
use super::head_end::Search;
use super::parser::{MAX_HEAD, Parsed, Refusal, Terms, parse};
use super::response::{Manner, send};
use super::socket::Socket;
use super::wait::{Ended, Patience, Wire};
use crate::http::reply::Reply;
use crate::http::route::Route;
use crate::http::service::{Plan, Planned, Service};
use crate::http::span::Traced;
use crate::lifecycle::Inflight;
use bytes::{Buf as _, Bytes};
use russet_identity::{Clock as _, SystemClock};
use std::pin::pin;
use std::time::Duration;
use tokio::time::Instant;

/// Empty lines before a request that are forgiven, as RFC 9112 asks.
const FORGIVEN_LINES: u8 = 2;
/// Requests answered in a row before other connections get their turn.
const ROW: u32 = 64;
/// A connection this old ends with its next answer, so that clients find new nodes and old ones empty.
const LIFE: Duration = Duration::from_mins(5);
/// How long a closing connection is read on, so that its last answer is not lost to a reset.
const LINGER: Duration = Duration::from_secs(30);

/// A connection that speaks HTTP/2, with what was read of it.
#[derive(Debug)]
pub struct Handover {
    /// The socket.
    pub stream: Socket,
    /// Bytes to replay.
    pub read: Bytes,
}

/// Serves HTTP/1.1 until the connection ends, or turns out to be HTTP/2.
pub async fn serve(stream: Socket, service: &Service, patience: Patience) -> Option<Handover> {
    let mut wire = Wire::new(stream, patience);
    // A connection made while the node drains still gets one answer: probes open one for each question.
    let late = service.shared.lifecycle.is_draining();
    let draining = service.shared.lifecycle.draining();
    // Polled once: it remembers this task, which then looks at the state whenever it wakes. See `Wire::fill`.
    let mut drained = pin!(draining.cancelled());
    let mut armed = false;
    let mut row = 0;
    loop {
        if !armed {
            armed = true;
            std::future::poll_fn(|cx| {
                let _ = drained.as_mut().poll(cx);
                std::task::Poll::Ready(())
            })
            .await;
        }
        match exchange(&mut wire, service, late).await {
            Next::Again => {}
            Next::Close => {
                if wire.stream.plain().is_none() {
                    let _ = wire.shut().await;
                }
                return None;
            }
            Next::Http2 => {
                return Some(Handover {
                    stream: wire.stream,
                    read: wire.input.freeze(),
                });
            }
        }
        row += 1;
        if row == ROW {
            row = 0;
            tokio::task::yield_now().await;
        }
    }
}

enum Next {
    Again,
    Close,
    Http2,
}

/// One request and its answer.
async fn exchange(wire: &mut Wire, service: &Service, late: bool) -> Next {
    let end = match read_head(wire, service, late).await {
        Ok(Some(end)) => end,
        Ok(None) => return Next::Close,
        Err(refusal) => return refuse(wire, service, refusal).await,
    };
    let started = Instant::now();
    let inflight = service.shared.lifecycle.enter();
    let head = wire.input.get(..end).unwrap_or_default();
    let (planned, terms, traced) = match parse(head) {
        Ok(Parsed::Http2Preface) => return Next::Http2,
        Err(refusal) => return refuse(wire, service, refusal).await,
        Ok(Parsed::Request(head, terms)) => {
            let mut traced = service.trace(&head, if terms.old { "1.0" } else { "1.1" });
            let now = SystemClock.now();
            let mut planned = service.plan(&head, now, None);
            if let Plan::Ask(question) = planned.plan {
                let decision = service.ask(question).await;
                planned = service.plan(&head, now, Some(decision));
            }
            if let Some(traced) = &mut traced {
                traced.planned(&planned);
            }
            (planned, terms, traced)
        }
    };
    wire.input.advance(end);
    let underway = Underway {
        started,
        inflight,
        traced,
    };
    answer(wire, service, planned, terms, underway).await
}

/// A request on its way to its answer.
struct Underway<'a> {
    started: Instant,
    inflight: Inflight<'a>,
    traced: Option<Traced>,
}

async fn answer(wire: &mut Wire, service: &Service, planned: Planned, terms: Terms, underway: Underway<'_>) -> Next {
    let Planned {
        route, plan, digest, ..
    } = planned;
    let started = underway.started;
    let mut body = SocketBody::new(wire, terms, started);
    let mut reply = service.perform(plan, digest, &mut body).await;
    let rest = body.rest().await;
    let aged = started.duration_since(body.wire().opened) > LIFE;
    let keep_alive =
        terms.keep_alive && !reply.close && !aged && rest != Rest::Large && !service.shared.lifecycle.is_draining();
    let (status, egress) = (reply.status, reply.egress());
    let manner = Manner {
        keep_alive,
        old: terms.old,
    };
    // The socket is the body's until the rest is dealt with; an answer may well go out before that.
    let sent = send(body.wire(), reply, manner, service).await;
    let took = started.elapsed();
    service.shard.request(route, status, took);
    if let Some((receipt, length)) = egress {
        service.sent(receipt, body.wire().delivered(), length, took);
    }
    if let Some(mut traced) = underway.traced {
        traced.answered(status, body.wire().delivered());
    }
    // The request is over; what is left is courtesy, which a drain does not wait for.
    drop(underway.inflight);
    if sent.is_err() {
        return Next::Close;
    }
    if rest == Rest::Small && !body.discard(POLITE).await {
        return Next::Close;
    }
    if keep_alive {
        let now = Instant::now();
        let idle = wire.patience.idle;
        wire.until(now + idle);
        wire.rest();
        return Next::Again;
    }
    if rest == Rest::Large {
        linger(wire).await;
    }
    Next::Close
}

/// Waits for a whole head; `None` when the connection is over before one began.
async fn read_head(wire: &mut Wire, service: &Service, late: bool) -> Result<Option<usize>, Refusal> {
    let mut search = Search::default();
    let mut begun = false;
    let mut forgiven = 0;
    loop {
        while search == Search::default() && wire.input.starts_with(b"\r\n") && forgiven < FORGIVEN_LINES {
            wire.input.advance(2);
            forgiven += 1;
        }
        let alone = wire.input.len() < 2 && search == Search::default();
        // A lone carriage return may still become an empty line.
        if !(alone && wire.input.starts_with(b"\r"))
            && let Some(end) = search.advance(&wire.input, MAX_HEAD)?
        {
            return Ok(Some(end));
        }
        if !begun && !wire.input.is_empty() {
            begun = true;
            let deadline = Instant::now() + wire.patience.header;
            wire.until(deadline);
        }
        let lifecycle = &service.shared.lifecycle;
        match wire.fill(1, || !begun && !late && lifecycle.is_draining()).await {
            Ok(()) => {}
            Err(Ended::TimedOut) if begun => {
                let reply = Reply::message(408, "Request header timed out");
                let manner = Manner {
                    keep_alive: false,
                    old: false,
                };
                let _ = send(wire, reply, manner, service).await;
                return Ok(None);
            }
            Err(_) => return Ok(None),
        }
    }
}

/// Tells a client what was wrong with its bytes, and ends the connection: where the next request begins is anyone's guess.
async fn refuse(wire: &mut Wire, service: &Service, refusal: Refusal) -> Next {
    let started = Instant::now();
    service.shard.refused();
    let reply = Reply::message(refusal.status(), &refusal.to_string());
    let status = reply.status;
    let manner = Manner {
        keep_alive: false,
        old: false,
    };
    if send(wire, reply, manner, service).await.is_ok() {
        linger(wire).await;
    }
    service.shard.request(Route::Unknown, status, started.elapsed());
    Next::Close
}

/// Closes without losing the answer: a socket closed with unread bytes resets, and the reset may overtake the answer.
async fn linger(wire: &mut Wire) {
    if wire.shut().await.is_err() {
        return;
    }
    wire.until(Instant::now() + LINGER);
    loop {
        wire.input.clear();
        if wire.fill(64 * 1024, || false).await.is_err() {
            return;
        }
    }
}
