//! Whose data a request is about.

use anyhow::{Context, Result, ensure};

use crate::http::Server;
use crate::http::server::escape;
use crate::{Check, checks};

pub(super) const CHECKS: &[Check<Server>] = checks! {
    missing, "scope-tenant-is-required", "contract: tenancy":
        "a request without a tenant is 400 and says so";
    spellings, "scope-both-spellings", "contract: tenancy":
        "tenant_id/namespace_id and account_handle/project_handle name the same scope, in any case and any escape";
    account, "scope-account-is-not-project", "contract: tenancy":
        "without a project the scope is the account, whose entries are not the project's";
    ambiguous, "scope-ambiguous-is-400", "incident scope-confusion":
        "a parameter given twice, in whatever spelling, is 400";
    malformed, "scope-malformed-is-400", "RFC 3986 §2.1":
        "broken escapes and control characters in scope or key are 400";
};

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
        refused.expect_message(400, "Missing tenant_id")?;
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
            let twice = if query.matches('=').count() == 2 {
                "tenant_id"
            } else {
                "namespace_id"
            };
            refused.expect_message(400, &format!("Ambiguous parameter {twice}"))?;
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
        let message = writer.get(&target).await?.expect(400)?.message()?;
        let broken = ["%zz", "=%", "%f?"]
            .iter()
            .any(|part| target.contains(part) && !target.contains("=%ff"));
        ensure!(!broken || message == "Malformed query", "{target}: {message:?}");
    }
    Ok(())
}
