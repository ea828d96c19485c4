//! What is on disk, and nothing else: pure encoders and decoders of `docs/segment-format.md`. No I/O, no state.

mod footer;
mod header;
mod record;

pub use footer::{FooterEntry, Table, Trailer as FooterTrailer};
pub use header::{SegmentHeader, StoreHeader};
pub use record::{Class, Head, Trailer};

pub(crate) use footer::FOOTER_TRAILER_LEN;
pub(crate) use header::{SEGMENT_HEADER_LEN, SOLO, STORE_HEADER_LEN, SURVIVORS};
pub(crate) use record::{HeadParts, MAX_HEAD, RECORD_HEAD_LEN, RECORD_TRAILER_LEN, encode_head, encode_trailer};

/// The version this build writes; it reads this one and every one before it.
pub const VERSION: u32 = 1;

/// Where the first record of a segment starts: after the two copies of the header.
pub(crate) const FIRST_RECORD: u64 = 2 * SEGMENT_HEADER_LEN as u64;

/// Sequences live in 47 bits of an index slot.
pub(crate) const MAX_SEQUENCE: u64 = (1 << 47) - 1;

/// Longest namespace name.
pub const MAX_NAMESPACE: usize = 1024;
/// Longest key.
pub const MAX_KEY: usize = 16 * 1024;
/// Most references of one record.
pub const MAX_REFERENCES: usize = 1 << 20;
/// Longest body: an index slot keeps it in 32 bits.
pub const MAX_BODY: u64 = 0xffff_f000;
