//! The request head of the hand-written engine. However the bytes arrive, the same head is found; and what we accept, a second
//! parser understands in the same way: two readings of one head are a smuggled request.
#![no_main]

use kura::http::head::Method;
use kura::http1::head_end::Search;
use kura::http1::parser::{Framing, MAX_FIELDS, MAX_HEAD, Parsed, parse};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some((&cut, bytes)) = data.split_first() else {
        return;
    };
    let whole = Search::default().advance(bytes, MAX_HEAD);
    let mut dripping = Search::default();
    let first = bytes.len().min(cut.into());
    let in_two = match dripping.advance(&bytes[..first], MAX_HEAD) {
        Ok(None) => dripping.advance(bytes, MAX_HEAD),
        settled => settled,
    };
    assert_eq!(whole, in_two, "the end of a head depends on how it arrived");
    let Ok(Some(end)) = whole else {
        return;
    };
    let Ok(Parsed::Request(head, terms)) = parse(&bytes[..end]) else {
        return;
    };
    assert!(head.path == "*" || head.path.starts_with('/'));
    assert!(!head.path.contains(['?', '\r', '\n', ' ']));

    let mut fields = [httparse::EMPTY_HEADER; MAX_FIELDS];
    let mut other = httparse::Request::new(&mut fields);
    let read = other
        .parse(&bytes[..end])
        .expect("we accept what another parser refuses");
    assert_eq!(read, httparse::Status::Complete(end));
    if head.method != Method::Other {
        assert_eq!(Method::of(other.method.unwrap_or_default().as_bytes()), head.method);
    }
    let target = other.path.unwrap_or_default();
    let written = if head.query.is_empty() {
        head.path.to_owned()
    } else {
        format!("{}?{}", head.path, head.query)
    };
    assert!(
        target.trim_end_matches('?').ends_with(written.trim_end_matches('?')),
        "{target} {written}"
    );
    let all = |name: &str| {
        other
            .headers
            .iter()
            .filter(|field| field.name.eq_ignore_ascii_case(name))
            .map(|field| field.value)
            .collect::<Vec<_>>()
    };
    let (lengths, codings) = (all("content-length"), all("transfer-encoding"));
    match terms.framing {
        Framing::None => {
            assert!(codings.is_empty() && lengths.iter().all(|value| value.iter().all(|digit| *digit == b'0')))
        }
        Framing::Length(length) => {
            assert!(codings.is_empty() && lengths.len() == 1);
            assert_eq!(
                std::str::from_utf8(lengths[0])
                    .ok()
                    .and_then(|text| text.trim().parse().ok()),
                Some(length)
            );
        }
        Framing::Chunked => {
            assert!(lengths.is_empty() && codings.len() == 1 && codings[0].eq_ignore_ascii_case(b"chunked"))
        }
    }
    assert_eq!(all("authorization").first().copied(), head.fields.authorization);
    assert!(all("host").len() <= 1 && all("authorization").len() <= 1 && all("range").len() <= 1);
});
