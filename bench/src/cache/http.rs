//! Rows over HTTP/1.1: hits, misses, uploads and a mix.

use super::key::Bodies;
use super::loader::{self, Ask, Drive, Load, Source};
use super::row::{Row, Target};
use super::system::{Space, System};
use super::zipf::{Random, Zipf};
use anyhow::Result;
use std::time::Duration;

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;
const HIT: &[u16] = &[200];
const MISS: &[u16] = &[404];
const STORED: &[u16] = &[200, 201, 204];

/// What is asked.
#[derive(Debug, Clone, Copy)]
enum Shape {
    /// Random ones of so many keys, for so long.
    Get {
        keys: u32,
        time: Duration,
    },
    Miss {
        time: Duration,
    },
    /// So many new keys.
    Put {
        count: u64,
    },
    /// Nine reads by Zipf's law to one write of a new key.
    Mix {
        keys: u32,
        time: Duration,
    },
}

#[derive(Debug)]
pub(crate) struct HttpRow {
    name: &'static str,
    title: &'static str,
    size: usize,
    connections: usize,
    shape: Shape,
    target: Target,
}

pub(crate) fn rows(quick: bool) -> Vec<HttpRow> {
    let time = Duration::from_secs(if quick { 1 } else { 3 });
    let share = if quick { 4 } else { 1 };
    let get = |keys| Shape::Get { keys, time };
    let put = |count: u64| Shape::Put { count: count / share };
    let keys = if quick { 10_000 } else { 100_000 };
    let (miss, mix) = (Shape::Miss { time }, Shape::Mix { keys, time });
    let fast = Some(15_000.0);
    let rows = [
        ("get-4k", "GET 4 KiB", 4 * KIB, get(1000), 1.0, None),
        ("get-64k", "GET 64 KiB", 64 * KIB, get(1000), 1.3, None),
        ("get-1m", "GET 1 MiB", MIB, get(100), 0.9, None),
        ("get-16m", "GET 16 MiB", 16 * MIB, get(16), 1.0, None),
        ("miss", "GET, not there", 0, miss, 1.0, None),
        ("put-4k", "PUT 4 KiB", 4 * KIB, put(20_000), 0.8, fast),
        ("put-64k", "PUT 64 KiB", 64 * KIB, put(8000), 1.5, None),
        ("put-1m", "PUT 1 MiB", MIB, put(512), 2.2, None),
        ("put-16m", "PUT 16 MiB", 16 * MIB, put(64), 2.4, None),
        ("mix", "9 GET : 1 PUT, 16 KiB, Zipf 0.99", 16 * KIB, mix, 0.9, None),
    ];
    let row = |(name, title, size, shape, ratio, rate)| HttpRow {
        name,
        title,
        size,
        connections: if size > MIB && matches!(shape, Shape::Put { .. }) {
            8
        } else {
            32
        },
        shape,
        target: Target {
            ratio: Some(ratio),
            rate,
        },
    };
    rows.map(row).into()
}

/// What other rows are counted in: hits of 4 KiB, by whichever name those rows have.
pub(crate) fn unit(name: &'static str, quick: bool) -> HttpRow {
    HttpRow {
        name,
        title: UNIT,
        size: 4 * KIB,
        connections: 32,
        shape: Shape::Get {
            keys: 1000,
            time: Duration::from_secs(if quick { 1 } else { 3 }),
        },
        target: Target::default(),
    }
}

/// The name of that unit.
pub(crate) const UNIT: &str = "GET 4 KiB";

/// The largest body of any row.
pub(crate) const LARGEST: usize = 48 * MIB;

impl HttpRow {
    /// New keys of a round.
    fn fresh(&self, round: u32) -> String {
        format!("{}-{round}", self.name)
    }

    fn run(&self, system: &System, time: Option<Duration>, bodies: &Bodies, source: &mut dyn Source) -> Result<Load> {
        let drive = Drive {
            address: system.address,
            connections: self.connections,
            time,
        };
        loader::run(drive, bodies, source)?.clean(&format!("{} of {}", self.name, system.name))
    }
}

impl Row for HttpRow {
    fn name(&self) -> &str {
        self.name
    }

    fn title(&self) -> String {
        self.title.to_owned()
    }

    fn target(&self) -> Target {
        self.target
    }

    fn prepare(&self, system: &System, bodies: &Bodies) -> Result<()> {
        let (Shape::Get { keys, .. } | Shape::Mix { keys, .. }) = self.shape else {
            return Ok(());
        };
        let mut stored = Uploads::new(system, self.name, self.size, u64::from(keys));
        self.run(system, None, bodies, &mut stored)?;
        let mut read = Known::new(system, self.name, self.size, keys, Order::Once);
        self.run(system, None, bodies, &mut read).map(drop)
    }

