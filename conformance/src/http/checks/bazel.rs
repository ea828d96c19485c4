//! Bazel's HTTP cache: content-addressed blobs and action results by SHA-256.

use anyhow::{Context, Result, ensure};
use prost::Message as _;
use russet_reapi::proto::reapi::{ActionResult, Digest, Directory, FileNode, OutputDirectory, OutputFile, Tree};

use super::tools::sha256 as hash;
use crate::http::{Dialect, Server};
use crate::{Check, checks};

pub(super) const CHECKS: &[Check<Server>] = checks! {
    cas, "bazel-cas-round-trip", "Bazel: HTTP caching protocol":
        "a blob stored under its SHA-256 comes back, HEAD tells its length, and a miss is 404";
    verified, "bazel-cas-is-verified", "Bazel: HTTP caching protocol":
        "a body that does not match its SHA-256 is refused with 4xx and is not stored";
    ac, "bazel-ac-round-trip", "Bazel: HTTP caching protocol":
        "an action result comes back, and a newer one replaces it";
    apart, "bazel-ac-is-not-cas", "Bazel: HTTP caching protocol":
        "one hash below ac and below cas names two things";
    malformed, "bazel-malformed-hash", "Bazel: HTTP caching protocol":
        "what is no SHA-256 is refused with 4xx and stored nowhere";
    holes, "bazel-ac-hit-implies-blobs", "contract: Bazel" [contract]:
        "a result is a miss while anything it names is missing, be it a file, a tree, a leaf, stdout or of another size";
    garbage, "bazel-ac-garbage-400", "contract: Bazel" [contract]:
        "what is no action result, an empty one among it, is 400 and not stored";
    json, "bazel-ac-json-is-apart", "contract: moon" [contract]:
        "moon's results as JSON are no results for Bazel, obey the same rules, and come back as JSON";
    empty, "bazel-cas-empty-and-known", "contract: Bazel" [contract]:
        "the empty blob is there before it is stored; a known one is not read again; the root is the default project";
};

fn target(server: &Server, kind: &str, hash: &str) -> String {
    match server.dialect {
        Dialect::Bazel => format!("/{kind}/{hash}"),
        Dialect::Contract => format!("/bazel/{}/{kind}/{hash}", server.project),
    }
}

async fn cas(server: &Server) -> Result<()> {
    let writer = server.writer();
    for size in [16, 5000, 400_000] {
        let body = server.body(size);
        let target = target(server, "cas", &hash(&body));
        writer.miss(&target).await?;
        writer.head(&target).await?.expect(404)?;
        writer.store(&target, &body).await?;
        writer.hit(&target, &body).await?;
        let head = writer.head(&target).await?;
        head.expect(200)?.expect_field("content-length", &size.to_string())?;
    }
    Ok(())
}

async fn verified(server: &Server) -> Result<()> {
    for size in [1, 100, 4096, 131_072, 131_073, 400_000, 3 << 20] {
        let body = server.body(size);
        let target = target(server, "cas", &hash(&body));
        let mut other = body.clone();
        if let Some(byte) = other.last_mut() {
            *byte ^= 1;
        }
        for wrong in [other, body.get(1..).unwrap_or_default().to_vec()] {
            server.writer().put(&target, &wrong).await?.expect_refusal()?;
            server.writer().miss(&target).await?;
        }
    }
    Ok(())
}

fn result(code: i32) -> Vec<u8> {
    let result = ActionResult {
        exit_code: code,
        stdout_raw: "said".into(),
        ..ActionResult::default()
    };
    result.encode_to_vec()
}

async fn ac(server: &Server) -> Result<()> {
    let writer = server.writer();
    let target = action(server);
    writer.miss(&target).await?;
    for code in [1, 2, 3] {
        writer.store(&target, &result(code)).await?;
        let hit = writer.get(&target).await?;
        let found = ActionResult::decode(hit.expect(200)?.body.as_slice()).context("no action result")?;
        let found = found.exit_code;
        ensure!(found == code, "exit code {found} after {code} was stored");
    }
    Ok(())
}

/// Where the result of an action goes that was never run.
fn action(server: &Server) -> String {
    target(server, "ac", &hash(&server.body(40)))
}

async fn apart(server: &Server) -> Result<()> {
    let (writer, body) = (server.writer(), server.body(300));
    writer.store(&target(server, "cas", &hash(&body)), &body).await?;
    writer.miss(&target(server, "ac", &hash(&body))).await?;
    let other = hash(&server.body(30));
    writer.store(&target(server, "ac", &other), &result(7)).await?;
    writer.miss(&target(server, "cas", &other)).await
}

async fn malformed(server: &Server) -> Result<()> {
    let body = server.body(50);
    let good = hash(&body);
    for bad in [
        good.get(..63).unwrap_or_default().to_owned(),
        format!("{good}0"),
        "z".repeat(64),
        format!("..%2f{good}"),
        format!("{good}%00"),
        format!("x/../{good}"),
        String::new(),
    ] {
        for kind in ["cas", "ac"] {
            let refused = server.writer().put(&target(server, kind, &bad), &body).await?;
            // A redirect to a cleaner path stores nothing either.
            ensure!((300..500).contains(&refused.status), "answered with {refused}");
        }
    }
    let found = server.writer().miss(&target(server, "cas", &good)).await;
    found.context("stored under another spelling")
}

fn named(body: &[u8]) -> Digest {
    Digest {
        hash: hash(body),
        size_bytes: i64::try_from(body.len()).unwrap_or(i64::MAX),
    }
}

