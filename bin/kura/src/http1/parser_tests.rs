use super::*;
use crate::http1::head_end::Search;
use proptest::prelude::*;

fn request(text: &str) -> Result<(Head<'_>, Terms), Refusal> {
    match parse(text.as_bytes())? {
        Parsed::Request(head, terms) => Ok((head, terms)),
        Parsed::Http2Preface => panic!("not the preface"),
    }
}

/// A head with one extra field line.
fn with(line: &str) -> String {
    format!("PUT /k HTTP/1.1\r\nHost: x\r\n{line}\r\n\r\n")
}

#[test]
fn a_plain_request_is_taken_apart() {
    let line = "GET /api/cache/gradle/k%20?tenant_id=a&b=? HTTP/1.1";
    let text = format!("{line}\r\nHost: cache\r\nAuthorization:  Bearer t \r\nRANGE: bytes=0-1\r\n\r\n");
    let (head, terms) = request(&text).unwrap();
    assert_eq!(head.method, Method::Get);
    assert_eq!(head.path, "/api/cache/gradle/k%20");
    assert_eq!(head.query, "tenant_id=a&b=?");
    assert_eq!(head.fields.authorization, Some(&b"Bearer t"[..]));
    assert_eq!(head.fields.range, Some(&b"bytes=0-1"[..]));
    assert_eq!(terms.framing, Framing::None);
    assert!(terms.keep_alive && !terms.expects_continue && !terms.old);
}

#[test]
fn the_absolute_form_names_the_same_resource() {
    let (head, _) = request("GET http://cache:4000/up?a HTTP/1.1\r\nHost: cache\r\n\r\n").unwrap();
    assert_eq!((head.path, head.query), ("/up", "a"));
}

#[test]
fn the_http2_preface_is_recognised() {
    assert_eq!(parse(b"PRI * HTTP/2.0\r\n\r\n"), Ok(Parsed::Http2Preface));
}

#[test]
fn connection_options_decide_about_keep_alive() {
    for (version, option, kept) in [
        ("1.1", "", true),
        ("1.1", "Connection: close\r\n", false),
        ("1.1", "Connection: Keep-Alive, Close\r\n", false),
        ("1.0", "", false),
        ("1.0", "Connection: keep-alive\r\n", true),
    ] {
        let text = format!("GET / HTTP/{version}\r\nHost: x\r\n{option}\r\n");
        assert_eq!(request(&text).unwrap().1.keep_alive, kept, "{text}");
    }
}

