//! The action cache: a hit means that everything it names is there.

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use prost::Message as _;
use russet_reapi::client::tonic::{Code, Status};
use russet_reapi::digest::Function;
use russet_reapi::proto::reapi::{
    ActionResult, Digest, Directory, FileNode, OutputDirectory, OutputFile, Tree, UpdateActionResultRequest,
};

use super::target::{Target, digest, expect_code, told};
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
    filled, "reapi-action-hole-filled", "contract: action cache":
        "a result comes back as it was stored once the last blob it names is there, and only for its digest function";
    useless, "reapi-action-useless", "contract: action cache":
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
    if target.contract().is_err() {
        return Ok(());
    }
    let large = target.body(33 << 20);
    let huge = digest(&large);
    target.write(&target.upload_name(&huge), &large).await.map_err(told)?;
    let result = ActionResult {
        output_files: vec![file("named", first), file("other", second), file("large", &huge)],
        stdout_digest: Some(stdout.clone()),
        stderr_digest: Some(stderr.clone()),
        ..ActionResult::default()
    };
    target.record(&action, result.clone()).await.map_err(told)?;
    let ask = async |inline_stdout: bool, files: &[&str]| {
        let mut request = target.get(&action);
        request.inline_stdout = inline_stdout;
        request.inline_output_files = files.iter().map(|path| (*path).to_owned()).collect();
        let answer = target.actions().get_action_result(target.request(request)).await?;
        Ok::<_, Status>(answer.into_inner())
    };
    let contents = |found: &ActionResult| -> Vec<_> {
        let files = found.output_files.iter();
        files.map(|file| file.contents.clone()).collect()
    };
    let nothing = Bytes::new();
    let printed = ask(true, &[]).await.map_err(told)?;
    ensure!(
        printed.stdout_raw == out && printed.stderr_raw.is_empty() && contents(&printed).iter().all(Bytes::is_empty),
        "more or less than stdout"
    );
    let one = contents(&ask(false, &["other"]).await.map_err(told)?);
    ensure!(one == [&nothing, &other, &nothing], "more or less than one file");
    // What does not fit is left out, unless it was named.
    let all = contents(&ask(false, &["*"]).await.map_err(told)?);
    ensure!(all == [&named, &other, &nothing], "more or less than what fits");
    expect_code(ask(false, &["large"]).await, &[Code::ResourceExhausted])?;
    ensure!(
        ask(false, &["absent"]).await.map_err(told)? == result,
        "an absent file changed the result"
    );
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

async fn filled(target: &Target) -> Result<()> {
    target.contract()?;
    let (late, leaf) = (target.body(300), target.body(300));
    let printed = target.store(&[&target.body(300)]).await?.pop();
    let tree = Tree {
        root: Some(Directory {
            files: vec![FileNode {
                name: "leaf".to_owned(),
                digest: Some(digest(&leaf)),
                ..FileNode::default()
            }],
            ..Directory::default()
        }),
        children: Vec::new(),
    };
    let tree = Bytes::from(tree.encode_to_vec());
    let result = ActionResult {
        output_files: vec![file("a", &digest(&late)), file("empty", &digest(b""))],
        output_directories: vec![OutputDirectory {
            path: "d".to_owned(),
            tree_digest: Some(digest(&tree)),
            ..OutputDirectory::default()
        }],
        stdout_digest: printed,
        exit_code: 7,
        ..ActionResult::default()
    };
    let action = action(target);
    let mut request = UpdateActionResultRequest {
        instance_name: target.instance.clone(),
        action_digest: Some(action.clone()),
        action_result: Some(result.clone()),
        ..UpdateActionResultRequest::default()
    };
    let echoed = target
        .actions()
        .update_action_result(target.request(request.clone()))
        .await;
    ensure!(
        echoed.map_err(told)?.into_inner() == result,
        "another result was acknowledged"
    );
    for missing in [late, tree, leaf] {
        expect_code(target.result(&action).await, &[Code::NotFound])?;
        target.store(&[&missing]).await?;
    }
    ensure!(target.result(&action).await.map_err(told)? == result, "another result");
    let mut other = target.get(&action);
    other.digest_function = Function::Blake3.value();
    let other = target.actions().get_action_result(target.request(other)).await;
    expect_code(other, &[Code::NotFound]).context("another function, another action")?;
    request.action_result = None;
    let none = target.actions().update_action_result(target.request(request)).await;
    expect_code(none, &[Code::InvalidArgument]).context("no result")
}

async fn useless(target: &Target) -> Result<()> {
    target.contract()?;
    let good = target
        .store(&[&target.body(300)])
        .await?
        .pop()
        .context("nothing stored")?;
    let (nonsense, negative) = (
        Digest {
            hash: "nonsense".to_owned(),
            size_bytes: 1,
        },
        Digest {
            size_bytes: -1,
            ..good.clone()
        },
    );
    let with_file = |digest| ActionResult {
        output_files: vec![OutputFile {
            digest,
            ..file("a", &good)
        }],
        ..ActionResult::default()
    };
    let action = action(target);
    for (result, code) in [
        (with_file(Some(nonsense)), Code::InvalidArgument),
        (with_file(None), Code::InvalidArgument),
        (
            ActionResult {
                stderr_digest: Some(negative),
                ..ActionResult::default()
            },
            Code::InvalidArgument,
        ),
        (
            ActionResult {
                stdout_raw: vec![1; (4 << 20) + 1].into(),
                ..ActionResult::default()
            },
            Code::FailedPrecondition,
        ),
    ] {
        expect_code(target.record(&action, result).await, &[code])?;
        expect_code(target.result(&action).await, &[Code::NotFound])?;
    }
    Ok(())
}
