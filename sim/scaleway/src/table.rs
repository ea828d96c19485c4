//! Rows by id, with a memory.
//!
//! The memory is an undo log: what a row was before each change. It lets a list show the world as it was some seconds ago,
//! which is what eventual consistency looks like from outside: a new server is missing, a renamed one has its old name, a
//! deleted one is still there. Reads of a single row always see the present.

use crate::ids::Id;
use jiff::Timestamp;
use std::collections::{BTreeMap, VecDeque};

/// Something with an id.
pub(crate) trait Row: Clone {
    fn id(&self) -> &Id;
}

/// Types whose id is in a field of that name.
macro_rules! rows {
    ($($row:ty),+) => {
        $(impl $crate::table::Row for $row {
            fn id(&self) -> &$crate::ids::Id {
                &self.id
            }
        })+
    };
}
pub(crate) use rows;

/// Changes kept for lists that lag behind.
const MEMORY: usize = 10_000;

/// The rows of one kind.
#[derive(Debug, Clone, serde::Serialize, serde::Deserialize)]
pub(crate) struct Table<T> {
    rows: BTreeMap<Id, T>,
    /// When a row changed, and what it was before. A snapshot goes without: after a restart lists are up to date.
    #[serde(skip, default = "VecDeque::new")]
    past: VecDeque<(Timestamp, Id, Option<T>)>,
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self {
            rows: BTreeMap::new(),
            past: VecDeque::new(),
        }
    }
}

impl<T: Row> Table<T> {
    pub(crate) fn get(&self, id: &Id) -> Option<&T> {
        self.rows.get(id)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.rows.values()
    }

    /// Adds or replaces a row.
    pub(crate) fn put(&mut self, at: Timestamp, row: T) {
        let id = row.id().clone();
        let before = self.rows.insert(id.clone(), row);
        self.remember(at, id, before);
    }

    /// Changes a row in place, if it is there.
    pub(crate) fn change<R>(&mut self, at: Timestamp, id: &Id, change: impl FnOnce(&mut T) -> R) -> Option<R> {
        let row = self.rows.get_mut(id)?;
        let before = row.clone();
        let result = change(row);
        self.remember(at, id.clone(), Some(before));
        Some(result)
    }

    pub(crate) fn remove(&mut self, at: Timestamp, id: &Id) -> Option<T> {
        let row = self.rows.remove(id)?;
        self.remember(at, id.clone(), Some(row.clone()));
        Some(row)
    }

    fn remember(&mut self, at: Timestamp, id: Id, before: Option<T>) {
        if self.past.len() >= MEMORY {
            self.past.pop_front();
        }
        self.past.push_back((at, id, before));
    }

    /// The rows as they were at `moment`.
    pub(crate) fn as_of(&self, moment: Timestamp) -> Vec<&T> {
        let mut view: BTreeMap<&Id, &T> = self.rows.iter().collect();
        // All of them: a change may be recorded later than it happened, as that of a server made with an age.
        for (_, id, before) in self.past.iter().rev().filter(|(at, ..)| *at > moment) {
            match before {
                Some(row) => view.insert(id, row),
                None => view.remove(id),
            };
        }
        view.into_values().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Clone, PartialEq)]
    struct Named(Id, &'static str);

    impl Row for Named {
        fn id(&self) -> &Id {
            &self.0
        }
    }

    #[test]
    fn the_past_shows_what_was_before_each_change() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let id = Id::from_random([1; 32]);
        let mut table = Table::default();
        table.put(at(10), Named(id.clone(), "new"));
        table.change(at(20), &id, |row| row.1 = "renamed");
        table.remove(at(30), &id);
        let name = |second| table.as_of(at(second)).first().map(|row| row.1);
        assert_eq!(
            [name(9), name(10), name(19), name(20), name(29), name(30)],
            [None, Some("new"), Some("new"), Some("renamed"), Some("renamed"), None]
        );
        assert!(table.get(&id).is_none(), "a read of one row sees the present");
    }
}
