//! HTTP/1.1 itself: bodies, connections, and what may be left out of neither. Written to the socket byte by byte.

use anyhow::{Context, Result, ensure};

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
    expect_refused, "http1-expect-refused", "RFC 9110 §10.1.1":
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
        let body = server.body(count * size);
        let target = server.blob(&body);
        let mut wire = server.wire().await?;
        let mut request = server
            .writer()
            .head_of("PUT", &target, &[("Transfer-Encoding", "chunked")])
            .into_bytes();
        for chunk in body.chunks(size.max(1)) {
            request.extend_from_slice(format!("{:X}\r\n", chunk.len()).as_bytes());
            request.extend_from_slice(chunk);
            request.extend_from_slice(b"\r\n");
        }
        request.extend_from_slice(b"0\r\n\r\n");
        let stored = wire.exchange("PUT", &request).await?;
        if stored.status == 411 {
            return not_applicable("the server wants to know lengths");
        }
        stored
            .expect_any(&[200, 201, 204])
            .with_context(|| format!("{count} chunks of {size}"))?;
        server.writer().get(&target).await?.expect(200)?.expect_body(&body)?;
    }
    Ok(())
}

async fn dripped(server: &Server) -> Result<()> {
    let body = server.body(10);
    let target = server.blob(&body);
    let mut wire = server.wire().await?;
    for byte in server.writer().request("PUT", &target, &[], &body) {
        wire.write([byte]).await;
    }
    wire.response("PUT").await?.expect_any(&[200, 201, 204])?;
    server.writer().get(&target).await?.expect(200)?.expect_body(&body)?;
    if server.contract().is_err() {
        return Ok(());
    }
    let target = server.blob(b"abcde");
    let head = server
        .writer()
        .head_of("PUT", &target, &[("Transfer-Encoding", "chunked")]);
    for byte in format!("{head}3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n").bytes() {
        wire.write([byte]).await;
    }
    wire.response("PUT").await?.expect(201)?;
    server.writer().get(&target).await?.expect(200)?.expect_body(b"abcde")?;
    Ok(())
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
        let target = server.blob(b"abc");
        let mut wire = server.wire().await?;
        let head = server
            .writer()
            .head_of("PUT", &target, &[("Transfer-Encoding", "chunked")]);
        wire.write(format!("{head}{broken}\r\n\r\n")).await;
        wire.finish().await;
        let refused = wire.response("PUT").await.with_context(|| format!("{broken:?}"))?;
        refused.expect(400).with_context(|| format!("{broken:?}"))?;
        wire.expect_closed().await.with_context(|| format!("{broken:?}"))?;
        if server.contract().is_ok() {
            server.writer().get(&target).await?.expect(404)?;
        }
    }
    Ok(())
}

async fn short_body(server: &Server) -> Result<()> {
    for length in [100, 1_000_000] {
        let body = server.body(length);
        let target = server.blob(&body);
        let mut wire = server.wire().await?;
        let text = length.to_string();
        wire.write(server.writer().head_of("PUT", &target, &[("Content-Length", &text)]))
            .await;
        wire.write(body.get(..50).unwrap_or_default()).await;
        wire.finish().await;
        wire.rest().await?;
        server.writer().get(&target).await?.expect(404)?;
        if server.contract().is_err() {
            continue;
        }
        for entry in entries(&server.project, &server.key("cut")) {
            let mut fields = entry.fields();
            fields.push(("Content-Length", &text));
            let mut wire = server.wire().await?;
            wire.write(server.writer().head_of("PUT", &entry.target, &fields)).await;
            wire.write(entry.body.get(..1).unwrap_or_default()).await;
            wire.finish().await;
            let refused = wire.response("PUT").await?;
            refused.expect(400).with_context(|| entry.target.clone())?;
            server.writer().get(&entry.target).await?.expect(404)?;
        }
    }
    Ok(())
}

async fn expect_continue(server: &Server) -> Result<()> {
    let body = server.body(5000);
    let target = server.blob(&body);
    let mut wire = server.wire().await?;
    let length = body.len().to_string();
    let fields = [("Expect", "100-continue"), ("Content-Length", length.as_str())];
    wire.write(server.writer().head_of("PUT", &target, &fields)).await;
    wire.response("PUT").await?.expect(100)?;
    wire.write(&body).await;
    wire.response("PUT").await?.expect_any(&[200, 201, 204])?;
    server.writer().get(&target).await?.expect(200)?.expect_body(&body)?;
    if server.contract().is_ok() {
        // Now it is there: the final answer comes at once, and says that the connection ends.
        wire.write(server.writer().head_of("PUT", &target, &fields)).await;
        let known = wire.response("PUT").await?;
        ensure!(known.expect(200)?.closes(), "got {known}");
    }
    Ok(())
}

