//! ByteStream: large blobs in pieces.

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use futures::future::try_join_all;
use futures::{StreamExt as _, stream};
use russet_reapi::client::tonic::Code;
use russet_reapi::proto::reapi::Digest;

use super::target::{Target, digest, expect_code, pieces, told};
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

async fn upload(target: &Target, body: &Bytes) -> Result<Digest> {
    let digest = digest(body);
    let size = target.write(&target.upload_name(&digest), body).await.map_err(told)?;
    ensure!(size == digest.size_bytes, "committed {size} of {}", digest.size_bytes);
    Ok(digest)
}

async fn round_trip(target: &Target) -> Result<()> {
    for size in [
        0,
        1,
        4096,
        65_535,
        65_536,
        65_537,
        131_072,
        131_073,
        1 << 20,
        (5 << 20) + 7,
    ] {
        let body = target.body(size);
        let digest = upload(target, &body).await.with_context(|| format!("{size} bytes"))?;
        let read = target.read(&target.blob_name(&digest), 0, 0).await.map_err(told)?;
        ensure!(read == body, "{size} bytes came back changed");
    }
    Ok(())
}

async fn offsets(target: &Target) -> Result<()> {
    // A huge limit is no limit.
    let many = usize::try_from(i64::MAX)?;
    for size in [1000, 3 << 20] {
        let body = target.body(size);
        let name = target.blob_name(&upload(target, &body).await?);
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
            let read = target.read(&name, wide(offset), wide(limit)).await.map_err(told)?;
            let end = if limit == 0 {
                size
            } else {
                size.min(offset.saturating_add(limit))
            };
            ensure!(
                Some(read.as_slice()) == body.get(offset..end),
                "offset {offset}, limit {limit} of {size}: {} bytes",
                read.len()
            );
        }
    }
    Ok(())
}

async fn out_of_range(target: &Target) -> Result<()> {
    let name = target.blob_name(&upload(target, &target.body(1000)).await?);
    for (offset, limit, codes) in [
        (1001, 0, &[Code::OutOfRange][..]),
        (i64::MAX, 0, &[Code::OutOfRange]),
        (-1, 0, &[Code::OutOfRange, Code::InvalidArgument]),
        (0, -1, &[Code::InvalidArgument, Code::OutOfRange]),
    ] {
        expect_code(target.read(&name, offset, limit).await, codes)
            .with_context(|| format!("offset {offset}, limit {limit}"))?;
    }
    Ok(())
}

async fn missing(target: &Target) -> Result<()> {
    let name = target.blob_name(&digest(&target.body(1000)));
    expect_code(target.read(&name, 0, 0).await, &[Code::NotFound])
}

async fn names(target: &Target) -> Result<()> {
    let codes = [Code::InvalidArgument, Code::NotFound];
    let good = digest(&target.body(20));
    for name in [
        String::new(),
        "blobs".to_owned(),
        format!("blobs/{}", good.hash),
        format!("blobs/{}/", good.hash),
        format!("blobs/{}/x", good.hash),
        format!("blobs/{}/-1", good.hash),
        format!("blobs/abc/{}", good.size_bytes),
        format!("blobs/{}/{}", "z".repeat(64), good.size_bytes),
        format!("blobs/../{}/{}", good.hash, good.size_bytes),
        format!("blobs/{}/99999999999999999999", good.hash),
        format!("blob/{}/{}", good.hash, good.size_bytes),
        format!("compressed-blobs/brotli/{}/{}", good.hash, good.size_bytes),
    ] {
        let name = if name.is_empty() {
            name
        } else {
            format!("{}{name}", target.prefix())
        };
        expect_code(target.read(&name, 0, 0).await, &codes).with_context(|| format!("reading {name:?}"))?;
    }
    let body = target.body(20);
    let (hash, size, uuid) = (digest(&body).hash, body.len(), target.name());
    for name in [
        format!("blobs/{hash}/{size}"),
        format!("uploads/{uuid}/{hash}/{size}"),
        format!("uploads/blobs/{hash}/{size}"),
        format!("uploads/{uuid}/blobs/{hash}/x"),
        format!("uploads/{uuid}/blobs/{hash}/-10"),
        format!("uploads/{uuid}/blobs/../{size}"),
        format!("uploads/{uuid}/compressed-blobs/brotli/{hash}/{size}"),
    ] {
        let name = format!("{}{name}", target.prefix());
        let written = target.write(&name, &body).await;
        expect_code(written, &codes).with_context(|| format!("writing {name:?}"))?;
    }
    target.expect_missing(&digest(&body)).await
}

