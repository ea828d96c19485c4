//! FORMAT: whatever decodes encodes to the same bytes, apart from what is reserved.
#![no_main]

use libfuzzer_sys::fuzz_target;
use russet_segstore::format::StoreHeader;

fuzz_target!(|data: &[u8]| {
    if let Some(header) = StoreHeader::decode(data) {
        assert_eq!(StoreHeader::decode(&header.encode()), Some(header));
    }
});
