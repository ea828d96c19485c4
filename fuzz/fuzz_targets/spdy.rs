//! Frames of SPDY/3.1: what is read does not depend on how the bytes arrive, no piece is larger than promised, and what was read and
//! is written again reads alike.
#![no_main]

use bytes::BytesMut;
use libfuzzer_sys::fuzz_target;
use russet_kubelet_api::spdy::{Decoder, Encoder, Frame, FrameError, MAX_PIECE};

/// Whole frames, pieces of data joined, and how it ended.
fn decode<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> (Vec<Frame>, Result<bool, FrameError>) {
    let (mut decoder, mut input, mut frames) = (Decoder::new(), BytesMut::new(), Vec::<Frame>::new());
    let mut open = false;
    for piece in pieces {
        input.extend_from_slice(piece);
        loop {
            match decoder.decode(&mut input) {
                Ok(Some(Frame::Data { id, fin, bytes })) => {
                    assert!(bytes.len() <= MAX_PIECE);
                    match frames.last_mut() {
                        Some(Frame::Data { fin: ended, bytes: begun, .. }) if open => {
                            *begun = [begun.as_ref(), bytes.as_ref()].concat().into();
                            *ended = fin;
                        }
                        _ => frames.push(Frame::Data { id, fin, bytes }),
                    }
                    open = !decoder.between_frames();
                }
                Ok(Some(frame)) => frames.push(frame),
                Ok(None) => break,
                Err(error) => return (frames, Err(error)),
            }
        }
    }
    (frames, Ok(decoder.between_frames()))
}

fuzz_target!(|data: &[u8]| {
    let Some((&cut, bytes)) = data.split_first() else {
        return;
    };
    let whole = decode(std::iter::once(bytes));
    let cut = decode(bytes.chunks(usize::from(cut) + 1));
    assert_eq!(whole, cut);

    // A frame that was cut short is no frame; the others are written and read again.
    let (mut frames, end) = whole;
    if end == Ok(false) {
        frames.pop();
    }
    let (mut encoder, mut again) = (Encoder::new(), BytesMut::new());
    for frame in &frames {
        let before = again.len();
        encoder.encode(frame, &mut again).unwrap();
        // Our own compression may be worse than theirs, and then the block is larger than we would take.
        if !matches!(frame, Frame::Data { .. }) && again.len() - before > 8 + 16 * 1024 {
            return;
        }
    }
    assert_eq!(decode(std::iter::once(&again[..])), (frames, Ok(true)));
});
