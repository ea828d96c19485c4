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

    /// A target in the victim's project.
    fn target(&self, key: &str) -> String {
        gradle(key, &self.server.scope_of(&self.server.victim_project))
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
            self.leaks_nothing(&answer)
                .with_context(|| format!("{method} {target}"))?;
            answer.expect_any(statuses)?;
        }
        self.unharmed().await
    }

    fn leaks_nothing(&self, answer: &Response) -> Result<()> {
        ensure!(
            !answer.body.windows(self.body.len()).any(|window| window == self.body),
            "the victim's bytes were sent"
        );
        Ok(())
    }

    /// Nothing was stored anywhere, nothing was deleted, nothing was changed.
    async fn unharmed(&self) -> Result<()> {
        let server = self.server;
        let kept = self.owner.get(&self.target(&self.key)).await?;
        kept.expect(200)
            .and_then(|kept| kept.expect_body(&self.body))
            .context("the victim's entry is not what it was")?;
        let account = format!("tenant_id={}", server.tenant);
        for (who, query) in [
            (self.owner, server.scope_of(&server.victim_project)),
            (server.writer(), server.scope()),
            (server.writer(), account),
        ] {
            for target in [
                gradle(&self.fresh, &query),
                format!("/api/cache/cas/{}?{query}", self.fresh),
            ] {
                let stored = who.get(&target).await?;
                stored.expect(404).with_context(|| format!("{target} was stored"))?;
            }
        }
        Ok(())
    }
}
