//! ByteStream: large blobs in pieces.

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use futures::future::try_join_all;
use futures::{StreamExt as _, stream};
use russet_reapi::client::tonic::Code;

use super::target::{Target, Told, digest, expect_code, pieces};
use crate::{Check, checks};

pub(super) const CHECKS: &[Check<Target>] = checks! {
    round_trip, "reapi-bytestream-round-trip", "ByteStream Read, Write":
        "blobs of all sizes are committed whole and read back byte by byte";
    offsets, "reapi-bytestream-read-offset-and-limit", "ByteStream ReadRequest":
        "read_offset and read_limit give exactly that part";
    out_of_range, "reapi-bytestream-read-out-of-range", "ByteStream ReadRequest":
        "an offset beyond the end, or a negative one, is OUT_OF_RANGE; a negative limit INVALID_ARGUMENT";
    missing, "reapi-bytestream-read-missing", "REAPI ContentAddressableStorage":
        "a blob that is not there is NOT_FOUND";
    names, "reapi-bytestream-names", "REAPI ContentAddressableStorage: resource names":
        "a resource name that is none is INVALID_ARGUMENT or NOT_FOUND, for reading and writing";
    metadata, "reapi-bytestream-upload-metadata", "REAPI ContentAddressableStorage: resource names":
        "whatever follows the size in an upload's name is ignored";
    wrong_content, "reapi-bytestream-wrong-content", "REAPI ContentAddressableStorage":
        "content that does not match its digest is INVALID_ARGUMENT and is not stored";
    wrong_offset, "reapi-bytestream-wrong-offset", "ByteStream WriteRequest.write_offset":
        "a message that does not continue where the last one ended is INVALID_ARGUMENT and nothing is stored";
    unfinished, "reapi-bytestream-unfinished", "ByteStream WriteRequest.finish_write":
        "an upload that ends without finish_write is not a blob";
    early, "reapi-bytestream-early-finish", "REAPI ContentAddressableStorage: uploads of existing blobs":
        "an upload of what is there is answered with its size before it is sent";
    racing, "reapi-bytestream-racing-writers", "REAPI ContentAddressableStorage":
        "many writers of one blob all succeed, and it is whole";
    messages, "reapi-bytestream-message-size", "gRPC: default receive limit":
        "no message of an answer is larger than a client takes by default (4 MiB)";
};

async fn round_trip(target: &Target) -> Result<()> {
    let edges = [65_535, 65_536, 65_537, 131_072, 131_073];
    for size in [0, 1, 4096].into_iter().chain(edges).chain([1 << 20, (5 << 20) + 7]) {
        let body = target.body(size);
        let digest = target.upload(&body).await.with_context(|| format!("{size} bytes"))?;
        target.holds(&digest, &body).await?;
    }
    Ok(())
}

async fn offsets(target: &Target) -> Result<()> {
    // A huge limit is no limit.
    let many = usize::try_from(i64::MAX)?;
    for size in [1000, 3 << 20] {
        let body = target.body(size);
        let name = target.blob_name(&target.upload(&body).await?);
        for (offset, limit) in [
            (0, 10),
            (10, 0),
            (10, 10),
            (size - 1, 0),
            (size - 1, 100),
            (size, 0),
            (0, size),
            (7, size),
            (0, many),
        ] {
            let wide = |value: usize| i64::try_from(value).unwrap_or(i64::MAX);
            let read = target.read(&name, wide(offset), wide(limit)).await?;
            let limit = if limit == 0 { size } else { limit };
            let right = body.get(offset..size.min(offset.saturating_add(limit)));
            let length = read.len();
            let same = Some(read.as_slice()) == right;
            ensure!(same, "{offset}, {limit} of {size}: {length} bytes");
        }
    }
    Ok(())
}

async fn out_of_range(target: &Target) -> Result<()> {
    let name = target.blob_name(&target.upload(&target.body(1000)).await?);
    for (offset, limit, codes) in [
        (1001, 0, &[Code::OutOfRange][..]),
        (i64::MAX, 0, &[Code::OutOfRange]),
        (-1, 0, &[Code::OutOfRange, Code::InvalidArgument]),
        (0, -1, &[Code::InvalidArgument, Code::OutOfRange]),
    ] {
        let refused = expect_code(target.read(&name, offset, limit).await, codes);
        refused.with_context(|| format!("offset {offset}, limit {limit}"))?;
    }
    Ok(())
}

async fn missing(target: &Target) -> Result<()> {
    let name = target.blob_name(&digest(&target.body(1000)));
    expect_code(target.read(&name, 0, 0).await, &[Code::NotFound])
}

