//! Segment header, either copy.
#![no_main]

use libfuzzer_sys::fuzz_target;
use russet_segstore::format::SegmentHeader;

fuzz_target!(|data: &[u8]| {
    if let Some(header) = SegmentHeader::decode(data) {
        assert_eq!(SegmentHeader::decode(&header.encode()), Some(header));
    }
});
