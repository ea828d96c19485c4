//! HTTP/1.1 itself: bodies, connections, and what may be left out of neither. Written to the socket byte by byte.

use anyhow::{Context, Result, ensure};

use crate::http::server::STORED;
use crate::http::wire::Response;
use crate::http::{Server, entries};
use crate::{Check, checks, not_applicable};

pub(super) const CHECKS: &[Check<Server>] = checks! {
    chunked, "http1-chunked-body", "RFC 9112 §7.1":
        "a chunked body is stored whole";
    dripped, "http1-request-in-single-bytes", "RFC 9112 §2.2":
        "a request cut after every byte is one request";
    broken_chunk, "http1-broken-chunk-400", "RFC 9112 §7.1":
        "a broken chunk is 400, ends the connection, and nothing is stored";
    short_body, "http1-short-body-not-stored", "RFC 9112 §8":
        "a body that ends before its length is not stored";
    expect_continue, "http1-expect-100", "RFC 9110 §10.1.1":
        "a client that waits is told 100, then gets its answer";
    expect_refused, "http1-expect-refused", "RFC 9110 §10.1.1" [contract]:
        "a client whose body is not wanted gets the final answer instead of 100";
    keep_alive, "http1-keep-alive", "RFC 9112 §9.3":
        "one connection serves hits, misses, writes and refusals one after the other";
    known_body, "http1-known-body-keeps-connection", "RFC 9112 §9.6":
        "storing what is known does not end the connection unannounced";
    pipelined, "http1-pipelining", "RFC 9112 §9.3.2":
        "requests sent without waiting are answered in order";
    close, "http1-connection-close", "RFC 9112 §9.6":
        "Connection: close is honoured, and the answer says so";
    old_version, "http1-version-1.0", "RFC 9112 §9.3":
        "an HTTP/1.0 connection ends after the answer";
    host, "http1-host-is-required", "RFC 9112 §3.2":
        "HTTP/1.1 without Host, or with two, is 400";
    absolute_form, "http1-absolute-form", "RFC 9112 §3.2.2":
        "a target in absolute form is understood";
    empty_line, "http1-leading-empty-line", "RFC 9112 §2.2":
        "an empty line before a request is forgiven";
    giant_head, "http1-giant-header-refused", "RFC 6585 §5":
        "a header of eight megabytes is refused with 431 or 400, and the server lives on";
    many_fields, "http1-many-fields-refused", "RFC 6585 §5":
        "a million header fields are refused with 431 or 400";
    not_http, "http1-garbage-refused", "RFC 9112 §2.2":
        "what is not HTTP is refused and the connection ends";
};

async fn chunked(server: &Server) -> Result<()> {
    for (count, size) in [(0, 0), (1, 5), (40, 1000), (3, 300_000), (2000, 1000)] {
        let (body, target) = server.fresh(count * size);
        let mut request = chunked_head(server, &target).into_bytes();
        for chunk in body.chunks(size.max(1)) {
            request.extend_from_slice(format!("{:X}\r\n", chunk.len()).as_bytes());
            request.extend_from_slice(chunk);
            request.extend_from_slice(b"\r\n");
        }
        request.extend_from_slice(b"0\r\n\r\n");
        let stored = server.wire().await?.exchange("PUT", &request).await?;
        if stored.status == 411 {
            return not_applicable("the server wants to know lengths");
        }
        let stored = stored.expect_any(STORED);
        stored.with_context(|| format!("{count} chunks of {size}"))?;
        server.writer().hit(&target, &body).await?;
    }
    Ok(())
}

fn chunked_head(server: &Server, target: &str) -> String {
    server
        .writer()
        .head_of("PUT", target, &[("Transfer-Encoding", "chunked")])
}

/// The head of a question for a blob that is not there.
fn question(server: &Server) -> String {
    server.writer().head_of("GET", &server.fresh(10).1, &[])
}

async fn dripped(server: &Server) -> Result<()> {
    let (body, target) = server.fresh(10);
    let mut wire = server.wire().await?;
    for byte in server.writer().request("PUT", &target, &[], &body) {
        wire.write([byte]).await;
    }
    wire.response("PUT").await?.expect_any(STORED)?;
    server.writer().hit(&target, &body).await?;
    if server.contract().is_err() {
        return Ok(());
    }
    let target = server.blob(b"abcde");
    let head = chunked_head(server, &target);
    for byte in format!("{head}3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n").bytes() {
        wire.write([byte]).await;
    }
    wire.response("PUT").await?.expect(201)?;
    server.writer().hit(&target, b"abcde").await
}

async fn broken_chunk(server: &Server) -> Result<()> {
    for broken in [
        "3\r\nabcX",
        "zz\r\nabc\r\n",
        "\r\n",
        "-1\r\n",
        "ffffffffffffffffff\r\n",
        "3\r\nabc\r\n0\r\nX",
    ] {
        let context = || format!("{broken:?}");
        let target = server.blob(b"abc");
        let mut wire = server
            .told(format!("{}{broken}\r\n\r\n", chunked_head(server, &target)))
            .await?;
        wire.finish().await;
        let refused = wire.response("PUT").await.with_context(context)?;
        refused.expect(400).with_context(context)?;
        wire.expect_closed().await.with_context(context)?;
        if server.contract().is_ok() {
            server.writer().miss(&target).await?;
        }
    }
    Ok(())
}

