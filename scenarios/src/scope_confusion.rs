//! Authorisation read the raw query, handlers the decoded one: `namespace_id=mine&%6eamespace_id=victim` was allowed for one project and
//! acted on another.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use anyhow::{Context, Result, ensure};
use axum::extract::{RawQuery, State};
use axum::http::{Method, StatusCode};
use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use russet_conformance::http::{Caller, Server, Transport};
use russet_conformance::ours::{Ours, Signed};
use russet_stages::kura::Program;

use super::{Play, Scenario, Stage};

pub(super) const SCENARIO: Scenario = Scenario {
    name: "scope-confusion",
    from: "F kura 8.1",
    what_happened: "authorisation and handler parsed the query differently, so a token of one project read and wrote another",
    must_hold: "one parser: a scope parameter given twice, in whatever spelling, is 400; nothing is stored, read or deleted",
    without: None,
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
        stage
            .step("a naive cache: it authorises what the raw query says, and stores under what the decoded query says");
        let naive = Naive::start().await?;
        let target = Server::new(&naive.url)?;
        naive.entries()?.insert(format!("{THEIRS}/k"), Bytes::from("genuine"));
        let (_, encoded) = QUERIES[0];
        let attacker = target.anonymous();
        let put = attacker.put(&format!("/cache/k?{encoded}"), b"poison").await?;
        let poisoned = naive.entries()?.get(&format!("{THEIRS}/k")).cloned();
        ensure!(
            put.status == 200 && poisoned.as_deref() == Some(b"poison"),
            "the staged fault did not bite: {put}, {poisoned:?}"
        );
        stage.bites(format!(
            "PUT ?{encoded} is authorised for {MINE} and overwrites the entry of {THEIRS}: the next build runs poison"
        ));
        let plain = attacker.put("/cache/k?namespace_id=victim", b"poison").await?;
        ensure!(plain.status == 403, "the naive cache authorises nothing at all");

        stage.step("a real kura with signed tokens; two projects of one account, each with its own token");
        let ours = Ours::start(&stage.world, Signed::Es256).await?;
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
        kept.expect(200)?.expect_body(b"genuine")?;
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
        answer.expect(400).with_context(|| format!("{method} {path}"))?;
    }
    Ok(())
}

type Entries = Arc<Mutex<HashMap<String, Bytes>>>;

/// What the old cache did, and nothing else: two readings of one query.
struct Naive {
    url: String,
    entries: Entries,
    server: tokio::task::JoinHandle<()>,
}

impl Naive {
    async fn start() -> Result<Self> {
        let entries = Entries::default();
        let app = axum::Router::new()
            .route("/cache/{key}", axum::routing::any(serve))
            .with_state(Arc::clone(&entries));
        let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await?;
        let url = format!("http://{}", listener.local_addr()?);
        let server = tokio::spawn(async move {
            let _ = axum::serve(listener, app).await;
        });
        Ok(Self { url, entries, server })
    }

    fn entries(&self) -> Result<std::sync::MutexGuard<'_, HashMap<String, Bytes>>> {
        self.entries.lock().ok().context("the naive cache panicked")
    }
}

impl Drop for Naive {
    fn drop(&mut self) {
        self.server.abort();
    }
}

async fn serve(
    State(entries): State<Entries>,
    axum::extract::Path(key): axum::extract::Path<String>,
    method: Method,
    RawQuery(query): RawQuery,
    body: Bytes,
) -> (StatusCode, Bytes) {
    let query = query.unwrap_or_default();
    // First reading: the raw text, by the middleware that authorises.
    let authorised = query
        .split('&')
        .find_map(|pair| pair.strip_prefix("namespace_id="))
        .unwrap_or_default();
    if authorised != MINE {
        return (StatusCode::FORBIDDEN, Bytes::new());
    }
    // Second reading: decoded, the last one wins, by the handler.
    let scope = form(&query).remove("namespace_id").unwrap_or_default();
    let Ok(mut entries) = entries.lock() else {
        return (StatusCode::INTERNAL_SERVER_ERROR, Bytes::new());
    };
    match method {
        Method::PUT => {
            entries.insert(format!("{scope}/{key}"), body);
            (StatusCode::OK, Bytes::new())
        }
        _ => match entries.get(&format!("{scope}/{key}")) {
            Some(entry) => (StatusCode::OK, entry.clone()),
            None => (StatusCode::NOT_FOUND, Bytes::new()),
        },
    }
}

/// A form decoder as libraries have them: names and values decoded, later ones replace earlier ones.
fn form(query: &str) -> HashMap<String, String> {
    let decode = |text: &str| -> String {
        let mut parts = text.split('%');
        let mut out = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            let byte = part.get(..2).and_then(|hex| u8::from_str_radix(hex, 16).ok());
            out.extend(byte.map(char::from));
            out.push_str(part.get(2..).unwrap_or_default());
        }
        out
    };
    query
        .split('&')
        .filter_map(|pair| pair.split_once('='))
        .map(|(name, value)| (decode(name), decode(value)))
        .collect()
}