#[test]
fn what_two_readers_could_understand_differently_is_refused() {
    let lines = [
        ("Content-Length: 1\r\nTransfer-Encoding: chunked", Refusal::TwoFramings),
        ("Transfer-Encoding: chunked\r\nContent-Length: 0", Refusal::TwoFramings),
        ("Content-Length: 1\r\nContent-Length: 1", Refusal::ContentLength),
        ("Content-Length: 1, 1", Refusal::ContentLength),
        ("Content-Length: +1", Refusal::ContentLength),
        ("Content-Length: 0x1", Refusal::ContentLength),
        ("Content-Length: ", Refusal::ContentLength),
        ("Content-Length: 99999999999999999999", Refusal::ContentLength),
        ("Transfer-Encoding: gzip, chunked", Refusal::TransferEncoding),
        ("Transfer-Encoding: xchunked", Refusal::TransferEncoding),
        (
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
            Refusal::TransferEncoding,
        ),
        ("Transfer-Encoding : chunked", Refusal::Field),
        (" Transfer-Encoding: chunked", Refusal::Folded),
        ("A: b\r\n\tfolded", Refusal::Folded),
        ("A: b\rc", Refusal::Field),
        // A carriage return at the end of a value was trimmed as white space.
        ("A: b\r", Refusal::Field),
        ("Content-Length: 1\u{c}", Refusal::Field),
        ("A: b\0c", Refusal::Field),
        // Found by fuzzing: blanks around a value were taken to include carriage returns and form feeds.
        ("Content-Length: 5\r", Refusal::Field),
        ("Transfer-Encoding: \rchunked", Refusal::Field),
        ("Connection: close\x0c", Refusal::Field),
        ("no colon", Refusal::Field),
        (": no name", Refusal::Field),
        ("Host: y", Refusal::Host),
        ("Authorization: a\r\nauthorization: b", Refusal::Repeated),
        ("Expect: something", Refusal::Expectation),
    ];
    for (line, refusal) in lines {
        assert_eq!(request(&with(line)), Err(refusal), "{line:?}");
    }
    let heads = [
        ("GET / HTTP/1.1\r\n\r\n", Refusal::Host),
        ("GET  / HTTP/1.1\r\nHost: x\r\n\r\n", Refusal::RequestLine),
        ("GET / HTTP/1.1 \r\nHost: x\r\n\r\n", Refusal::RequestLine),
        ("GET / HTTP/2.0\r\nHost: x\r\n\r\n", Refusal::Version),
        ("GET / http/1.1\r\nHost: x\r\n\r\n", Refusal::RequestLine),
        ("GET /\r\nHost: x\r\n\r\n", Refusal::RequestLine),
        (" GET / HTTP/1.1\r\nHost: x\r\n\r\n", Refusal::RequestLine),
        ("G(T / HTTP/1.1\r\nHost: x\r\n\r\n", Refusal::RequestLine),
        ("GET up HTTP/1.1\r\nHost: x\r\n\r\n", Refusal::Target),
        ("GET /a#b HTTP/1.1\r\nHost: x\r\n\r\n", Refusal::Target),
        ("GET /\u{e9} HTTP/1.1\r\nHost: x\r\n\r\n", Refusal::Target),
        ("GET http://u@h/ HTTP/1.1\r\nHost: x\r\n\r\n", Refusal::Target),
        (
            "PUT / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n",
            Refusal::TransferEncoding,
        ),
    ];
    for (text, refusal) in heads {
        assert_eq!(request(text), Err(refusal), "{text:?}");
    }
}

#[test]
fn too_many_fields_are_refused() {
    let lines = "a: b\r\n".repeat(MAX_FIELDS);
    let text = format!("GET / HTTP/1.1\r\nHost: x\r\n{lines}\r\n");
    assert_eq!(request(&text), Err(Refusal::TooManyFields));
}

#[test]
fn an_expectation_without_a_body_is_no_expectation() {
    let (_, terms) = request("GET / HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\n\r\n").unwrap();
    assert!(!terms.expects_continue);
    let text = with("Expect: 100-Continue\r\nContent-Length: 3");
    assert!(request(&text).unwrap().1.expects_continue);
}

proptest! {
    #[test]
    fn no_bytes_make_the_parser_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = parse(&bytes);
    }

    #[test]
    fn a_request_split_at_every_byte_is_the_same_request(
        key in "[a-zA-Z0-9%._-]{1,30}",
        value in "[ -~]{0,30}",
        length in 1u64..1_000_000,
        rest in "[a-z]{0,10}",
    ) {
        let text = format!("PUT /api/{key}?q=1 HTTP/1.1\r\nHost: x\r\nX-Any: {value}\r\nContent-Length: {length}\r\n\r\n{rest}");
        let bytes = text.as_bytes();
        let mut search = Search::default();
        let end = (0..=bytes.len()).find_map(|cut| search.advance(&bytes[..cut], MAX_HEAD).unwrap());
        prop_assert_eq!(end, Some(bytes.len() - rest.len()));
        let Ok(Parsed::Request(head, terms)) = parse(&bytes[..end.unwrap()]) else { panic!("refused {text:?}") };
        prop_assert_eq!(head.path, format!("/api/{key}"));
        prop_assert_eq!(terms.framing, Framing::Length(length));
    }
}