async fn names(target: &Target) -> Result<()> {
    let (codes, prefix) = ([Code::InvalidArgument, Code::NotFound], target.prefix());
    let (body, uuid) = (target.body(20), target.name());
    let (digest, hash) = (digest(&body), digest(&body).hash);
    for name in [
        "blobs".to_owned(),
        format!("blobs/{hash}"),
        format!("blobs/{hash}/"),
        format!("blobs/{hash}/x"),
        format!("blobs/{hash}/-1"),
        "blobs/abc/20".to_owned(),
        format!("blobs/{}/20", "z".repeat(64)),
        format!("blobs/../{hash}/20"),
        format!("blobs/{hash}/99999999999999999999"),
        format!("blob/{hash}/20"),
        format!("compressed-blobs/brotli/{hash}/20"),
    ] {
        let read = target.read(&format!("{prefix}{name}"), 0, 0).await;
        expect_code(read, &codes).with_context(|| format!("reading {name:?}"))?;
    }
    expect_code(target.read("", 0, 0).await, &codes).context("no name")?;
    for name in [
        format!("blobs/{hash}/20"),
        format!("uploads/{uuid}/{hash}/20"),
        format!("uploads/blobs/{hash}/20"),
        format!("uploads/{uuid}/blobs/{hash}/x"),
        format!("uploads/{uuid}/blobs/{hash}/-10"),
        format!("uploads/{uuid}/blobs/../20"),
        format!("uploads/{uuid}/compressed-blobs/brotli/{hash}/20"),
    ] {
        let written = target.write(&format!("{prefix}{name}"), &body).await;
        expect_code(written, &codes).with_context(|| format!("writing {name:?}"))?;
    }
    target.expect_missing(&digest).await
}

async fn metadata(target: &Target) -> Result<()> {
    let body = target.body(1000);
    let name = format!("{}/some/file.o", target.upload_name(&digest(&body)));
    let size = target.write(&name, &body).await?;
    ensure!(size == 1000, "committed {size}");
    target.expect_present(&digest(&body)).await
}

async fn wrong_content(target: &Target) -> Result<()> {
    for size in [1000, 300_000] {
        let body = target.body(size);
        let name = digest(&body);
        let mut flipped = body.to_vec();
        if let Some(byte) = flipped.last_mut() {
            *byte ^= 1;
        }
        for (what, content) in [
            ("a flipped bit", Bytes::from(flipped)),
            ("one byte too many", [body.as_ref(), b"x"].concat().into()),
            ("one byte too few", body.slice(..size - 1)),
            ("nothing", Bytes::new()),
        ] {
            let outcome = target.write(&target.upload_name(&name), &content).await;
            expect_code(outcome, &[Code::InvalidArgument]).with_context(|| format!("{what}, {size} bytes"))?;
        }
        target.expect_missing(&name).await?;
        if target.contract {
            let upload = target.upload_name(&name);
            let lie = target.write(&upload, &Bytes::from(vec![0; size])).await;
            expect_code(lie, &[Code::InvalidArgument])?;
            let kept = super::resume::status(target, &upload).await;
            expect_code(kept, &[Code::NotFound]).context("nothing is left to resume")?;
            target.write(&upload, &body).await?;
        }
    }
    Ok(())
}

async fn wrong_offset(target: &Target) -> Result<()> {
    let body = target.body(200_000);
    let name = digest(&body);
    for shift in [1_i64, -1, 1_000_000] {
        let mut messages = pieces(&target.upload_name(&name), &body, 0, true);
        if let Some(second) = messages.get_mut(1) {
            second.write_offset += shift;
        }
        let refused = target.write_pieces(messages).await;
        let refused = expect_code(refused, &[Code::InvalidArgument, Code::OutOfRange]);
        refused.with_context(|| format!("shifted by {shift}"))?;
    }
    target.expect_missing(&name).await
}

async fn unfinished(target: &Target) -> Result<()> {
    let body = target.body(200_000);
    let name = digest(&body);
    let messages = pieces(&target.upload_name(&name), &body.slice(..100_000), 0, false);
    match target.write_pieces(messages).await {
        Ok(size) => {
            let right = !target.contract && (0..=100_000).contains(&size);
            ensure!(right, "committed {size} of half an upload");
        }
        Err(told) if target.contract => told.is(&[Code::InvalidArgument])?,
        Err(_) => {}
    }
    target.expect_missing(&name).await
}

/// The client sends one message and then nothing: who waits for the rest waits for ever.
async fn early(target: &Target) -> Result<()> {
    let body = target.body(3 << 20);
    let name = target.upload(&body).await?;
    let first = pieces(&target.upload_name(&name), &body, 0, true).into_iter().take(1);
    let request = target.request(stream::iter(first).chain(stream::pending()));
    let answer = target.bytes().write(request).await.map_err(Told);
    let size = answer
        .context("the server waits for what it has")?
        .get_ref()
        .committed_size;
    let full = name.size_bytes;
    ensure!(size == full, "committed {size}, where the full {full} is right");
    Ok(())
}

async fn racing(target: &Target) -> Result<()> {
    let body = target.body(400_000);
    try_join_all((0..16).map(|_| target.upload(&body))).await?;
    target.holds(&digest(&body), &body).await
}

async fn messages(target: &Target) -> Result<()> {
    let body = target.body(12 << 20);
    let digest = target.upload(&body).await?;
    let request = russet_reapi::proto::bytestream::ReadRequest {
        resource_name: target.blob_name(&digest),
        ..Default::default()
    };
    let mut client = target.bytes().max_decoding_message_size(4 << 20);
    let answer = client.read(target.request(request)).await.map_err(Told)?;
    let (mut stream, mut total) = (answer.into_inner(), 0);
    while let Some(piece) = stream.message().await.map_err(Told)? {
        total += piece.data.len();
    }
    ensure!(total == body.len(), "{total} bytes");
    Ok(())
}
