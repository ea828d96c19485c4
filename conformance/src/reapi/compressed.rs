//! `compressed-blobs/zstd`: the same blobs, packed for the way.

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use russet_reapi::client::tonic::Code;
use russet_reapi::pack;
use russet_reapi::proto::reapi::Digest;

use super::target::{Target, digest, expect_code};
use crate::{Check, checks, not_applicable};

pub(super) const CHECKS: &[Check<Target>] = checks! {
    write, "reapi-zstd-write", "REAPI ContentAddressableStorage: compressed-blobs":
        "a compressed upload is stored under the digest of its content; the committed size is the compressed one, or -1 if it was there";
    read, "reapi-zstd-read", "REAPI ContentAddressableStorage: compressed-blobs":
        "a blob, however it was stored, can be read compressed";
    offset, "reapi-zstd-read-offset", "REAPI ContentAddressableStorage: compressed-blobs":
        "read_offset counts bytes of content, not of what is sent";
    hostile, "reapi-zstd-hostile", "REAPI ContentAddressableStorage: compressed-blobs":
        "damaged, cut, longer or other content, and bombs, are INVALID_ARGUMENT and not stored";
    empty, "reapi-zstd-empty", "REAPI ContentAddressableStorage: compressed-blobs":
        "the empty blob can be read and written compressed";
};

/// Fails with "not applicable" on servers without zstd.
async fn supported(target: &Target) -> Result<()> {
    if !target.capabilities().await?.supported_compressors.contains(&1) {
        return not_applicable("zstd is not advertised");
    }
    Ok(())
}

fn upload(target: &Target, digest: &Digest) -> String {
    target.upload_name(digest).replace("/blobs/", "/compressed-blobs/zstd/")
}

fn name(target: &Target, digest: &Digest) -> String {
    let (prefix, hash) = (target.prefix(), &digest.hash);
    format!("{prefix}compressed-blobs/zstd/{hash}/{}", digest.size_bytes)
}

async fn write(target: &Target) -> Result<()> {
    supported(target).await?;
    for size in [16, 1000, 3 << 20] {
        let body = target.body(size);
        let digest = digest(&body);
        let packed = Bytes::from(pack::deflate(&body, 3)?);
        let length = i64::try_from(packed.len())?;
        let committed = target.write(&upload(target, &digest), &packed).await?;
        ensure!(
            committed == length,
            "committed {committed}, not the {length} compressed bytes"
        );
        target.holds(&digest, &body).await?;
        let again = target.write(&upload(target, &digest), &packed).await?;
        let right = again == -1 || (!target.contract && again == length);
        ensure!(right, "again, it committed {again}");
        if !target.contract {
            continue;
        }
        target.upload(&body).await.context("plain")?;
        let (from, length) = (size / 3, size / 2);
        let (first, limit) = (i64::try_from(from)?, i64::try_from(length)?);
        let part = target.read(&target.blob_name(&digest), first, limit).await?;
        ensure!(part == body.slice(from..from + length), "other bytes from {from}");
        let sent = target.read(&name(target, &digest), 0, 0).await?;
        ensure!(sent == packed, "what was stored compressed was compressed again");
    }
    Ok(())
}

/// Fails unless the blob, read compressed from there, is these bytes.
async fn comes(target: &Target, digest: &Digest, from: usize, rest: &[u8]) -> Result<()> {
    let packed = target.read(&name(target, digest), i64::try_from(from)?, 0).await?;
    let content = pack::inflate(&packed, rest.len() as u64).with_context(|| format!("from {from}"))?;
    ensure!(content == rest, "other bytes from {from}");
    Ok(())
}

async fn read(target: &Target) -> Result<()> {
    supported(target).await?;
    for size in [16, 1000, 3 << 20] {
        let body = target.body(size);
        let digest = target.upload(&body).await?;
        comes(target, &digest, 0, &body).await?;
    }
    let absent = digest(&target.body(20));
    expect_code(target.read(&name(target, &absent), 0, 0).await, &[Code::NotFound])
}

async fn offset(target: &Target) -> Result<()> {
    supported(target).await?;
    let body = target.body(1 << 20);
    let digest = target.upload(&body).await?;
    for at in [1, 70_000, (1 << 20) - 1] {
        comes(target, &digest, at, &body.slice(at..)).await?;
    }
    Ok(())
}

async fn hostile(target: &Target) -> Result<()> {
    supported(target).await?;
    let body = target.body(100_000);
    let name = digest(&body);
    let good = pack::deflate(&body, 3)?;
    let mut damaged = good.clone();
    if let Some(byte) = damaged.get_mut(good.len() / 2) {
        *byte ^= 0x55;
    }
    for (what, content) in [
        ("damaged", damaged),
        ("cut", good.get(..good.len() / 2).unwrap_or_default().to_vec()),
        ("other content", pack::deflate(&target.body(100_000), 3)?),
        ("longer", pack::deflate(&[body.as_ref(), b"x"].concat(), 3)?),
        ("a bomb", pack::deflate(&vec![0; 64 << 20], 19)?),
        ("not zstd", body.to_vec()),
        ("followed by garbage", [good.as_slice(), b"garbage"].concat()),
    ] {
        let outcome = target.write(&upload(target, &name), &content.into()).await;
        expect_code(outcome, &[Code::InvalidArgument]).context(what)?;
    }
    target.expect_missing(&name).await
}

async fn empty(target: &Target) -> Result<()> {
    supported(target).await?;
    let (nothing, packed) = (digest(b""), pack::deflate(b"", 3)?);
    target.write(&upload(target, &nothing), &packed.into()).await?;
    let read = target.read(&name(target, &nothing), 0, 0).await?;
    let empty = read.is_empty() || pack::inflate(&read, 0).is_ok_and(|content| content.is_empty());
    ensure!(empty, "the empty blob has content");
    Ok(())
}
