//! Keys that would like to be paths, and identities that would like to be others.

use anyhow::{Context, Result, ensure};

use super::Scene;
use crate::http::checks::probes::metric;
use crate::http::wire::Response;
use crate::http::{Caller, Server};
use crate::{Check, checks};

pub(super) const CHECKS: &[Check<Server>] = checks! {
    traversal, "poison-path-traversal", "RFC 3986 §5.2.4":
        "dot segments, in whatever encoding, reach neither another project nor another route nor a file",
        naive: "joins the decoded key onto a folder, or lets a router resolve .. after authorisation";
    apart, "poison-path-keys-stay-apart", "contract: keys are opaque" [contract]:
        "keys that differ in case, encoding, NUL, slashes or length are different keys, and none cuts another short",
        naive: "normalises, truncates at NUL, decodes twice or folds case, so that two keys share one entry";
    files, "poison-path-files", "contract: keys are opaque" [contract]:
        "no key reads a file of the machine",
        naive: "serves /etc/passwd to ..%2f..%2fetc%2fpasswd";
    modules, "poison-path-module-identity", "contract: module multipart" [contract]:
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
    let (known, fresh) = (&scene.key, &scene.fresh);
    for key in [
        format!("..%2f{victim}%2f{known}"),
        format!("%2e%2e%2f{victim}%2f{known}"),
        format!("..%5c{victim}%5c{known}"),
        format!("%252e%252e%252f{known}"),
        format!("..;%2f{known}"),
        format!("%c0%ae%c0%ae%c0%af{known}"),
        format!("../gradle/{known}"),
        format!("x/../{known}"),
        format!("../../../v1/cache/{fresh}"),
        format!("../cas/{fresh}"),
        format!("./{fresh}"),
    ] {
        let target = server.gradle(&key);
        scene.leaks_nothing(&writer.get(&target).await?)?;
        writer.put(&target, b"poison").await?;
        scene.unharmed().await.with_context(|| key.clone())?;
        let nx = writer.miss(&format!("/v1/cache/{fresh}")).await;
        nx.with_context(|| format!("{key} reached Nx"))?;
    }
    Ok(())
}

async fn apart(server: &Server) -> Result<()> {
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
    let doubled = "%2e%2e%2f%2e%2e%2fetc%2fpasswd";
    for key in ["..", doubled, "%252e", "a%00b", "%2F", "a;b", "con"] {
        let (target, body) = (server.gradle(key), key.as_bytes());
        writer.put(&target, body).await?.expect_any(&[200, 201])?;
        writer.hit(&target, body).await?;
    }
    for key in &stored {
        let kept = writer.hit(&server.gradle(key), key.as_bytes()).await;
        kept.with_context(|| format!("{key} was overwritten by another key"))?;
    }
    // An escape that was not needed is no other key.
    let first = base.bytes().next().unwrap_or_default();
    let escaped = format!("%{first:02x}{}", base.get(1..).unwrap_or_default());
    writer.hit(&server.gradle(&escaped), base.as_bytes()).await
}

async fn files(server: &Server) -> Result<()> {
    for up in ["..%2f", "%2e%2e/", "../", "..%5c", "%252e%252e%252f"] {
        let deep = up.repeat(12);
        for route in ["gradle", "cas", "keyvalue", "module"] {
            let target = format!("{}&hash=h&name=n", server.api(&format!("{route}/{deep}etc%2fpasswd")));
            let answer = server.writer().get(&target).await?;
            let sent = answer.body.windows(5).any(|window| window == b"root:");
            ensure!(!sent, "{target} sent /etc/passwd");
            answer.expect_refusal()?;
        }
    }
    Ok(())
}

/// Starts the upload of a module, and sends its only part; its id.
async fn uploaded(caller: Caller<'_>, scope: &str, module: &str) -> Result<String> {
    let start = format!("/api/cache/module/start?{scope}&{module}");
    let started = caller.post(&start, b"").await?.expect(200)?.json()?;
    let id = started.get("upload_id").and_then(|id| id.as_str());
    let id = id.context("no upload id")?.to_owned();
    part(caller, scope, &id, b"genuine").await?.expect(204)?;
    Ok(id)
}

async fn part(caller: Caller<'_>, scope: &str, id: &str, body: &[u8]) -> Result<Response> {
    let target = format!("/api/cache/module/part?{scope}&upload_id={id}&part_number=1");
    caller.post(&target, body).await
}

async fn complete(caller: Caller<'_>, scope: &str, id: &str) -> Result<Response> {
    let target = format!("/api/cache/module/complete?{scope}&upload_id={id}");
    caller.post(&target, br#"{"parts":[1]}"#).await
}

async fn modules(server: &Server) -> Result<()> {
    let (writer, scope, hash) = (server.writer(), server.scope(), server.key("shift"));
    let genuine = format!("hash={hash}&name=a%2Fb&cache_category=c");
    let id = uploaded(writer, &scope, &genuine).await?;
    complete(writer, &scope, &id).await?.expect(204)?;
    let get = |query: &str| format!("/api/cache/module/x?{scope}&{query}");
    writer.hit(&get(&genuine), b"genuine").await?;
    for query in [
        format!("hash={hash}%2Fa&name=b&cache_category=c"),
        format!("hash={hash}&name=b&cache_category=c%2Fa"),
        format!("hash=a%2Fb&name={hash}&cache_category=c"),
        format!("hash={hash}%00a&name=b&cache_category=c"),
        format!("hash={hash}a&name=%2Fb&cache_category=c"),
    ] {
        let other = writer.miss(&get(&query)).await;
        other.with_context(|| format!("{query} is the same module"))?;
    }
    Ok(())
}

async fn uploads(server: &Server) -> Result<()> {
    let scene = Scene::set(server).await?;
    let (owner, attacker, theirs) = (scene.owner, server.writer(), scene.scope());
    let module = format!("hash={}&name=n", scene.fresh);
    let id = uploaded(owner, &theirs, &module).await?;
    for (scope, status) in [(server.scope(), 404), (theirs.clone(), 403)] {
        part(attacker, &scope, &id, b"poison").await?.expect(status)?;
        complete(attacker, &scope, &id).await?.expect(status)?;
    }
    let ended = complete(owner, &theirs, &id).await?;
    ended.expect(204).context("the victim's upload was ended")?;
    let get = format!("/api/cache/module/x?{theirs}&{module}");
    owner.hit(&get, b"genuine").await?;
    scene.unharmed().await
}

async fn routes(server: &Server) -> Result<()> {
    let scene = Scene::set(server).await?;
    let query = scene.scope();
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
            let [fresh, known] = [&scene.fresh, &scene.key].map(|key| format!("{path}/{key}?{query}"));
            scene.leaks_nothing(&caller.get(&known).await?)?;
            for target in [fresh, known] {
                caller.put(&target, b"poison").await?.expect_refusal()?;
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
        writer.puts(&target, b"poison", 400).await?;
    }
    let now = metric(server, "kura_manifest_index_entries").await?;
    let same = now.to_bits() == entries.to_bits();
    ensure!(same, "{entries} entries were {now} afterwards");
    let key = server.key("opaque");
    let gradle = |escaped: &str| format!("/gradle/{mine}/{escaped}{key}");
    writer.puts(&gradle("%2e%2e%2f"), b"x", 200).await?;
    writer.hit(&gradle("..%2F"), b"x").await?;
    writer.miss(&gradle("")).await?;
    scene.unharmed().await
}