    fn drive(&self, system: &System, round: u32, bodies: &Bodies) -> Result<Load> {
        let fresh = self.fresh(round);
        match self.shape {
            Shape::Get { keys, time } => {
                let order = Order::Random(Random::new(u64::from(round)));
                let mut source = Known::new(system, self.name, self.size, keys, order);
                self.run(system, Some(time), bodies, &mut source)
            }
            Shape::Miss { time } => self.run(system, Some(time), bodies, &mut Unknown::new(system, self.name)),
            Shape::Put { count } => {
                let mut source = Uploads::new(system, &fresh, self.size, count);
                self.run(system, None, bodies, &mut source)
            }
            Shape::Mix { keys, time } => {
                let mut random = Random::new(u64::from(round));
                let order = Order::Zipf(Zipf::new(keys, 0.99), Random::new(random.next()));
                let mut source = Mix {
                    reads: Known::new(system, self.name, self.size, keys, order),
                    writes: Uploads::new(system, &fresh, self.size, u64::MAX),
                    random,
                };
                self.run(system, Some(time), bodies, &mut source)
            }
        }
    }

    fn spaces(&self, rounds: u32) -> Vec<String> {
        match self.shape {
            Shape::Get { .. } => vec![self.name.to_owned()],
            Shape::Miss { .. } => Vec::new(),
            Shape::Put { .. } => (0..rounds).map(|round| self.fresh(round)).collect(),
            Shape::Mix { .. } => {
                let own = std::iter::once(self.name.to_owned());
                own.chain((0..rounds).map(|round| self.fresh(round))).collect()
            }
        }
    }
}

/// In which order known keys are read.
#[derive(Debug)]
pub(crate) enum Order {
    Once,
    Random(Random),
    Zipf(Zipf, Random),
}

/// Reads of keys that are there, made beforehand.
#[derive(Debug)]
pub(crate) struct Known {
    requests: Vec<Vec<u8>>,
    size: u64,
    order: Order,
    asked: usize,
}

impl Known {
    pub(crate) fn new(system: &System, space: &str, size: usize, keys: u32, order: Order) -> Self {
        let space = system.space(space);
        Self {
            requests: (0..keys).map(|number| space.get(u64::from(number))).collect(),
            size: size as u64,
            order,
            asked: 0,
        }
    }
}

impl Source for Known {
    fn next(&mut self, head: &mut Vec<u8>) -> Option<Ask> {
        let number = match &mut self.order {
            Order::Once => self.asked,
            Order::Random(random) => usize::try_from(random.below(self.requests.len() as u64)).ok()?,
            Order::Zipf(zipf, random) => zipf.rank(random) as usize,
        };
        self.asked += 1;
        head.extend_from_slice(self.requests.get(number)?);
        Some(Ask {
            body: None,
            statuses: HIT,
            length: Some(self.size),
        })
    }
}

/// Reads of keys that are not there.
struct Unknown {
    requests: Vec<Vec<u8>>,
    asked: usize,
}

impl Unknown {
    fn new(system: &System, space: &str) -> Self {
        let space = system.space(space);
        Self {
            requests: (0..10_000).map(|number| space.get(number)).collect(),
            asked: 0,
        }
    }
}

impl Source for Unknown {
    fn next(&mut self, head: &mut Vec<u8>) -> Option<Ask> {
        head.extend_from_slice(self.requests.get(self.asked % self.requests.len())?);
        self.asked += 1;
        Some(Ask {
            body: None,
            statuses: MISS,
            length: None,
        })
    }
}

/// Writes of new keys.
pub(crate) struct Uploads<'a> {
    space: Space<'a>,
    size: usize,
    next: u64,
    end: u64,
}

impl<'a> Uploads<'a> {
    pub(crate) fn new(system: &'a System, space: &str, size: usize, count: u64) -> Self {
        Self {
            space: system.space(space),
            size,
            next: 0,
            end: count,
        }
    }
}

impl Source for Uploads<'_> {
    fn next(&mut self, head: &mut Vec<u8>) -> Option<Ask> {
        if self.next >= self.end {
            return None;
        }
        head.extend_from_slice(&self.space.put(self.next, self.size));
        let body = Bodies::place(self.next, self.size);
        self.next += 1;
        Some(Ask {
            body: Some(body),
            statuses: STORED,
            length: None,
        })
    }
}

struct Mix<'a> {
    reads: Known,
    writes: Uploads<'a>,
    random: Random,
}

impl Source for Mix<'_> {
    fn next(&mut self, head: &mut Vec<u8>) -> Option<Ask> {
        if self.random.below(10) == 0 {
            self.writes.next(head)
        } else {
            self.reads.next(head)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn rows_have_distinct_names_and_bodies_that_fit() {
        let rows = rows(false);
        let names: BTreeSet<_> = rows.iter().map(|row| row.name).collect();
        assert_eq!(names.len(), rows.len());
        assert!(rows.iter().all(|row| row.size <= LARGEST));
    }

    #[test]
    fn rounds_write_new_keys_and_all_of_them_are_removed() {
        let row = rows(true).into_iter().find(|row| row.name == "mix").unwrap();
        assert_eq!(row.spaces(2), ["mix", "mix-0", "mix-1"]);
    }
}
