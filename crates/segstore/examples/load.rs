//! Loads a store and says how long things took: a million small entries, opening them again, durable writes by 32 threads,
//! reads. `cargo run --release -p russet-segstore --example load -- <folder> [entries]`

#![allow(
    clippy::print_stdout,
    clippy::cast_precision_loss,
    reason = "it prints figures for people"
)]

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use russet_segstore::{Durability, Error, Key, Kind, Options, Put, Small, Store};

const BLOB: Kind = Kind::immutable(1);

fn options() -> Options {
    Options::new(64 << 30)
}

fn resident_mib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status
        .lines()
        .find_map(|l| l.strip_prefix("VmRSS:"))
        .unwrap_or_default();
    line.trim().trim_end_matches(" kB").trim().parse::<u64>().unwrap_or(0) / 1024
}

fn bytes(n: u64, len: usize) -> Vec<u8> {
    let mut x = n.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut out = Vec::with_capacity(len + 8);
    while out.len() < len {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        out.extend_from_slice(&x.to_le_bytes());
    }
    out.truncate(len);
    out
}

fn fill(store: &Store, entries: u64) -> Result<(), Error> {
    let started = Instant::now();
    for n in 0..entries {
        let name = format!("{n:064x}");
        let put = Put::new(Key::new(BLOB, "bench", &name), bytes(n, 1024)).durability(Durability::Process);
        let ticket = store.submit(put)?;
        if n % 256 == 255 {
            ticket.wait()?;
        }
    }
    store.flush()?;
    println!(
        "load: {entries} x 1 KiB in {:.1?}, RSS {} MiB",
        started.elapsed(),
        resident_mib()
    );
    Ok(())
}

fn durable_puts(store: &Store, threads: u64, each: u64, len: usize, tag: &str) {
    let (before, started, failed) = (store.stats(), Instant::now(), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let (store, failed) = (&store, &failed);
            scope.spawn(move || {
                for n in 0..each {
                    let name = format!("{tag}-{thread}-{n}");
                    let put = Put::new(Key::new(BLOB, "puts", &name), bytes(n, len)).durability(Durability::Power);
                    failed.fetch_add(u64::from(store.put(put).is_err()), Ordering::Relaxed);
                }
            });
        }
    });
    let took = started.elapsed();
    let syncs = store.stats().group_syncs - before.group_syncs;
    println!(
        "durable puts: {threads} threads x {each} x {len} B: {:.0}/s, {syncs} group syncs, {} failed",
        (threads * each) as f64 / took.as_secs_f64(),
        failed.load(Ordering::Relaxed)
    );
}

fn reads(store: &Store, entries: u64) -> Result<(), Error> {
    let (mut buf, mut hits) = (Vec::new(), 0);
    let rounds = 200_000_u64;
    for pass in ["first read", "warm read"] {
        let started = Instant::now();
        for n in 0..rounds {
            let name = format!("{:064x}", n.wrapping_mul(7919) % entries);
            buf.clear();
            let small = store.read_into(&Key::new(BLOB, "bench", &name), 4096, &mut buf)?;
            hits += u64::from(matches!(small, Small::Hit(_)));
        }
        println!(
            "{pass}: {:.0} ns each",
            started.elapsed().as_nanos() as f64 / rounds as f64
        );
    }
    println!("{hits} hits of {}", 2 * rounds);
    Ok(())
}

fn main() -> Result<(), Error> {
    let mut args = std::env::args().skip(1);
    let dir = PathBuf::from(args.next().unwrap_or_else(|| "segstore-load".to_owned()));
    let entries = args.next().and_then(|n| n.parse().ok()).unwrap_or(1_000_000);
    let started = Instant::now();
    let mut store = Store::open(&dir, options())?;
    println!(
        "open: {:?} in {:.1?}, RSS {} MiB",
        store.recovered(),
        started.elapsed(),
        resident_mib()
    );
    if store.recovered().entries == 0 {
        fill(&store, entries)?;
        store.close()?;
        drop(store);
        let started = Instant::now();
        store = Store::open(&dir, options())?;
        println!(
            "reopen: {:?} in {:.1?}, RSS {} MiB",
            store.recovered(),
            started.elapsed(),
            resident_mib()
        );
    }
    let stats = store.stats();
    println!(
        "index: {:.1} bytes per entry",
        stats.index_bytes as f64 / stats.entries.max(1) as f64
    );
    reads(&store, entries)?;
    let tag = format!("run-{}", stats.sequence);
    durable_puts(&store, 32, 1000, 4096, &format!("{tag}-a"));
    durable_puts(&store, 32, 100, 64 << 10, &format!("{tag}-b"));
    durable_puts(&store, 8, 20, 1 << 20, &format!("{tag}-c"));
    println!("left open on purpose: run again to see the recovery of an unclean stop");
    std::process::exit(0);
}
