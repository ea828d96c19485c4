//! The store as its callers see it.

use std::borrow::Cow;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::backend::{Backend, FileBackend, LockError};
use crate::changes::Changes;
use crate::chores::Free;
use crate::commit::{Done, Request};
use crate::core::{Core, Urgency};
use crate::error::Error;
use crate::format::Class;
use crate::key::{Durability, Key, Kind, Outcome, check_body, check_references};
use crate::lease::Leased;
use crate::options::{Background, Options};
use crate::reader::{Entry, Presence, Small};
use crate::recovery::{Recovered, recover};
use crate::scrub::{Checked, Inspection};
use crate::stats::Stats;
use crate::sync::lock;
use crate::writer::Begin;

/// One write.
#[derive(Clone, Debug)]
pub struct Put<'a> {
    pub key: Key<'a>,
    pub body: Cow<'a, [u8]>,
    /// Entries this one is worthless without: when one of them is gone, this one is a miss.
    pub references: &'a [Key<'a>],
    /// For replicated writes: the version of the origin. Otherwise the store's hybrid clock gives one.
    pub version: Option<u64>,
    /// Instead of the store's default.
    pub durability: Option<Durability>,
}

impl<'a> Put<'a> {
    pub fn new(key: Key<'a>, body: impl Into<Cow<'a, [u8]>>) -> Self {
        Self {
            key,
            body: body.into(),
            references: &[],
            version: None,
            durability: None,
        }
    }

    /// For streams, whose body comes later.
    pub fn stream(key: Key<'a>) -> Self {
        Self::new(key, Vec::new())
    }

    #[must_use]
    pub fn references(mut self, references: &'a [Key<'a>]) -> Self {
        self.references = references;
        self
    }

    #[must_use]
    pub fn version(mut self, version: u64) -> Self {
        self.version = Some(version);
        self
    }

    #[must_use]
    pub fn durability(mut self, durability: Durability) -> Self {
        self.durability = Some(durability);
        self
    }
}

/// A submitted write. Dropping it does not take the write back.
#[derive(Debug)]
pub struct Ticket {
    core: Arc<Core>,
    state: Arc<TicketState>,
}

#[derive(Debug, Default)]
struct TicketState {
    done: AtomicBool,
    result: Mutex<Option<Result<Outcome, Error>>>,
}

impl Ticket {
    pub(crate) fn new(core: &Arc<Core>) -> (Self, Done) {
        let state = Arc::<TicketState>::default();
        let answer = Arc::clone(&state);
        let done = Box::new(move |result| {
            *lock(&answer.result) = Some(result);
            answer.done.store(true, Ordering::Release);
        });
        (
            Self {
                core: Arc::clone(core),
                state,
            },
            done,
        )
    }

    pub fn is_done(&self) -> bool {
        self.state.done.load(Ordering::Acquire)
    }

    /// Waits for the answer, doing the commit for everybody when nobody else does.
    pub fn wait(self) -> Result<Outcome, Error> {
        self.core.commit_until(|| self.is_done());
        lock(&self.state.result).take().unwrap_or(Err(Error::Closed))
    }
}

/// A cheap handle to an open store; all calls are safe from many threads. The last handle to go closes it.
#[derive(Clone, Debug)]
pub struct Store {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    core: Arc<Core>,
    recovered: Recovered,
    threads: Mutex<Vec<JoinHandle<()>>>,
    /// Released last.
    guard: Mutex<Option<Box<dyn std::fmt::Debug + Send + Sync>>>,
}

impl Store {
    /// Opens or creates a store in a folder.
    pub fn open(dir: impl AsRef<Path>, options: Options) -> Result<Self, Error> {
        Self::open_on(Arc::new(FileBackend::new(dir.as_ref())), options)
    }

    pub fn open_on(backend: Arc<dyn Backend>, options: Options) -> Result<Self, Error> {
        let guard = backend.lock().map_err(|e| match e {
            LockError::Held { pid } => Error::Locked {
                dir: backend.describe(),
                pid,
            },
            LockError::Io(source) => Error::io("locking the folder of the store")(source),
        })?;
        let background = options.background;
        let (core, recovered) = recover(backend, options)?;
        let core = Arc::new(core);
        let mut threads = Vec::new();
        if background == Background::Threads {
            threads.push(spawn("segstore-commit", &core, Core::commit_forever)?);
            threads.push(spawn("segstore-chores", &core, Core::maintain_forever)?);
        }
        let shared = Shared {
            core,
            recovered,
            threads: Mutex::new(threads),
            guard: Mutex::new(Some(guard)),
        };
        Ok(Self {
            shared: Arc::new(shared),
        })
    }

