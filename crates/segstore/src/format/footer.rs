//! The footer of a sealed segment: which namespaces and records it holds.

use std::collections::HashMap;

use super::{Class, MAX_NAMESPACE, MAX_SEQUENCE, VERSION};
use crate::bytes::{crc, put, take, u16_at, u32_at, u64_at, u128_at};

pub(crate) const FOOTER_TRAILER_LEN: usize = 96;
const ENTRY_LEN: usize = 64;
const NO_NAMESPACE: u32 = u32::MAX;
const MAGIC: &[u8; 8] = b"RUSSTEND";

/// One record as the footer lists it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FooterEntry {
    pub fingerprint: u128,
    pub sequence: u64,
    pub version: u64,
    pub body_len: u64,
    /// Offset of the record in the segment, a multiple of 8.
    pub offset: u64,
    /// Position in the table's namespaces.
    pub namespace: Option<u32>,
    pub kind: u8,
    pub class: Class,
    pub head_len: u32,
    pub references: u32,
}

impl FooterEntry {
    /// End of the record.
    pub fn end(&self) -> u64 {
        self.offset + u64::from(self.head_len) + crate::bytes::align8(self.body_len) + super::RECORD_TRAILER_LEN as u64
    }

    #[expect(
        clippy::cast_possible_truncation,
        reason = "segments are shorter than 2^35 bytes; checked at append"
    )]
    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.fingerprint.to_le_bytes());
        out.extend_from_slice(&self.sequence.to_le_bytes());
        out.extend_from_slice(&self.version.to_le_bytes());
        out.extend_from_slice(&self.body_len.to_le_bytes());
        out.extend_from_slice(&((self.offset / 8) as u32).to_le_bytes());
        out.extend_from_slice(&self.namespace.unwrap_or(NO_NAMESPACE).to_le_bytes());
        out.extend_from_slice(&[self.kind, self.class.code(), 0, 0]);
        out.extend_from_slice(&self.head_len.to_le_bytes());
        out.extend_from_slice(&self.references.to_le_bytes());
        out.extend_from_slice(&[0; 4]);
    }

    fn decode(buf: &[u8]) -> Option<Self> {
        let namespace = u32_at(buf, 44)?;
        let entry = Self {
            fingerprint: u128_at(buf, 0)?,
            sequence: u64_at(buf, 16)?,
            version: u64_at(buf, 24)?,
            body_len: u64_at(buf, 32)?,
            offset: u64::from(u32_at(buf, 40)?) * 8,
            namespace: (namespace != NO_NAMESPACE).then_some(namespace),
            kind: buf.get(48).copied()?,
            class: Class::from_code(buf.get(49).copied()?)?,
            head_len: u32_at(buf, 52)?,
            references: u32_at(buf, 56)?,
        };
        (entry.sequence <= MAX_SEQUENCE && entry.kind < 32 && entry.body_len <= super::MAX_BODY).then_some(entry)
    }
}

/// The last 96 bytes of a sealed segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trailer {
    pub version: u32,
    pub flags: u32,
    pub id: u64,
    pub tag: u64,
    pub footer_at: u64,
    pub entries: u64,
    pub names_len: u64,
    pub min_seq: u64,
    pub max_seq: u64,
    pub history_floor: u64,
    pub file_len: u64,
    pub table_crc: u32,
}

impl Trailer {
    /// `None` when these are not the last bytes of a sealed segment of `file_len` bytes.
    pub fn decode(buf: &[u8], file_len: u64) -> Option<Self> {
        let right = buf.len() == FOOTER_TRAILER_LEN
            && &take::<8>(buf, 0)? == MAGIC
            && u32_at(buf, 92)? == crc(buf.get(..92)?)
            && u64_at(buf, 80)? == file_len;
        if !right {
            return None;
        }
        let trailer = Self {
            version: u32_at(buf, 8)?,
            flags: u32_at(buf, 12)?,
            id: u64_at(buf, 16)?,
            tag: u64_at(buf, 24)?,
            footer_at: u64_at(buf, 32)?,
            entries: u64_at(buf, 40)?,
            names_len: u64_at(buf, 48)?,
            min_seq: u64_at(buf, 56)?,
            max_seq: u64_at(buf, 64)?,
            history_floor: u64_at(buf, 72)?,
            file_len,
            table_crc: u32_at(buf, 88)?,
        };
        let table = trailer
            .entries
            .checked_mul(ENTRY_LEN as u64)?
            .checked_add(trailer.names_len)?;
        let whole = trailer
            .footer_at
            .checked_add(table)?
            .checked_add(FOOTER_TRAILER_LEN as u64)?;
        (whole == file_len).then_some(trailer)
    }

