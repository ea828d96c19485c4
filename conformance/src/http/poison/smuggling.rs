//! Requests whose end two readers see in different places. What a proxy took for a body must never be served as a request.

use anyhow::{Context, Result, ensure};

use crate::http::{Server, Transport};
use crate::{Check, checks, not_applicable};

pub(super) const CHECKS: &[Check<Server>] = checks! {
    two_framings, "poison-smuggle-cl-te", "RFC 9112 §6.1, §11.2":
        "Content-Length beside Transfer-Encoding, in either order, is refused",
        naive: "lets one of them win; a proxy lets the other";
    two_lengths, "poison-smuggle-cl-cl", "RFC 9110 §8.6":
        "two Content-Lengths, equal or not, in one field or two, hide nothing",
        naive: "uses the first; a proxy uses the last";
    length_forms, "poison-smuggle-length-forms", "RFC 9110 §8.6":
        "a length that is not digits only is refused",
        naive: "parses +5, 0x5, 5.0 or ' 5 5' as a number";
    codings, "poison-smuggle-te-forms", "RFC 9112 §6.1":
        "any Transfer-Encoding but exactly chunked hides nothing",
        naive: "finds the word chunked anywhere in the value, or ignores what it does not know and reads no body";
    folded, "poison-smuggle-obs-fold", "RFC 9112 §5.1, §5.2":
        "a folded line, or white space around a field's name, is refused",
        naive: "ignores the line, which a proxy took for a framing field";
    bare_ends, "poison-smuggle-bare-line-ends", "RFC 9112 §2.2":
        "CR or LF alone ends no line that hides a field or a request",
        naive: "splits lines at \\n or \\r and sees a field that a proxy does not";
    control, "poison-smuggle-control-bytes", "RFC 9110 §5.5":
        "NUL and other control bytes in a request head are refused",
        naive: "cuts a field at NUL, or skips the byte";
    chunks, "poison-smuggle-chunk-forms", "RFC 9112 §7.1":
        "a chunk size that is not plain hexadecimal, or lines that end oddly, hide nothing",
        naive: "stops parsing a size at the first odd byte, or takes LF for CRLF";
    old_version, "poison-smuggle-http-1.0-chunked", "RFC 9112 §6.1":
        "Transfer-Encoding in HTTP/1.0 hides nothing",
        naive: "ignores the coding because of the version, and reads the chunks as requests";
    bodies, "poison-smuggle-body-of-a-read", "RFC 9110 §9.3.1":
        "the body of GET, HEAD and DELETE is a body, not the next request",
        naive: "reads no body because the method has none";
    unread, "poison-smuggle-unread-body", "RFC 9112 §9.3":
        "the body of a request that was answered early (known key, refused, unknown path) is never a request",
        naive: "answers without reading the body and takes it for the next request";
    line, "poison-smuggle-request-line", "RFC 9112 §3":
        "CR, LF and white space in method, target or version hide no second request",
        naive: "splits the line at any white space, or decodes %0d%0a in the target before parsing";
    http2_length, "poison-smuggle-http2-length", "RFC 9113 §8.1.1":
        "over HTTP/2 a Content-Length that lies about the data is refused and nothing is stored",
        naive: "believes the field and stores a shorter body";
};

/// Sends ambiguous requests with a whole write hidden behind each, and looks whether anybody served it.
struct Trap<'s> {
    server: &'s Server,
    /// Body and target of the write that must not happen.
    hidden: (Vec<u8>, String),
    /// Body and target of the request that carries it.
    outer: (Vec<u8>, String),
}

impl<'s> Trap<'s> {
    fn new(server: &'s Server) -> Self {
        Self {
            server,
            hidden: server.fresh(33),
            outer: server.fresh(22),
        }
    }

    fn smuggled(&self) -> Vec<u8> {
        let (body, target) = &self.hidden;
        self.server.writer().request("PUT", target, &[], body)
    }