    pub(crate) fn core(&self) -> &Arc<Core> {
        &self.shared.core
    }

    /// What was found at open.
    pub fn recovered(&self) -> Recovered {
        self.shared.recovered
    }

    /// The random id of this store, for followers.
    pub fn id(&self) -> u128 {
        self.core().header.store_id
    }

    /// Writes an entry and returns when it is visible and durable. Many callers at once share one write and one sync.
    pub fn put(&self, put: Put<'_>) -> Result<Outcome, Error> {
        if put.body.len() > self.core().options.small_limit {
            return self.put_large(&put);
        }
        let ticket = self.submit(put)?;
        let outcome = ticket.wait();
        self.core().after_call();
        outcome
    }

    fn put_large(&self, put: &Put<'_>) -> Result<Outcome, Error> {
        match self.writer(put, Some(put.body.len() as u64))? {
            Begin::Exists => Ok(Outcome::Exists),
            Begin::Writer(mut writer) => {
                writer.write(&put.body)?;
                writer.finish()
            }
        }
    }

    /// Queues a write and returns at once. It is committed by the next caller that waits, by [`Store::commit`], or by the
    /// commit thread.
    pub fn submit(&self, put: Put<'_>) -> Result<Ticket, Error> {
        let (ticket, done) = Ticket::new(self.core());
        self.enqueue(put, done)?;
        Ok(ticket)
    }

    /// Like [`Store::submit`], with a callback instead of a ticket. It runs once, on the thread that commits, and should
    /// only pass the answer on. When this call itself fails, the callback is dropped.
    pub fn submit_with(
        &self,
        put: Put<'_>,
        done: impl FnOnce(Result<Outcome, Error>) + Send + 'static,
    ) -> Result<(), Error> {
        self.enqueue(put, Box::new(done))
    }

    fn enqueue(&self, put: Put<'_>, done: Done) -> Result<(), Error> {
        let core = self.core();
        core.check_writable(Urgency::Ordinary)?;
        put.key.check()?;
        check_body(put.body.len() as u64)?;
        check_references(put.references.len())?;
        core.check_fits(put.body.len() as u64)?;
        let queued = core.log.queued();
        if queued > core.options.queue_limit {
            return Err(Error::Overloaded {
                queued,
                retry_after: Duration::from_millis(100),
            });
        }
        let body_crc = crate::bytes::crc(&put.body);
        core.enqueue(Request {
            class: Class::Put,
            kind: put.key.kind,
            fingerprint: put.key.fingerprint(core.header.hash_key).0,
            namespace: Cow::Borrowed(put.key.namespace),
            namespace_number: core.namespace_number(put.key.namespace)?,
            key: Cow::Borrowed(put.key.key),
            references: core.fingerprints(put.references),
            body: put.body,
            body_crc,
            version: put.version,
            durability: put.durability.unwrap_or(core.options.durability),
            done,
        });
        Ok(())
    }

    /// Commits everything that was submitted, on this thread.
    pub fn commit(&self) {
        self.core().commit_all();
        self.core().after_call();
    }

    /// Starts a stream of known or unknown length; the body of `put` is ignored.
    pub fn writer(&self, put: &Put<'_>, length: Option<u64>) -> Result<Begin, Error> {
        self.core().writer(put, length)
    }

    /// Whether the entry is there, from memory alone. It counts as a use.
    pub fn contains(&self, key: &Key<'_>) -> Option<Presence> {
        self.core().contains(key)
    }

    /// Looks an entry up. `None` is a miss, and so is an entry found damaged or with a reference gone.
    pub fn get(&self, key: &Key<'_>) -> Result<Option<Entry>, Error> {
        self.core().get(key)
    }

    /// Reads a body of up to `limit` bytes to the end of `buf` with one system call.
    pub fn read_into(&self, key: &Key<'_>, limit: u32, buf: &mut Vec<u8>) -> Result<Small, Error> {
        self.core().read_into(key, limit, buf)
    }

    /// Deletes one entry.
    pub fn delete(&self, key: &Key<'_>, durability: Durability) -> Result<Outcome, Error> {
        key.check()?;
        self.note(Class::Delete, key, durability)
    }