async fn expect_refused(server: &Server) -> Result<()> {
    server.contract()?;
    let mut wire = server.wire().await?;
    let fields = [("Expect", "100-continue"), ("Content-Length", "5000")];
    wire.write(server.writer().head_of("PUT", "/api/cache/gradle/k", &fields))
        .await;
    wire.response("PUT").await?.expect(400)?;
    Ok(())
}

async fn keep_alive(server: &Server) -> Result<()> {
    let writer = server.writer();
    let mut wire = server.wire().await?;
    let body = server.body(1000);
    let (target, none) = (server.blob(&body), server.blob(&server.body(999)));
    for round in 0..20 {
        for (method, target, body, statuses) in [
            ("PUT", &target, body.as_slice(), &[200, 201, 204][..]),
            ("GET", &target, b"", &[200]),
            ("HEAD", &target, b"", &[200]),
            ("GET", &none, b"", &[404]),
            ("HEAD", &none, b"", &[404]),
        ] {
            let request = writer.request(method, target, &[], body);
            let answer = wire
                .exchange(method, &request)
                .await
                .with_context(|| format!("{method} in round {round}"))?;
            answer.expect_any(statuses)?;
            ensure!(!answer.closes(), "{method} in round {round} ended the connection");
        }
    }
    if server.contract().is_err() {
        return Ok(());
    }
    // Incident: the message of a 404 followed the answer to HEAD, and the client read it as its next answer.
    let clean = format!("/api/cache/clean?{}", server.scope());
    for target in ["/up", &none, "/api/cache/gradle/none", &clean] {
        let mut answers = Vec::new();
        for method in ["GET", "HEAD", "GET"] {
            let request = writer.request(method, target, &[], b"");
            answers.push(
                wire.exchange(method, &request)
                    .await
                    .with_context(|| format!("{method} {target}"))?,
            );
        }
        let first = answers.first().context("no answer")?;
        for answer in &answers {
            let length = "content-length";
            answer.expect(first.status)?;
            ensure!(
                answer.field(length) == first.field(length),
                "{target}: {answer}, and {first}"
            );
        }
    }
    Ok(())
}

async fn known_body(server: &Server) -> Result<()> {
    let writer = server.writer();
    let body = server.body(8_000_000);
    let target = server.blob(&body);
    writer.store(&target, &body).await?;
    let mut wire = server.wire().await?;
    // A small body is read and forgotten, and the connection goes on; a large one ends it.
    for (round, length) in [300_000, 300_000, 300_000, 8_000_000].into_iter().enumerate() {
        let body = match server.contract() {
            Ok(()) => body.get(..length).unwrap_or_default(),
            Err(_) => &body,
        };
        let request = writer.request("PUT", &target, &[], body);
        let known = wire
            .exchange("PUT", &request)
            .await
            .with_context(|| format!("round {round}"))?;
        known.expect_any(&[200, 201, 204])?;
        let read = length == 300_000;
        ensure!(
            server.contract().is_err() || known.closes() != read,
            "round {round}: {known}"
        );
        if known.closes() {
            wire.expect_closed().await?;
            wire = server.wire().await?;
        }
    }
    Ok(())
}

async fn pipelined(server: &Server) -> Result<()> {
    let writer = server.writer();
    let (small, large) = (server.body(5), server.body(200_000));
    let targets = [server.blob(&small), server.blob(&large), server.blob(&server.body(77))];
    let [first, second, none] = &targets;
    writer.store(first, &small).await?;
    writer.store(second, &large).await?;
    let mut wire = server.wire().await?;
    let mut requests = Vec::new();
    for _ in 0..10 {
        for target in [first, second, none] {
            requests.extend(writer.request("GET", target, &[], b""));
        }
        requests.extend(writer.request("HEAD", second, &[], b""));
    }
    wire.write(&requests).await;
    for round in 0..10 {
        let context = || format!("round {round}");
        let hit = wire.response("GET").await.with_context(context)?;
        hit.expect(200)?.expect_body(&small)?;
        let hit = wire.response("GET").await.with_context(context)?;
        hit.expect(200)?.expect_body(&large)?;
        wire.response("GET").await.with_context(context)?.expect(404)?;
        wire.response("HEAD").await.with_context(context)?.expect(200)?;
    }
    Ok(())
}