    /// Length of namespaces and entries.
    pub fn table_len(&self) -> u64 {
        self.file_len - self.footer_at - FOOTER_TRAILER_LEN as u64
    }
}

/// Namespaces and entries of one segment; grows while the segment is written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table {
    pub names: Vec<Box<[u8]>>,
    pub entries: Vec<FooterEntry>,
    by_name: HashMap<Box<[u8]>, u32>,
}

impl Table {
    /// Position of a namespace, added when new. `None` when there is no number left.
    pub fn intern(&mut self, name: &[u8]) -> Option<u32> {
        if let Some(&at) = self.by_name.get(name) {
            return Some(at);
        }
        let at = u32::try_from(self.names.len()).ok().filter(|&at| at != NO_NAMESPACE)?;
        self.names.push(name.into());
        self.by_name.insert(name.into(), at);
        Some(at)
    }

    pub fn name(&self, entry: &FooterEntry) -> Option<&[u8]> {
        self.names.get(entry.namespace? as usize).map(AsRef::as_ref)
    }

    pub fn min_seq(&self) -> Option<u64> {
        self.entries.iter().map(|e| e.sequence).min()
    }

    pub fn max_seq(&self) -> Option<u64> {
        self.entries.iter().map(|e| e.sequence).max()
    }

    /// The whole footer for a segment whose records end at `footer_at`.
    #[expect(clippy::cast_possible_truncation, reason = "names are bounded by MAX_NAMESPACE")]
    pub fn encode(&mut self, id: u64, tag: u64, flags: u32, footer_at: u64, history_floor: u64) -> Vec<u8> {
        self.entries.sort_by_key(|e| (e.sequence, e.offset));
        let mut out = Vec::with_capacity(self.entries.len() * ENTRY_LEN + FOOTER_TRAILER_LEN + 64);
        out.extend_from_slice(&(self.names.len() as u32).to_le_bytes());
        for name in &self.names {
            out.extend_from_slice(&(name.len() as u16).to_le_bytes());
            out.extend_from_slice(name);
        }
        out.resize(out.len().next_multiple_of(8), 0);
        let names_len = out.len() as u64;
        for entry in &self.entries {
            entry.encode(&mut out);
        }
        let table_crc = crc(&out);
        let mut end = [0; FOOTER_TRAILER_LEN];
        put(&mut end, 0, MAGIC);
        put(&mut end, 8, &VERSION.to_le_bytes());
        put(&mut end, 12, &flags.to_le_bytes());
        put(&mut end, 16, &id.to_le_bytes());
        put(&mut end, 24, &tag.to_le_bytes());
        put(&mut end, 32, &footer_at.to_le_bytes());
        put(&mut end, 40, &(self.entries.len() as u64).to_le_bytes());
        put(&mut end, 48, &names_len.to_le_bytes());
        put(&mut end, 56, &self.min_seq().unwrap_or(0).to_le_bytes());
        put(&mut end, 64, &self.max_seq().unwrap_or(0).to_le_bytes());
        put(&mut end, 72, &history_floor.to_le_bytes());
        put(
            &mut end,
            80,
            &(footer_at + out.len() as u64 + FOOTER_TRAILER_LEN as u64).to_le_bytes(),
        );
        put(&mut end, 88, &table_crc.to_le_bytes());
        let sum = crc(end.get(..92).unwrap_or_default());
        put(&mut end, 92, &sum.to_le_bytes());
        out.extend_from_slice(&end);
        out
    }

    /// Decodes namespaces and entries; `None` when anything is off.
    pub fn decode(buf: &[u8], trailer: &Trailer) -> Option<Self> {
        if crc(buf) != trailer.table_crc {
            return None;
        }
        let names_len = usize::try_from(trailer.names_len).ok()?;
        let (names, entries) = (buf.get(..names_len)?, buf.get(names_len..)?);
        let mut table = Self::default();
        let mut at = 4;
        for _ in 0..u32_at(names, 0)? {
            let len = usize::from(u16_at(names, at)?);
            let name = names.get(at + 2..at + 2 + len).filter(|n| n.len() <= MAX_NAMESPACE)?;
            table.intern(name)?;
            at += 2 + len;
        }
        table.entries = entries
            .chunks_exact(ENTRY_LEN)
            .map(FooterEntry::decode)
            .collect::<Option<_>>()?;
        let known = table
            .entries
            .iter()
            .all(|e| e.namespace.is_none_or(|n| (n as usize) < table.names.len()) && e.end() <= trailer.footer_at);
        (table.entries.len() as u64 == trailer.entries && known).then_some(table)
    }
}
