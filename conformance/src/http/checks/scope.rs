//! Whose data a request is about.

use anyhow::{Result, ensure};

use crate::http::Server;
use crate::http::server::escape;
use crate::{Check, checks};

pub(super) const CHECKS: &[Check<Server>] = checks! {
    missing, "scope-tenant-is-required", "contract: tenancy" [contract]:
        "a request without a tenant is 400 and says so";
    spellings, "scope-both-spellings", "contract: tenancy" [contract]:
        "tenant_id/namespace_id and account_handle/project_handle name the same scope, in any case and any escape";
    account, "scope-account-is-not-project", "contract: tenancy" [contract]:
        "without a project the scope is the account, whose entries are not the project's";
    ambiguous, "scope-ambiguous-is-400", "incident scope-confusion" [contract]:
        "a parameter given twice, in whatever spelling, is 400";
    malformed, "scope-malformed-is-400", "RFC 3986 §2.1" [contract]:
        "broken escapes and control characters in scope or key are 400";
};

async fn missing(server: &Server) -> Result<()> {
    for (method, target, body) in [
        ("GET", "/api/cache/gradle/k", &b""[..]),
        ("PUT", "/api/cache/gradle/k?namespace_id=x", b"x"),
        ("GET", "/api/cache/cas/k?tenant_id=", b""),
        ("PUT", "/api/cache/keyvalue", b"x"),
        ("POST", "/api/cache/module/start?hash=a&name=b", b""),
        ("DELETE", "/api/cache/clean?namespace_id=x", b""),
    ] {
        let refused = server.writer().send(method, target, &[], body).await?;
        refused.expect_message(400, "Missing tenant_id")?;
    }
    Ok(())
}

async fn spellings(server: &Server) -> Result<()> {
    let (writer, key) = (server.writer(), server.key("spelling"));
    let (tenant, project) = (&server.tenant, &server.project);
    writer.store(&server.gradle(&key), b"one").await?;
    let (escaped, loud) = (escape(project), project.to_uppercase());
    for query in [
        format!("account_handle={tenant}&project_handle={project}"),
        format!("project_handle={project}&tenant_id={tenant}"),
        format!("tenant_id={}&namespace_id={loud}", tenant.to_uppercase()),
        format!("tenant_id={tenant}&namespace_id={escaped}"),
        format!("%74enant_id={tenant}&names%70ace_id={project}"),
        format!("unknown=1&tenant_id={tenant}&&namespace_id={project}&also=2"),
    ] {
        writer.hit(&format!("/api/cache/gradle/{key}?{query}"), b"one").await?;
    }
    Ok(())
}

async fn account(server: &Server) -> Result<()> {
    let (writer, key, tenant) = (server.writer(), server.key("account"), &server.tenant);
    let account = format!("/api/cache/gradle/{key}?tenant_id={tenant}");
    writer.store(&account, b"account").await?;
    writer.miss(&server.gradle(&key)).await?;
    writer.store(&server.gradle(&key), b"project").await?;
    for query in [
        format!("tenant_id={tenant}"),
        format!("tenant_id={tenant}&namespace_id="),
        format!("account_handle={tenant}&project_handle="),
    ] {
        let target = format!("/api/cache/gradle/{key}?{query}");
        writer.hit(&target, b"account").await?;
    }
    Ok(())
}

async fn ambiguous(server: &Server) -> Result<()> {
    let (writer, tenant, project) = (server.writer(), &server.tenant, &server.project);
    let both = server.scope();
    for (twice, query) in [
        ("tenant_id", format!("tenant_id={tenant}&tenant_id={tenant}")),
        ("tenant_id", format!("tenant_id={tenant}&account_handle={tenant}")),
        ("namespace_id", format!("{both}&namespace_id={project}")),
        ("namespace_id", format!("{both}&%6eamespace_id={project}")),
        ("namespace_id", format!("{both}&project_handle={project}")),
        (
            "namespace_id",
            format!("tenant_id={tenant}&namespace_id=&project_handle={project}"),
        ),
    ] {
        for (method, path, body) in [
            ("GET", "gradle/k", &b""[..]),
            ("PUT", "gradle/k", b"x"),
            ("POST", "cas/k", b"x"),
            ("PUT", "keyvalue", b"x"),
            ("DELETE", "clean", b""),
        ] {
            let target = format!("/api/cache/{path}?{query}");
            let refused = writer.send(method, &target, &[], body).await?;
            refused.expect_message(400, &format!("Ambiguous parameter {twice}"))?;
        }
    }
    Ok(())
}

async fn malformed(server: &Server) -> Result<()> {
    for (broken, path, query) in [
        (true, "k", "&namespace_id=%zz"),
        (true, "k", "&namespace_id=%"),
        (false, "k", "&namespace_id=%ff"),
        (false, "k", "&namespace_id=a%00b"),
        (false, "k", "&namespace_id=a%0ab"),
        (true, "%zz", ""),
        (true, "%f", ""),
    ] {
        let target = format!("/api/cache/gradle/{path}?tenant_id={}{query}", server.tenant);
        let message = server.writer().get(&target).await?.expect(400)?.message()?;
        ensure!(!broken || message == "Malformed query", "{target}: {message:?}");
    }
    Ok(())
}
