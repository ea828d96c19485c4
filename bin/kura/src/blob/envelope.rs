//! A little metadata in front of a stored body.
//!
//! Turborepo wants two header fields back with an artifact. They are stored with it, in one record, so that neither can be
//! there without the other. Readers skip them by their length: the body behind them is still sent by the kernel, from an
//! offset. The bytes are described in `docs/segment-format.md`.

/// Longest envelope, with its header. Callers limit what they put in.
pub(super) const MAX: usize = HEAD + 4096;
/// Version, zero, length of the fields.
pub(super) const HEAD: usize = 4;
const VERSION: u8 = 1;

/// Metadata of a body: short values under small numbers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Envelope {
    fields: Vec<(u8, Box<[u8]>)>,
}

impl Envelope {
    /// Adds a value. One that would not fit is left out, which callers prevent by their own limits.
    pub fn add(&mut self, number: u8, value: &[u8]) {
        if self.length() + 3 + value.len() <= MAX {
            self.fields.push((number, value.into()));
        }
    }

    /// The value under a number.
    pub fn get(&self, number: u8) -> Option<&[u8]> {
        self.fields
            .iter()
            .find_map(|(found, value)| (*found == number).then_some(&**value))
    }

    fn length(&self) -> usize {
        HEAD + self.fields.iter().map(|(_, value)| 3 + value.len()).sum::<usize>()
    }

    /// What is stored in front of the body.
    pub fn encode(&self) -> Vec<u8> {
        let fields = u16::try_from(self.length() - HEAD).unwrap_or_default();
        let mut bytes = vec![VERSION, 0];
        bytes.extend_from_slice(&fields.to_le_bytes());
        for (number, value) in &self.fields {
            bytes.push(*number);
            bytes.extend_from_slice(&u16::try_from(value.len()).unwrap_or_default().to_le_bytes());
            bytes.extend_from_slice(value);
        }
        bytes
    }

    /// How many bytes of fields follow a header; `None` if it is none of ours.
    pub(super) fn fields_after(head: [u8; HEAD]) -> Option<usize> {
        let [version, zero, low, high] = head;
        let length = usize::from(u16::from_le_bytes([low, high]));
        (version == VERSION && zero == 0 && HEAD + length <= MAX).then_some(length)
    }

    /// The fields behind a header; `None` if they do not fill it exactly.
    pub(super) fn decode(mut bytes: &[u8]) -> Option<Self> {
        let mut fields = Vec::new();
        while let Some((&[number, low, high], rest)) = bytes.split_first_chunk::<3>() {
            let length = usize::from(u16::from_le_bytes([low, high]));
            let (value, rest) = rest.split_at_checked(length)?;
            fields.push((number, value.into()));
            bytes = rest;
        }
        bytes.is_empty().then_some(Self { fields })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn split(bytes: &[u8]) -> Option<Envelope> {
        let (head, rest) = bytes.split_first_chunk::<HEAD>()?;
        let length = Envelope::fields_after(*head)?;
        Envelope::decode(rest.get(..length)?)
    }

    #[test]
    fn an_empty_envelope_is_four_bytes() {
        assert_eq!(Envelope::default().encode(), [1, 0, 0, 0]);
    }

    proptest! {
        #[test]
        fn what_was_put_in_comes_out(fields in proptest::collection::vec((any::<u8>(), proptest::collection::vec(any::<u8>(), 0..600)), 0..5)) {
            let mut envelope = Envelope::default();
            for (number, value) in &fields {
                envelope.add(*number, value);
            }
            let mut bytes = envelope.encode();
            bytes.extend_from_slice(b"body");
            prop_assert_eq!(split(&bytes), Some(envelope));
        }

        #[test]
        fn any_bytes_are_decoded_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            let _ = split(&bytes);
        }
    }
}
