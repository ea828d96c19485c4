//! FindMissingBlobs: exactly what is missing, no more, no less.

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use russet_reapi::client::tonic::Code;
use russet_reapi::pack;
use russet_reapi::proto::reapi::Digest;

use super::target::{Target, digest, digest_in, expect_code, path};
use crate::{Check, checks};

pub(super) const CHECKS: &[Check<Target>] = checks! {
    exact, "reapi-find-missing-exact", "REAPI FindMissingBlobs":
        "of a thousand digests exactly those that are not there come back";
    at_once, "reapi-find-missing-after-upload", "REAPI FindMissingBlobs":
        "what was acknowledged is not missing a moment later";
    empty_blob, "reapi-empty-blob", "REAPI Digest: the empty blob":
        "the empty blob is never missing and can be read without ever having been written";
    nothing, "reapi-find-missing-of-nothing", "REAPI FindMissingBlobs":
        "an empty question has an empty answer";
    size, "reapi-find-missing-other-size", "REAPI Digest":
        "a digest with the right hash and another size names something else";
    malformed, "reapi-find-missing-malformed", "REAPI Digest":
        "a digest that is none is INVALID_ARGUMENT";
};

async fn exact(target: &Target) -> Result<()> {
    let bodies: Vec<_> = (0..300).map(|_| target.body(100)).collect();
    let present = target.store(&bodies.iter().collect::<Vec<_>>()).await?;
    let mut expected: Vec<Digest> = (0..700).map(|_| digest(&target.body(100))).collect();
    // Shuffled together, so that an answer by position would show.
    let mut asked: Vec<Digest> = present.iter().chain(&expected).cloned().collect();
    asked.sort_by(|one, other| one.hash.cmp(&other.hash));
    let mut missing = target.missing(asked).await?;
    for list in [&mut missing, &mut expected] {
        list.sort_by(|one, other| one.hash.cmp(&other.hash));
        list.dedup();
    }
    let (said, are) = (missing.len(), expected.len());
    ensure!(missing == expected, "{said} are said to be missing, {are} are");
    Ok(())
}

async fn at_once(target: &Target) -> Result<()> {
    for _ in 0..50 {
        let body = target.body(2000);
        target.expect_missing(&digest(&body)).await?;
        target.store(&[&body]).await?;
        target.expect_present(&digest(&body)).await?;
    }
    Ok(())
}

async fn empty_blob(target: &Target) -> Result<()> {
    target.expect_present(&digest(b"")).await?;
    target.holds(&digest(b""), b"").await?;
    if !target.contract {
        return Ok(());
    }
    let mut other = digest(b"other");
    other.size_bytes = 0;
    target.expect_missing(&other).await.context("of size 0 is not enough")?;
    for function in target.functions().await? {
        let empty = digest_in(function, b"");
        let missing = target.missing_in(function, vec![empty.clone()]).await?;
        ensure!(missing.is_empty(), "the empty blob of {function:?} is missing");
        let (prefix, name) = (target.prefix(), path(function, &empty));
        let plain = target.read(&format!("{prefix}blobs/{name}"), 0, 0).await?;
        let packed = format!("{prefix}compressed-blobs/zstd/{name}");
        let packed = target.read(&packed, 0, 0).await?;
        let empty = plain.is_empty() && pack::inflate(&packed, 0)?.is_empty();
        ensure!(empty, "the empty blob of {function:?} has content");
        let upload = format!("{prefix}uploads/{}/blobs/{name}", target.name());
        let size = target.write(&upload, &Bytes::new()).await?;
        ensure!(size == 0, "committed {size}");
    }
    Ok(())
}

async fn nothing(target: &Target) -> Result<()> {
    let missing = target.missing(Vec::new()).await?;
    ensure!(missing.is_empty(), "{missing:?}");
    Ok(())
}

async fn size(target: &Target) -> Result<()> {
    let (_, mut other) = target.stored(500).await?;
    other.size_bytes += 1;
    target.expect_missing(&other).await
}

async fn malformed(target: &Target) -> Result<()> {
    let good = digest(&target.body(20));
    let with = |hash: &str, size| Digest {
        hash: hash.to_owned(),
        size_bytes: size,
    };
    let mut all = vec![
        with("", 10),
        with("abc", 10),
        with(&good.hash[..63], 10),
        with(&format!("{}0", good.hash), 10),
        with(&"z".repeat(64), 10),
        with(&format!("../{}", &good.hash[3..]), 10),
        with(&good.hash, -1),
        with(&good.hash, i64::MIN),
    ];
    if target.contract {
        all.push(with(&good.hash.to_uppercase(), 20));
    }
    for bad in all {
        let what = format!("{bad:?}");
        expect_code(target.missing(vec![bad]).await, &[Code::InvalidArgument]).context(what)?;
    }
    Ok(())
}