    /// Deletes everything in a namespace, durably, and gives its disk space back before it returns.
    pub fn delete_namespace(&self, namespace: &[u8]) -> Result<Outcome, Error> {
        let key = Key {
            kind: Kind::immutable(0),
            namespace,
            key: &[],
        };
        key.check()?;
        let outcome = self.note(Class::DeleteNamespace, &key, Durability::Power)?;
        let core = self.core();
        core.close_log();
        core.close_streams();
        core.maintain_now(Free::Everything);
        core.look_for_space();
        Ok(outcome)
    }

    fn note(&self, class: Class, key: &Key<'_>, durability: Durability) -> Result<Outcome, Error> {
        let core = self.core();
        core.check_writable(Urgency::FreesSpace)?;
        let (ticket, done) = Ticket::new(core);
        let fingerprint = if class == Class::Delete {
            key.fingerprint(core.header.hash_key).0
        } else {
            0
        };
        core.enqueue(Request {
            class,
            kind: key.kind,
            fingerprint,
            namespace: Cow::Borrowed(key.namespace),
            namespace_number: core.namespace_number(key.namespace)?,
            key: Cow::Borrowed(key.key),
            references: Box::default(),
            body: Cow::Borrowed(&[]),
            body_crc: crate::bytes::crc(&[]),
            version: None,
            durability,
            done,
        });
        let outcome = ticket.wait();
        core.after_call();
        outcome
    }

    /// Keeps entries, and what they refer to, from eviction for a time.
    pub fn lease(&self, keys: &[Key<'_>], ttl: Duration) -> Result<Leased, Error> {
        self.core().lease(keys, ttl)
    }

    /// Up to `limit` changes after a sequence, in order; 0 starts at the beginning.
    pub fn changes(&self, after: u64, limit: usize) -> Result<Changes, Error> {
        self.core().changes(after, limit.max(1))
    }

    /// Reads and checks every live byte. Damaged entries are dropped and counted.
    pub fn verify(&self) -> Result<Checked, Error> {
        self.core().verify()
    }

    /// Checks about `budget` bytes, going on where the last call ended.
    pub fn scrub(&self, budget: u64) -> Result<Checked, Error> {
        self.core().scrub(budget)
    }

    /// What is in the store, by namespace and kind, and its segments.
    pub fn inspect(&self) -> Inspection {
        self.core().inspect()
    }

    pub fn stats(&self) -> Stats {
        self.core().stats()
    }

    /// Seals, evicts and frees what is due, on this thread.
    pub fn maintain(&self) {
        self.core().maintain_now(Free::Usual);
    }

    /// Makes everything acknowledged so far survive power loss.
    pub fn flush(&self) -> Result<(), Error> {
        let core = self.core();
        core.commit_all();
        core.sync_all()
    }

    /// Commits and seals everything, so that the next open reads footers only. Later writes fail, reads go on.
    pub fn close(&self) -> Result<(), Error> {
        self.shared.close()
    }
}

impl Shared {
    fn close(&self) -> Result<(), Error> {
        let core = &self.core;
        if core.closed.swap(true, Ordering::SeqCst) {
            return Ok(());
        }
        core.log.state().stop = true;
        lock(&core.chores.state).stop = true;
        core.log.changed.notify_all();
        core.chores.wake.notify_all();
        for thread in lock(&self.threads).drain(..) {
            // A handle dropped inside a callback must not wait for its own thread.
            if thread.thread().id() != std::thread::current().id() {
                let _ = thread.join();
            }
        }
        core.commit_until_idle();
        core.close_log();
        core.close_streams();
        core.close_survivors();
        core.maintain_now(Free::Usual);
        core.close_survivors();
        core.seal_closing();
        core.shut.store(true, Ordering::SeqCst);
        lock(&self.guard).take();
        core.health.poisoned().map_or(Ok(()), Err)
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        let _ = self.close();
    }
}

fn spawn(name: &str, core: &Arc<Core>, work: fn(&Core)) -> Result<JoinHandle<()>, Error> {
    let core = Arc::clone(core);
    let guarded = move || {
        let watch = Watch(&core);
        work(&core);
        std::mem::forget(watch);
    };
    std::thread::Builder::new()
        .name(name.to_owned())
        .spawn(guarded)
        .map_err(Error::io("starting a thread"))
}

/// Poisons the store when a background thread panics: what it left half done is for recovery to sort out.
struct Watch<'a>(&'a Core);

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        self.0.health.poison(&Arc::new(std::io::Error::other(
            "a background thread of the store panicked",
        )));
    }
}
