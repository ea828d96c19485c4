//! Opening: from files to an index.
//!
//! Sealed segments are read from their footers, unsealed ones scanned. Nothing needs to be written for the store to serve;
//! sealing what was found open is a chore for later. So recovery works on a full or read-only disk, and a crash in the
//! middle of it changes nothing.

use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, RwLock};

use crate::backend::{Backend, File, read_exact_at};
use crate::bytes::align8;
use crate::commit::slot_of;
use crate::core::{Core, History};
use crate::error::Error;
use crate::format::{Class, SEGMENT_HEADER_LEN, STORE_HEADER_LEN, SegmentHeader, StoreHeader, Table, VERSION};
use crate::index::{Index, Newer, SHARDS, Slot};
use crate::key::Durability;
use crate::options::Options;
use crate::scan::scan;
use crate::segment::{DIR, Phase, Segment, State, SyncGate, file_name, parse_name, read_footer, read_footer_trailer};
use crate::sync::{lock, write};

const FORMAT: &str = "FORMAT";
const FORMAT_NEW: &str = "FORMAT.new";
/// After an unclean stop sequences skip this far ahead, so that none a follower has seen is given out twice.
const SEQUENCE_LEAP: u64 = 1 << 20;

/// What recovery saw, for the log line at start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recovered {
    /// Segments read from their footers.
    pub sealed: u64,
    /// Segments that had to be scanned.
    pub scanned: u64,
    /// Files that held nothing whole, and were removed.
    pub discarded: u64,
    pub entries: u64,
    /// FORMAT was damaged or lost and was rebuilt.
    pub format_rebuilt: bool,
}

/// A segment file as found.
struct Found {
    id: u64,
    file: Arc<dyn File>,
    header: Option<SegmentHeader>,
}

fn find(backend: &dyn Backend) -> Result<(Vec<Found>, u64), Error> {
    let mut ids: Vec<u64> = backend
        .list(DIR)
        .map_err(Error::io("listing the segments"))?
        .iter()
        .filter_map(|n| parse_name(n))
        .collect();
    ids.sort_unstable();
    let highest = ids.last().copied().unwrap_or(0);
    let mut found = Vec::with_capacity(ids.len());
    for id in ids {
        let file = backend.open(&file_name(id)).map_err(Error::io("opening a segment"))?;
        let mut buf = [0; 2 * SEGMENT_HEADER_LEN];
        file.read_at(&mut buf, 0).map_err(Error::io("reading a segment"))?;
        let header = SegmentHeader::decode(&buf).filter(|h| h.id == id);
        if let Some(header) = header.filter(|h| h.store.version > VERSION) {
            return Err(Error::UnsupportedVersion {
                found: header.store.version,
                supported: VERSION,
            });
        }
        found.push(Found { id, file, header });
    }
    Ok((found, highest))
}

fn read_format(backend: &dyn Backend) -> io::Result<Option<StoreHeader>> {
    let file = match backend.open(FORMAT) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        other => other?,
    };
    Ok(read_exact_at(&*file, 0, STORE_HEADER_LEN)?.and_then(|buf| StoreHeader::decode(&buf)))
}

fn write_format(backend: &dyn Backend, header: &StoreHeader) -> io::Result<()> {
    match backend.remove(FORMAT_NEW) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
        _ => {}
    }
    let file = backend.create(FORMAT_NEW)?;
    file.write_at(&header.encode(), 0)?;
    file.sync()?;
    backend.rename(FORMAT_NEW, FORMAT)?;
    backend.sync_dir("")
}

/// Finds or makes the identity of the store.
fn identify(backend: &dyn Backend, options: &Options, found: &[Found]) -> Result<(StoreHeader, bool), Error> {
    let header = read_format(backend).map_err(Error::io("reading FORMAT"))?;
    if let Some(header) = header {
        if header.version > VERSION {
            return Err(Error::UnsupportedVersion {
                found: header.version,
                supported: VERSION,
            });
        }
        // Somebody may have emptied the folder by hand; on a read-only disk there is nothing to do about it.
        let _ = backend.create_dir(DIR);
        return Ok((header, false));
    }
    if let Some(known) = found.iter().find_map(|f| f.header) {
        // Every segment carries what FORMAT says; not being able to write it down again must not stop the reads.
        let _ = write_format(backend, &known.store);
        return Ok((known.store, true));
    }
    let header = StoreHeader {
        version: VERSION,
        store_id: options.entropy.next(),
        hash_key: options.entropy.next(),
        created_ms: options.clock.wall_ms(),
    };
    backend
        .create_dir(DIR)
        .map_err(Error::io("creating the folder of the store"))?;
    write_format(backend, &header).map_err(Error::io("writing FORMAT"))?;
    Ok((header, false))
}

