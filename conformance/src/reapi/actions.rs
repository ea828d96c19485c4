//! The action cache: a hit means that everything it names is there.

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use prost::Message as _;
use russet_reapi::client::tonic::Code;
use russet_reapi::digest::Function;
use russet_reapi::proto::reapi::{
    ActionResult, Digest, Directory, FileNode, GetActionResultRequest, OutputDirectory, OutputFile, Tree,
};

use super::target::{Target, digest, expect_code, put};
use crate::{Check, checks, not_applicable};

pub(super) const CHECKS: &[Check<Target>] = checks! {
    miss, "reapi-action-miss", "REAPI GetActionResult":
        "an action nobody ran is NOT_FOUND";
    round_trip, "reapi-action-round-trip", "REAPI UpdateActionResult, GetActionResult":
        "a result comes back with its files, links, exit code and output";
    last_wins, "reapi-action-last-write-wins", "REAPI UpdateActionResult":
        "a newer result replaces the older one at once";
    hole, "reapi-action-with-a-missing-output", "REAPI GetActionResult: referenced blobs":
        "a result whose output, stdout or stderr is not in the CAS is NOT_FOUND";
    tree_hole, "reapi-action-with-a-missing-leaf", "REAPI GetActionResult: referenced blobs":
        "a result whose directory lacks its tree, or a file inside, is NOT_FOUND";
    inline, "reapi-action-inline", "REAPI GetActionResultRequest.inline_*":
        "stdout, stderr and named files come inline when asked for, with the right bytes";
    malformed, "reapi-action-malformed", "REAPI UpdateActionResult, GetActionResult":
        "an action digest that is none, or that is absent, is INVALID_ARGUMENT";
    filled, "reapi-action-hole-filled", "contract: action cache" [contract]:
        "a result comes back as it was stored once the last blob it names is there, and only for its digest function";
    useless, "reapi-action-useless", "contract: action cache" [contract]:
        "a result that no client could use (without a digest, malformed, absent, over 4 MiB) is refused and not stored";
};

fn action(target: &Target) -> Digest {
    digest(&target.body(150))
}

fn file(path: &str, digest: &Digest) -> OutputFile {
    OutputFile {
        path: path.to_owned(),
        digest: Some(digest.clone()),
        is_executable: true,
        ..OutputFile::default()
    }
}

fn with_files(output_files: Vec<OutputFile>) -> ActionResult {
    ActionResult {
        output_files,
        ..ActionResult::default()
    }
}

/// A result with the directory of that tree.
fn with_tree(tree: &Digest) -> ActionResult {
    ActionResult {
        output_directories: vec![OutputDirectory {
            path: "out".to_owned(),
            tree_digest: Some(tree.clone()),
            ..OutputDirectory::default()
        }],
        ..ActionResult::default()
    }
}

/// A tree of these files, encoded.
fn tree(files: &[(&str, &Digest)]) -> Bytes {
    let files = files.iter().map(|(name, digest)| FileNode {
        name: (*name).to_owned(),
        digest: Some((*digest).clone()),
        ..FileNode::default()
    });
    let root = Directory {
        files: files.collect(),
        ..Directory::default()
    };
    let tree = Tree {
        root: Some(root),
        ..Tree::default()
    };
    tree.encode_to_vec().into()
}

/// Fails if a result is given out that lacks something.
async fn is_holed(target: &Target, what: &str, result: ActionResult) -> Result<()> {
    let action = action(target);
    // Refusing the result at once is as good as never giving it out.
    if target.record(&action, result).await.is_ok() {
        let found = expect_code(target.result(&action).await, &[Code::NotFound]);
        found.with_context(|| format!("{what} is missing"))?;
    }
    Ok(())
}

async fn miss(target: &Target) -> Result<()> {
    expect_code(target.result(&action(target)).await, &[Code::NotFound])
}

