//! Requests that two readers could take for two scopes.

use anyhow::{Context, Result};

use super::{Scene, gradle};
use crate::http::server::escape;
use crate::http::{Server, entries};
use crate::{Check, checks};

pub(super) const CHECKS: &[Check<Server>] = checks! {
    duplicate, "poison-scope-duplicate", "incident scope-confusion":
        "a scope parameter given twice is refused, in either order",
        naive: "authorises the first value and acts on the last";
    encoded, "poison-scope-encoded-duplicate", "incident scope-confusion":
        "a percent-encoded duplicate of a parameter's name is a duplicate",
        naive: "authorises what the raw query says and acts on what the decoded one says";
    spellings, "poison-scope-both-spellings", "incident scope-confusion":
        "both spellings of one parameter together are refused",
        naive: "authorises project_handle and acts on namespace_id, or the reverse";
    empty, "poison-scope-empty-and-alias", "incident scope-confusion":
        "an empty parameter beside its alias is refused",
        naive: "authorises the project of the alias and acts on the account";
    tenants, "poison-scope-other-tenant", "contract: tenancy":
        "naming another tenant, alone or beside the own, is refused",
        naive: "takes the tenant of the query for the tenant of the data";
    handles, "poison-scope-handle-tricks", "contract: tenancy":
        "a handle with separators, traversal, NUL, white space or other alphabets names nothing",
        naive: "joins the handle into a storage key or path, so that it ends in another project";
    lookalikes, "poison-scope-lookalike-parameters", "contract: tenancy":
        "parameters that only look like the scope's change nothing about it",
        naive: "a lenient second parser reads namespace_id[], Namespace_Id or ; as the scope";
    elsewhere, "poison-scope-in-headers-or-body", "contract: tenancy":
        "a scope named in header fields or in a document changes nothing about the query's",
        naive: "lets x-kura-tenant-id or a member of the document override what was authorised";
    beside_the_path, "poison-scope-beside-the-path", "contract: tenancy":
        "on a route with the project in its path, one in the query, or a project that is no name, is refused",
        naive: "authorises the project of the path and acts on that of the query, or joins any text onto a key";
};

/// The tenant, the attacker's project, and the victim's.
fn names(server: &Server) -> (&str, &str, &str) {
    (&server.tenant, &server.project, &server.victim_project)
}

async fn queries(server: &Server, queries: &[String], statuses: &[u16]) -> Result<()> {
    let scene = Scene::set(server).await?;
    for query in queries {
        let attack = scene.attack(server.writer(), query, &[], statuses).await;
        attack.with_context(|| query.clone())?;
    }
    Ok(())
}

async fn duplicate(server: &Server) -> Result<()> {
    let (tenant, mine, theirs) = names(server);
    let list = [
        format!("tenant_id={tenant}&namespace_id={mine}&namespace_id={theirs}"),
        format!("tenant_id={tenant}&namespace_id={theirs}&namespace_id={mine}"),
        format!("namespace_id={mine}&tenant_id={tenant}&namespace_id={theirs}"),
        format!("tenant_id={tenant}&namespace_id={mine}&namespace_id="),
    ];
    queries(server, &list, &[400]).await
}

async fn encoded(server: &Server) -> Result<()> {
    let (tenant, mine, theirs) = names(server);
    let all = escape("namespace_id");
    let mut list = vec![
        format!("tenant_id={tenant}&namespace_id={mine}&{all}={theirs}"),
        format!("tenant_id={tenant}&{all}={theirs}&namespace_id={mine}"),
        format!("tenant_id={tenant}&namespace_id={mine}&project%5Fhandle={theirs}"),
        format!("tenant_id={tenant}&namespace_id={mine}&%74enant_id={tenant}"),
    ];
    for (at, byte) in "namespace_id".bytes().enumerate() {
        let (before, after) = ("namespace_id".get(..at), "namespace_id".get(at + 1..));
        let name = format!("{}%{byte:02X}{}", before.unwrap_or_default(), after.unwrap_or_default());
        list.push(format!("tenant_id={tenant}&namespace_id={mine}&{name}={theirs}"));
    }
    queries(server, &list, &[400]).await
}

async fn spellings(server: &Server) -> Result<()> {
    let (tenant, mine, theirs) = names(server);
    let list = [
        format!("tenant_id={tenant}&namespace_id={mine}&project_handle={theirs}"),
        format!("tenant_id={tenant}&project_handle={mine}&namespace_id={theirs}"),
        format!("tenant_id={tenant}&account_handle={tenant}&namespace_id={mine}"),
    ];
    queries(server, &list, &[400]).await
}

async fn empty(server: &Server) -> Result<()> {
    let (tenant, mine, theirs) = names(server);
    let list = [
        format!("tenant_id={tenant}&namespace_id=&project_handle={theirs}"),
        format!("tenant_id={tenant}&project_handle=&namespace_id={theirs}"),
        format!("tenant_id={tenant}&namespace_id=&project_handle={mine}"),
        format!("tenant_id=&account_handle={tenant}&namespace_id={mine}"),
    ];
    queries(server, &list, &[400]).await
}

async fn tenants(server: &Server) -> Result<()> {
    let (tenant, mine, _) = names(server);
    let list = [
        format!("tenant_id={tenant}x&namespace_id={mine}"),
        format!("tenant_id={tenant}&tenant_id={tenant}x&namespace_id={mine}"),
        format!("tenant_id={tenant}x&account_handle={tenant}&namespace_id={mine}"),
        format!("tenant_id={tenant}%2F{mine}"),
        format!("tenant_id={tenant}%00x&namespace_id={mine}"),
    ];
    queries(server, &list, &[400, 403]).await
}