/// Highest numbers seen while reading segments.
#[derive(Default)]
struct Marks {
    sequence: u64,
    version: u64,
    floor: u64,
    unclean: bool,
    deletes: HashMap<u128, u64>,
    any_namespace_deleted: bool,
    /// Entries of one segment by shard: their slots then lie close in memory, and one lock serves them all.
    puts: Vec<Vec<Slot>>,
}

/// Tells the disk what is going to be read, so that it works while entries are taken in; how many entries the footers announce.
fn announce(found: &[Found]) -> u64 {
    let mut expected = 0;
    for segment in found {
        let file = &*segment.file;
        match read_footer_trailer(file) {
            Ok(Some(trailer)) => {
                expected += trailer.entries;
                file.will_read(trailer.footer_at, trailer.table_len());
            }
            // It will be scanned, or its error will be met there.
            Ok(None) | Err(_) => file.will_read(0, file.len().unwrap_or(0)),
        }
    }
    expected
}

pub(crate) fn recover(backend: Arc<dyn Backend>, options: Options) -> Result<(Core, Recovered), Error> {
    let (found, highest) = find(&*backend)?;
    let (header, format_rebuilt) = identify(&*backend, &options, &found)?;
    let lanes = options.stream_lanes.max(1);
    let core = Core {
        backend,
        header,
        index: crate::index::Index::default(),
        segments: RwLock::default(),
        names: RwLock::default(),
        sequencer: crate::core::Sequencer::default(),
        log: crate::commit::Lane::default(),
        streams: (0..lanes).map(|_| Mutex::default()).collect(),
        next_stream: AtomicU64::new(0),
        books: crate::core::Books::default(),
        health: crate::core::Health::default(),
        counters: crate::stats::Counters::default(),
        leases: Mutex::default(),
        evictions: AtomicU64::new(0),
        history: Mutex::default(),
        next_segment: AtomicU64::new(highest + 1),
        next_age: AtomicU64::new(0),
        maintenance: Mutex::default(),
        chores: crate::core::Chores::default(),
        ballast: Mutex::default(),
        closed: AtomicBool::new(false),
        shut: AtomicBool::new(false),
        options,
    };
    let mut report = Recovered {
        format_rebuilt,
        ..Recovered::default()
    };
    let mut marks = Marks::default();
    core.index.reserve(announce(&found));
    for segment in found {
        core.load(segment, &mut marks, &mut report)?;
    }
    core.settle(&marks);
    report.entries = core.index.len();
    let leap = if marks.unclean { SEQUENCE_LEAP } else { 0 };
    core.sequencer.start(marks.sequence + 1 + leap, marks.version);
    *lock(&core.history) = History {
        recent_floor: marks.sequence + leap,
        floor: marks.floor,
        ..History::default()
    };
    core.steady_unsealed();
    core.wake_maintenance();
    Ok((core, report))
}

