//! Protobuf without types: fields are read in place and written at the end of a buffer.

use crate::digest::{Digest, Function, HEX, hash_of_hex};

/// Bytes that are no message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the message cannot be decoded")]
pub struct Malformed;

/// Largest number a field may have.
const MAX_FIELD: u32 = (1 << 29) - 1;

/// The number of the field a tag is for. What is larger than the protocol allows is refused by other readers, so it is here.
pub(crate) fn field_of(tag: u64) -> Option<u32> {
    u32::try_from(tag >> 3)
        .ok()
        .filter(|number| (1..=MAX_FIELD).contains(number))
}

/// The value of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value<'a> {
    /// An integer, an enum or a flag.
    Number(u64),
    /// Text, bytes, a message or a packed list.
    Bytes(&'a [u8]),
    /// Eight or four bytes nobody here looks at.
    Fixed,
}

impl<'a> Value<'a> {
    /// The bytes, where the protocol has bytes.
    pub fn bytes(self) -> Result<&'a [u8], Malformed> {
        match self {
            Self::Bytes(bytes) => Ok(bytes),
            _ => Err(Malformed),
        }
    }

    /// The text, where the protocol has text.
    pub fn text(self) -> Result<&'a str, Malformed> {
        std::str::from_utf8(self.bytes()?).map_err(|_| Malformed)
    }

    /// The number, where the protocol has a number.
    pub fn number(self) -> Result<u64, Malformed> {
        match self {
            Self::Number(number) => Ok(number),
            _ => Err(Malformed),
        }
    }

    /// Whether the number is among those of this field, which may have come one by one or as a packed list. Enums have 32 bits,
    /// and readers drop what is above.
    pub fn has_choice(self, wanted: u32) -> Result<bool, Malformed> {
        let is = |number: u64| number & u64::from(u32::MAX) == u64::from(wanted);
        let Self::Bytes(mut packed) = self else {
            return self.number().map(is);
        };
        let mut found = false;
        while !packed.is_empty() {
            found |= is(varint(&mut packed)?);
        }
        Ok(found)
    }
}

/// Sets what a message may say once. Protobuf merges two messages of one field; what was merged is what neither of them says, and
/// no client sends it.
pub(crate) fn set_once<T>(place: &mut Option<T>, value: T) -> Result<(), Malformed> {
    match place.replace(value) {
        None => Ok(()),
        Some(_) => Err(Malformed),
    }
}

/// The fields of a message, in the order they were sent.
#[derive(Clone, Debug)]
pub struct Fields<'a> {
    rest: &'a [u8],
}

impl<'a> Fields<'a> {
    /// The fields of these bytes.
    pub const fn new(message: &'a [u8]) -> Self {
        Self { rest: message }
    }

    fn field(&mut self) -> Result<(u32, Value<'a>), Malformed> {
        let tag = varint(&mut self.rest)?;
        let number = field_of(tag).ok_or(Malformed)?;
        let value = match tag & 7 {
            0 => Value::Number(varint(&mut self.rest)?),
            1 => self.skip(8)?,
            2 => {
                let length = usize::try_from(varint(&mut self.rest)?).map_err(|_| Malformed)?;
                let (bytes, rest) = self.rest.split_at_checked(length).ok_or(Malformed)?;
                self.rest = rest;
                Value::Bytes(bytes)
            }
            5 => self.skip(4)?,
            _ => return Err(Malformed),
        };
        Ok((number, value))
    }

    fn skip(&mut self, count: usize) -> Result<Value<'a>, Malformed> {
        self.rest = self.rest.get(count..).ok_or(Malformed)?;
        Ok(Value::Fixed)
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = Result<(u32, Value<'a>), Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let field = self.field();
        if field.is_err() {
            self.rest = &[];
        }
        Some(field)
    }
}

/// Takes a varint off the front.
pub fn varint(rest: &mut &[u8]) -> Result<u64, Malformed> {
    let mut value = 0;
    for (index, byte) in rest.iter().enumerate().take(10) {
        let bits = u64::from(byte & 0x7f);
        if index == 9 && bits > 1 {
            return Err(Malformed);
        }
        value |= bits << (7 * index);
        if byte & 0x80 == 0 {
            *rest = rest.get(index + 1..).unwrap_or_default();
            return Ok(value);
        }
    }
    Err(Malformed)
}

/// Bytes a varint takes.
pub const fn varint_len(value: u64) -> usize {
    let bits = 64 - (value | 1).leading_zeros() as usize;
    bits.div_ceil(7)
}

/// Appends a varint.
pub fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        #[expect(clippy::cast_possible_truncation, reason = "seven bits at a time")]
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    #[expect(clippy::cast_possible_truncation, reason = "below 0x80")]
    out.push(value as u8);
}

/// Appends tag and length of a field of bytes, whose content the caller appends. Only for field numbers below 16.
pub fn put_length(out: &mut Vec<u8>, field: u8, length: usize) {
    out.push(field << 3 | 2);
    put_varint(out, length as u64);
}

/// Appends a field of bytes.
pub fn put_bytes(out: &mut Vec<u8>, field: u8, bytes: &[u8]) {
    put_length(out, field, bytes.len());
    out.extend_from_slice(bytes);
}

/// Appends a number, unless it is the default.
pub fn put_number(out: &mut Vec<u8>, field: u8, number: u64) {
    if number != 0 {
        out.push(field << 3);
        put_varint(out, number);
    }
}

/// Bytes [`put_bytes`] takes.
pub const fn bytes_len(length: usize) -> usize {
    1 + varint_len(length as u64) + length
}

