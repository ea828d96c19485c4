//! The chunked coding: the body and its end do not depend on how the bytes arrive, and encoding what was decoded decodes alike.
#![no_main]

use kura::http1::chunked::{Decoder, Step};
use libfuzzer_sys::fuzz_target;

/// The body, and how many bytes the coding took if it ended; none when it is broken.
fn decode(pieces: &[&[u8]]) -> Option<(Vec<u8>, Option<usize>)> {
    let (mut decoder, mut body, mut used) = (Decoder::default(), Vec::new(), 0);
    for piece in pieces {
        let mut rest = *piece;
        loop {
            match decoder.step(rest).ok()? {
                Step::More(count) => {
                    assert_eq!(count, rest.len(), "bytes were left over although more were asked for");
                    used += count;
                    break;
                }
                Step::Data { skip, length } => {
                    assert!(length > 0);
                    body.extend_from_slice(&rest[skip..skip + length]);
                    rest = &rest[skip + length..];
                    used += skip + length;
                    if rest.is_empty() {
                        break;
                    }
                }
                Step::End(count) => return Some((body, Some(used + count))),
            }
        }
    }
    Some((body, None))
}

fuzz_target!(|data: &[u8]| {
    let Some((&cut, bytes)) = data.split_first() else {
        return;
    };
    let whole = decode(&[bytes]);
    let (first, second) = bytes.split_at(bytes.len().min(cut.into()));
    assert_eq!(whole, decode(&[first, second]));
    let Some((body, Some(_))) = whole else {
        return;
    };
    let mut encoded = Vec::new();
    if !body.is_empty() {
        encoded.extend_from_slice(format!("{:x}\r\n", body.len()).as_bytes());
        encoded.extend_from_slice(&body);
        encoded.extend_from_slice(b"\r\n");
    }
    encoded.extend_from_slice(b"0\r\n\r\n");
    let length = encoded.len();
    assert_eq!(decode(&[&encoded]), Some((body, Some(length))));
});
