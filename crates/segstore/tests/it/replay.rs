//! Eviction on a replayed build trace: a deterministic mixture of what build caches see.
//!
//! Builds of a few branches read the shared dependencies (Zipf), the branch's own outputs (reused for a while), and write
//! what they miss; now and then a nightly job sweeps through thousands of entries nobody asks for again.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use russet_segstore::{Key, MemoryBackend, Put, Store};

use crate::world::{BLOB, Dice, body, small_options};

const BODY: usize = 500;
const OVERHEAD: usize = 160;

/// Keys in the order they are asked for.
fn trace(seed: u64) -> Vec<String> {
    let mut dice = Dice(seed);
    let mut asked = Vec::new();
    let mut branches: VecDeque<u64> = (0..6).collect();
    let mut next_branch = 6;
    for build in 0..400_u64 {
        if build % 8 == 0 {
            branches.pop_front();
            branches.push_back(next_branch);
            next_branch += 1;
        }
        let branch = branches[dice.below(branches.len() as u64) as usize];
        for _ in 0..60 {
            // Zipf by rejection: rank r with weight 1/r over 1000 shared artefacts.
            let rank = loop {
                let r = 1 + dice.below(1000);
                if dice.below(r) == 0 {
                    break r;
                }
            };
            asked.push(format!("shared-{rank}"));
        }
        for output in 0..25 {
            asked.push(format!("branch-{branch}-{output}"));
        }
        if build % 10 == 9 {
            for n in 0..300 {
                asked.push(format!("sweep-{build}-{n}"));
            }
        }
    }
    asked
}

fn fifo_hits(trace: &[String], capacity: usize) -> usize {
    let (mut held, mut order, mut hits) = (HashMap::new(), VecDeque::new(), 0);
    let fits = capacity / (BODY + OVERHEAD);
    for key in trace {
        if held.contains_key(key) {
            hits += 1;
            continue;
        }
        held.insert(key.clone(), ());
        order.push_back(key.clone());
        if order.len() > fits {
            held.remove(&order.pop_front().unwrap());
        }
    }
    hits
}

fn store_hits(trace: &[String], capacity: usize) -> usize {
    let mut options = small_options(1).0;
    options.capacity = capacity as u64;
    options.segment_size = 16 << 10;
    let store = Store::open_on(Arc::new(MemoryBackend::new()), options).unwrap();
    let mut hits = 0;
    for name in trace {
        let key = Key::new(BLOB, "ns", name);
        if store.contains(&key).is_some() {
            hits += 1;
        } else {
            store.put(Put::new(key, body(1, BODY))).unwrap();
        }
    }
    assert!(store.stats().disk_bytes <= capacity as u64);
    hits
}

#[test]
fn eviction_keeps_more_of_what_builds_ask_for_than_first_in_first_out() {
    for (seed, capacity) in [(1, 300 << 10), (2, 400 << 10), (3, 600 << 10)] {
        let trace = trace(seed);
        let (fifo, ours) = (fifo_hits(&trace, capacity), store_hits(&trace, capacity));
        println!("{} lookups, {capacity} bytes: fifo {fifo}, ours {ours}", trace.len());
        // The baseline has no headers, no footers, no open segments: all of its capacity is bodies.
        assert!(ours * 100 >= fifo * 108, "fifo {fifo}, ours {ours} of {}", trace.len());
    }
}
