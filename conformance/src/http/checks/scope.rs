//! Whose data a request is about.

use anyhow::{Context, Result};

use crate::http::server::escape;
use crate::http::{Server, wire};
use crate::{Check, check};

pub(super) const CHECKS: &[Check<Server>] = &[
    check!(
        missing,
        "scope-tenant-is-required",
        "a request without a tenant is 400 and says so",
        "contract: tenancy"
    ),
    check!(
        spellings,
        "scope-both-spellings",
        "tenant_id/namespace_id and account_handle/project_handle name the same scope, in any case and any escape",
        "contract: tenancy"
    ),
    check!(
        account,
        "scope-account-is-not-project",
        "without a project the scope is the account, whose entries are not the project's",
        "contract: tenancy"
    ),
    check!(
        ambiguous,
        "scope-ambiguous-is-400",
        "a parameter given twice, in whatever spelling, is 400",
        "incident scope-confusion"
    ),
    check!(
        malformed,
        "scope-malformed-is-400",
        "broken escapes and control characters in scope or key are 400",
        "RFC 3986 §2.1"
    ),
];

async fn missing(server: &Server) -> Result<()> {
    server.contract()?;
    let writer = server.writer();
    for (method, target) in [
        ("GET", "/api/cache/gradle/k"),
        ("PUT", "/api/cache/gradle/k?namespace_id=x"),
        ("GET", "/api/cache/cas/k?tenant_id="),
        ("PUT", "/api/cache/keyvalue"),
        ("POST", "/api/cache/module/start?hash=a&name=b"),
        ("DELETE", "/api/cache/clean?namespace_id=x"),
    ] {
        let body: &[u8] = if method == "PUT" { b"x" } else { b"" };
        let refused = writer.send(method, target, &[], body).await?;
        refused
            .expect_message(400, "Missing tenant_id")
            .with_context(|| format!("{method} {target}"))?;
    }
    Ok(())
}

async fn spellings(server: &Server) -> Result<()> {
    server.contract()?;
    let (writer, key) = (server.writer(), server.key("spelling"));
    let (tenant, project) = (&server.tenant, &server.project);
    writer.store(&server.gradle(&key), b"one").await?;
    let escaped = escape(project);
    for query in [
        format!("account_handle={tenant}&project_handle={project}"),
        format!("project_handle={project}&tenant_id={tenant}"),
        format!(
            "tenant_id={}&namespace_id={}",
            tenant.to_uppercase(),
            project.to_uppercase()
        ),
        format!("tenant_id={tenant}&namespace_id={escaped}"),
        format!("%74enant_id={tenant}&names%70ace_id={project}"),
        format!("unknown=1&tenant_id={tenant}&&namespace_id={project}&also=2"),
    ] {
        let hit = writer.get(&format!("/api/cache/gradle/{key}?{query}")).await?;
        hit.expect(200)
            .and_then(|hit| hit.expect_body(b"one"))
            .with_context(|| query.clone())?;
    }
    Ok(())
}

async fn account(server: &Server) -> Result<()> {
    server.contract()?;
    let (writer, key) = (server.writer(), server.key("account"));
    let tenant = &server.tenant;
    let account = format!("/api/cache/gradle/{key}?tenant_id={tenant}");
    writer.store(&account, b"account").await?;
    writer.get(&server.gradle(&key)).await?.expect(404)?;
    writer.store(&server.gradle(&key), b"project").await?;
    for query in [
        format!("tenant_id={tenant}"),
        format!("tenant_id={tenant}&namespace_id="),
        format!("account_handle={tenant}&project_handle="),
    ] {
        let hit = writer.get(&format!("/api/cache/gradle/{key}?{query}")).await?;
        hit.expect(200)?.expect_body(b"account")?;
    }
    Ok(())
}

async fn ambiguous(server: &Server) -> Result<()> {
    server.contract()?;
    let writer = server.writer();
    let (tenant, project) = (&server.tenant, &server.project);
    for query in [
        format!("tenant_id={tenant}&tenant_id={tenant}"),
        format!("tenant_id={tenant}&account_handle={tenant}"),
        format!("tenant_id={tenant}&namespace_id={project}&namespace_id={project}"),
        format!("tenant_id={tenant}&namespace_id={project}&%6eamespace_id={project}"),
        format!("tenant_id={tenant}&namespace_id={project}&project_handle={project}"),
        format!("tenant_id={tenant}&namespace_id=&project_handle={project}"),
    ] {
        for (method, path) in [
            ("GET", "gradle/k"),
            ("PUT", "gradle/k"),
            ("POST", "cas/k"),
            ("PUT", "keyvalue"),
            ("DELETE", "clean"),
        ] {
            let body: &[u8] = if matches!(method, "PUT" | "POST") { b"x" } else { b"" };
            let refused = writer
                .send(method, &format!("/api/cache/{path}?{query}"), &[], body)
                .await?;
            refused
                .expect(400)
                .and_then(wire::Response::message)
                .with_context(|| format!("{method} {path}?{query}"))?;
        }
    }
    Ok(())
}

async fn malformed(server: &Server) -> Result<()> {
    server.contract()?;
    let writer = server.writer();
    let tenant = &server.tenant;
    for target in [
        format!("/api/cache/gradle/k?tenant_id={tenant}&namespace_id=%zz"),
        format!("/api/cache/gradle/k?tenant_id={tenant}&namespace_id=%"),
        format!("/api/cache/gradle/k?tenant_id={tenant}&namespace_id=%ff"),
        format!("/api/cache/gradle/k?tenant_id={tenant}&namespace_id=a%00b"),
        format!("/api/cache/gradle/k?tenant_id={tenant}&namespace_id=a%0ab"),
        format!("/api/cache/gradle/%zz?tenant_id={tenant}"),
        format!("/api/cache/gradle/%f?tenant_id={tenant}"),
    ] {
        writer.get(&target).await?.expect(400).with_context(|| target.clone())?;
    }
    Ok(())
}
