//! An append-only segment store: the storage engine of the build cache.
//!
//! Bodies and index share one log. A record carries its own name and checksums, so one write and one sync make it both
//! stored and findable; recovery reads the footers of sealed segments and scans the few that were open.
//!
//! ```text
//!  put ──> group commit ──> log segment ────┐
//!  stream ──> reserved extent, pwrite ──────┼──> index (memory, 43 bytes per entry) ──> get ──> pread / sendfile
//!  eviction ──> survivors segment ──────────┘
//!
//!  segment:  | header ×2 | record | record | hole | record | ... | namespaces | entries | trailer |
//!  record:   | head | namespace key refs | body | trailer: commit mark, sequence, checksums |
//! ```
//!
//! What holds at all times:
//! 1. An entry is visible only once it is as durable as its writer asked for ([`Durability`]).
//! 2. No byte is given out that was not checked in this process, or written by it.
//! 3. Of an immutable kind the first committed write is the only one; of a mutable kind the last acknowledged one counts,
//!    by sequence, whatever the wall clock says.
//! 4. What was deleted does not come back, whichever segments are evicted afterwards.
//! 5. A failed sync stops all writes until restart; a full disk stops them until there is space; reads always go on.
//!
//! The format is in `docs/segment-format.md`, the promises are in `docs/durability.md`. The crate is synchronous and knows
//! nothing of networks; [`Store::submit_with`] lets an event loop use it without a thread per write.

mod backend;
mod ballast;
mod bytes;
mod changes;
mod chores;
mod clock;
mod commit;
mod core;
mod error;
mod evict;
pub mod format;
mod hash;
mod index;
mod key;
mod lease;
mod list;
mod options;
mod reader;
mod recovery;
mod scan;
mod scrub;
mod segment;
mod stats;
mod store;
mod sync;
mod vouch;
mod writer;

pub use backend::{Backend, CrashBackend, File, FileBackend, LockError, MemoryBackend, Survival};
pub use changes::{Action, Change, Changes, Completeness};
pub use clock::{Clock, Entropy, SystemClock, SystemEntropy};
pub use error::Error;
pub use hash::Fingerprint;
pub use key::{Durability, Key, Kind, Outcome};
pub use lease::Leased;
pub use list::{Listed, Opened};
pub use options::{Background, Options};
pub use reader::{Entry, FileRange, Hit, Presence, Small};
pub use recovery::Recovered;
pub use scrub::{Checked, Group, Inspection, SegmentInfo};
pub use stats::{State, Stats};
pub use store::{Put, Store, Ticket};
pub use vouch::Vouch;
pub use writer::{Begin, Writer};
