//! `Range` and `If-None-Match`: a part lies inside the blob and is never empty, whatever is asked for.
#![no_main]

use kura::http::range::{Range, none_match_names};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some((total, value)) = data.split_first_chunk::<8>() else {
        return;
    };
    let total = u64::from_le_bytes(*total);
    match Range::of(Some(value), total) {
        Range::Whole => {}
        Range::Part { start, length } => {
            assert!(length > 0 && start.checked_add(length).is_some_and(|end| end <= total))
        }
        Range::Unsatisfiable => assert!(value.starts_with(b"bytes=")),
    }
    let tag = "\"0123456789abcdef\"";
    if none_match_names(value, tag) {
        let text = String::from_utf8_lossy(value);
        assert!(
            text.contains('*') || text.contains(tag),
            "a tag was found that is not there: {text}"
        );
    }
});
