//! Where callers wait who have not said who they are.
//!
//! Anybody can connect, and a connection is not known for what it is before its first request was answered by the apiserver. There
//! is room for a few of these; when it is full, or every seat of the server is taken, the one that has waited longest is shown out.
//! Who has something to say does so in milliseconds, so it is the idle that go and never those who are welcome.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio_util::sync::CancellationToken;

#[derive(Debug)]
pub(super) struct Lobby {
    most: usize,
    /// Held for a look or a change, never across a wait.
    guests: Mutex<Guests>,
}

#[derive(Debug, Default)]
struct Guests {
    last: u64,
    /// By number, so the first has waited longest.
    waiting: BTreeMap<u64, CancellationToken>,
}

impl Guests {
    fn dismiss(&mut self) {
        if let Some((_, leave)) = self.waiting.pop_first() {
            leave.cancel();
        }
    }
}

impl Lobby {
    pub(super) fn new(most: usize) -> Arc<Self> {
        Arc::new(Self {
            most: most.max(1),
            guests: Mutex::default(),
        })
    }

    fn guests(&self) -> MutexGuard<'_, Guests> {
        self.guests.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One more, for whom another may have to go.
    pub(super) fn enter(self: &Arc<Self>) -> Guest {
        let leave = CancellationToken::new();
        let mut guests = self.guests();
        guests.last += 1;
        let number = guests.last;
        guests.waiting.insert(number, leave.clone());
        while guests.waiting.len() > self.most {
            guests.dismiss();
        }
        drop(guests);
        Guest {
            lobby: self.clone(),
            number,
            leave,
        }
    }

    /// Shows out the one that has waited longest, if anybody waits.
    pub(super) fn make_room(&self) {
        self.guests().dismiss();
    }
}

/// Waits until it is known or dropped.
#[derive(Debug)]
pub(super) struct Guest {
    lobby: Arc<Lobby>,
    number: u64,
    leave: CancellationToken,
}

impl Guest {
    /// It has said who it is, and may stay.
    pub(super) fn known(&self) {
        self.lobby.guests().waiting.remove(&self.number);
    }

    /// Ends when its place is needed.
    pub(super) async fn dismissed(&self) {
        self.leave.cancelled().await;
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        self.known();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dismissed(guests: &[&Guest]) -> Vec<bool> {
        guests.iter().map(|guest| guest.leave.is_cancelled()).collect()
    }

    #[test]
    fn the_one_that_waited_longest_makes_room() {
        let lobby = Lobby::new(2);
        let (first, second) = (lobby.enter(), lobby.enter());
        assert_eq!(dismissed(&[&first, &second]), [false, false]);
        let third = lobby.enter();
        assert_eq!(dismissed(&[&first, &second, &third]), [true, false, false]);
        lobby.make_room();
        assert_eq!(dismissed(&[&second, &third]), [true, false]);
    }

    #[test]
    fn those_who_are_known_or_gone_take_no_room() {
        let lobby = Lobby::new(1);
        let known = lobby.enter();
        known.known();
        drop(lobby.enter());
        let last = lobby.enter();
        assert_eq!(dismissed(&[&known, &last]), [false, false]);
        lobby.make_room();
        lobby.make_room();
        assert_eq!(dismissed(&[&known, &last]), [false, true]);
    }
}
