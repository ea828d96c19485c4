//! The action cache: a hit means that everything it names is there.

use anyhow::{Context, Result, ensure};
use prost::Message as _;
use russet_reapi::client::tonic::Code;
use russet_reapi::proto::reapi::{ActionResult, Digest, Directory, FileNode, OutputDirectory, OutputFile, Tree};

use super::target::{Target, digest, expect_code, told};
use crate::{Check, check, not_applicable};

pub(super) const CHECKS: &[Check<Target>] = &[
    check!(
        miss,
        "reapi-action-miss",
        "an action nobody ran is NOT_FOUND",
        "REAPI GetActionResult"
    ),
    check!(
        round_trip,
        "reapi-action-round-trip",
        "a result comes back with its files, links, exit code and output",
        "REAPI UpdateActionResult, GetActionResult"
    ),
    check!(
        last_wins,
        "reapi-action-last-write-wins",
        "a newer result replaces the older one at once",
        "REAPI UpdateActionResult"
    ),
    check!(
        hole,
        "reapi-action-with-a-missing-output",
        "a result whose output, stdout or stderr is not in the CAS is NOT_FOUND",
        "REAPI GetActionResult: referenced blobs"
    ),
    check!(
        tree_hole,
        "reapi-action-with-a-missing-leaf",
        "a result whose directory lacks its tree, or a file inside, is NOT_FOUND",
        "REAPI GetActionResult: referenced blobs"
    ),
    check!(
        inline,
        "reapi-action-inline",
        "stdout, stderr and named files come inline when asked for, with the right bytes",
        "REAPI GetActionResultRequest.inline_*"
    ),
    check!(
        malformed,
        "reapi-action-malformed",
        "an action digest that is none, or that is absent, is INVALID_ARGUMENT",
        "REAPI UpdateActionResult, GetActionResult"
    ),
];

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

async fn miss(target: &Target) -> Result<()> {
    expect_code(target.result(&action(target)).await, &[Code::NotFound])
}