async fn metadata(target: &Target) -> Result<()> {
    let body = target.body(1000);
    let name = format!("{}/some/file.o", target.upload_name(&digest(&body)));
    let size = target.write(&name, &body).await.map_err(told)?;
    ensure!(size == 1000, "committed {size}");
    let missing = target.missing(vec![digest(&body)]).await.map_err(told)?;
    ensure!(missing.is_empty(), "acknowledged, and missing");
    Ok(())
}

async fn wrong_content(target: &Target) -> Result<()> {
    for size in [1000, 300_000] {
        let body = target.body(size);
        let name = digest(&body);
        let mut flipped = body.to_vec();
        if let Some(byte) = flipped.last_mut() {
            *byte ^= 1;
        }
        let longer = [body.as_ref(), b"x"].concat();
        let shorter = body.slice(..size - 1);
        for (what, content) in [
            ("a flipped bit", Bytes::from(flipped)),
            ("one byte too many", Bytes::from(longer)),
            ("one byte too few", shorter),
            ("nothing", Bytes::new()),
        ] {
            let outcome = target.write(&target.upload_name(&name), &content).await;
            expect_code(outcome, &[Code::InvalidArgument]).with_context(|| format!("{what}, {size} bytes"))?;
        }
        target.expect_missing(&name).await?;
        if target.contract {
            let upload = target.upload_name(&name);
            let lie = Bytes::from(vec![0; size]);
            expect_code(target.write(&upload, &lie).await, &[Code::InvalidArgument])?;
            let kept = super::resume::status(target, &upload).await;
            expect_code(kept, &[Code::NotFound]).context("nothing is left to resume")?;
            target.write(&upload, &body).await.map_err(told)?;
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
        expect_code(
            target.write_pieces(messages).await,
            &[Code::InvalidArgument, Code::OutOfRange],
        )
        .with_context(|| format!("shifted by {shift}"))?;
    }
    target.expect_missing(&name).await
}

async fn unfinished(target: &Target) -> Result<()> {
    let body = target.body(200_000);
    let name = digest(&body);
    let messages = pieces(&target.upload_name(&name), &body.slice(..100_000), 0, false);
    match target.write_pieces(messages).await {
        Ok(size) => ensure!(
            !target.contract && (0..=100_000).contains(&size),
            "committed {size} of half an upload"
        ),
        Err(status) if target.contract => expect_code(Err::<(), _>(status), &[Code::InvalidArgument])?,
        Err(_) => {}
    }
    target.expect_missing(&name).await
}

/// The client sends one message and then nothing: who waits for the rest waits for ever.
async fn early(target: &Target) -> Result<()> {
    let body = target.body(3 << 20);
    let name = upload(target, &body).await?;
    let first: Vec<_> = pieces(&target.upload_name(&name), &body, 0, true)
        .into_iter()
        .take(1)
        .collect();
    let request = target.request(stream::iter(first).chain(stream::pending()));
    let answer = target
        .bytes()
        .write(request)
        .await
        .map_err(told)
        .context("the server waits for what it has")?;
    let size = answer.get_ref().committed_size;
    ensure!(
        size == name.size_bytes,
        "committed {size}, where the full {} is right",
        name.size_bytes
    );
    Ok(())
}

async fn racing(target: &Target) -> Result<()> {
    let body = target.body(400_000);
    let digest = digest(&body);
    let writers = (0..16).map(|_| async {
        let size = target.write(&target.upload_name(&digest), &body).await.map_err(told)?;
        ensure!(size == digest.size_bytes, "committed {size}");
        Ok(())
    });
    try_join_all(writers).await?;
    let read = target.read(&target.blob_name(&digest), 0, 0).await.map_err(told)?;
    ensure!(read == body, "other bytes");
    Ok(())
}

async fn messages(target: &Target) -> Result<()> {
    let body = target.body(12 << 20);
    let digest = upload(target, &body).await?;
    let request = russet_reapi::proto::bytestream::ReadRequest {
        resource_name: target.blob_name(&digest),
        ..Default::default()
    };
    let mut stream = target
        .bytes()
        .max_decoding_message_size(4 << 20)
        .read(target.request(request))
        .await
        .map_err(told)?
        .into_inner();
    let mut total = 0;
    while let Some(piece) = stream.message().await.map_err(told)? {
        total += piece.data.len();
    }
    ensure!(total == body.len(), "{total} bytes");
    Ok(())
}