async fn round_trip(target: &Target) -> Result<()> {
    let ((_, one), (_, two)) = (target.stored(100).await?, target.stored(200_000).await?);
    let result = ActionResult {
        exit_code: 3,
        stdout_raw: "said".into(),
        stderr_raw: "cried".into(),
        ..with_files(vec![file("bin/one", &one), file("lib/two", &two)])
    };
    let action = action(target);
    target.record(&action, result.clone()).await?;
    let found = target.result(&action).await?;
    let plain = |result: &ActionResult| {
        let files = result.output_files.iter();
        let files = files.map(|file| (file.path.clone(), file.digest.clone(), file.is_executable));
        (files.collect::<Vec<_>>(), result.exit_code)
    };
    ensure!(plain(&found) == plain(&result), "other files or another exit code");
    for (what, raw, named, said) in [
        ("stdout", &found.stdout_raw, &found.stdout_digest, &b"said"[..]),
        ("stderr", &found.stderr_raw, &found.stderr_digest, b"cried"),
    ] {
        // A server may move output to the CAS; then its digest says what it was.
        ensure!(raw == said || named.as_ref() == Some(&digest(said)), "{what} is lost");
    }
    Ok(())
}

async fn last_wins(target: &Target) -> Result<()> {
    let action = action(target);
    for exit_code in 1..20 {
        let result = ActionResult {
            exit_code,
            stdout_raw: format!("{exit_code}").into(),
            ..ActionResult::default()
        };
        target.record(&action, result).await?;
        let found = target.result(&action).await?.exit_code;
        ensure!(found == exit_code, "exit code {found} after {exit_code} was stored");
    }
    Ok(())
}

async fn hole(target: &Target) -> Result<()> {
    let absent = digest(&target.body(300));
    let (_, present) = target.stored(300).await?;
    let (mut stdout, mut stderr) = (ActionResult::default(), ActionResult::default());
    stdout.stdout_digest = Some(absent.clone());
    stderr.stderr_digest = Some(absent.clone());
    let output = with_files(vec![file("there", &present), file("not-there", &absent)]);
    for (what, result) in [("an output", output), ("stdout", stdout), ("stderr", stderr)] {
        is_holed(target, what, result).await?;
    }
    Ok(())
}

async fn tree_hole(target: &Target) -> Result<()> {
    let absent = digest(&target.body(300));
    let (_, leaf) = target.stored(300).await?;
    let (whole, holed) = (tree(&[("leaf", &leaf)]), tree(&[("leaf", &leaf), ("hole", &absent)]));
    let unsent = tree(&[("unsent", &leaf)]);
    target.store(&[&whole, &holed]).await?;
    let good = action(target);
    target.record(&good, with_tree(&digest(&whole))).await?;
    target.result(&good).await.context("everything is there")?;
    for (what, tree) in [("a leaf", holed), ("the tree", unsent)] {
        is_holed(target, what, with_tree(&digest(&tree))).await?;
    }
    Ok(())
}

async fn inline(target: &Target) -> Result<()> {
    let [out, err, named, other] = [500, 600, 700, 800].map(|size| target.body(size));
    target.store(&[&out, &err, &named, &other]).await?;
    let action = action(target);
    let result = ActionResult {
        stdout_digest: Some(digest(&out)),
        stderr_digest: Some(digest(&err)),
        ..with_files(vec![file("named", &digest(&named)), file("other", &digest(&other))])
    };
    target.record(&action, result.clone()).await?;
    let ask = async |inline_stdout: bool, inline_stderr: bool, files: &[&str]| {
        let request = GetActionResultRequest {
            inline_stdout,
            inline_stderr,
            inline_output_files: files.iter().map(|path| (*path).to_owned()).collect(),
            ..target.get(&action)
        };
        target.ask(request).await
    };
    let found = ask(true, true, &["named"]).await?;
    let contents = |path: &str| {
        let file = found.output_files.iter().find(|file| file.path == path);
        file.map(|file| file.contents.clone()).unwrap_or_default()
    };
    let mut taken = 0;
    for (what, seen, right) in [
        ("stdout", found.stdout_raw.clone(), &out),
        ("stderr", found.stderr_raw.clone(), &err),
        ("the named file", contents("named"), &named),
        ("the other file", contents("other"), &other),
    ] {
        ensure!(seen.is_empty() || seen == *right, "{what} came with other bytes");
        taken += usize::from(!seen.is_empty() && what != "the other file");
    }
    // The fields are hints.
    if taken == 0 {
        return not_applicable("the server takes none of the hints");
    }
    ensure!(taken == 3, "{taken} of three hints were taken");
    if !target.contract {
        return Ok(());
    }
    let mut result = result;
    let huge = target.upload(&target.body(33 << 20)).await?;
    result.output_files.push(file("large", &huge));
    target.record(&action, result.clone()).await?;
    let contents = |found: ActionResult| -> Vec<_> {
        let files = found.output_files.into_iter();
        files.map(|file| file.contents).collect()
    };
    let (nothing, printed) = (Bytes::new(), ask(true, false, &[]).await?);
    let alone = printed.stdout_raw == out && printed.stderr_raw.is_empty();
    let bare = contents(printed).iter().all(Bytes::is_empty);
    ensure!(alone && bare, "more or less than stdout");
    let one = contents(ask(false, false, &["other"]).await?);
    ensure!(one == [&nothing, &other, &nothing], "more or less than one file");
    // What does not fit is left out, unless it was named.
    let all = contents(ask(false, false, &["*"]).await?);
    ensure!(all == [&named, &other, &nothing], "more or less than what fits");
    expect_code(ask(false, false, &["large"]).await, &[Code::ResourceExhausted])?;
    let same = ask(false, false, &["absent"]).await? == result;
    ensure!(same, "an absent file changed the result");
    Ok(())
}