async fn round_trip(target: &Target) -> Result<()> {
    let (one, two) = (target.body(100), target.body(200_000));
    let digests = target.store(&[&one, &two]).await?;
    let files = digests
        .iter()
        .zip(["bin/one", "lib/two"])
        .map(|(digest, path)| file(path, digest));
    let result = ActionResult {
        output_files: files.collect(),
        exit_code: 3,
        stdout_raw: "said".into(),
        stderr_raw: "cried".into(),
        ..ActionResult::default()
    };
    let action = action(target);
    target.record(&action, result.clone()).await.map_err(told)?;
    let found = target.result(&action).await.map_err(told)?;
    let plain = |result: &ActionResult| {
        let files: Vec<_> = result
            .output_files
            .iter()
            .map(|file| (file.path.clone(), file.digest.clone(), file.is_executable))
            .collect();
        (files, result.exit_code)
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
    for code in 1..20 {
        let result = ActionResult {
            exit_code: code,
            stdout_raw: format!("{code}").into(),
            ..ActionResult::default()
        };
        target.record(&action, result).await.map_err(told)?;
        let found = target.result(&action).await.map_err(told)?;
        ensure!(
            found.exit_code == code,
            "exit code {} after {code} was stored",
            found.exit_code
        );
    }
    Ok(())
}

async fn hole(target: &Target) -> Result<()> {
    let absent = digest(&target.body(300));
    let present = target.store(&[&target.body(300)]).await?;
    let present = present.first().context("nothing stored")?;
    for (what, result) in [
        (
            "an output",
            ActionResult {
                output_files: vec![file("there", present), file("not-there", &absent)],
                ..ActionResult::default()
            },
        ),
        (
            "stdout",
            ActionResult {
                stdout_digest: Some(absent.clone()),
                ..ActionResult::default()
            },
        ),
        (
            "stderr",
            ActionResult {
                stderr_digest: Some(absent.clone()),
                ..ActionResult::default()
            },
        ),
    ] {
        let action = action(target);
        // Refusing the result at once is as good as never giving it out.
        if target.record(&action, result).await.is_ok() {
            expect_code(target.result(&action).await, &[Code::NotFound])
                .with_context(|| format!("{what} is missing"))?;
        }
    }
    Ok(())
}

async fn tree_hole(target: &Target) -> Result<()> {
    let (leaf, absent) = (target.body(300), digest(&target.body(300)));
    let leaf = target.store(&[&leaf]).await?.pop().context("nothing stored")?;
    let node = |name: &str, digest: &Digest| FileNode {
        name: name.to_owned(),
        digest: Some(digest.clone()),
        ..FileNode::default()
    };
    let tree = |files| Tree {
        root: Some(Directory {
            files,
            ..Directory::default()
        }),
        children: Vec::new(),
    };
    let whole = tree(vec![node("leaf", &leaf)]);
    let holed = tree(vec![node("leaf", &leaf), node("hole", &absent)]);
    let unsent = tree(vec![node("unsent", &leaf)]);
    let stored = target
        .store(&[&whole.encode_to_vec().into(), &holed.encode_to_vec().into()])
        .await?;
    let with = |digest: &Digest| ActionResult {
        output_directories: vec![OutputDirectory {
            path: "out".to_owned(),
            tree_digest: Some(digest.clone()),
            ..OutputDirectory::default()
        }],
        ..ActionResult::default()
    };
    let (whole, holed) = (
        stored.first().context("not stored")?,
        stored.get(1).context("not stored")?,
    );
    let good = action(target);
    target.record(&good, with(whole)).await.map_err(told)?;
    target
        .result(&good)
        .await
        .map_err(told)
        .context("everything is there")?;
    for (what, tree) in [("a leaf", holed), ("the tree", &digest(&unsent.encode_to_vec()))] {
        let action = action(target);
        if target.record(&action, with(tree)).await.is_ok() {
            expect_code(target.result(&action).await, &[Code::NotFound])
                .with_context(|| format!("{what} is missing"))?;
        }
    }
    Ok(())
}

async fn inline(target: &Target) -> Result<()> {
    let (out, err, named, other) = (target.body(500), target.body(600), target.body(700), target.body(800));
    let digests = target.store(&[&out, &err, &named, &other]).await?;
    let [stdout, stderr, first, second] = digests.as_slice() else {
        anyhow::bail!("not stored");
    };
    let action = action(target);
    let result = ActionResult {
        output_files: vec![file("named", first), file("other", second)],
        stdout_digest: Some(stdout.clone()),
        stderr_digest: Some(stderr.clone()),
        ..ActionResult::default()
    };
    target.record(&action, result).await.map_err(told)?;
    let mut request = target.get(&action);
    request.inline_stdout = true;
    request.inline_stderr = true;
    request.inline_output_files = vec!["named".to_owned()];
    let found = target
        .actions()
        .get_action_result(target.request(request))
        .await
        .map_err(told)?
        .into_inner();
    let contents = |path: &str| {
        found
            .output_files
            .iter()
            .find(|file| file.path == path)
            .map(|file| file.contents.clone())
            .unwrap_or_default()
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
    Ok(())
}

async fn malformed(target: &Target) -> Result<()> {
    let good = action(target);
    for bad in [
        Digest {
            hash: "abc".to_owned(),
            ..good.clone()
        },
        Digest {
            hash: String::new(),
            ..good.clone()
        },
        Digest {
            size_bytes: -5,
            ..good.clone()
        },
    ] {
        let what = format!("{bad:?}");
        expect_code(target.result(&bad).await, &[Code::InvalidArgument]).with_context(|| what.clone())?;
        let recorded = target.record(&bad, ActionResult::default()).await;
        expect_code(recorded, &[Code::InvalidArgument]).context(what)?;
    }
    let mut request = target.get(&good);
    request.action_digest = None;
    let answer = target.actions().get_action_result(target.request(request)).await;
    expect_code(answer, &[Code::InvalidArgument]).context("no action digest")
}
