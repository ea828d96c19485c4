//! Reading a list that changes while it is read.
//!
//! Pages are cut at the moment of each request. If a row of page 1 is deleted before page 2 is read, the first row of page
//! 2 moves to page 1 and is never seen. A total that adds up proves nothing, because a deletion and a creation cancel out.
//! To us a row that is not seen is a host that seems not to exist, and is ordered again or reported lost.
//!
//! So: a list that fits one page is one moment, and believed. A longer one is read again until two readings in a row agree
//! on the ids and every total adds up. Ids are never used twice, so a row whose deletion made another slip is missing from
//! the second reading, and the two differ. This needs rows that keep their order, which is why lists ask for the oldest
//! first where the API allows it.

use std::collections::{HashMap, HashSet};

/// One page.
#[derive(Clone, Debug)]
pub struct Page<T> {
    /// Its rows.
    pub rows: Vec<T>,
    /// How many rows the API says there are in all.
    pub total: u64,
}

/// A row of a list.
pub trait Row {
    /// Its id, never used twice.
    fn id(&self) -> &str;
}

/// What to do next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next<T> {
    /// Read this page, counted from 1.
    Read(u32),
    /// Rows moved: read from page 1 again.
    ReadAgain,
    /// These are the rows, as last read.
    Done(Vec<T>),
    /// The list did not come to rest.
    Restless {
        /// How often it was read.
        sweeps: u32,
    },
}

/// How often a list is read before giving up.
pub const MAX_SWEEPS: u32 = 6;
/// Most pages of one reading. A server that never ends a list must not hold us for ever.
pub const MAX_PAGES: u32 = 10_000;

/// The readings of one list.
#[derive(Debug)]
pub struct Sweeps<T> {
    page: u32,
    rows: Vec<T>,
    positions: HashMap<String, usize>,
    seen: u64,
    total: u64,
    /// No row came twice and every page gave the same total.
    quiet: bool,
    previous: Option<HashSet<String>>,
    sweep: u32,
}

impl<T: Row> Default for Sweeps<T> {
    fn default() -> Self {
        Self {
            page: 1,
            rows: Vec::new(),
            positions: HashMap::new(),
            seen: 0,
            total: 0,
            quiet: true,
            previous: None,
            sweep: 1,
        }
    }
}

impl<T: Row> Sweeps<T> {
    /// Takes the page that was asked for (the first is page 1) and says what to do next.
    pub fn accept(&mut self, page: Page<T>) -> Next<T> {
        if self.page == 1 {
            self.total = page.total;
        }
        self.quiet &= page.total == self.total;
        let last = page.rows.is_empty();
        for row in page.rows {
            self.seen += 1;
            // The later sight of a row is the better one.
            if let Some(slot) = self
                .positions
                .get(row.id())
                .and_then(|position| self.rows.get_mut(*position))
            {
                *slot = row;
                self.quiet = false;
            } else {
                self.positions.insert(row.id().to_owned(), self.rows.len());
                self.rows.push(row);
            }
        }
        // The API may give shorter pages than were asked for, so what counts is rows, not pages.
        if last || self.seen >= page.total.max(self.total) || self.page >= MAX_PAGES {
            self.end_of_sweep()
        } else {
            self.page += 1;
            Next::Read(self.page)
        }
    }