async fn malformed(target: &Target) -> Result<()> {
    let good = action(target);
    let with = |hash: &str, size_bytes| Digest {
        hash: hash.to_owned(),
        size_bytes,
    };
    for bad in [with("abc", 150), with("", 150), with(&good.hash, -5)] {
        let what = || format!("{bad:?}");
        expect_code(target.result(&bad).await, &[Code::InvalidArgument]).with_context(what)?;
        let recorded = target.record(&bad, ActionResult::default()).await;
        expect_code(recorded, &[Code::InvalidArgument]).with_context(what)?;
    }
    let mut request = target.get(&good);
    request.action_digest = None;
    expect_code(target.ask(request).await, &[Code::InvalidArgument]).context("no action digest")
}

async fn filled(target: &Target) -> Result<()> {
    let (late, leaf) = (target.body(300), target.body(300));
    let (_, printed) = target.stored(300).await?;
    let tree = tree(&[("leaf", &digest(&leaf))]);
    let result = ActionResult {
        output_files: vec![file("a", &digest(&late)), file("empty", &digest(b""))],
        stdout_digest: Some(printed),
        exit_code: 7,
        ..with_tree(&digest(&tree))
    };
    let action = action(target);
    let mut request = put(&target.instance, &action, result.clone());
    request.digest_function = 0;
    let echoed = target.acknowledged(request.clone()).await?;
    ensure!(echoed == result, "another result was acknowledged");
    for missing in [late, tree, leaf] {
        expect_code(target.result(&action).await, &[Code::NotFound])?;
        target.store(&[&missing]).await?;
    }
    ensure!(target.result(&action).await? == result, "another result");
    let mut other = target.get(&action);
    other.digest_function = Function::Blake3.value();
    let other = expect_code(target.ask(other).await, &[Code::NotFound]);
    other.context("another function, another action")?;
    request.action_result = None;
    let none = target.acknowledged(request).await;
    expect_code(none, &[Code::InvalidArgument]).context("no result")
}

async fn useless(target: &Target) -> Result<()> {
    let (_, good) = target.stored(300).await?;
    let with = |hash: &str, size_bytes| Digest {
        hash: hash.to_owned(),
        size_bytes,
    };
    let mut unnamed = with_files(vec![file("a", &good)]);
    unnamed.output_files.iter_mut().for_each(|file| file.digest = None);
    let (mut negative, mut huge) = (ActionResult::default(), ActionResult::default());
    negative.stderr_digest = Some(with(&good.hash, -1));
    huge.stdout_raw = vec![1; (4 << 20) + 1].into();
    let action = action(target);
    for (result, code) in [
        (with_files(vec![file("a", &with("nonsense", 1))]), Code::InvalidArgument),
        (unnamed, Code::InvalidArgument),
        (negative, Code::InvalidArgument),
        (huge, Code::FailedPrecondition),
    ] {
        expect_code(target.record(&action, result).await, &[code])?;
        expect_code(target.result(&action).await, &[Code::NotFound])?;
    }
    Ok(())
}
