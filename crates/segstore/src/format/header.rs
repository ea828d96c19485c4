//! FORMAT and the segment header.

use crate::bytes::{crc, put, take, u32_at, u64_at, u128_at};

pub(crate) const STORE_HEADER_LEN: usize = 96;
pub(crate) const SEGMENT_HEADER_LEN: usize = 128;
const STORE_MAGIC: &[u8; 8] = b"RUSSTORE";
const SEGMENT_MAGIC: &[u8; 8] = b"RUSSTSEG";

/// The segment holds one record that fills it.
pub(crate) const SOLO: u32 = 1;
/// The segment holds copies made by eviction.
pub(crate) const SURVIVORS: u32 = 2;

/// The content of FORMAT.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct StoreHeader {
    pub version: u32,
    pub store_id: u128,
    pub hash_key: u128,
    pub created_ms: u64,
}

impl std::fmt::Debug for StoreHeader {
    /// The hash key stays out of logs: who knows it can make keys collide.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StoreHeader")
            .field("version", &self.version)
            .field("store_id", &format_args!("{:032x}", self.store_id))
            .field("created_ms", &self.created_ms)
            .finish_non_exhaustive()
    }
}

impl StoreHeader {
    pub fn encode(&self) -> [u8; STORE_HEADER_LEN] {
        let mut out = [0; STORE_HEADER_LEN];
        put(&mut out, 0, STORE_MAGIC);
        put(&mut out, 8, &self.version.to_le_bytes());
        put(&mut out, 16, &self.store_id.to_le_bytes());
        put(&mut out, 32, &self.hash_key.to_le_bytes());
        put(&mut out, 48, &self.created_ms.to_le_bytes());
        let sum = crc(out.get(..92).unwrap_or_default());
        put(&mut out, 92, &sum.to_le_bytes());
        out
    }

    /// `None` when damaged. A valid header of a newer version decodes; the caller refuses it.
    pub fn decode(buf: &[u8]) -> Option<Self> {
        if buf.len() != STORE_HEADER_LEN
            || &take::<8>(buf, 0)? != STORE_MAGIC
            || u32_at(buf, 92)? != crc(buf.get(..92)?)
        {
            return None;
        }
        Some(Self {
            version: u32_at(buf, 8)?,
            store_id: u128_at(buf, 16)?,
            hash_key: u128_at(buf, 32)?,
            created_ms: u64_at(buf, 48)?,
        })
    }
}

/// The header of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentHeader {
    pub store: StoreHeader,
    pub flags: u32,
    pub id: u64,
    pub tag: u64,
    pub created_ms: u64,
    pub base_seq: u64,
    pub history_floor: u64,
}

impl SegmentHeader {
    /// Both copies.
    pub fn encode(&self) -> [u8; 2 * SEGMENT_HEADER_LEN] {
        let mut one = [0; SEGMENT_HEADER_LEN];
        put(&mut one, 0, SEGMENT_MAGIC);
        put(&mut one, 8, &self.store.version.to_le_bytes());
        put(&mut one, 12, &self.flags.to_le_bytes());
        put(&mut one, 16, &self.id.to_le_bytes());
        put(&mut one, 24, &self.tag.to_le_bytes());
        put(&mut one, 32, &self.store.store_id.to_le_bytes());
        put(&mut one, 48, &self.store.hash_key.to_le_bytes());
        put(&mut one, 64, &self.created_ms.to_le_bytes());
        put(&mut one, 72, &self.base_seq.to_le_bytes());
        put(&mut one, 80, &self.history_floor.to_le_bytes());
        let sum = crc(one.get(..124).unwrap_or_default());
        put(&mut one, 124, &sum.to_le_bytes());
        let mut out = [0; 2 * SEGMENT_HEADER_LEN];
        put(&mut out, 0, &one);
        put(&mut out, SEGMENT_HEADER_LEN, &one);
        out
    }

    /// Decodes whichever of the two copies is whole.
    pub fn decode(buf: &[u8]) -> Option<Self> {
        buf.chunks(SEGMENT_HEADER_LEN).take(2).find_map(Self::decode_one)
    }

    fn decode_one(buf: &[u8]) -> Option<Self> {
        if &take::<8>(buf, 0)? != SEGMENT_MAGIC || u32_at(buf, 124)? != crc(buf.get(..124)?) {
            return None;
        }
        let created_ms = u64_at(buf, 64)?;
        Some(Self {
            store: StoreHeader {
                version: u32_at(buf, 8)?,
                store_id: u128_at(buf, 32)?,
                hash_key: u128_at(buf, 48)?,
                created_ms,
            },
            flags: u32_at(buf, 12)?,
            id: u64_at(buf, 16)?,
            tag: u64_at(buf, 24)?,
            created_ms,
            base_seq: u64_at(buf, 72)?,
            history_floor: u64_at(buf, 80)?,
        })
    }
}
