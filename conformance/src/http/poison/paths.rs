//! Keys that would like to be paths, and identities that would like to be others.

use anyhow::{Context, Result, ensure};

use super::Scene;
use crate::http::Server;
use crate::http::checks::probes::metric;
use crate::{Check, checks};

pub(super) const CHECKS: &[Check<Server>] = checks! {
    traversal, "poison-path-traversal", "RFC 3986 §5.2.4":
        "dot segments, in whatever encoding, reach neither another project nor another route nor a file",
        naive: "joins the decoded key onto a folder, or lets a router resolve .. after authorisation";
    apart, "poison-path-keys-stay-apart", "contract: keys are opaque":
        "keys that differ in case, encoding, NUL, slashes or length are different keys, and none cuts another short",
        naive: "normalises, truncates at NUL, decodes twice or folds case, so that two keys share one entry";
    files, "poison-path-files", "contract: keys are opaque":
        "no key reads a file of the machine",
        naive: "serves /etc/passwd to ..%2f..%2fetc%2fpasswd";
    modules, "poison-path-module-identity", "contract: module multipart":
        "category, hash and name cannot be shifted into one another",
        naive: "joins category/hash/name with a separator that may stand in each of them";
    uploads, "poison-path-foreign-upload", "contract: module multipart":
        "an upload id of another project is unknown, and its upload stays what it was",
        naive: "finds uploads by id alone, so that a guessed or leaked id poisons somebody's module";
    routes, "poison-path-route-tricks", "RFC 9110 §4.2.3":
        "doubled slashes, parameters and case in the path lead to no route with fewer checks",
        naive: "authorises by a prefix of the raw path and routes by the cleaned one";
    tool_keys, "poison-path-tool-keys", "contract: tools":
        "on the routes of tools a key with dot segments, NUL or escaped slashes is refused; Gradle's are one opaque segment",
        naive: "joins the rest of the path onto the project's folder";
};

async fn traversal(server: &Server) -> Result<()> {
    let scene = Scene::set(server).await?;
    let (writer, victim) = (server.writer(), &server.victim_project);
    for key in [
        format!("..%2f{victim}%2f{}", scene.key),
        format!("%2e%2e%2f{victim}%2f{}", scene.key),
        format!("..%5c{victim}%5c{}", scene.key),
        format!("%252e%252e%252f{}", scene.key),
        format!("..;%2f{}", scene.key),
        format!("%c0%ae%c0%ae%c0%af{}", scene.key),
        format!("../gradle/{}", scene.key),
        format!("x/../{}", scene.key),
        format!("../../../v1/cache/{}", scene.fresh),
        format!("../cas/{}", scene.fresh),
        format!("./{}", scene.fresh),
    ] {
        let target = server.gradle(&key);
        let read = writer.get(&target).await?;
        scene.leaks_nothing(&read).with_context(|| key.clone())?;
        writer.put(&target, b"poison").await?;
        scene.unharmed().await.with_context(|| key.clone())?;
        let nx = format!("/v1/cache/{}", scene.fresh);
        writer
            .get(&nx)
            .await?
            .expect(404)
            .with_context(|| format!("{key} reached Nx"))?;
    }
    Ok(())
}

