//! `WriteRequest` as events: the same messages however the bytes are cut, no more and no less than the library's decoder reads, and
//! whatever the library writes is read.
#![no_main]

use libfuzzer_sys::fuzz_target;
use prost::Message as _;
use russet_reapi::name::MAX_NAME;
use russet_reapi::proto::bytestream::WriteRequest;
use russet_reapi::upload::{Decoder, Error, Event};

/// The messages that ended, and how the stream ended: between two messages, within one, or refused.
type Decoded = (Vec<WriteRequest>, Result<bool, Error>);

fn decode<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Decoded {
    let (mut decoder, mut messages) = (Decoder::default(), Vec::new());
    let mut current: Option<WriteRequest> = None;
    let mut data = Vec::new();
    for mut piece in pieces {
        loop {
            match decoder.next(&mut piece) {
                Err(error) => return (messages, Err(error)),
                Ok(None) => break,
                Ok(Some(Event::Start { name, offset })) => {
                    assert!(current.is_none(), "a message began within another");
                    current = Some(WriteRequest {
                        resource_name: name.unwrap_or_default(),
                        write_offset: offset,
                        ..Default::default()
                    });
                }
                Ok(Some(Event::Data(bytes))) => {
                    assert!(current.is_some() && !bytes.is_empty());
                    data.extend_from_slice(bytes);
                }
                Ok(Some(Event::End { finish })) => {
                    let mut message = current.take().expect("a message ended that had not begun");
                    message.finish_write = finish;
                    message.data = std::mem::take(&mut data).into();
                    messages.push(message);
                }
            }
        }
        assert!(piece.is_empty(), "bytes were left over although more were asked for");
    }
    (messages, Ok(decoder.is_between()))
}

/// The messages in a stream, by their prefixes.
fn bodies(mut stream: &[u8]) -> Vec<&[u8]> {
    let mut found = Vec::new();
    while let Some(([_, length @ ..], rest)) = stream.split_first_chunk::<5>() {
        let Some((body, rest)) = rest.split_at_checked(u32::from_be_bytes(*length) as usize) else {
            break;
        };
        found.push(body);
        stream = rest;
    }
    found
}

fn frame(body: &[u8]) -> Vec<u8> {
    let mut stream = vec![0];
    stream.extend_from_slice(&u32::try_from(body.len()).expect("a small message").to_be_bytes());
    stream.extend_from_slice(body);
    stream
}

fn check(stream: &[u8], cuts: &[u8]) {
    let whole = decode([stream]);
    assert_eq!(decode(stream.chunks(1)), whole, "byte by byte it is another stream");
    let mut rest = stream;
    let mut pieces = Vec::new();
    for cut in cuts {
        let (piece, after) = rest.split_at(rest.len().min(usize::from(*cut)));
        pieces.push(piece);
        rest = after;
    }
    pieces.push(rest);
    assert_eq!(decode(pieces), whole, "the stream depends on how it arrived");
    for (message, body) in whole.0.iter().zip(bodies(stream)) {
        assert_eq!(
            WriteRequest::decode(body).as_ref(),
            Ok(message),
            "two readings of one message"
        );
    }
}

fuzz_target!(|data: &[u8]| {
    let Some((cuts, bytes)) = data.split_first_chunk::<4>() else {
        return;
    };
    // As a stream with prefixes of its own, and as one message.
    check(bytes, cuts);
    check(&frame(bytes), cuts);
    if let Ok(message) = WriteRequest::decode(bytes) {
        let written = frame(&message.encode_to_vec());
        let read = decode([&written[..]]);
        if message.resource_name.len() <= MAX_NAME {
            assert_eq!(read, (vec![message], Ok(true)), "what the library writes is refused");
        } else {
            assert_eq!(read, (vec![], Err(Error::Malformed)));
        }
    }
});