impl Core {
    /// Takes one file in.
    fn load(&self, found: Found, marks: &mut Marks, report: &mut Recovered) -> Result<(), Error> {
        let Found { id, file, header } = found;
        if header.is_some_and(|h| h.store.store_id != self.header.store_id) {
            // Somebody else's segment: not ours to read, not ours to remove.
            return Ok(());
        }
        if let Some(header) = header {
            marks.sequence = marks.sequence.max(header.base_seq.saturating_sub(1));
            marks.floor = marks.floor.max(header.history_floor);
        }
        let reading = Error::io("reading a segment");
        let footer = read_footer(&*file)
            .map_err(reading)?
            .filter(|(t, _)| t.id == id && t.version <= VERSION);
        let end = file.len().map_err(Error::io("reading a segment"))?;
        let (tag, flags, phase, table) = match (footer, header) {
            (Some((trailer, table)), _) => {
                report.sealed += 1;
                marks.floor = marks.floor.max(trailer.history_floor);
                (trailer.tag, trailer.flags, Phase::Sealed, table)
            }
            (None, Some(header)) => {
                report.scanned += 1;
                marks.unclean = true;
                let scanned = scan(&*file, header.tag, header.flags).map_err(Error::io("scanning a segment"))?;
                marks.floor = marks.floor.max(scanned.floor);
                (header.tag, header.flags, Phase::Closing, scanned.table)
            }
            (None, None) => (0, 0, Phase::Gone, Table::default()),
        };
        if table.entries.is_empty() {
            report.discarded += 1;
            let _ = self.backend.remove(&file_name(id));
            return Ok(());
        }
        let age = self.next_age.fetch_add(1, Ordering::Relaxed);
        let segment = write(&self.segments).add(|handle| Segment {
            handle,
            id,
            tag,
            flags,
            file,
            gate: SyncGate::default(),
            live_count: AtomicU64::new(0),
            live_bytes: AtomicU64::new(0),
            heat: AtomicU64::new(0),
            state: Mutex::new(State {
                phase,
                end: if phase == Phase::Sealed { end } else { align8(end) },
                writers: 0,
                table: None,
                min_seq: table.min_seq(),
                max_seq: table.max_seq().unwrap_or(0),
                freed: 0,
                live_when_punched: None,
                age,
            }),
        })?;
        self.books.appended(end);
        self.merge(&segment, &table, marks)?;
        if phase == Phase::Closing {
            // What was read may so far only be in the page cache.
            segment.gate.wrote();
            segment.state().table = Some(table);
        }
        Ok(())
    }

    /// Of several records with one fingerprint the highest sequence stays.
    fn merge(&self, segment: &Arc<Segment>, table: &Table, marks: &mut Marks) -> Result<(), Error> {
        let numbers = table
            .names
            .iter()
            .map(|n| self.namespace_number(n))
            .collect::<Result<Vec<_>, _>>()?;
        let nameless = self.namespace_number(&[])?;
        marks.puts.resize(SHARDS, Vec::new());
        for entry in &table.entries {
            marks.sequence = marks.sequence.max(entry.sequence);
            marks.version = marks.version.max(entry.version);
            let namespace = entry
                .namespace
                .and_then(|n| numbers.get(n as usize).copied())
                .unwrap_or(nameless);
            match entry.class {
                Class::Put => {
                    if let Some(puts) = marks.puts.get_mut(Index::shard_of(entry.fingerprint)) {
                        puts.push(slot_of(entry, segment.handle, namespace, false));
                    }
                }
                Class::Delete | Class::Evict => {
                    let highest = marks.deletes.entry(entry.fingerprint).or_default();
                    *highest = (*highest).max(entry.sequence);
                }
                Class::DeleteNamespace => {
                    marks.any_namespace_deleted = true;
                    write(&self.names).mark_deleted(namespace, entry.sequence);
                }
                Class::Floor => {}
            }
        }
        for puts in &mut marks.puts {
            self.merge_shard(segment, puts);
            puts.clear();
        }
        Ok(())
    }

    /// Takes in entries of one shard, with its lock taken once.
    fn merge_shard(&self, segment: &Segment, puts: &[Slot]) {
        let Some(first) = puts.first() else { return };
        let mut shard = self.index.shard(first.fingerprint);
        for slot in puts {
            match shard.insert_newer(slot) {
                Newer::Older => continue,
                Newer::Added => {}
                Newer::Replaced(before) => self.lose(&before),
            }
            segment.gain(slot);
        }
    }

    /// Applies the deletes, once all puts are known.
    fn settle(&self, marks: &Marks) {
        for (&fp, &sequence) in &marks.deletes {
            let mut shard = self.index.shard(fp);
            if shard.get(fp).is_some_and(|s| s.sequence < sequence)
                && let Some(gone) = shard.remove(fp)
            {
                self.lose(&gone);
            }
        }
        if !marks.any_namespace_deleted {
            return;
        }
        for mut shard in self.index.each() {
            for slot in shard.remove_where(|s| self.deleted_at(s.namespace) > s.sequence) {
                self.lose(&slot);
            }
        }
    }

    /// After a process crash, what is about to be served should not vanish with the power.
    fn steady_unsealed(&self) {
        if self.options.durability != Durability::Power {
            return;
        }
        let open: Vec<_> = crate::sync::read(&self.segments)
            .iter()
            .filter(|s| !s.gate.is_clean())
            .cloned()
            .collect();
        for segment in open {
            // A failure poisons the store: reads go on, writes say why.
            let _ = self.sync_segment(&segment);
        }
    }
}
