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
    holes, "bazel-ac-hit-implies-blobs", "contract: Bazel":
        "a result is a miss while anything it names is missing, be it a file, a tree, a leaf, stdout or of another size";
    garbage, "bazel-ac-garbage-400", "contract: Bazel":
        "what is no action result, an empty one among it, is 400 and not stored";
    json, "bazel-ac-json-is-apart", "contract: moon":
        "moon's results as JSON are no results for Bazel, obey the same rules, and come back as JSON";
    empty, "bazel-cas-empty-and-known", "contract: Bazel":
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
        writer.get(&target).await?.expect(404)?;
        writer.head(&target).await?.expect(404)?;
        writer.store(&target, &body).await?;
        writer.get(&target).await?.expect(200)?.expect_body(&body)?;
        let head = writer.head(&target).await?;
        head.expect(200)?;
        ensure!(
            head.field("content-length") == Some(size.to_string()),
            "HEAD says {:?}",
            head.field("content-length")
        );
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
            let refused = server.writer().put(&target, &wrong).await?;
            ensure!(
                (400..500).contains(&refused.status),
                "{size} wrong bytes were answered with {refused}"
            );
            server.writer().get(&target).await?.expect(404)?;
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
    let target = target(server, "ac", &hash(&server.body(40)));
    writer.get(&target).await?.expect(404)?;
    for code in [1, 2, 3] {
        writer.store(&target, &result(code)).await?;
        let hit = writer.get(&target).await?;
        let found = ActionResult::decode(hit.expect(200)?.body.as_slice()).context("no action result")?;
        ensure!(
            found.exit_code == code,
            "exit code {} after {code} was stored",
            found.exit_code
        );
    }
    Ok(())
}

async fn apart(server: &Server) -> Result<()> {
    let (writer, body) = (server.writer(), server.body(300));
    writer.store(&target(server, "cas", &hash(&body)), &body).await?;
    writer.get(&target(server, "ac", &hash(&body))).await?.expect(404)?;
    let other = hash(&server.body(30));
    writer.store(&target(server, "ac", &other), &result(7)).await?;
    writer.get(&target(server, "cas", &other)).await?.expect(404)?;
    Ok(())
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
            ensure!(
                (300..500).contains(&refused.status),
                "{kind}/{bad} was answered with {refused}"
            );
        }
    }
    server
        .writer()
        .get(&target(server, "cas", &good))
        .await?
        .expect(404)
        .context("stored under another spelling")?;
    Ok(())
}

fn named(body: &[u8]) -> Digest {
    Digest {
        hash: hash(body),
        size_bytes: i64::try_from(body.len()).unwrap_or(i64::MAX),
    }
}

fn file(digest: Option<Digest>) -> ActionResult {
    let path = "out.txt".to_owned();
    ActionResult {
        output_files: vec![OutputFile {
            path,
            digest,
            ..OutputFile::default()
        }],
        ..ActionResult::default()
    }
}

async fn holes(server: &Server) -> Result<()> {
    server.contract()?;
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
        children: Vec::new(),
    }
    .encode_to_vec();
    let root = folder(&other).encode_to_vec();
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
        ..file(Some(named(&output)))
    };
    for (what, result, parts) in [
        ("a file and stdout", printing, vec![output, printed]),
        (
            "a tree and its leaf",
            directory(Some(named(&tree)), None),
            vec![tree, leaf],
        ),
        (
            "a root and its leaf",
            directory(None, Some(named(&root))),
            vec![root, other],
        ),
    ] {
        let target = target(server, "ac", &hash(&server.body(40)));
        let result = result.encode_to_vec();
        for part in parts {
            writer.put(&target, &result).await?.expect(200)?;
            writer
                .get(&target)
                .await?
                .expect(404)
                .with_context(|| format!("a hole in {what}"))?;
            writer
                .put(&self::target(server, "cas", &hash(&part)), &part)
                .await?
                .expect(200)?;
        }
        writer.put(&target, &result).await?.expect(200)?;
        let hit = writer.get(&target).await?;
        hit.expect(200)?.expect_body(&result)?;
    }
    let body = server.body(60);
    writer
        .put(&target(server, "cas", &hash(&body)), &body)
        .await?
        .expect(200)?;
    let mut sized = named(&body);
    sized.size_bytes = 99;
    let target = target(server, "ac", &hash(&server.body(40)));
    writer
        .put(&target, &file(Some(sized)).encode_to_vec())
        .await?
        .expect(200)?;
    writer
        .get(&target)
        .await?
        .expect(404)
        .context("no such blob has 99 bytes")?;
    Ok(())
}