async fn short_body(server: &Server) -> Result<()> {
    for length in [100, 1_000_000] {
        let (body, target) = server.fresh(length);
        let text = length.to_string();
        let head = server.writer().head_of("PUT", &target, &[("Content-Length", &text)]);
        let mut wire = server.told(head).await?;
        wire.write(body.get(..50).unwrap_or_default()).await;
        wire.end().await?;
        server.writer().miss(&target).await?;
        if server.contract().is_err() {
            continue;
        }
        for entry in entries(&server.project, &server.key("cut")) {
            let mut fields = entry.fields();
            fields.push(("Content-Length", &text));
            let mut wire = server
                .told(server.writer().head_of("PUT", &entry.target, &fields))
                .await?;
            wire.write(entry.body.get(..1).unwrap_or_default()).await;
            wire.finish().await;
            wire.response("PUT")
                .await?
                .expect(400)
                .with_context(|| entry.target.clone())?;
            server.writer().miss(&entry.target).await?;
        }
    }
    Ok(())
}

async fn expect_continue(server: &Server) -> Result<()> {
    let (body, target) = server.fresh(5000);
    let fields = [("Expect", "100-continue"), ("Content-Length", "5000")];
    let head = server.writer().head_of("PUT", &target, &fields);
    let mut wire = server.told(&head).await?;
    wire.response("PUT").await?.expect(100)?;
    wire.write(&body).await;
    wire.response("PUT").await?.expect_any(STORED)?;
    server.writer().hit(&target, &body).await?;
    if server.contract().is_ok() {
        // Now it is there: the final answer comes at once, and says that the connection ends.
        wire.write(&head).await;
        let known = wire.response("PUT").await?;
        ensure!(known.expect(200)?.closes(), "got {known}");
    }
    Ok(())
}

async fn expect_refused(server: &Server) -> Result<()> {
    let fields = [("Expect", "100-continue"), ("Content-Length", "5000")];
    let head = server.writer().head_of("PUT", "/api/cache/gradle/k", &fields);
    let refused = server.told(head).await?.response("PUT").await?;
    refused.expect(400).map(drop)
}

async fn keep_alive(server: &Server) -> Result<()> {
    let (writer, mut wire) = (server.writer(), server.wire().await?);
    let ((body, target), (_, none)) = (server.fresh(1000), server.fresh(999));
    for round in 0..20 {
        for (method, target, body, statuses) in [
            ("PUT", &target, body.as_slice(), STORED),
            ("GET", &target, b"", &[200]),
            ("HEAD", &target, b"", &[200]),
            ("GET", &none, b"", &[404]),
            ("HEAD", &none, b"", &[404]),
        ] {
            let context = || format!("{method} in round {round}");
            let request = writer.request(method, target, &[], body);
            let answer = wire.exchange(method, &request).await.with_context(context)?;
            answer.expect_any(statuses)?;
            ensure!(!answer.closes(), "{} ended the connection", context());
        }
    }
    if server.contract().is_err() {
        return Ok(());
    }
    // Incident: the message of a 404 followed the answer to HEAD, and the client read it as its next answer.
    for target in ["/up", &none, "/api/cache/gradle/none", &server.api("clean")] {
        let mut answers = Vec::new();
        for method in ["GET", "HEAD", "GET"] {
            let request = writer.request(method, target, &[], b"");
            let answer = wire.exchange(method, &request).await;
            answers.push(answer.with_context(|| format!("{method} {target}"))?);
        }
        let first = answers.first().context("no answer")?;
        for answer in &answers {
            let length = |answer: &Response| answer.expect(first.status).map(|answer| answer.field("content-length"));
            ensure!(length(answer)? == length(first)?, "{target}: {answer}, and {first}");
        }
    }
    Ok(())
}

async fn known_body(server: &Server) -> Result<()> {
    let (body, target) = server.stored(8_000_000).await?;
    let (mut wire, contract) = (server.wire().await?, server.contract().is_ok());
    // A small body is read and forgotten, and the connection goes on; a large one ends it.
    for (round, length) in [300_000, 300_000, 300_000, 8_000_000].into_iter().enumerate() {
        let body = body
            .get(..if contract { length } else { body.len() })
            .unwrap_or_default();
        let request = server.writer().request("PUT", &target, &[], body);
        let known = wire.exchange("PUT", &request).await;
        let known = known.with_context(|| format!("round {round}"))?;
        known.expect_any(STORED)?;
        let read = length == 300_000;
        ensure!(!contract || known.closes() != read, "round {round}: {known}");
        if known.closes() {
            wire.expect_closed().await?;
            wire = server.wire().await?;
        }
    }
    Ok(())
}

