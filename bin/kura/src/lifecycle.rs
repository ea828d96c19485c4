//! Joining, serving, draining: what the node tells probes and how it leaves.
//!
//! ```text
//! joining ──store open──► serving ──SIGUSR1 or SIGTERM──► draining ──SIGTERM only: idle or timeout──► exit
//! ```

use std::sync::atomic::{AtomicI64, AtomicU8, AtomicU64, Ordering};
use tokio_util::sync::CancellationToken;

/// Where the node is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum State {
    /// The store is being opened.
    Joining = 0,
    /// Requests are answered.
    Serving = 1,
    /// New cache requests are told to go elsewhere.
    Draining = 2,
}

impl State {
    /// The word probes and the rollout gate read.
    pub fn word(self) -> &'static str {
        match self {
            Self::Joining => "joining",
            Self::Serving => "serving",
            Self::Draining => "draining",
        }
    }
}

/// The node's state, shared by every connection.
#[derive(Debug, Default)]
pub struct Lifecycle {
    state: AtomicU8,
    generation: AtomicU64,
    inflight_http: AtomicI64,
    inflight_grpc: AtomicI64,
    conversations: AtomicI64,
    draining: CancellationToken,
}

impl Lifecycle {
    /// The state now. One relaxed load: it is asked for every request.
    pub fn state(&self) -> State {
        match self.state.load(Ordering::Relaxed) {
            0 => State::Joining,
            1 => State::Serving,
            _ => State::Draining,
        }
    }

    /// Joining is over. A node that is already draining stays so.
    pub fn serve(&self) {
        let from = State::Joining as u8;
        if self
            .state
            .compare_exchange(from, State::Serving as u8, Ordering::Relaxed, Ordering::Relaxed)
            .is_ok()
        {
            self.generation.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Starts draining. `false` if it had started before.
    pub fn drain(&self) -> bool {
        if self.state.swap(State::Draining as u8, Ordering::Relaxed) == State::Draining as u8 {
            return false;
        }
        self.generation.fetch_add(1, Ordering::Relaxed);
        self.draining.cancel();
        true
    }

    /// Whether draining has begun.
    pub fn is_draining(&self) -> bool {
        self.state() == State::Draining
    }

    /// Wakes once when draining begins; idle connections wait on it.
    pub fn draining(&self) -> CancellationToken {
        self.draining.clone()
    }

    /// How often the state has changed.
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Relaxed)
    }

    /// Counts a request until the guard is dropped.
    pub fn enter(&self) -> Inflight<'_> {
        self.begin();
        Inflight(self)
    }

    /// Counts a request until [`Lifecycle::end`], for who cannot hold a borrow.
    pub fn begin(&self) {
        self.inflight_http.fetch_add(1, Ordering::Relaxed);
    }

    /// A request that [`Lifecycle::begin`] counted is over.
    pub fn end(&self) {
        self.inflight_http.fetch_sub(1, Ordering::Relaxed);
    }

    /// Counts a gRPC call until [`Lifecycle::end_call`].
    pub fn begin_call(&self) {
        self.inflight_grpc.fetch_add(1, Ordering::Relaxed);
    }

    /// A call that [`Lifecycle::begin_call`] counted is over.
    pub fn end_call(&self) {
        self.inflight_grpc.fetch_sub(1, Ordering::Relaxed);
    }

    /// Counts a connection that has more to send than its requests know of, until the guard is dropped.
    ///
    /// HTTP/2 buffers answers: a request is over before its last byte has left.
    pub fn converse(&self) -> Conversation<'_> {
        self.conversations.fetch_add(1, Ordering::Relaxed);
        Conversation(self)
    }

    /// Nothing that was begun is unfinished.
    pub fn is_quiet(&self) -> bool {
        self.inflight() == 0 && self.inflight_calls() == 0 && self.conversations.load(Ordering::Relaxed) == 0
    }

    /// HTTP requests being answered now.
    pub fn inflight(&self) -> i64 {
        self.inflight_http.load(Ordering::Relaxed)
    }

    /// gRPC calls being answered now.
    pub fn inflight_calls(&self) -> i64 {
        self.inflight_grpc.load(Ordering::Relaxed)
    }
}

/// One request in flight.
#[derive(Debug)]
pub struct Inflight<'a>(&'a Lifecycle);

impl Drop for Inflight<'_> {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// One connection that must be emptied before the node ends.
#[derive(Debug)]
pub struct Conversation<'a>(&'a Lifecycle);

impl Drop for Conversation<'_> {
    fn drop(&mut self) {
        self.0.conversations.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draining_is_final_and_announced_once() {
        let life = Lifecycle::default();
        assert_eq!(life.state(), State::Joining);
        life.serve();
        assert_eq!(life.state(), State::Serving);
        assert!(life.drain());
        assert!(!life.drain());
        life.serve();
        assert_eq!(life.state(), State::Draining);
        assert!(life.draining().is_cancelled());
        assert_eq!(life.generation(), 2);
    }

    #[test]
    fn requests_are_counted_while_they_last() {
        let life = Lifecycle::default();
        let guard = life.enter();
        assert_eq!(life.inflight(), 1);
        drop(guard);
        assert_eq!(life.inflight(), 0);
        life.begin_call();
        assert!(!life.is_quiet() && life.inflight() == 0 && life.inflight_calls() == 1);
        life.end_call();
        let conversation = life.converse();
        assert!(!life.is_quiet(), "what is buffered has not been sent");
        drop(conversation);
        assert!(life.is_quiet());
    }
}
