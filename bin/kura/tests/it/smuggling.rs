//! Requests that two readers could understand differently: refused, connection closed, nothing behind them served.

use crate::doors::{BOTH, Doors};

#[test]
fn nothing_behind_an_ambiguous_request_is_served() {
    let doors = Doors::open(&[]);
    let node = &doors.node;
    let hidden = "PUT /api/cache/gradle/smuggled?tenant_id=a HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\nx";
    let cases = [
        ("Content-Length: 5\r\nTransfer-Encoding: chunked", "0\r\n\r\n", 400),
        ("Transfer-Encoding: chunked\r\nContent-Length: 5", "0\r\n\r\n", 400),
        ("Content-Length: 0\r\nContent-Length: 5", "", 400),
        ("Content-Length: 0\r\nContent-Length: 0", "", 400),
        ("Content-Length: 0,5", "", 400),
        ("Content-Length: +0", "", 400),
        ("Content-Length: -1", "", 400),
        ("Content-Length : 0", "", 400),
        ("Transfer-Encoding: xchunked", "", 501),
        ("Transfer-Encoding: chunked, identity", "", 501),
        ("Transfer-Encoding:\u{b}chunked", "", 400),
        (
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity",
            "0\r\n\r\n",
            501,
        ),
        (" Content-Length: 5", "", 400),
        ("X: y\r\n folded: z", "", 400),
        ("X: y\nContent-Length: 5", "", 400),
        ("X: y\rContent-Length: 5", "", 400),
        ("Host: y", "", 400),
        ("Transfer-Encoding: chunked", "0;ext\r\n\r\n", 400),
        ("Transfer-Encoding: chunked", "0\r\nX: y\r\n\r\n", 400),
        ("Transfer-Encoding: chunked", "0x0\r\n\r\n", 400),
        ("Transfer-Encoding: chunked", "-1\r\n\r\n", 400),
    ];
    for (door, (fields, body, status)) in BOTH.into_iter().flat_map(|door| cases.map(|case| (door, case))) {
        let mut client = doors.enter(door);
        let request =
            format!("PUT /api/cache/gradle/outer?tenant_id=a HTTP/1.1\r\nHost: x\r\n{fields}\r\n\r\n{body}{hidden}");
        client.offer(request.as_bytes());
        let refused = client.response();
        assert_eq!(
            (refused.status, refused.field("connection")),
            (status, Some("close")),
            "{door:?} {fields:?} {body:?}"
        );
        assert!(client.is_closed(), "{door:?} {fields:?} {body:?}");
    }
    for key in ["smuggled", "outer"] {
        assert_eq!(
            node.send("GET", &format!("/api/cache/gradle/{key}?tenant_id=a"), b"")
                .status,
            404,
            "{key}"
        );
    }
}