async fn handles(server: &Server) -> Result<()> {
    let (tenant, mine, theirs) = names(server);
    let list = [
        format!("{mine}%2F..%2F{theirs}"),
        format!("{mine}/../{theirs}"),
        format!("..%2F{theirs}"),
        format!(".%2F{theirs}"),
        format!("{theirs}%2F"),
        format!("{theirs}%00"),
        format!("{theirs}%00{mine}"),
        format!("{mine}%00{theirs}"),
        format!("{theirs}%20"),
        format!("%20{theirs}"),
        format!("{theirs}%0A"),
        format!("{theirs}%09"),
        format!("{mine}%2C{theirs}"),
        format!("{mine};namespace_id={theirs}"),
        format!("{tenant}%2F{theirs}"),
        format!("{theirs}%E2%80%8B"),
        format!("{}%EF%BD%81", theirs.get(..1).unwrap_or_default()),
        format!("%C0%AE%C0%AE%2F{theirs}"),
        format!("%2525{theirs}"),
    ]
    .map(|handle| format!("tenant_id={tenant}&namespace_id={handle}"));
    queries(server, &list, &[400, 403]).await
}

/// Accepted or not, such a request is about the attacker's own project at most.
async fn lookalikes(server: &Server) -> Result<()> {
    let (scene, writer) = (Scene::set(server).await?, server.writer());
    let (own, theirs) = (server.scope(), &server.victim_project);
    for query in [
        format!("{own}&namespace_id[]={theirs}"),
        format!("{own}&Namespace_Id={theirs}"),
        format!("{own}&namespace-id={theirs}"),
        format!("{own}&namespace_id%00={theirs}"),
        format!("{own}&%20namespace_id={theirs}"),
        format!("{own}&x=1?namespace_id={theirs}"),
    ] {
        let key = server.key("lookalike");
        scene.leaks_nothing(&writer.get(&gradle(&scene.key, &query)).await?)?;
        writer.put(&gradle(&key, &query), b"poison").await?;
        scene.owner.miss(&scene.target(&key)).await?;
        writer.put(&gradle(&scene.key, &query), b"poison").await?;
        scene.unharmed().await.with_context(|| query.clone())?;
    }
    Ok(())
}

async fn elsewhere(server: &Server) -> Result<()> {
    let scene = Scene::set(server).await?;
    let theirs = &server.victim_project;
    let (writer, owner, rewritten) = (server.writer(), scene.owner, scene.target(&scene.key));
    for (name, value) in [
        ("X-Kura-Tenant-Id", theirs),
        ("X-Tuist-Account-Handle", theirs),
        ("X-Kura-Namespace-Id", theirs),
        ("X-Namespace-Id", theirs),
        ("X-Original-URL", &rewritten),
        ("X-Rewrite-URL", &rewritten),
        ("X-HTTP-Method-Override", &"DELETE".to_owned()),
    ] {
        let (key, fields) = (server.key("header"), [(name, value.as_str())]);
        writer.send("PUT", &server.gradle(&key), &fields, b"poison").await?;
        let leak = writer.send("GET", &server.gradle(&scene.key), &fields, b"").await?;
        scene.leaks_nothing(&leak)?;
        owner.miss(&scene.target(&key)).await.context(name)?;
    }
    let (key, put) = (server.key("document"), server.api("keyvalue"));
    let document =
        format!(r#"{{"cas_id":"{key}","entries":[{{"value":"poison"}}],"namespace_id":"{theirs}","tenant_id":"x"}}"#);
    writer.put(&put, document.as_bytes()).await?;
    let twice = format!(r#"{{"cas_id":"{key}-a","cas_id":"{key}-b","entries":[]}}"#);
    writer.puts(&put, twice.as_bytes(), 400).await?;
    for name in ["", "-a", "-b"] {
        let get = server.api_of(theirs, &format!("keyvalue/{key}{name}"));
        owner.miss(&get).await?;
    }
    scene.unharmed().await
}

async fn beside_the_path(server: &Server) -> Result<()> {
    let (scene, writer) = (Scene::set(server).await?, server.writer());
    let (tenant, mine, theirs) = names(server);
    for entry in entries(mine, &server.key("beside")) {
        let separator = if entry.target.contains('?') { '&' } else { '?' };
        for parameter in [
            format!("namespace_id={theirs}"),
            format!("tenant_id={tenant}"),
            format!("%6eamespace_id={theirs}"),
            "project_handle=x".to_owned(),
        ] {
            let target = format!("{}{separator}{parameter}", entry.target);
            writer.sends("PUT", &target, &entry.fields(), &entry.body, 400).await?;
        }
        writer.miss(&entry.target).await?;
    }
    let (up, twice) = (format!("{mine}%2f..%2f{theirs}"), format!("{mine}%252f"));
    for project in ["..", "%2e%2e", &up, "%00", "-x", "a%20b", "", &twice] {
        for entry in entries(project, &server.key("names")) {
            // Turborepo without a team means the default project.
            if entry.tool != "turborepo" || !project.is_empty() {
                entry.put(writer).await?.expect_any(&[400, 404])?;
            }
        }
    }
    scene.unharmed().await
}