    /// The head of the outer request, without the empty line.
    fn head(&self, fields: &str) -> String {
        let head = self.server.writer().head_of("PUT", &self.outer.1, &[]);
        format!("{}\r\n{fields}\r\n\r\n", head.trim_end())
    }

    /// `request` and the hidden write go out in one piece; at most one answer may come back, and nothing hidden be stored.
    async fn spring(&self, what: &str, request: impl AsRef<[u8]>) -> Result<String> {
        self.sprung(what, request, true).await
    }

    async fn sprung(&self, what: &str, request: impl AsRef<[u8]>, finish: bool) -> Result<String> {
        let bytes = [request.as_ref(), &self.smuggled()].concat();
        let mut wire = self.server.told(&bytes).await?;
        if finish {
            wire.finish().await;
        }
        let rest = wire.rest().await.with_context(|| format!("{what:?}"))?;
        let text = String::from_utf8_lossy(&rest).into_owned();
        let answers = text.matches("HTTP/1.").count();
        ensure!(answers <= 1, "{what:?}: {answers} answers to one request: {text:?}");
        self.untouched(what).await?;
        Ok(text)
    }

    /// The same, where nothing but a refusal is right.
    async fn refused(&self, what: &str, request: impl AsRef<[u8]>) -> Result<()> {
        // By the contract the server ends the connection by itself, and says that it does.
        let contract = self.server.contract().is_ok();
        let text = self.sprung(what, request, !contract).await?;
        let line = text.lines().next().unwrap_or_default();
        let announced = text.to_ascii_lowercase().contains("\r\nconnection: close\r\n");
        ensure!(!contract || announced, "{what:?}: no end was announced: {text:?}");
        let refusals = [" 400", " 501", " 505", " 417"];
        let refused = line.is_empty() || refusals.iter().any(|status| line.contains(status));
        ensure!(refused, "{what:?} was not refused: {line:?}");
        let stored = self.server.writer().miss(&self.outer.1).await;
        stored.with_context(|| format!("{what:?}: the ambiguous request itself was stored"))
    }

    async fn untouched(&self, what: &str) -> Result<()> {
        let stored = self.server.writer().miss(&self.hidden.1).await;
        stored.with_context(|| format!("{what:?}: the hidden request was served"))
    }
}

async fn all_refused(server: &Server, cases: &[(&str, &str)]) -> Result<()> {
    let trap = Trap::new(server);
    for (fields, body) in cases {
        let request = format!("{}{body}", trap.head(fields));
        trap.refused(&format!("{fields} / {body}"), request).await?;
    }
    Ok(())
}

async fn two_framings(server: &Server) -> Result<()> {
    let cases = [
        "Content-Length: 5\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: chunked\r\nContent-Length: 5",
        "Content-Length: 0\r\nTransfer-Encoding: chunked",
        "content-length: 5\r\ntransfer-encoding: Chunked",
    ];
    all_refused(server, &cases.map(|fields| (fields, "0\r\n\r\n"))).await
}

async fn two_lengths(server: &Server) -> Result<()> {
    let cases = [
        "Content-Length: 0\r\nContent-Length: 5",
        "Content-Length: 5\r\nContent-Length: 0",
        "Content-Length: 0, 5",
        "Content-Length: 5, 0",
    ];
    all_refused(server, &cases.map(|fields| (fields, ""))).await?;
    // Equal ones may be taken for one; nothing may hide behind them all the same.
    let trap = Trap::new(server);
    for fields in ["Content-Length: 300\r\nContent-Length: 300", "Content-Length: 300, 300"] {
        trap.spring(fields, trap.head(fields)).await?;
    }
    if server.contract().is_err() {
        return Ok(());
    }
    let equal = trap.head("Content-Length: 0\r\nContent-Length: 0");
    trap.refused("equal lengths", equal).await
}

