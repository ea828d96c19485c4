//! What happened, numbered from 1: requests for those who count them, events for those who follow them.

use std::collections::VecDeque;
use tokio::sync::watch;

/// The latest entries of one kind.
#[derive(Debug)]
pub struct Log<E> {
    entries: VecDeque<(u64, E)>,
    kept: usize,
    last: watch::Sender<u64>,
}

impl<E: Clone> Log<E> {
    /// An empty one that keeps so many entries.
    pub fn new(kept: usize) -> Self {
        Self {
            entries: VecDeque::new(),
            kept,
            last: watch::Sender::new(0),
        }
    }

    /// Adds what is made of the next number, and wakes the followers.
    pub fn push(&mut self, entry: impl FnOnce(u64) -> E) {
        let number = self.last() + 1;
        if self.entries.len() >= self.kept {
            self.entries.pop_front();
        }
        self.entries.push_back((number, entry(number)));
        self.last.send_replace(number);
    }

    /// The number of the last entry, kept or not.
    pub fn last(&self) -> u64 {
        *self.last.borrow()
    }

    /// That number as it grows.
    pub fn subscribe(&self) -> watch::Receiver<u64> {
        self.last.subscribe()
    }

    pub fn clear(&mut self) {
        self.entries.clear();
    }

    /// The entries after a number, the oldest first.
    pub fn after(&self, number: u64) -> Vec<E> {
        let later = self.entries.iter().filter(|(at, _)| *at > number);
        later.map(|(_, entry)| entry.clone()).collect()
    }

    pub fn count(&self, fits: impl Fn(&E) -> bool) -> usize {
        self.entries.iter().filter(|(_, entry)| fits(entry)).count()
    }
}