async fn apart(server: &Server) -> Result<()> {
    server.contract()?;
    let (writer, base) = (server.writer(), server.key("Apart"));
    let keys = [
        base.clone(),
        base.to_lowercase(),
        format!("{base}%00"),
        format!("{base}%00x"),
        format!("{base}%20"),
        format!("%20{base}"),
        format!("{base}."),
        format!("{base}%2f"),
        format!("%2f{base}"),
        format!("{base}%2f%2e"),
        format!("{base}%252f"),
        format!("{base}%5c"),
        format!("{base};x"),
        format!("{base}+"),
        format!("{base}%c3%a9"),
        format!("{base}e%cc%81"),
        format!("{base}{}", "k".repeat(400)),
        format!("{base}{}", "k".repeat(401)),
    ];
    let mut stored = Vec::new();
    for key in keys {
        let put = writer.put(&server.gradle(&key), key.as_bytes()).await?;
        match put.status {
            201 => stored.push(key),
            // A server may refuse such a key; what it may not do is to take it for another.
            400..=499 => {}
            _ => anyhow::bail!("{key} was taken for another key: {put}"),
        }
    }
    ensure!(stored.contains(&base), "a plain key was refused");
    // What looks like a path is a key like any other.
    for key in [
        "..",
        "%2e%2e%2f%2e%2e%2fetc%2fpasswd",
        "%252e",
        "a%00b",
        "%2F",
        "a;b",
        "con",
    ] {
        let (target, body) = (server.gradle(key), key.as_bytes());
        writer.put(&target, body).await?.expect_any(&[200, 201])?;
        let hit = writer.get(&target).await?;
        hit.expect(200)?.expect_body(body)?;
    }
    for key in &stored {
        let hit = writer.get(&server.gradle(key)).await?;
        hit.expect(200)?
            .expect_body(key.as_bytes())
            .with_context(|| format!("{key} was overwritten by another key"))?;
    }
    // An escape that was not needed is no other key.
    let first = base.bytes().next().unwrap_or_default();
    let escaped = format!("%{first:02x}{}", base.get(1..).unwrap_or_default());
    let hit = writer.get(&server.gradle(&escaped)).await?;
    hit.expect(200)?.expect_body(base.as_bytes())?;
    Ok(())
}

async fn files(server: &Server) -> Result<()> {
    server.contract()?;
    for up in ["..%2f", "%2e%2e/", "../", "..%5c", "%252e%252e%252f"] {
        let deep = up.repeat(12);
        for route in ["gradle", "cas", "keyvalue", "module"] {
            let target = format!("/api/cache/{route}/{deep}etc%2fpasswd?{}&hash=h&name=n", server.scope());
            let answer = server.writer().get(&target).await?;
            ensure!(
                !answer.body.windows(5).any(|window| window == b"root:"),
                "{target} sent /etc/passwd"
            );
            ensure!((400..500).contains(&answer.status), "{target} got {answer}");
        }
    }
    Ok(())
}