fn file(digest: Digest) -> ActionResult {
    let file = OutputFile {
        path: "out.txt".to_owned(),
        digest: Some(digest),
        ..OutputFile::default()
    };
    ActionResult {
        output_files: vec![file],
        ..ActionResult::default()
    }
}

async fn holes(server: &Server) -> Result<()> {
    let writer = server.writer();
    let [output, printed, leaf, other] = [6, 7, 8, 9].map(|size| server.body(size + 40));
    let folder = |leaf: &[u8]| Directory {
        files: vec![FileNode {
            name: "leaf".to_owned(),
            digest: Some(named(leaf)),
            ..FileNode::default()
        }],
        ..Directory::default()
    };
    let tree = Tree {
        root: Some(folder(&leaf)),
        ..Tree::default()
    };
    let (tree, root) = (tree.encode_to_vec(), folder(&other).encode_to_vec());
    let directory = |tree_digest, root_directory_digest| ActionResult {
        output_directories: vec![OutputDirectory {
            path: "out".to_owned(),
            tree_digest,
            root_directory_digest,
            ..OutputDirectory::default()
        }],
        ..ActionResult::default()
    };
    let printing = ActionResult {
        stdout_digest: Some(named(&printed)),
        ..file(named(&output))
    };
    let (of_tree, of_root) = (directory(Some(named(&tree)), None), directory(None, Some(named(&root))));
    for (what, result, parts) in [
        ("a file and stdout", printing, [output, printed]),
        ("a tree and its leaf", of_tree, [tree, leaf]),
        ("a root and its leaf", of_root, [root, other]),
    ] {
        let (target, result) = (action(server), result.encode_to_vec());
        for part in parts {
            writer.puts(&target, &result, 200).await?;
            writer
                .miss(&target)
                .await
                .with_context(|| format!("a hole in {what}"))?;
            let place = self::target(server, "cas", &hash(&part));
            writer.puts(&place, &part, 200).await?;
        }
        writer.puts(&target, &result, 200).await?;
        writer.hit(&target, &result).await?;
    }
    let body = server.body(60);
    writer.puts(&target(server, "cas", &hash(&body)), &body, 200).await?;
    let mut sized = named(&body);
    sized.size_bytes = 99;
    let target = action(server);
    writer.puts(&target, &file(sized).encode_to_vec(), 200).await?;
    writer.miss(&target).await.context("no such blob has 99 bytes")
}

/// Both Bazel versions take an empty result for a success and fail over its missing outputs.
async fn garbage(server: &Server) -> Result<()> {
    let (writer, target) = (server.writer(), action(server));
    // The last two: a field that no action result has, and a file without a path.
    for body in [&b""[..], b"not a protobuf", b"\x6a\x07unknown", b"\x12\x03\x12\x01x"] {
        let refused = writer.put(&target, body).await?;
        let refused = refused.expect_message(400, "Body is not an action result");
        refused.with_context(|| format!("{body:?}"))?;
        writer.miss(&target).await?;
    }
    Ok(())
}

async fn json(server: &Server) -> Result<()> {
    let (writer, output, target) = (server.writer(), server.body(60), action(server));
    let (hash, media) = (hash(&output), "application/json");
    let text = format!(r#"{{"outputFiles":[{{"path":"a/out","digest":{{"hash":"{hash}","sizeBytes":"60"}}}}]}}"#);
    let (text, typed, accepted) = (text.as_bytes(), [("Content-Type", media)], [("Accept", media)]);
    writer.sends("PUT", &target, &typed, text, 200).await?;
    writer.sends("GET", &target, &accepted, b"", 404).await?;
    writer.puts(&self::target(server, "cas", &hash), &output, 200).await?;
    writer.sends("PUT", &target, &typed, text, 200).await?;
    let answer = writer.send("GET", &target, &accepted, b"").await?;
    answer
        .expect(200)?
        .expect_body(text)?
        .expect_field("content-type", media)?;
    writer.miss(&target).await.context("Bazel cannot read JSON")?;
    for bad in [b"{\"a\":1}".to_vec(), file(named(&output)).encode_to_vec()] {
        writer.sends("PUT", &target, &typed, &bad, 400).await?;
    }
    Ok(())
}

async fn empty(server: &Server) -> Result<()> {
    let (writer, empty) = (server.writer(), [("Content-Length", "0")]);
    let nothing = target(server, "cas", &hash(b""));
    writer.hit(&nothing, b"").await?;
    // Bazel 2.1 uploads it nevertheless.
    writer.sends("PUT", &nothing, &empty, b"", 200).await?;
    writer.hit(&nothing, b"").await?;
    let wrong = target(server, "cas", &hash(&server.body(40)));
    writer.sends("PUT", &wrong, &empty, b"", 400).await?;
    let body = server.body(300_000);
    let known = target(server, "cas", &hash(&body));
    writer.puts(&known, &body, 200).await?;
    // Its name vouches for it: what comes now is not even looked at.
    writer.puts(&known, b"other", 200).await?;
    writer.hit(&known, &body).await?;
    let (blob, result) = (server.body(80), hash(&server.body(40)));
    let stored = file(named(&blob)).encode_to_vec();
    for (place, body) in [(format!("cas/{}", hash(&blob)), blob), (format!("ac/{result}"), stored)] {
        writer.puts(&format!("/{place}"), &body, 200).await?;
        writer.hit(&format!("/{place}"), &body).await?;
        writer.hit(&format!("/bazel/default/{place}"), &body).await?;
        writer.miss(&format!("/bazel/{}/{place}", server.project)).await?;
    }
    Ok(())
}
