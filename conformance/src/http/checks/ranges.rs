//! Parts of a blob.

use anyhow::{Context, Result, ensure};

use crate::http::wire::Response;
use crate::http::{Caller, Dialect, Server};
use crate::{Check, checks, not_applicable};

pub(super) const CHECKS: &[Check<Server>] = checks! {
    single, "range-single", "RFC 9110 §14.1.2, §15.3.7":
        "first-last, open and suffix ranges are 206 with exactly those bytes, for small and large blobs";
    clipped, "range-past-the-end", "RFC 9110 §14.1.2":
        "a range that ends beyond the blob is cut at its end";
    unsatisfiable, "range-unsatisfiable-416", "RFC 9110 §15.5.17":
        "a range that begins beyond the blob is 416 with the blob's length";
    several, "range-multiple", "RFC 9110 §14.2, §15.3.7.2":
        "several ranges give the whole blob or a multipart answer with these parts; never wrong bytes";
    malformed, "range-malformed-is-ignored", "RFC 9110 §14.2":
        "a range nobody can read, or in another unit, gives the whole blob";
    head, "range-of-head-is-ignored", "RFC 9110 §14.2":
        "HEAD describes the whole blob, whatever range it names";
    if_range, "range-if-range", "RFC 9110 §13.1.5":
        "If-Range with the current tag gives the part, with any other the whole";
};

const SIZES: [usize; 2] = [1000, 300_000];

/// A stored blob, if the server serves parts at all: outside the contract it need not.
async fn stored(server: &Server, size: usize) -> Result<(Caller<'_>, String, Vec<u8>)> {
    let writer = server.writer();
    let body = server.body(size);
    let target = server.blob(&body);
    writer.store(&target, &body).await?;
    let accepts = writer.get(&target).await?.field("accept-ranges");
    if server.dialect == Dialect::Bazel && accepts.as_deref() != Some("bytes") {
        return not_applicable("the server does not offer ranges");
    }
    ensure!(accepts.as_deref() == Some("bytes"), "Accept-Ranges is {accepts:?}");
    Ok((writer, target, body))
}

fn expect_part(part: &Response, body: &[u8], first: usize, last: usize) -> Result<()> {
    let range = format!("bytes {first}-{last}/{}", body.len());
    part.expect(206)?
        .expect_body(body.get(first..=last).context("the check asks beyond its blob")?)?;
    ensure!(
        part.field("content-range").as_deref() == Some(range.as_str()),
        "Content-Range is {:?}, not {range}",
        part.field("content-range")
    );
    Ok(())
}

async fn single(server: &Server) -> Result<()> {
    for size in SIZES {
        let (writer, target, body) = stored(server, size).await?;
        for (range, first, last) in [
            ("bytes=0-0".to_owned(), 0, 0),
            ("bytes=10-19".to_owned(), 10, 19),
            ("bytes=500-".to_owned(), 500, size - 1),
            ("bytes=-5".to_owned(), size - 5, size - 1),
            (format!("bytes={0}-{0}", size - 1), size - 1, size - 1),
            (format!("bytes=0-{}", size - 1), 0, size - 1),
        ] {
            let part = writer.send("GET", &target, &[("Range", &range)], b"").await?;
            expect_part(&part, &body, first, last).with_context(|| format!("{range} of {size}"))?;
        }
    }
    Ok(())
}

async fn clipped(server: &Server) -> Result<()> {
    for size in SIZES {
        let (writer, target, body) = stored(server, size).await?;
        for (range, first) in [
            (format!("bytes=990-{}", size + 10), 990),
            ("bytes=-99999999".to_owned(), 0),
            ("bytes=5-9223372036854775807".to_owned(), 5),
        ] {
            let part = writer.send("GET", &target, &[("Range", &range)], b"").await?;
            expect_part(&part, &body, first, size - 1).with_context(|| format!("{range} of {size}"))?;
        }
    }
    Ok(())
}

async fn unsatisfiable(server: &Server) -> Result<()> {
    for size in SIZES {
        let (writer, target, _) = stored(server, size).await?;
        for range in [
            format!("bytes={size}-"),
            format!("bytes={size}-{}", size + 5),
            "bytes=-0".to_owned(),
        ] {
            let refused = writer.send("GET", &target, &[("Range", &range)], b"").await?;
            refused.expect(416)?;
            let told = refused.field("content-range");
            ensure!(told == Some(format!("bytes */{size}")), "Content-Range is {told:?}");
        }
    }
    Ok(())
}

async fn several(server: &Server) -> Result<()> {
    let (writer, target, body) = stored(server, 1000).await?;
    let answer = writer
        .send("GET", &target, &[("Range", "bytes=0-9,500-509,-10")], b"")
        .await?;
    if answer.status == 200 {
        answer.expect_body(&body)?;
        return Ok(());
    }
    answer.expect(206)?;
    let media = answer.field("content-type").unwrap_or_default();
    ensure!(
        media.starts_with("multipart/byteranges"),
        "several ranges came as {media:?}"
    );
    for part in [body.get(..10), body.get(500..510), body.get(990..)] {
        let part = part.context("the check asks beyond its blob")?;
        ensure!(
            answer.body.windows(part.len()).any(|window| window == part),
            "a part is missing"
        );
    }
    Ok(())
}

async fn malformed(server: &Server) -> Result<()> {
    let (writer, target, body) = stored(server, 1000).await?;
    for range in ["lines=0-1", "bytes=a-b", "bytes=", "0-5", "bytes=--1"] {
        let whole = writer.send("GET", &target, &[("Range", range)], b"").await?;
        // Some answer 400 or 416 to what they cannot read; what nobody may do is to send some other part.
        if server.dialect == Dialect::Bazel && matches!(whole.status, 400 | 416) {
            continue;
        }
        whole
            .expect(200)
            .and_then(|whole| whole.expect_body(&body))
            .with_context(|| range.to_owned())?;
    }
    Ok(())
}

async fn head(server: &Server) -> Result<()> {
    let (writer, target, _) = stored(server, 1000).await?;
    let head = writer.send("HEAD", &target, &[("Range", "bytes=0-9")], b"").await?;
    if server.dialect == Dialect::Bazel && head.status == 206 {
        return not_applicable("the server answers HEAD like a GET of the part, as many file servers do");
    }
    head.expect(200)?;
    ensure!(head.field("content-length").as_deref() == Some("1000"), "got {head}");
    Ok(())
}

async fn if_range(server: &Server) -> Result<()> {
    let (writer, target, body) = stored(server, 1000).await?;
    let Some(tag) = writer.get(&target).await?.field("etag") else {
        server.contract()?;
        anyhow::bail!("no ETag");
    };
    let fields = [("Range", "bytes=0-9"), ("If-Range", tag.as_str())];
    expect_part(&writer.send("GET", &target, &fields, b"").await?, &body, 0, 9)?;
    let fields = [("Range", "bytes=0-9"), ("If-Range", "\"another\"")];
    let whole = writer.send("GET", &target, &fields, b"").await?;
    whole.expect(200)?.expect_body(&body)?;
    Ok(())
}
