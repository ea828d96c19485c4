//! Authorisation read the raw query, handlers the decoded one: `namespace_id=mine&%6eamespace_id=victim` was allowed for one project and
//! acted on another.

use anyhow::{Context, Result};
use futures::FutureExt;
use futures::future::BoxFuture;
use russet_conformance::http::{Caller, Transport};
use russet_conformance::ours::{Ours, Signed};
use russet_stages::kura::Program;
use russet_testkit::program::serves_this_build;

use super::{Play, Scenario, Stage, promise};

pub(super) const SCENARIO: Scenario = Scenario {
    name: "scope-confusion",
    from: "F kura 8.1",
    what_happened: "authorisation and handler parsed the query differently, so a token of one project read and wrote another",
    must_hold: "one parser: a scope parameter given twice, in whatever spelling, is 400; nothing is stored, read or deleted",
    without: Some(include_str!("scope_confusion.without.patch")),
    play: Play::Cache(play),
};

const MINE: &str = "conformance";
const THEIRS: &str = "victim";

/// How a query can mean two things.
const QUERIES: [(&str, &str); 5] = [
    (
        "a percent-encoded duplicate",
        "namespace_id=conformance&%6eamespace_id=victim",
    ),
    ("a plain duplicate", "namespace_id=conformance&namespace_id=victim"),
    ("both spellings", "project_handle=conformance&namespace_id=victim"),
    ("an empty one beside its alias", "namespace_id=&project_handle=victim"),
    (
        "an encoded underscore",
        "namespace_id=conformance&namespace%5Fid=victim",
    ),
];

fn play<'a>(stage: &'a mut Stage<'_, Program>) -> BoxFuture<'a, Result<()>> {
    async move {
        stage.step("a real kura with signed tokens; two projects of one account, each with its own token");
        let ours = Ours::start(&stage.world, Signed::Es256).await?;
        serves_this_build(ours.node.address, stage.world.path()).await?;
        let server = ours.server(Transport::Http1)?;
        let (owner, attacker) = (server.victim()?, server.writer());
        let genuine = format!("/api/cache/gradle/k?{}", server.scope_of(THEIRS));
        owner.store(&genuine, b"genuine").await?;
        for (what, query) in QUERIES {
            let query = format!("tenant_id={}&{query}", server.tenant);
            confuse(&attacker, &query).await.with_context(|| what.to_owned())?;
        }
        stage.holds("five ways to name two scopes at once: reading, writing and emptying are each 400");

        let kept = owner.get(&genuine).await?;
        promise!(
            "the-victim-keeps-its-entry",
            kept.status == 200 && kept.body == b"genuine"[..],
            "{kept}"
        );
        for project in [MINE, THEIRS] {
            let caller = if project == MINE { attacker } else { owner };
            let fresh = format!("/api/cache/gradle/fresh?{}", server.scope_of(project));
            caller.get(&fresh).await?.expect(404)?;
        }
        stage.holds("the victim's entry is unchanged, and nothing was stored in either project");

        stage.step("the same project spelled in capitals, and escaped where no escape is needed");
        let other = format!(
            "account_handle={}&project_handle=V%69CTIM",
            server.tenant.to_uppercase()
        );
        let same = owner.get(&format!("/api/cache/gradle/k?{other}")).await?;
        same.expect(200)?.expect_body(b"genuine")?;
        attacker
            .get(&format!("/api/cache/gradle/k?{other}"))
            .await?
            .expect(403)?;
        stage.holds("what was authorised is what is read: one project is one project, however it is written");
        Ok(())
    }
    .boxed()
}

/// Whatever the caller asks for in an ambiguous scope is refused.
async fn confuse(attacker: &Caller<'_>, query: &str) -> Result<()> {
    for (method, path, body) in [
        ("PUT", "gradle/fresh", &b"poison"[..]),
        ("PUT", "gradle/k", b"poison"),
        ("GET", "gradle/k", b""),
        ("DELETE", "clean", b""),
    ] {
        let answer = attacker
            .send(method, &format!("/api/cache/{path}?{query}"), &[], body)
            .await?;
        promise!(
            "an-ambiguous-scope-is-400",
            answer.status == 400,
            "{method} {path}?{query}: {answer}"
        );
    }
    Ok(())
}