async fn modules(server: &Server) -> Result<()> {
    server.contract()?;
    let (writer, scope, hash) = (server.writer(), server.scope(), server.key("shift"));
    let start = format!("/api/cache/module/start?{scope}&hash={hash}&name=a%2Fb&cache_category=c");
    let id = writer.post(&start, b"").await?.expect(200)?.json()?;
    let id = id
        .get("upload_id")
        .and_then(|id| id.as_str())
        .context("no upload id")?
        .to_owned();
    let part = format!("/api/cache/module/part?{scope}&upload_id={id}&part_number=1");
    writer.post(&part, b"genuine").await?.expect(204)?;
    let complete = format!("/api/cache/module/complete?{scope}&upload_id={id}");
    writer.post(&complete, br#"{"parts":[1]}"#).await?.expect(204)?;
    let get = |query: &str| format!("/api/cache/module/x?{scope}&{query}");
    let genuine = get(&format!("hash={hash}&name=a%2Fb&cache_category=c"));
    writer.get(&genuine).await?.expect(200)?.expect_body(b"genuine")?;
    for query in [
        format!("hash={hash}%2Fa&name=b&cache_category=c"),
        format!("hash={hash}&name=b&cache_category=c%2Fa"),
        format!("hash=a%2Fb&name={hash}&cache_category=c"),
        format!("hash={hash}%00a&name=b&cache_category=c"),
        format!("hash={hash}a&name=%2Fb&cache_category=c"),
    ] {
        let other = writer.get(&get(&query)).await?;
        other
            .expect(404)
            .with_context(|| format!("{query} is the same module"))?;
    }
    Ok(())
}

async fn uploads(server: &Server) -> Result<()> {
    let scene = Scene::set(server).await?;
    let (owner, theirs) = (scene.owner, server.scope_of(&server.victim_project));
    let module = format!("hash={}&name=n", scene.fresh);
    let start = format!("/api/cache/module/start?{theirs}&{module}");
    let started = owner.post(&start, b"").await?.expect(200)?.json()?;
    let id = started
        .get("upload_id")
        .and_then(|id| id.as_str())
        .context("no upload id")?;
    let part = |scope: &str| format!("/api/cache/module/part?{scope}&upload_id={id}&part_number=1");
    let complete = |scope: &str| format!("/api/cache/module/complete?{scope}&upload_id={id}");
    owner.post(&part(&theirs), b"genuine").await?.expect(204)?;
    for (scope, statuses) in [(server.scope(), &[404][..]), (theirs.clone(), &[403])] {
        let attacker = server.writer();
        attacker.post(&part(&scope), b"poison").await?.expect_any(statuses)?;
        attacker
            .post(&complete(&scope), br#"{"parts":[1]}"#)
            .await?
            .expect_any(statuses)?;
    }
    owner
        .post(&complete(&theirs), br#"{"parts":[1]}"#)
        .await?
        .expect(204)
        .context("the victim's upload was ended")?;
    let get = format!("/api/cache/module/x?{theirs}&{module}");
    owner.get(&get).await?.expect(200)?.expect_body(b"genuine")?;
    scene.unharmed().await
}

async fn routes(server: &Server) -> Result<()> {
    let scene = Scene::set(server).await?;
    let query = server.scope_of(&server.victim_project);
    for path in [
        "//api/cache/gradle",
        "/api//cache/gradle",
        "/api/cache//gradle",
        "/api/cache/gradle/",
        "/API/cache/gradle",
        "/api/cache/Gradle",
        "/up/../api/cache/gradle",
        "/metrics/..%2fapi/cache/gradle",
        "/api/cache/gradle;v=1",
        "/%61pi/cache/gradle",
        "/api%2fcache%2fgradle",
        "/./api/cache/gradle",
    ] {
        for caller in [server.writer(), server.anonymous()] {
            let (fresh, known) = (
                format!("{path}/{}?{query}", scene.fresh),
                format!("{path}/{}?{query}", scene.key),
            );
            let answer = caller.get(&known).await?;
            scene.leaks_nothing(&answer).with_context(|| path.to_owned())?;
            for target in [fresh, known] {
                let put = caller.put(&target, b"poison").await?;
                ensure!((400..500).contains(&put.status), "{target} got {put}");
            }
        }
    }
    scene.unharmed().await
}

async fn tool_keys(server: &Server) -> Result<()> {
    let scene = Scene::set(server).await?;
    let (writer, mine, theirs) = (server.writer(), &server.project, &server.victim_project);
    let entries = metric(server, "kura_manifest_index_entries").await?;
    for target in [
        format!("/generic/{mine}/../{theirs}/k"),
        format!("/generic/{mine}/%2e%2e/{theirs}/k"),
        format!("/generic/{mine}/a//b"),
        format!("/generic/{mine}/a/./b"),
        format!("/generic/{mine}/a%00b"),
        format!("/maven/{mine}/v1/../../{theirs}/app.jar"),
        format!("/sccache/{mine}/a/..%2f..%2fb"),
        format!("/ccache/{mine}/../{theirs}"),
        format!("/ccache/{mine}/ab/.."),
        format!("/bazel/{mine}/cas/..%2f..%2f"),
        format!("/bazel/{mine}/ac/AB"),
        format!("/go/{mine}/..%2fx"),
        format!("/v8/artifacts/..%2fx?slug={mine}"),
    ] {
        let refused = writer.put(&target, b"poison").await?;
        refused.expect(400)?;
    }
    let now = metric(server, "kura_manifest_index_entries").await?;
    ensure!(
        now.to_bits() == entries.to_bits(),
        "{entries} entries were {now} afterwards"
    );
    let key = server.key("opaque");
    let gradle = |escaped: &str| format!("/gradle/{mine}/{escaped}{key}");
    writer.put(&gradle("%2e%2e%2f"), b"x").await?.expect(200)?;
    writer.get(&gradle("..%2F")).await?.expect(200)?.expect_body(b"x")?;
    writer.get(&gradle("")).await?.expect(404)?;
    scene.unharmed().await
}
