//! One record: head, namespace, key, references, body, trailer.

use super::{MAX_BODY, MAX_KEY, MAX_NAMESPACE, MAX_REFERENCES, MAX_SEQUENCE};
use crate::bytes::{align8, crc_at, put, take, u16_at, u32_at, u64_at, u128_at};

pub(crate) const RECORD_HEAD_LEN: usize = 48;
pub(crate) const RECORD_TRAILER_LEN: usize = 40;
/// The longest head with namespace, key and references.
pub(crate) const MAX_HEAD: usize = RECORD_HEAD_LEN + MAX_NAMESPACE + MAX_KEY + 8 + 16 * MAX_REFERENCES;

/// What a record says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// The entry has this body.
    Put,
    /// The key was deleted.
    Delete,
    /// The namespace was deleted, with everything of a lower sequence.
    DeleteNamespace,
    /// A mutable entry was evicted: older versions of it in other segments must stay dead.
    Evict,
    /// Sequences up to the body's value are no longer all here.
    Floor,
}

impl Class {
    pub(crate) const fn code(self) -> u8 {
        match self {
            Self::Put => 0,
            Self::Delete => 1,
            Self::DeleteNamespace => 2,
            Self::Evict => 3,
            Self::Floor => 4,
        }
    }

    pub(crate) const fn from_code(code: u8) -> Option<Self> {
        Some(match code {
            0 => Self::Put,
            1 => Self::Delete,
            2 => Self::DeleteNamespace,
            3 => Self::Evict,
            4 => Self::Floor,
            _ => return None,
        })
    }
}

/// The decoded head of a record with its lengths checked, and where its variable parts lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    pub kind: u8,
    pub class: Class,
    pub namespace_len: u16,
    pub key_len: u32,
    pub references: u32,
    pub body_len: u64,
    pub fingerprint: u128,
    pub crc: u32,
}

impl Head {
    /// Distance from the record to its body; never 0.
    #[expect(clippy::len_without_is_empty, reason = "a head is never empty")]
    pub fn len(&self) -> usize {
        let names = RECORD_HEAD_LEN + usize::from(self.namespace_len) + self.key_len as usize;
        names.next_multiple_of(8) + 16 * self.references as usize
    }

    /// Distance from the record to its trailer.
    pub fn trailer_at(&self) -> u64 {
        self.len() as u64 + align8(self.body_len)
    }

    /// Length of the record with everything.
    pub fn extent(&self) -> u64 {
        self.trailer_at() + RECORD_TRAILER_LEN as u64
    }

    /// Reads the fixed part and checks the bounds, but not the checksum, which covers the variable parts too.
    pub fn decode_fixed(buf: &[u8], tag: u64) -> Option<Self> {
        if u64_at(buf, 0)? != tag {
            return None;
        }
        let head = Self {
            crc: u32_at(buf, 8)?,
            kind: take::<1>(buf, 12)?.first().copied()?,
            class: Class::from_code(take::<1>(buf, 13)?.first().copied()?)?,
            namespace_len: u16_at(buf, 14)?,
            key_len: u32_at(buf, 16)?,
            references: u32_at(buf, 20)?,
            body_len: u64_at(buf, 24)?,
            fingerprint: u128_at(buf, 32)?,
        };
        let fits = head.kind < 32
            && usize::from(head.namespace_len) <= MAX_NAMESPACE
            && head.key_len as usize <= MAX_KEY
            && head.references as usize <= MAX_REFERENCES
            && head.body_len <= MAX_BODY;
        fits.then_some(head)
    }

    /// Decodes and checks a whole head. `buf` starts at the record and reaches at least to the body; `at` is the
    /// record's offset in its segment.
    pub fn decode(buf: &[u8], tag: u64, at: u64) -> Option<Self> {
        let head = Self::decode_fixed(buf, tag)?;
        (crc_at(at, buf.get(12..head.len())?) == head.crc).then_some(head)
    }

    pub fn namespace<'a>(&self, buf: &'a [u8]) -> Option<&'a [u8]> {
        buf.get(RECORD_HEAD_LEN..RECORD_HEAD_LEN + usize::from(self.namespace_len))
    }

    pub fn key<'a>(&self, buf: &'a [u8]) -> Option<&'a [u8]> {
        let start = RECORD_HEAD_LEN + usize::from(self.namespace_len);
        buf.get(start..start + self.key_len as usize)
    }

    pub fn references<'a>(&self, buf: &'a [u8]) -> Option<impl Iterator<Item = u128> + use<'a>> {
        let end = self.len();
        let refs = buf.get(end - 16 * self.references as usize..end)?;
        Some(refs.chunks_exact(16).filter_map(|fp| u128_at(fp, 0)))
    }
}

/// The part of a head the caller decides.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HeadParts<'a> {
    pub(crate) kind: u8,
    pub(crate) class: Class,
    pub(crate) namespace: &'a [u8],
    pub(crate) key: &'a [u8],
    pub(crate) references: &'a [u128],
    pub(crate) body_len: u64,
    pub(crate) fingerprint: u128,
}

