//! An HTTP/1.1 client that costs little beside the server it drives: one thread, one epoll, one request in flight per
//! connection. Bodies of answers are dropped inside the kernel (`MSG_TRUNC`), so their size costs the client nothing and
//! servers that do not copy look their best.

mod connection;

pub(crate) use connection::{Answer, Ask};

use super::key::Bodies;
use anyhow::{Context as _, Result, bail};
use connection::{Connection, Step};
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::fs::Timespec;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// What to ask next.
pub(crate) trait Source {
    /// Writes the head of the next request into `head`, which is empty. `None`: there is none.
    fn next(&mut self, head: &mut Vec<u8>) -> Option<Ask>;
}

/// How hard to drive.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Drive {
    pub(crate) address: SocketAddr,
    pub(crate) connections: usize,
    /// Nothing is asked after this time; what is in flight is waited for.
    pub(crate) time: Option<Duration>,
}

/// What happened.
#[derive(Debug, Default)]
pub(crate) struct Load {
    pub(crate) requests: u64,
    /// Body bytes, in both directions.
    pub(crate) bytes: u64,
    pub(crate) wall: Duration,
    /// Microseconds from the first byte sent to the last byte received, for requests without a body.
    pub(crate) reads: Vec<u32>,
    /// The same for requests with one.
    pub(crate) writes: Vec<u32>,
    /// Answers that were not what was expected, with how often they came.
    pub(crate) surprises: BTreeMap<String, u64>,
}

impl Load {
    /// Fails unless every answer was the expected one.
    pub(crate) fn clean(self, what: &str) -> Result<Self> {
        match self.surprises.first_key_value() {
            None => Ok(self),
            Some((surprise, count)) => {
                bail!("{what}: {count} of {} requests failed, with {surprise}", self.requests)
            }
        }
    }
}

/// Nothing moved for this long: something is stuck.
const STUCK: Duration = Duration::from_mins(2);
const EVENTS: usize = 256;
/// What one call drops at most. The kernel never writes there, so the pages stay untouched.
const DROP: usize = 4 << 20;

/// Asks until the source has no more or the time is over, on connections made beforehand.
pub(crate) fn run(drive: Drive, bodies: &Bodies, source: &mut dyn Source) -> Result<Load> {
    let epoll = epoll::create(CreateFlags::CLOEXEC)?;
    let mut connections = Vec::new();
    for number in 0..drive.connections {
        let connection = Connection::open(drive.address)
            .with_context(|| format!("failed to connect to {} (connection {number})", drive.address))?;
        watch(&epoll, &connection, number, Watch::Add)?;
        connections.push(connection);
    }
    let began = Instant::now();
    let deadline = drive.time.map(|time| began + time);
    let mut loader = Loader {
        epoll,
        bodies,
        source,
        deadline,
        load: Load::default(),
        busy: 0,
    };
    for (number, connection) in connections.iter_mut().enumerate() {
        loader.ask(connection, number)?;
    }
    let mut events = Vec::with_capacity(EVENTS);
    let mut sink = vec![0; DROP];
    let patience = Timespec {
        tv_sec: i64::try_from(STUCK.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: 0,
    };
    while loader.busy > 0 {
        events.clear();
        match epoll::wait(
            &loader.epoll,
            rustix::buffer::spare_capacity(&mut events),
            Some(&patience),
        ) {
            Ok(0) => bail!("no answer from {} for {} s", drive.address, STUCK.as_secs()),
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => continue,
            Err(error) => return Err(error.into()),
        }
        for event in &events {
            let number = usize::try_from(event.data.u64()).unwrap_or(usize::MAX);
            if let Some(connection) = connections.get_mut(number) {
                loader.step(connection, number, &mut sink)?;
            }
        }
    }
    loader.load.wall = began.elapsed();
    Ok(loader.load)
}

#[derive(Clone, Copy)]
enum Watch {
    Add,
    Change,
}

fn watch(epoll: &OwnedFd, connection: &Connection, number: usize, how: Watch) -> rustix::io::Result<()> {
    let mut flags = EventFlags::IN;
    if connection.is_sending() {
        flags |= EventFlags::OUT;
    }
    let data = EventData::new_u64(number as u64);
    match how {
        Watch::Add => epoll::add(epoll, &connection.stream, data, flags),
        Watch::Change => epoll::modify(epoll, &connection.stream, data, flags),
    }
}

struct Loader<'a> {
    epoll: OwnedFd,
    bodies: &'a Bodies,
    source: &'a mut dyn Source,
    deadline: Option<Instant>,
    load: Load,
    /// Connections with a request in flight.
    busy: usize,
}

impl Loader<'_> {
    fn ask(&mut self, connection: &mut Connection, number: usize) -> Result<()> {
        let now = Instant::now();
        if self.deadline.is_some_and(|deadline| now >= deadline) {
            return Ok(());
        }
        let head = connection.start(now);
        let Some(ask) = self.source.next(head) else {
            return Ok(());
        };
        self.busy += 1;
        let sent = connection.send(ask, self.bodies);
        self.after(connection, number, sent)
    }

    fn step(&mut self, connection: &mut Connection, number: usize, sink: &mut [u8]) -> Result<()> {
        if connection.is_idle() {
            return Ok(());
        }
        let sending = connection.is_sending();
        let mut step = if sending {
            connection.send_more(self.bodies)
        } else {
            Step::Wait
        };
        if matches!(step, Step::Blocked) {
            // It is watched for that already.
            return Ok(());
        }
        if matches!(step, Step::Wait) {
            step = connection.receive(sink);
        }
        if sending && !connection.is_sending() && !connection.is_idle() {
            watch(&self.epoll, connection, number, Watch::Change)?;
        }
        self.after(connection, number, step)
    }

    fn after(&mut self, connection: &mut Connection, number: usize, step: Step) -> Result<()> {
        match step {
            Step::Wait => Ok(()),
            Step::Blocked => Ok(watch(&self.epoll, connection, number, Watch::Change)?),
            Step::Done(answer) => {
                self.busy -= 1;
                self.note(&answer);
                self.ask(connection, number)
            }
            Step::Broken(reason) => {
                self.busy -= 1;
                self.load.requests += 1;
                *self.load.surprises.entry(reason).or_default() += 1;
                epoll::delete(&self.epoll, &connection.stream)?;
                Ok(())
            }
        }
    }

    fn note(&mut self, answer: &Answer) {
        let load = &mut self.load;
        load.requests += 1;
        load.bytes += answer.bytes;
        let micros = u32::try_from(answer.took.as_micros()).unwrap_or(u32::MAX);
        if answer.wrote {
            load.writes.push(micros);
        } else {
            load.reads.push(micros);
        }
        if let Some(surprise) = answer.surprise() {
            *load.surprises.entry(surprise).or_default() += 1;
        }
    }
}

#[cfg(test)]
mod tests;