async fn length_forms(server: &Server) -> Result<()> {
    let vast = "99999999999999999999";
    for value in [
        "+0", "-1", "0x0", "0.0", "0 0", "", "\"0\"", "0;", "0\t0", "1e1", vast, "\u{b}0",
    ] {
        let fields = format!("Content-Length: {value}");
        all_refused(server, &[(&fields, "")]).await?;
    }
    Ok(())
}

async fn codings(server: &Server) -> Result<()> {
    let cases = [
        "Transfer-Encoding: xchunked",
        "Transfer-Encoding: chunkedx",
        "Transfer-Encoding: chunked, identity",
        "Transfer-Encoding: \"chunked\"",
        "Transfer-Encoding: chunked;q=1",
        "Transfer-Encoding:\u{b}chunked",
        "Transfer-Encoding: \0chunked",
        "Transfer-Encoding: x\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity",
        "Transfer-Encoding : chunked",
        "X: y\nTransfer-Encoding: chunked",
    ];
    all_refused(server, &cases.map(|fields| (fields, "0\r\n\r\n"))).await
}

async fn folded(server: &Server) -> Result<()> {
    let cases = [
        (" Content-Length: 5", ""),
        ("X: y\r\n Content-Length: 5", ""),
        ("X: y\r\n\tContent-Length: 5", ""),
        ("Content-Length: 0\r\n 5", ""),
        ("Content-Length : 0", ""),
        ("Content-Length\t: 0", ""),
        ("Transfer-Encoding:\r\n chunked", "0\r\n\r\n"),
        ("X y: 0", ""),
        (": 0", ""),
        ("Content-Length", ""),
    ];
    all_refused(server, &cases).await
}

async fn bare_ends(server: &Server) -> Result<()> {
    let cases = [
        "X: y\nContent-Length: 5",
        "X: y\rContent-Length: 5",
        "X: y\r\r\nContent-Length: 5",
        "X: y\n\nGET / HTTP/1.1",
        "\nX: y",
    ];
    all_refused(server, &cases.map(|fields| (fields, ""))).await
}

async fn control(server: &Server) -> Result<()> {
    let cases = [
        "X: a\0b",
        "X\0: a",
        "X: a\u{8}b",
        "X: a\u{7f}b",
        "Content-Length: 0\0",
        "Host\0: x",
        "Host: y",
    ];
    all_refused(server, &cases.map(|fields| (fields, ""))).await
}

async fn chunks(server: &Server) -> Result<()> {
    let coded = "Transfer-Encoding: chunked";
    let cases = [
        "0x0\r\n\r\n",
        "-0\r\n\r\n",
        "+0\r\n\r\n",
        " 0\r\n\r\n",
        "0 0\r\n\r\n",
        "0_0\r\n\r\n",
        "\r\n0\r\n\r\n",
        "10000000000000000\r\n\r\n",
        "1\r\nab\r\n0\r\n\r\n",
        "1\r\na0\r\n\r\n",
        "1\r\n\r\n",
    ];
    all_refused(server, &cases.map(|body| (coded, body))).await?;
    if server.contract().is_ok() {
        // Extensions and trailers are lawful, and nothing that a cache needs.
        all_refused(server, &[(coded, "0;ext\r\n\r\n"), (coded, "0\r\nX: y\r\n\r\n")]).await?;
    }
    // LF alone is forgiven by some; whatever is made of it, nothing may hide behind it.
    let trap = Trap::new(server);
    for body in ["0\n\n", "0\r\n\n", "0\n\r\n", "1\na\n0\n\n", "0;a=b\n\r\n"] {
        let mut wire = server.told(format!("{}{body}", trap.head(coded))).await?;
        wire.end().await.with_context(|| format!("{body:?}"))?;
        trap.untouched(body).await?;
    }
    Ok(())
}

async fn old_version(server: &Server) -> Result<()> {
    let trap = Trap::new(server);
    let head = trap.head("Transfer-Encoding: chunked").replace("HTTP/1.1", "HTTP/1.0");
    let sprung = trap.spring("chunked in HTTP/1.0", format!("{head}0\r\n\r\n")).await;
    sprung.map(drop)
}

