//! Head and trailer of a record: lengths stay inside the buffer, whatever they claim.
#![no_main]

use libfuzzer_sys::fuzz_target;
use russet_segstore::format::{Head, Trailer};

fuzz_target!(|data: &[u8]| {
    let Some((tag, rest)) = data.split_first_chunk::<8>() else {
        return;
    };
    // The tag is part of the record, so that the fuzzer need not guess it.
    let mut record = tag.to_vec();
    record.extend_from_slice(rest);
    let tag = u64::from_le_bytes(*tag);
    if let Some(head) = Head::decode_fixed(&record, tag) {
        assert!(head.extent() >= head.trailer_at() && head.trailer_at() >= head.len() as u64);
        if let Some(head) = Head::decode(&record, tag, 256) {
            assert!(head.namespace(&record).is_some() && head.key(&record).is_some());
            assert_eq!(
                head.references(&record).map(Iterator::count),
                Some(head.references as usize)
            );
        }
        // The checksum aside, the accessors must hold too.
        let _ = (
            head.namespace(&record),
            head.key(&record),
            head.references(&record).map(Iterator::count),
        );
        let at = usize::try_from(head.trailer_at()).unwrap_or(usize::MAX);
        let _ = record.get(at..).and_then(|t| Trailer::decode(t, tag, 256, head.crc));
    }
    let _ = Trailer::decode(&record, tag, 256, 0);
});