async fn close(server: &Server) -> Result<()> {
    let mut wire = server.wire().await?;
    let target = server.blob(&server.body(10));
    let head = server.writer().head_of("GET", &target, &[("Connection", "close")]);
    wire.write(head).await;
    let last = wire.response("GET").await?;
    ensure!(last.expect(404)?.closes(), "the answer does not announce the end");
    wire.expect_closed().await
}

async fn old_version(server: &Server) -> Result<()> {
    let mut wire = server.wire().await?;
    let target = server.blob(&server.body(10));
    let head = server.writer().head_of("GET", &target, &[]);
    wire.write(head.replace("HTTP/1.1\r\n", "HTTP/1.0\r\n")).await;
    wire.response("GET").await?.expect(404)?;
    wire.expect_closed().await?;
    if server.contract().is_err() {
        return Ok(());
    }
    let mut wire = server.wire().await?;
    for (options, kept) in [("Connection: keep-alive\r\n", true), ("", false)] {
        wire.write(format!("GET /up HTTP/1.0\r\n{options}\r\n")).await;
        let answer = wire.response("GET").await?;
        let said = if kept { "keep-alive" } else { "close" };
        ensure!(
            answer.expect(200)?.field("connection").as_deref() == Some(said),
            "got {answer}"
        );
    }
    wire.expect_closed().await
}

async fn host(server: &Server) -> Result<()> {
    let target = server.blob(&server.body(10));
    let head = server.writer().head_of("GET", &target, &[]);
    let line = format!("Host: {}\r\n", server.host);
    for hosts in [String::new(), format!("{line}Host: other\r\n")] {
        let mut wire = server.wire().await?;
        wire.write(head.replace(&line, &hosts)).await;
        wire.response("GET")
            .await?
            .expect(400)
            .with_context(|| format!("{hosts:?}"))?;
    }
    Ok(())
}

async fn absolute_form(server: &Server) -> Result<()> {
    let body = server.body(10);
    let target = server.blob(&body);
    server.writer().store(&target, &body).await?;
    let mut wire = server.wire().await?;
    let absolute = format!("http://{}{}{target}", server.host, server.prefix);
    let head = server.writer().head_of("GET", &target, &[]);
    let whole = format!("{}{target}", server.prefix);
    wire.write(head.replacen(&whole, &absolute, 1)).await;
    wire.response("GET").await?.expect(200)?.expect_body(&body)?;
    Ok(())
}

async fn empty_line(server: &Server) -> Result<()> {
    let mut wire = server.wire().await?;
    let target = server.blob(&server.body(10));
    let head = server.writer().head_of("GET", &target, &[]);
    wire.write("\r").await;
    // One has to be forgiven; by the contract two are.
    let more = if server.contract().is_ok() { "\r\n" } else { "" };
    wire.write(format!("\n{more}{head}")).await;
    wire.response("GET").await?.expect(404)?;
    Ok(())
}

async fn giant_head(server: &Server) -> Result<()> {
    let giant = "a".repeat(8 << 20);
    refused_head(server, &[("X-Giant", &giant)]).await
}

async fn many_fields(server: &Server) -> Result<()> {
    refused_head(server, &vec![("X", "y"); 1_000_000]).await
}

async fn refused_head(server: &Server, fields: &[(&str, &str)]) -> Result<()> {
    let target = server.blob(&server.body(10));
    let mut wire = server.wire().await?;
    let head = server.writer().head_of("GET", &target, fields);
    wire.exchange("GET", head.as_bytes()).await?.expect_any(&[400, 431])?;
    server.writer().get(&target).await?.expect(404)?;
    Ok(())
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
        let mut wire = server.wire().await?;
        wire.write(garbage).await;
        wire.finish().await;
        let rest = wire.rest().await.with_context(|| format!("{garbage:?}"))?;
        let text = String::from_utf8_lossy(&rest);
        // Silence is fine too: one owes nothing to what is not HTTP.
        ensure!(
            rest.is_empty()
                || text.starts_with("HTTP/1.1 4")
                || text.starts_with("HTTP/1.1 505")
                || text.starts_with("HTTP/1.0 4"),
            "{garbage:?} got {:?}",
            text.lines().next()
        );
    }
    Ok(())
}