/// Both Bazel versions take an empty result for a success and fail over its missing outputs.
async fn garbage(server: &Server) -> Result<()> {
    server.contract()?;
    let target = target(server, "ac", &hash(&server.body(40)));
    // The last two: a field that no action result has, and a file without a path.
    for body in [&b""[..], b"not a protobuf", b"\x6a\x07unknown", b"\x12\x03\x12\x01x"] {
        let refused = server.writer().put(&target, body).await?;
        refused
            .expect_message(400, "Body is not an action result")
            .with_context(|| format!("{body:?}"))?;
        server.writer().get(&target).await?.expect(404)?;
    }
    Ok(())
}

async fn json(server: &Server) -> Result<()> {
    server.contract()?;
    let (writer, output) = (server.writer(), server.body(60));
    let target = target(server, "ac", &hash(&server.body(40)));
    let (hash, media) = (hash(&output), "application/json");
    let text = format!(r#"{{"outputFiles":[{{"path":"a/out","digest":{{"hash":"{hash}","sizeBytes":"60"}}}}]}}"#);
    let typed = [("Content-Type", media)];
    for (number, status) in [404, 200].into_iter().enumerate() {
        if number == 1 {
            writer
                .put(&self::target(server, "cas", &hash), &output)
                .await?
                .expect(200)?;
        }
        writer
            .send("PUT", &target, &typed, text.as_bytes())
            .await?
            .expect(200)?;
        let answer = writer.send("GET", &target, &[("Accept", media)], b"").await?;
        answer.expect(status)?;
        if status == 200 {
            answer.expect_body(text.as_bytes())?;
            ensure!(answer.field("content-type").as_deref() == Some(media), "got {answer}");
        }
    }
    writer
        .get(&target)
        .await?
        .expect(404)
        .context("Bazel cannot read JSON")?;
    for bad in [b"{\"a\":1}".to_vec(), file(Some(named(&output))).encode_to_vec()] {
        writer.send("PUT", &target, &typed, &bad).await?.expect(400)?;
    }
    Ok(())
}

async fn empty(server: &Server) -> Result<()> {
    server.contract()?;
    let writer = server.writer();
    let nothing = target(server, "cas", &hash(b""));
    writer.get(&nothing).await?.expect(200)?.expect_body(b"")?;
    // Bazel 2.1 uploads it nevertheless.
    writer
        .send("PUT", &nothing, &[("Content-Length", "0")], b"")
        .await?
        .expect(200)?;
    writer.get(&nothing).await?.expect(200)?.expect_body(b"")?;
    let wrong = target(server, "cas", &hash(&server.body(40)));
    writer
        .send("PUT", &wrong, &[("Content-Length", "0")], b"")
        .await?
        .expect(400)?;
    let body = server.body(300_000);
    let known = target(server, "cas", &hash(&body));
    writer.put(&known, &body).await?.expect(200)?;
    // Its name vouches for it: what comes now is not even looked at.
    writer.put(&known, b"other").await?.expect(200)?;
    writer.get(&known).await?.expect(200)?.expect_body(&body)?;
    let (blob, action) = (server.body(80), hash(&server.body(40)));
    writer.put(&format!("/cas/{}", hash(&blob)), &blob).await?.expect(200)?;
    writer
        .put(&format!("/ac/{action}"), &file(Some(named(&blob))).encode_to_vec())
        .await?
        .expect(200)?;
    for place in [format!("cas/{}", hash(&blob)), format!("ac/{action}")] {
        writer.get(&format!("/{place}")).await?.expect(200)?;
        writer.get(&format!("/bazel/default/{place}")).await?.expect(200)?;
        writer
            .get(&format!("/bazel/{}/{place}", server.project))
            .await?
            .expect(404)?;
    }
    Ok(())
}