    fn end_of_sweep(&mut self) -> Next<T> {
        let adds_up = self.quiet && u64::try_from(self.rows.len()).is_ok_and(|rows| rows == self.total);
        let ids: HashSet<String> = self.positions.drain().map(|(id, _)| id).collect();
        let at_rest = self.page == 1 || self.previous.as_ref() == Some(&ids);
        if adds_up && at_rest {
            return Next::Done(std::mem::take(&mut self.rows));
        }
        if self.sweep >= MAX_SWEEPS {
            return Next::Restless { sweeps: self.sweep };
        }
        *self = Self {
            previous: adds_up.then_some(ids),
            sweep: self.sweep + 1,
            ..Self::default()
        };
        Next::ReadAgain
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Debug, PartialEq, Eq)]
    struct Item(String);

    impl Row for Item {
        fn id(&self) -> &str {
            &self.0
        }
    }

    /// A list as the API keeps it: oldest first, new rows at the end, ids never used twice.
    struct World {
        rows: Vec<Item>,
        born: usize,
        touched: HashSet<String>,
    }

    impl World {
        fn new(size: usize) -> Self {
            let mut world = Self {
                rows: Vec::new(),
                born: 0,
                touched: HashSet::new(),
            };
            (0..size).for_each(|_| world.add());
            world.touched.clear();
            world
        }

        fn add(&mut self) {
            self.born += 1;
            let id = self.born.to_string();
            self.touched.insert(id.clone());
            self.rows.push(Item(id));
        }

        fn remove(&mut self, index: usize) {
            if !self.rows.is_empty() {
                let row = self.rows.remove(index % self.rows.len());
                self.touched.insert(row.0);
            }
        }

        fn page(&self, number: u32, size: usize) -> Page<Item> {
            let start = (number as usize - 1) * size;
            Page {
                rows: self.rows.iter().skip(start).take(size).cloned().collect(),
                total: self.rows.len() as u64,
            }
        }
    }

    #[derive(Clone, Copy, Debug)]
    enum Change {
        None,
        Add,
        Remove(usize),
        /// The pair that keeps the total as it was.
        Replace(usize),
    }

    fn any_change() -> impl Strategy<Value = Change> {
        prop_oneof![
            4 => Just(Change::None),
            1 => Just(Change::Add),
            1 => any::<usize>().prop_map(Change::Remove),
            2 => any::<usize>().prop_map(Change::Replace),
        ]
    }

    /// Reads the list while it changes after each page. Also says how many pages were read.
    fn read(world: &mut World, size: usize, mut changes: impl Iterator<Item = Change>) -> (Next<Item>, u32) {
        let mut sweeps = Sweeps::default();
        let mut page = 1;
        let mut reads = 0;
        loop {
            reads += 1;
            let next = sweeps.accept(world.page(page, size));
            match changes.next().unwrap_or(Change::None) {
                Change::None => {}
                Change::Add => world.add(),
                Change::Remove(index) => world.remove(index),
                Change::Replace(index) => {
                    world.remove(index);
                    world.add();
                }
            }
            page = match next {
                Next::Read(page) => page,
                Next::ReadAgain => 1,
                done => return (done, reads),
            };
        }
    }

    proptest! {
        #[test]
        fn no_row_that_was_there_all_along_is_missed(
            count in 0_usize..40, size in 1_usize..12, changes in prop::collection::vec(any_change(), 0..60),
        ) {
            let mut world = World::new(count);
            let (end, _) = read(&mut world, size, changes.into_iter());
            if let Next::Done(rows) = end {
                let ids: HashSet<&str> = rows.iter().map(Row::id).collect();
                prop_assert_eq!(ids.len(), rows.len(), "a row came twice");
                for row in world.rows.iter().filter(|row| !world.touched.contains(&row.0)) {
                    prop_assert!(ids.contains(row.id()), "missed {}", row.id());
                }
            }
        }

        #[test]
        fn a_list_at_rest_is_read_at_most_twice(count in 0_usize..60, size in 1_usize..20) {
            let mut world = World::new(count);
            let (end, reads) = read(&mut world, size, std::iter::empty());
            prop_assert_eq!(end, Next::Done(world.rows.clone()));
            let pages = u32::try_from(count.div_ceil(size).max(1)).unwrap();
            prop_assert_eq!(reads, if pages == 1 { 1 } else { 2 * pages });
        }
    }

    /// The total stays 4 all the time and four different rows are seen, yet row 3 slipped from page 2 to page 1.
    #[test]
    fn a_deletion_and_a_creation_that_cancel_out_are_noticed() {
        let mut world = World::new(4);
        let (end, reads) = read(&mut world, 2, [Change::Replace(0)].into_iter());
        assert_eq!(end, Next::Done(world.rows.clone()));
        assert!(world.rows.contains(&Item("3".to_owned())));
        assert_eq!(reads, 6);
    }

    #[test]
    fn a_list_that_never_rests_is_given_up() {
        let mut world = World::new(10);
        let (end, _) = read(&mut world, 3, std::iter::repeat(Change::Replace(0)));
        assert_eq!(end, Next::Restless { sweeps: MAX_SWEEPS });
    }

    #[test]
    fn pages_shorter_than_asked_for_are_no_end() {
        let mut sweeps = Sweeps::default();
        let page = |id: &str| Page {
            rows: vec![Item(id.to_owned())],
            total: 2,
        };
        assert_eq!(sweeps.accept(page("a")), Next::Read(2));
        assert_eq!(sweeps.accept(page("b")), Next::ReadAgain);
        assert_eq!(sweeps.accept(page("a")), Next::Read(2));
        assert!(matches!(sweeps.accept(page("b")), Next::Done(rows) if rows.len() == 2));
    }
}
