//! What happened, numbered from 1, for whoever follows it.

use std::collections::VecDeque;
use tokio::sync::watch;

/// Events kept.
const KEPT: usize = 10_000;

/// The latest events of one kind.
#[derive(Debug)]
pub(crate) struct Feed<E> {
    events: VecDeque<(u64, E)>,
    last: u64,
}

impl<E> Default for Feed<E> {
    fn default() -> Self {
        Self {
            events: VecDeque::new(),
            last: 0,
        }
    }
}

impl<E: Clone> Feed<E> {
    /// Adds what is made of the next number.
    pub(crate) fn push(&mut self, event: impl FnOnce(u64) -> E) {
        self.last += 1;
        if self.events.len() >= KEPT {
            self.events.pop_front();
        }
        self.events.push_back((self.last, event(self.last)));
    }

    pub(crate) fn after(&self, number: u64) -> Vec<E> {
        let later = self.events.iter().filter(|(at, _)| *at > number);
        later.map(|(_, event)| event.clone()).collect()
    }

    /// Wakes those who follow, if there is news for them.
    pub(crate) fn tell(&self, followers: &watch::Sender<u64>) {
        followers.send_if_modified(|seen| std::mem::replace(seen, self.last) != self.last);
    }
}