async fn pipelined(server: &Server) -> Result<()> {
    let writer = server.writer();
    let ((small, first), (large, second)) = (server.stored(5).await?, server.stored(200_000).await?);
    let (_, none) = server.fresh(77);
    let asked: [(_, _, _, &[u8]); 4] = [
        ("GET", &first, 200, &small),
        ("GET", &second, 200, &large),
        ("GET", &none, 404, b""),
        ("HEAD", &second, 200, b""),
    ];
    let mut requests = Vec::new();
    for _ in 0..10 {
        for (method, target, ..) in &asked {
            requests.extend(writer.request(method, target, &[], b""));
        }
    }
    let mut wire = server.told(&requests).await?;
    for round in 0..10 {
        for (method, _, status, body) in &asked {
            let answer = wire.response(method).await.with_context(|| format!("round {round}"))?;
            if answer.expect(*status)?.status == 200 {
                answer.expect_body(body)?;
            }
        }
    }
    Ok(())
}

async fn close(server: &Server) -> Result<()> {
    let (_, target) = server.fresh(10);
    let head = server.writer().head_of("GET", &target, &[("Connection", "close")]);
    let mut wire = server.told(head).await?;
    let last = wire.response("GET").await?;
    ensure!(last.expect(404)?.closes(), "the answer does not announce the end");
    wire.expect_closed().await
}

async fn old_version(server: &Server) -> Result<()> {
    let head = question(server);
    let mut wire = server.told(head.replace("HTTP/1.1\r\n", "HTTP/1.0\r\n")).await?;
    wire.response("GET").await?.expect(404)?;
    wire.expect_closed().await?;
    if server.contract().is_err() {
        return Ok(());
    }
    let mut wire = server.wire().await?;
    for (options, said) in [("Connection: keep-alive\r\n", "keep-alive"), ("", "close")] {
        wire.write(format!("GET /up HTTP/1.0\r\n{options}\r\n")).await;
        let answer = wire.response("GET").await?;
        answer.expect(200)?.expect_field("connection", said)?;
    }
    wire.expect_closed().await
}

async fn host(server: &Server) -> Result<()> {
    let head = question(server);
    let line = format!("Host: {}\r\n", server.host);
    for hosts in [String::new(), format!("{line}Host: other\r\n")] {
        let refused = server.told(head.replace(&line, &hosts)).await?.response("GET").await?;
        refused.expect(400).with_context(|| format!("{hosts:?}"))?;
    }
    Ok(())
}

async fn absolute_form(server: &Server) -> Result<()> {
    let (body, target) = server.stored(10).await?;
    let whole = format!("{}{target}", server.prefix);
    let absolute = format!("http://{}{whole}", server.host);
    let head = server.writer().head_of("GET", &target, &[]);
    let answer = server
        .told(head.replacen(&whole, &absolute, 1))
        .await?
        .response("GET")
        .await?;
    answer.expect(200)?.expect_body(&body).map(drop)
}

async fn empty_line(server: &Server) -> Result<()> {
    let head = question(server);
    let mut wire = server.told("\r").await?;
    // One has to be forgiven; by the contract two are.
    let more = if server.contract().is_ok() { "\r\n" } else { "" };
    wire.write(format!("\n{more}{head}")).await;
    wire.response("GET").await?.expect(404).map(drop)
}

async fn giant_head(server: &Server) -> Result<()> {
    let giant = "a".repeat(8 << 20);
    refused_head(server, &[("X-Giant", &giant)]).await
}

async fn many_fields(server: &Server) -> Result<()> {
    refused_head(server, &vec![("X", "y"); 1_000_000]).await
}

async fn refused_head(server: &Server, fields: &[(&str, &str)]) -> Result<()> {
    let (_, target) = server.fresh(10);
    let head = server.writer().head_of("GET", &target, fields);
    let refused = server.wire().await?.exchange("GET", head.as_bytes()).await?;
    refused.expect_any(&[400, 431])?;
    server.writer().miss(&target).await
}

async fn not_http(server: &Server) -> Result<()> {
    for garbage in [
        "\x16\x03\x01\x02\x00\x01\x00\r\n\r\n",
        "GET\r\n\r\n",
        "GET /up\r\n\r\n",
        "GET /up HTTP/9.9\r\nHost: x\r\n\r\n",
        "GET  /up HTTP/1.1\r\nHost: x\r\n\r\n",
        "\0\0\0\0\r\n\r\n",
    ] {
        let mut wire = server.told(garbage).await?;
        let text = wire.end().await.with_context(|| format!("{garbage:?}"))?;
        // Silence is fine too: one owes nothing to what is not HTTP.
        let refusals = ["HTTP/1.1 4", "HTTP/1.1 505", "HTTP/1.0 4"];
        let refused = text.is_empty() || refusals.iter().any(|start| text.starts_with(start));
        ensure!(refused, "{garbage:?} got {:?}", text.lines().next());
    }
    Ok(())
}
