//! Action results and trees: any bytes are decoded or refused, and what a result says survives fields it does not know.
#![no_main]

use kura::action::{leaves, outline, outline_json};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let _ = leaves(data);
    let _ = outline_json(data);
    let Ok(said) = outline(data) else {
        return;
    };
    assert!(!data.is_empty(), "nothing is no result");
    // Field 100, three bytes long, which no version of the message has.
    let mut longer = data.to_vec();
    longer.extend_from_slice(&[0xa2, 0x06, 3, 1, 2, 3]);
    assert_eq!(outline(&longer), Ok(said));
});