/// A digest as it was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawDigest<'a> {
    /// The message, to be sent back as it came.
    pub message: &'a [u8],
    hash: &'a [u8],
    size: i64,
}

/// Why a digest cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadDigest {
    /// No hash, or not 64 hexadecimal digits.
    #[error("a digest's hash must be 64 hexadecimal digits in lower case")]
    Hash,
    /// Less than nothing.
    #[error("a digest's size must not be negative")]
    Size,
    /// SHA-1 and the like.
    #[error("this digest function is not supported; use SHA256 or BLAKE3")]
    Function,
}

impl<'a> RawDigest<'a> {
    /// One that was not sent.
    pub(crate) const EMPTY: Self = Self {
        message: &[],
        hash: &[],
        size: 0,
    };

    /// Reads a `Digest` message.
    pub fn read(message: &'a [u8]) -> Result<Self, Malformed> {
        let mut raw = Self {
            message,
            hash: &[],
            size: 0,
        };
        for field in Fields::new(message) {
            match field? {
                (1, value) => raw.hash = value.bytes()?,
                (2, value) => raw.size = value.number()?.cast_signed(),
                _ => {}
            }
        }
        Ok(raw)
    }

    /// The digest it stands for.
    pub fn digest(&self, function: Function) -> Result<Digest, BadDigest> {
        Ok(Digest {
            function,
            hash: hash_of_hex(self.hash).ok_or(BadDigest::Hash)?,
            size: u64::try_from(self.size).map_err(|_| BadDigest::Size)?,
        })
    }

    /// Bytes of content, as claimed.
    pub const fn size(&self) -> i64 {
        self.size
    }
}

/// Appends a `Digest` as the field of a message.
pub fn put_digest(out: &mut Vec<u8>, field: u8, digest: &Digest) {
    let size = if digest.size == 0 {
        0
    } else {
        1 + varint_len(digest.size)
    };
    put_length(out, field, bytes_len(HEX) + size);
    put_bytes(out, 1, digest.hex().as_bytes());
    put_number(out, 2, digest.size);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::reapi;
    use proptest::prelude::*;
    use prost::Message as _;

    #[test]
    fn what_was_written_by_hand_is_what_the_library_writes() {
        for size in [0_usize, 1, 127, 128, 300] {
            let digest = Function::Sha256.digest(&vec![1; size]);
            let theirs = reapi::FindMissingBlobsResponse {
                missing_blob_digests: vec![reapi::Digest {
                    hash: digest.hex(),
                    size_bytes: i64::try_from(size).unwrap(),
                }],
            };
            let mut ours = Vec::new();
            put_digest(&mut ours, 2, &digest);
            assert_eq!(ours, theirs.encode_to_vec());
            let (number, value) = Fields::new(&ours).next().unwrap().unwrap();
            assert_eq!(number, 2);
            let raw = RawDigest::read(value.bytes().unwrap()).unwrap();
            assert_eq!(raw.digest(Function::Sha256), Ok(digest));
        }
    }

    #[test]
    fn wrong_digests_are_told_apart() {
        let read = |hash: &str, size: i64| {
            let message = reapi::Digest {
                hash: hash.to_owned(),
                size_bytes: size,
            };
            RawDigest::read(&message.encode_to_vec())
                .unwrap()
                .digest(Function::Sha256)
        };
        assert_eq!(read("abc", 1), Err(BadDigest::Hash));
        assert_eq!(read("", 0), Err(BadDigest::Hash));
        assert_eq!(read(&"0".repeat(64), -1), Err(BadDigest::Size));
    }

    /// Found when agreement with the library's decoder became a fuzz target: we read messages that it refuses, since their fields
    /// had numbers beyond those the protocol has.
    #[test]
    fn fields_beyond_the_last_number_are_refused() {
        let read = |tag: u64| {
            let mut bytes = Vec::new();
            put_varint(&mut bytes, tag);
            bytes.push(0);
            let ours = Fields::new(&bytes).next().unwrap().map(|(number, _)| number);
            assert_eq!(ours.is_ok(), reapi::Digest::decode(&bytes[..]).is_ok());
            ours
        };
        assert_eq!(read(u64::from(MAX_FIELD) << 3), Ok(MAX_FIELD));
        assert_eq!(read((u64::from(MAX_FIELD) + 1) << 3), Err(Malformed));
        assert_eq!(read(0), Err(Malformed));
    }

    proptest! {
        #[test]
        fn varints_are_read_back(value: u64) {
            let mut out = Vec::new();
            put_varint(&mut out, value);
            prop_assert_eq!(out.len(), varint_len(value));
            let mut rest = &out[..];
            prop_assert_eq!(varint(&mut rest), Ok(value));
            prop_assert!(rest.is_empty());
        }

        #[test]
        fn any_bytes_are_fields_or_malformed(bytes: Vec<u8>) {
            let fields: Vec<_> = Fields::new(&bytes).collect();
            prop_assert!(fields.len() <= bytes.len());
            let _ = RawDigest::read(&bytes).map(|raw| raw.digest(Function::Sha256));
        }

        #[test]
        fn a_message_the_library_reads_is_read_in_place(hash in "[a-z0-9]{0,80}", size: i64) {
            let bytes = reapi::Digest { hash: hash.clone(), size_bytes: size }.encode_to_vec();
            let raw = RawDigest::read(&bytes).unwrap();
            prop_assert_eq!((raw.hash, raw.size()), (hash.as_bytes(), size));
        }
    }
}