impl HeadParts<'_> {
    pub(crate) fn head_len(&self) -> usize {
        (RECORD_HEAD_LEN + self.namespace.len() + self.key.len()).next_multiple_of(8) + 16 * self.references.len()
    }

    pub(crate) fn extent(&self) -> u64 {
        self.head_len() as u64 + align8(self.body_len) + RECORD_TRAILER_LEN as u64
    }
}

/// Appends the head of a record that will lie at `at`; returns its checksum. Lengths were checked by the caller.
#[expect(
    clippy::cast_possible_truncation,
    reason = "the limits of format.rs fit the field widths"
)]
pub(crate) fn encode_head(out: &mut Vec<u8>, tag: u64, at: u64, parts: &HeadParts<'_>) -> u32 {
    let start = out.len();
    let len = parts.head_len();
    out.reserve(len);
    out.extend_from_slice(&tag.to_le_bytes());
    out.extend_from_slice(&[0; 4]);
    out.push(parts.kind);
    out.push(parts.class.code());
    out.extend_from_slice(&(parts.namespace.len() as u16).to_le_bytes());
    out.extend_from_slice(&(parts.key.len() as u32).to_le_bytes());
    out.extend_from_slice(&(parts.references.len() as u32).to_le_bytes());
    out.extend_from_slice(&parts.body_len.to_le_bytes());
    out.extend_from_slice(&parts.fingerprint.to_le_bytes());
    out.extend_from_slice(parts.namespace);
    out.extend_from_slice(parts.key);
    let names = (out.len() - start).next_multiple_of(8);
    out.resize(start + names, 0);
    for fp in parts.references {
        out.extend_from_slice(&fp.to_le_bytes());
    }
    let sum = crc_at(at, out.get(start + 12..).unwrap_or_default());
    put(out, start + 8, &sum.to_le_bytes());
    sum
}

/// The decoded trailer of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trailer {
    pub sequence: u64,
    pub version: u64,
    pub body_crc: u32,
}

impl Trailer {
    /// `at` is the offset of the record, not of the trailer; `head_crc` binds the two ends together.
    pub fn decode(buf: &[u8], tag: u64, at: u64, head_crc: u32) -> Option<Self> {
        let body = buf.get(..RECORD_TRAILER_LEN)?;
        let right = u64_at(body, 0)? == !tag
            && u32_at(body, 28)? == head_crc
            && u32_at(body, 36)? == crc_at(at, body.get(..36)?);
        let sequence = u64_at(body, 8)?;
        (right && sequence <= MAX_SEQUENCE).then_some(Self {
            sequence,
            version: u64_at(body, 16)?,
            body_crc: u32_at(body, 24)?,
        })
    }
}

pub(crate) fn encode_trailer(tag: u64, at: u64, head_crc: u32, trailer: Trailer) -> [u8; RECORD_TRAILER_LEN] {
    let mut out = [0; RECORD_TRAILER_LEN];
    put(&mut out, 0, &(!tag).to_le_bytes());
    put(&mut out, 8, &trailer.sequence.to_le_bytes());
    put(&mut out, 16, &trailer.version.to_le_bytes());
    put(&mut out, 24, &trailer.body_crc.to_le_bytes());
    put(&mut out, 28, &head_crc.to_le_bytes());
    let sum = crc_at(at, out.get(..36).unwrap_or_default());
    put(&mut out, 36, &sum.to_le_bytes());
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of docs/segment-format.md.
    #[test]
    fn a_record_has_the_documented_layout() {
        let parts = HeadParts {
            kind: 2,
            class: Class::Put,
            namespace: b"ns",
            key: b"k",
            references: &[],
            body_len: 5,
            fingerprint: 0x0f0e_0d0c_0b0a_0908_0706_0504_0302_0100,
        };
        let (tag, at) = (0x1122_3344_5566_7788, 0x100);
        let mut out = Vec::new();
        let sum = encode_head(&mut out, tag, at, &parts);
        let mut expected = vec![0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11];
        expected.extend_from_slice(&sum.to_le_bytes());
        expected.extend_from_slice(&[2, 0, 2, 0, 1, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0]);
        expected.extend(0..16);
        expected.extend_from_slice(b"nsk\0\0\0\0\0");
        assert_eq!(out, expected);
        let head = Head::decode(&out, tag, at).unwrap();
        assert_eq!((head.len(), head.trailer_at(), head.extent()), (0x38, 0x40, 0x68));
        assert_eq!(Head::decode(&out, tag, at + 8), None, "right bytes in the wrong place");
        let trailer = Trailer {
            sequence: 1,
            version: 3,
            body_crc: 4,
        };
        let end = encode_trailer(tag, at, head.crc, trailer);
        assert_eq!(end[..9], [0x77, 0x88, 0x99, 0xaa, 0xbb, 0xcc, 0xdd, 0xee, 1]);
        assert_eq!(Trailer::decode(&end, tag, at, head.crc), Some(trailer));
        let other = Trailer::decode(&end, tag, at, head.crc ^ 1);
        assert_eq!(other, None, "a trailer of another head");
    }
}
