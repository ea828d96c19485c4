//! Attempts to put wrong bytes into somebody's cache, or to take right ones away. Each says what a naive server does, and each proves
//! afterwards that nothing was stored or deleted and that the victim's entry is unchanged: a refusal that comes after the deed is none.

mod paths;
mod scope;
mod smuggling;
mod tokens;

use anyhow::{Context, Result, ensure};

use super::wire::Response;
use super::{Caller, Server, Suite};

pub(super) const SUITES: &[Suite] = &[scope::CHECKS, tokens::CHECKS, paths::CHECKS, smuggling::CHECKS];

fn gradle(key: &str, query: &str) -> String {
    format!("/api/cache/gradle/{key}?{query}")
}

/// A victim with one entry, and a key that must stay unused.
struct Scene<'s> {
    server: &'s Server,
    owner: Caller<'s>,
    /// Key of the victim's entry.
    key: String,
    body: Vec<u8>,
    /// Key under which the attacker tries to store something.
    fresh: String,
}

impl<'s> Scene<'s> {
    async fn set(server: &'s Server) -> Result<Self> {
        server.contract()?;
        let scene = Self {
            server,
            owner: server.victim()?,
            key: server.key("victim"),
            body: server.body(500),
            fresh: server.key("fresh"),
        };
        scene.owner.store(&scene.target(&scene.key), &scene.body).await?;
        Ok(scene)
    }

    /// The scope of the victim's project, as a query.
    fn scope(&self) -> String {
        self.server.scope_of(&self.server.victim_project)
    }

    /// A target in the victim's project.
    fn target(&self, key: &str) -> String {
        gradle(key, &self.scope())
    }

    /// Tries to write, read and delete with that query and credential. Every try must be refused with one of the statuses.
    async fn attack(&self, caller: Caller<'_>, query: &str, fields: &[(&str, &str)], statuses: &[u16]) -> Result<()> {
        for (method, target, body) in [
            ("PUT", gradle(&self.fresh, query), &b"poison"[..]),
            ("PUT", gradle(&self.key, query), b"poison"),
            ("GET", gradle(&self.key, query), b""),
            ("HEAD", gradle(&self.key, query), b""),
            ("POST", format!("/api/cache/cas/{}?{query}", self.fresh), b"poison"),
            ("DELETE", format!("/api/cache/clean?{query}"), b""),
        ] {
            let answer = caller.send(method, &target, fields, body).await?;
            self.leaks_nothing(&answer)?.expect_any(statuses)?;
        }
        self.unharmed().await
    }

    fn leaks_nothing<'r>(&self, answer: &'r Response) -> Result<&'r Response> {
        let leaks = answer.body.windows(self.body.len()).any(|window| window == self.body);
        ensure!(!leaks, "{}: the victim's bytes were sent", answer.asked);
        Ok(answer)
    }

    /// Nothing was stored anywhere, nothing was deleted, nothing was changed.
    async fn unharmed(&self) -> Result<()> {
        let (server, writer) = (self.server, self.server.writer());
        let kept = self.owner.hit(&self.target(&self.key), &self.body).await;
        kept.context("the victim's entry is not what it was")?;
        let account = format!("tenant_id={}", server.tenant);
        for (who, query) in [(self.owner, self.scope()), (writer, server.scope()), (writer, account)] {
            let cas = format!("/api/cache/cas/{}?{query}", self.fresh);
            for target in [gradle(&self.fresh, &query), cas] {
                who.miss(&target).await.context("it was stored")?;
            }
        }
        Ok(())
    }
}
