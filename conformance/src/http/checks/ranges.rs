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
struct Stored<'s> {
    writer: Caller<'s>,
    target: String,
    body: Vec<u8>,
}

impl<'s> Stored<'s> {
    async fn new(server: &'s Server, size: usize) -> Result<Self> {
        let (body, target) = server.stored(size).await?;
        let writer = server.writer();
        let stored = writer.get(&target).await?;
        if server.dialect == Dialect::Bazel && stored.field("accept-ranges").as_deref() != Some("bytes") {
            return not_applicable("the server does not offer ranges");
        }
        stored.expect_field("accept-ranges", "bytes")?;
        Ok(Self { writer, target, body })
    }

    async fn get(&self, range: &str) -> Result<Response> {
        self.writer.send("GET", &self.target, &[("Range", range)], b"").await
    }

    /// Fails unless the range gives exactly this part.
    async fn gives(&self, range: &str, first: usize, last: usize) -> Result<()> {
        self.is_part(&self.get(range).await?, first, last)
    }

    fn is_part(&self, part: &Response, first: usize, last: usize) -> Result<()> {
        let body = self.body.get(first..=last).context("the check asks beyond its blob")?;
        let range = format!("bytes {first}-{last}/{}", self.body.len());
        let part = part.expect(206)?.expect_body(body)?;
        part.expect_field("content-range", &range).map(drop)
    }
}

async fn single(server: &Server) -> Result<()> {
    for size in SIZES {
        let (stored, end) = (Stored::new(server, size).await?, size - 1);
        stored.gives("bytes=0-0", 0, 0).await?;
        stored.gives("bytes=10-19", 10, 19).await?;
        stored.gives("bytes=500-", 500, end).await?;
        stored.gives("bytes=-5", size - 5, end).await?;
        stored.gives(&format!("bytes={end}-{end}"), end, end).await?;
        stored.gives(&format!("bytes=0-{end}"), 0, end).await?;
    }
    Ok(())
}

async fn clipped(server: &Server) -> Result<()> {
    for size in SIZES {
        let (stored, end) = (Stored::new(server, size).await?, size - 1);
        stored.gives(&format!("bytes=990-{}", size + 10), 990, end).await?;
        stored.gives("bytes=-99999999", 0, end).await?;
        stored.gives("bytes=5-9223372036854775807", 5, end).await?;
    }
    Ok(())
}

async fn unsatisfiable(server: &Server) -> Result<()> {
    for size in SIZES {
        let stored = Stored::new(server, size).await?;
        let (open, closed) = (format!("bytes={size}-"), format!("bytes={size}-{}", size + 5));
        for range in [open.as_str(), &closed, "bytes=-0"] {
            let refused = stored.get(range).await?;
            refused
                .expect(416)?
                .expect_field("content-range", &format!("bytes */{size}"))?;
        }
    }
    Ok(())
}

async fn several(server: &Server) -> Result<()> {
    let stored = Stored::new(server, 1000).await?;
    let (answer, body) = (stored.get("bytes=0-9,500-509,-10").await?, &stored.body);
    if answer.status == 200 {
        return answer.expect_body(body).map(drop);
    }
    answer.expect(206)?.expect_media("multipart/byteranges")?;
    for part in [body.get(..10), body.get(500..510), body.get(990..)] {
        let part = part.context("the check asks beyond its blob")?;
        let there = answer.body.windows(part.len()).any(|window| window == part);
        ensure!(there, "a part is missing");
    }
    Ok(())
}

async fn malformed(server: &Server) -> Result<()> {
    let stored = Stored::new(server, 1000).await?;
    for range in ["lines=0-1", "bytes=a-b", "bytes=", "0-5", "bytes=--1"] {
        let whole = stored.get(range).await?;
        // Some answer 400 or 416 to what they cannot read; what nobody may do is to send some other part.
        if server.dialect == Dialect::Bazel && matches!(whole.status, 400 | 416) {
            continue;
        }
        whole.expect(200)?.expect_body(&stored.body)?;
    }
    Ok(())
}

async fn head(server: &Server) -> Result<()> {
    let stored = Stored::new(server, 1000).await?;
    let range = [("Range", "bytes=0-9")];
    let head = stored.writer.send("HEAD", &stored.target, &range, b"").await?;
    if server.dialect == Dialect::Bazel && head.status == 206 {
        return not_applicable("the server answers HEAD like a GET of the part, as many file servers do");
    }
    head.expect(200)?.expect_field("content-length", "1000").map(drop)
}

async fn if_range(server: &Server) -> Result<()> {
    let stored = Stored::new(server, 1000).await?;
    let (writer, target) = (stored.writer, &stored.target);
    let Some(tag) = writer.get(target).await?.field("etag") else {
        server.contract()?;
        anyhow::bail!("no ETag");
    };
    let fields = |tag| [("Range", "bytes=0-9"), ("If-Range", tag)];
    let part = writer.send("GET", target, &fields(&tag), b"").await?;
    stored.is_part(&part, 0, 9)?;
    let whole = writer.send("GET", target, &fields("\"another\""), b"").await?;
    whole.expect(200)?.expect_body(&stored.body).map(drop)
}