async fn bodies(server: &Server) -> Result<()> {
    let trap = Trap::new(server);
    for method in ["GET", "HEAD", "DELETE", "OPTIONS"] {
        let request = server.writer().request(method, &trap.outer.1, &[], &trap.smuggled());
        let mut wire = server.told(&request).await?;
        let text = wire.end().await.context(method)?;
        let answers = text.matches("HTTP/1.").count();
        ensure!(answers <= 1, "{method}: {answers} answers to one request");
        trap.untouched(method).await?;
    }
    Ok(())
}

async fn unread(server: &Server) -> Result<()> {
    let trap = Trap::new(server);
    server.writer().store(&trap.outer.1, &trap.outer.0).await?;
    let filler = vec![b'x'; 2 << 20];
    for (what, method, target) in [
        ("known key", "PUT", trap.outer.1.as_str()),
        ("unknown path", "PUT", "/nothing"),
        ("no such method", "PATCH", &trap.outer.1),
        ("no scope", "PUT", "/api/cache/gradle/k"),
    ] {
        for filled in [&[], filler.as_slice()] {
            let body = [&trap.smuggled(), filled].concat();
            let request = server.writer().request(method, target, &[], &body);
            let mut wire = server.wire().await?;
            wire.exchange(method, &request).await.context(what)?;
            let second = wire.end().await.context(what)?.contains("HTTP/1.");
            ensure!(!second, "{what}: a second answer to one request");
            trap.untouched(what).await?;
        }
    }
    Ok(())
}

async fn line(server: &Server) -> Result<()> {
    let trap = Trap::new(server);
    let head = trap.head("Content-Length: 0");
    let outer = format!("{}{}", server.prefix, trap.outer.1);
    for (what, line) in [
        ("tab", format!("PUT\t{outer} HTTP/1.1")),
        ("two spaces", format!("PUT {outer}  HTTP/1.1")),
        ("space in target", format!("PUT {outer} x HTTP/1.1")),
        ("CR in target", format!("PUT {outer}\rx HTTP/1.1")),
        ("LF in target", format!("PUT {outer}\nx HTTP/1.1")),
        ("NUL in target", format!("PUT {outer}\0 HTTP/1.1")),
        ("NUL in method", format!("PUT\0 {outer} HTTP/1.1")),
        ("space before method", format!(" PUT {outer} HTTP/1.1")),
        ("version", format!("PUT {outer} HTTP/1.1x")),
        ("no version", format!("PUT {outer}")),
    ] {
        let first = head.lines().next().unwrap_or_default();
        trap.refused(what, head.replacen(first, &line, 1)).await?;
    }
    let hidden = trap.hidden.1.replace('?', "%3f");
    let target = format!("{}%20HTTP/1.1%0d%0aHost:%20x%0d%0a%0d%0aPUT%20{hidden}", trap.outer.1);
    let mut wire = server.wire().await?;
    let request = server.writer().request("GET", &target, &[], b"");
    wire.exchange("GET", &request).await?;
    wire.finish().await;
    wire.expect_closed().await?;
    trap.untouched(&target).await
}

async fn http2_length(server: &Server) -> Result<()> {
    if !matches!(server.transport, Transport::H2c | Transport::TlsHttp2) {
        return not_applicable("about HTTP/2; this run speaks HTTP/1.1");
    }
    for length in ["3", "500", "0", "x", "-1"] {
        let (body, target) = server.fresh(40);
        let fields = [("content-length", length)];
        // A reset of the stream is as good a refusal as a status.
        if let Ok(answer) = server.writer().send("PUT", &target, &fields, &body).await {
            answer.expect_refusal()?;
        }
        let stored = server.writer().miss(&target).await;
        stored.with_context(|| format!("content-length {length}"))?;
    }
    Ok(())
}
