//! Decoders against arbitrary bytes, and round trips. `fuzz/` has the same with coverage guidance.

use proptest::prelude::*;
use russet_segstore::format::{Class, FooterEntry, FooterTrailer, Head, SegmentHeader, StoreHeader, Table, Trailer};

fn entry() -> impl Strategy<Value = FooterEntry> {
    let numbers = (any::<u128>(), 0..1_u64 << 47, any::<u64>(), 0..100_000_u64, 0..1000_u64);
    (numbers, 0..32_u8, 0..3_u32).prop_map(|((fingerprint, sequence, version, body_len, place), kind, name)| {
        FooterEntry {
            fingerprint,
            sequence,
            version,
            body_len,
            offset: place * 8,
            namespace: Some(name),
            kind,
            class: Class::Put,
            head_len: 64,
            references: name,
        }
    })
}

proptest! {
    #[test]
    fn no_bytes_make_a_decoder_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400), tag: u64, at: u64) {
        let _ = StoreHeader::decode(&bytes);
        let _ = SegmentHeader::decode(&bytes);
        let _ = FooterTrailer::decode(&bytes, bytes.len() as u64);
        let _ = Trailer::decode(&bytes, tag, at, 0);
        let mut tagged = tag.to_le_bytes().to_vec();
        tagged.extend_from_slice(&bytes);
        let _ = Head::decode(&tagged, tag, at);
        if let Some(head) = Head::decode_fixed(&tagged, tag) {
            let _ = (head.namespace(&tagged), head.key(&tagged), head.references(&tagged).map(Iterator::count));
        }
    }

    #[test]
    fn a_footer_reads_back_as_written(entries in proptest::collection::vec(entry(), 0..50), floor: u64) {
        let mut table = Table::default();
        for name in ["ios", "web", ""] {
            table.intern(name.as_bytes()).unwrap();
        }
        table.entries = entries;
        let at = 1 << 30;
        let bytes = table.encode(7, 9, 0, at, floor);
        let (body, end) = bytes.split_at(bytes.len() - 96);
        let trailer = FooterTrailer::decode(end, at + bytes.len() as u64).unwrap();
        prop_assert_eq!((trailer.id, trailer.tag, trailer.history_floor), (7, 9, floor));
        let decoded = Table::decode(body, &trailer).unwrap();
        prop_assert_eq!(&decoded, &table);
        prop_assert!(decoded.entries.is_sorted_by_key(|e| e.sequence));
    }

    #[test]
    fn one_changed_byte_of_a_footer_is_noticed(
        entries in proptest::collection::vec(entry(), 1..10),
        at: proptest::sample::Index,
        bits in 1..=255_u8,
    ) {
        let mut table = Table::default();
        for name in ["ios", "web", ""] {
            table.intern(name.as_bytes()).unwrap();
        }
        table.entries = entries;
        let mut bytes = table.encode(7, 9, 0, 1 << 30, 0);
        let place = at.index(bytes.len());
        bytes[place] ^= bits;
        let (body, end) = bytes.split_at(bytes.len() - 96);
        let trailer = FooterTrailer::decode(end, (1 << 30) + bytes.len() as u64);
        prop_assert!(trailer.and_then(|t| Table::decode(body, &t)).is_none());
    }

    #[test]
    fn headers_read_back_as_written(store_id: u128, hash_key: u128, numbers: [u64; 5], flags: u32) {
        let [id, tag, created_ms, base_seq, history_floor] = numbers;
        let store = StoreHeader { version: 1, store_id, hash_key, created_ms };
        prop_assert_eq!(StoreHeader::decode(&store.encode()), Some(store));
        let segment = SegmentHeader { store, flags, id, tag, created_ms, base_seq, history_floor };
        let mut bytes = segment.encode();
        prop_assert_eq!(SegmentHeader::decode(&bytes), Some(segment));
        // Either copy is enough.
        bytes[3] ^= 1;
        prop_assert_eq!(SegmentHeader::decode(&bytes), Some(segment));
        bytes[128 + 3] ^= 1;
        prop_assert_eq!(SegmentHeader::decode(&bytes), None);
    }
}
