//! Tokens that must not be believed.

use anyhow::{Context, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};

use super::Scene;
use crate::http::tokens::{Es256, Forge, grants, hs256, now, unsigned};
use crate::http::{Caller, Server};
use crate::{Check, checks, not_applicable};

pub(super) const CHECKS: &[Check<Server>] = checks! {
    none, "poison-token-none", "contract: auth":
        "who shows no token writes, reads and deletes nothing",
        naive: "is open, or checks reads only";
    tampered, "poison-token-tampered", "RFC 7515 §5.2":
        "a good token whose claims were exchanged is refused",
        naive: "reads the claims without checking the signature";
    wrong_key, "poison-token-forged", "RFC 7515 §5.2":
        "tokens signed with another key, an empty one or a well-known one are refused",
        naive: "accepts any well-formed signature, or ships with a default secret";
    alg_none, "poison-token-alg-none", "RFC 8725 §3.1":
        "unsigned tokens are refused, however none is spelled",
        naive: "takes the algorithm from the token, and none for an algorithm";
    confusion, "poison-token-key-confusion", "RFC 8725 §2.1":
        "the public key used as an HMAC secret signs nothing",
        naive: "takes the algorithm from the token and the key from the configuration";
    embedded, "poison-token-embedded-key", "RFC 8725 §3.10":
        "a key that comes with the token (jwk, jku, x5c, kid) is not used",
        naive: "verifies the token with the key the token brought along";
    expired, "poison-token-expired", "RFC 7519 §4.1.4":
        "a token is refused once it has ended, and one that never ends at all",
        naive: "does not look at exp, or believes a cached decision for ever";
    early, "poison-token-not-yet-valid", "RFC 7519 §4.1.5":
        "a token is refused before it begins",
        naive: "does not look at nbf";
    repeated, "poison-token-repeated-claims", "RFC 7519 §4":
        "claims that occur twice make a token invalid, rightly signed or not",
        naive: "the issuer's parser took the first grant, the cache's parser takes the last";
    critical, "poison-token-critical-extension", "RFC 7515 §4.1.11":
        "a token with an extension marked critical that nobody understands is refused",
        naive: "ignores crit";
    mistyped, "poison-token-mistyped-claims", "contract: auth":
        "grants of the wrong type or for lookalike names grant nothing",
        naive: "compares prefixes, splits handles loosely, or takes a string for a list";
    replayed, "poison-token-of-another-project", "contract: auth":
        "a good token of one project, replayed in another, is refused",
        naive: "checks that the token is good, not what it is good for; or caches the decision by token only";
    other_tenant, "poison-token-of-another-tenant", "contract: auth":
        "a good token of another tenant is refused",
        naive: "looks for the project's name without its account";
    read_only, "poison-token-read-only", "contract: auth":
        "a token that may read may not write, by any method",
        naive: "checks writing on PUT only";
    elsewhere, "poison-token-in-the-wrong-place", "RFC 6750 §2":
        "a token in the query, a cookie, another field or a second Authorization is no credential",
        naive: "accepts ?access_token=, which ends in logs, or checks the first of two headers and uses the last";
};

/// What the forger wants to be allowed.
fn wanted(server: &Server) -> Value {
    let (project, tenant) = (
        format!("{}/{}", server.tenant, server.victim_project),
        server.tenant.as_str(),
    );
    grants(&[tenant], &[&project])
}

/// Uses each token where its claims would allow everything.
async fn refused(server: &Server, tokens: &[(&str, String)]) -> Result<()> {
    let scene = Scene::set(server).await?;
    let query = server.scope_of(&server.victim_project);
    for (what, token) in tokens {
        scene
            .attack(server.bearer(token), &query, &[], &[401, 403])
            .await
            .with_context(|| (*what).to_owned())?;
    }
    Ok(())
}

fn forge(server: &Server) -> Result<&Forge> {
    match &server.credentials.forge {
        Some(forge) => Ok(forge),
        None => not_applicable("no signing key was given to make such tokens with"),
    }
}

/// Before a token of the forge may be refused for what is wrong with it, one without fault must be accepted.
async fn accepted(server: &Server, forge: &Forge) -> Result<()> {
    let token = forge.sign(&wanted(server))?;
    let target = format!("/api/cache/gradle/none?{}", server.scope_of(&server.victim_project));
    server
        .bearer(&token)
        .get(&target)
        .await?
        .expect(404)
        .context("the signing key is not the server's: a faultless token is refused")?;
    Ok(())
}

async fn none(server: &Server) -> Result<()> {
    let scene = Scene::set(server).await?;
    let query = server.scope_of(&server.victim_project);
    scene.attack(server.anonymous(), &query, &[], &[401]).await?;
    for value in ["", "Bearer", "Bearer ", "Basic ", "Basic Og==", "Basic !", "Digest x"] {
        scene
            .attack(
                server.anonymous(),
                &query,
                &[("Authorization", value)],
                &[400, 401, 403],
            )
            .await
            .with_context(|| format!("Authorization: {value}"))?;
    }
    Ok(())
}

async fn tampered(server: &Server) -> Result<()> {
    server.guarded()?;
    let writer = server.credentials.writer.as_ref().context("no credential")?;
    let parts: Vec<&str> = writer.expose().split('.').collect();
    let [header, claims, signature] = parts.as_slice() else {
        return not_applicable("the writer's token is not signed, so there is nothing to tamper with");
    };
    let evil = URL_SAFE_NO_PAD.encode(wanted(server).to_string());
    let tokens = [
        ("claims exchanged", format!("{header}.{evil}.{signature}")),
        ("signature dropped", format!("{header}.{evil}.")),
        ("signature missing", format!("{header}.{evil}")),
        ("two tokens in one", format!("{header}.{evil}.{claims}.{signature}")),
        ("good token first", format!("{header}.{claims}.{signature}.{evil}")),
        ("padded", format!("{header}.{evil}=.{signature}")),
    ];
    refused(server, &tokens).await
}

async fn wrong_key(server: &Server) -> Result<()> {
    server.guarded()?;
    let (header, claims) = (r#"{"alg":"HS256","typ":"JWT"}"#, wanted(server).to_string());
    let es256 = Es256::generate()?.sign(&json!({"alg": "ES256"}), &wanted(server))?;
    let tokens = [
        (
            "another secret",
            hs256(header, &claims, "another-secret-altogether-of-32-bytes"),
        ),
        ("empty secret", hs256(header, &claims, "")),
        ("well-known secret", hs256(header, &claims, "secret")),
        ("the neighbour's secret", hs256(header, &claims, "kura-auth-jwt-secret")),
        ("another ES256 key", es256),
    ];
    refused(server, &tokens).await
}

async fn alg_none(server: &Server) -> Result<()> {
    server.guarded()?;
    let claims = wanted(server).to_string();
    let mut tokens = Vec::new();
    for spelling in ["none", "None", "NONE", "nOnE", ""] {
        let text = unsigned(&format!(r#"{{"alg":"{spelling}","typ":"JWT"}}"#), &claims);
        tokens.push((spelling, format!("{text}.")));
        tokens.push((spelling, format!("{text}.AAAA")));
    }
    tokens.push(("no alg", format!("{}.", unsigned(r#"{"typ":"JWT"}"#, &claims))));
    tokens.push(("null alg", format!("{}.", unsigned(r#"{"alg":null}"#, &claims))));
    refused(server, &tokens).await
}

async fn confusion(server: &Server) -> Result<()> {
    server.guarded()?;
    let Forge::Es256(key) = forge(server)? else {
        return not_applicable("the server's key is a secret: there is no public key to confuse it with");
    };
    accepted(server, forge(server)?).await?;
    let claims = wanted(server).to_string();
    let mut tokens = Vec::new();
    for header in [r#"{"alg":"HS256"}"#, r#"{"alg":"ES256"}"#] {
        tokens.push((header, hs256(header, &claims, &key.public_pem)));
        tokens.push((header, hs256(header, &claims, key.public_pem.trim_end())));
    }
    // And an ES256 signature of nothing at all: r = s = 0.
    let text = unsigned(r#"{"alg":"ES256"}"#, &claims);
    tokens.push((
        "zero signature",
        format!("{text}.{}", URL_SAFE_NO_PAD.encode([0u8; 64])),
    ));
    refused(server, &tokens).await
}

async fn embedded(server: &Server) -> Result<()> {
    server.guarded()?;
    let claims = wanted(server);
    let mine = Es256::generate()?;
    let jwk = json!({"kty": "EC", "crv": "P-256", "x": "AA", "y": "AA"});
    let text = claims.to_string();
    let tokens = [
        ("jwk", mine.sign(&json!({"alg": "ES256", "jwk": jwk}), &claims)?),
        (
            "jku",
            mine.sign(&json!({"alg": "ES256", "jku": "http://127.0.0.1:9/keys"}), &claims)?,
        ),
        (
            "x5c",
            mine.sign(&json!({"alg": "ES256", "x5c": [mine.public_pem]}), &claims)?,
        ),
        (
            "kid as a path",
            hs256(r#"{"alg":"HS256","kid":"../../../dev/null"}"#, &text, ""),
        ),
        (
            "kid as SQL",
            hs256(r#"{"alg":"HS256","kid":"x' UNION SELECT 'k"}"#, &text, "k"),
        ),
    ];
    refused(server, &tokens).await
}

async fn expired(server: &Server) -> Result<()> {
    let forge = forge(server)?;
    accepted(server, forge).await?;
    let with = |exp: Value| {
        let mut claims = wanted(server);
        if let Some(object) = claims.as_object_mut() {
            object.remove("exp");
            if !exp.is_null() {
                object.insert("exp".to_owned(), exp);
            }
        }
        claims
    };
    let mut tokens = Vec::new();
    for (what, exp) in [
        ("an hour ago", json!(now() - 3600)),
        ("1970", json!(0)),
        ("before 1970", json!(-1)),
        ("a fraction of 1970", json!(0.5)),
        ("a word", json!("never")),
        ("no end", Value::Null),
    ] {
        tokens.push((what, forge.sign(&with(exp))?));
    }
    refused(server, &tokens).await
}

async fn early(server: &Server) -> Result<()> {
    let forge = forge(server)?;
    accepted(server, forge).await?;
    let mut claims = wanted(server);
    if let Some(object) = claims.as_object_mut() {
        object.insert("nbf".to_owned(), json!(now() + 3600));
        object.insert("exp".to_owned(), json!(now() + 7200));
    }
    refused(server, &[("in an hour", forge.sign(&claims)?)]).await
}

async fn repeated(server: &Server) -> Result<()> {
    let forge = forge(server)?;
    accepted(server, forge).await?;
    let exp = now() + 600;
    let grant = |project: &str| {
        format!(
            r#""cache_grants":{{"project":{{"write":["{}/{project}"]}}}}"#,
            server.tenant
        )
    };
    let (mine, theirs) = (grant(&server.project), grant(&server.victim_project));
    let tokens = [
        (
            "grants, theirs last",
            forge.sign_text(&format!(r#"{{"exp":{exp},{mine},{theirs}}}"#))?,
        ),
        (
            "grants, theirs first",
            forge.sign_text(&format!(r#"{{"exp":{exp},{theirs},{mine}}}"#))?,
        ),
        (
            "end",
            forge.sign_text(&format!(r#"{{"exp":{},"exp":{exp},{theirs}}}"#, now() - 3600))?,
        ),
    ];
    refused(server, &tokens).await
}

async fn critical(server: &Server) -> Result<()> {
    let forge = forge(server)?;
    accepted(server, forge).await?;
    let header = json!({"alg": forge.algorithm(), "crit": ["b64"], "b64": false});
    refused(server, &[("crit", forge.sign_with(&header, &wanted(server))?)]).await
}

async fn mistyped(server: &Server) -> Result<()> {
    let forge = forge(server)?;
    accepted(server, forge).await?;
    let (tenant, theirs) = (&server.tenant, &server.victim_project);
    let exp = now() + 600;
    let grant = |value: Value| json!({"exp": exp, "cache_grants": value});
    let prefix = theirs.get(..theirs.len() - 1).unwrap_or_default();
    let mut tokens = Vec::new();
    for (what, claims) in [
        (
            "a string",
            grant(json!({"project": {"write": format!("{tenant}/{theirs}")}})),
        ),
        (
            "a star",
            grant(json!({"project": {"write": ["*"]}, "account": {"write": ["*"]}})),
        ),
        (
            "a star below the account",
            grant(json!({"project": {"write": [format!("{tenant}/*")]}})),
        ),
        ("no account", grant(json!({"project": {"write": [theirs]}}))),
        (
            "another account",
            grant(json!({"project": {"write": [format!("{tenant}x/{theirs}")]}})),
        ),
        (
            "a prefix",
            grant(json!({"project": {"write": [format!("{tenant}/{prefix}")]}})),
        ),
        (
            "more than the name",
            grant(json!({"project": {"write": [format!("{tenant}/{theirs}/x")]}})),
        ),
        ("the account only", grant(json!({"account": {"write": [tenant]}}))),
        (
            "another verb",
            grant(json!({"project": {"admin": [format!("{tenant}/{theirs}")]}})),
        ),
        ("an empty object", json!({"exp": exp})),
        ("true", json!({"exp": exp, "cache_grants": true})),
    ] {
        tokens.push((what, forge.sign(&claims)?));
    }
    refused(server, &tokens).await
}

async fn replayed(server: &Server) -> Result<()> {
    let scene = Scene::set(server).await?;
    let query = server.scope_of(&server.victim_project);
    // Warm the decision first: a cache of decisions must not remember more than was asked.
    server.writer().get(&server.gradle(&scene.fresh)).await?.expect(404)?;
    scene.attack(server.writer(), &query, &[], &[403]).await
}

async fn other_tenant(server: &Server) -> Result<()> {
    let scene = Scene::set(server).await?;
    let stranger = server.stranger()?;
    for query in [server.scope_of(&server.victim_project), server.scope()] {
        scene.attack(stranger, &query, &[], &[403]).await?;
    }
    Ok(())
}

async fn read_only(server: &Server) -> Result<()> {
    let scene = Scene::set(server).await?;
    let reader = server.reader()?;
    let kept = server.gradle(&server.key("kept"));
    server.writer().store(&kept, b"kept").await?;
    for (method, target) in writes(server, &scene.fresh) {
        let refused = reader.send(method, &target, &[], b"poison").await?;
        ensure!(matches!(refused.status, 403 | 405), "{method} {target} got {refused}");
    }
    server.writer().get(&kept).await?.expect(200)?.expect_body(b"kept")?;
    scene.unharmed().await
}

fn writes(server: &Server, key: &str) -> Vec<(&'static str, String)> {
    let scope = server.scope();
    vec![
        ("PUT", server.gradle(key)),
        ("POST", format!("/api/cache/cas/{key}?{scope}")),
        ("PUT", format!("/api/cache/keyvalue?{scope}")),
        ("POST", format!("/api/cache/module/start?{scope}&hash={key}&name=n")),
        ("DELETE", format!("/api/cache/clean?{scope}")),
        ("PUT", format!("/v1/cache/{key}")),
        ("PUT", format!("/api/metro/cache/{key}")),
        ("DELETE", server.gradle(key)),
        ("PATCH", server.gradle(key)),
    ]
}

async fn elsewhere(server: &Server) -> Result<()> {
    let scene = Scene::set(server).await?;
    let scope = server.scope_of(&server.victim_project);
    let good = server.credentials.victim.as_ref().context("no credential")?.expose();
    let anonymous = server.anonymous();
    for name in ["access_token", "token", "authorization", "jwt"] {
        let query = format!("{scope}&{name}={good}");
        scene
            .attack(anonymous, &query, &[], &[400, 401, 403])
            .await
            .with_context(|| format!("in the query as {name}"))?;
    }
    let cookie = format!("token={good}; authorization={good}");
    let bearer = format!("Bearer {good}");
    for (name, value) in [
        ("Cookie", cookie.as_str()),
        ("Proxy-Authorization", bearer.as_str()),
        ("X-Authorization", bearer.as_str()),
        ("X-Forwarded-Authorization", bearer.as_str()),
    ] {
        scene
            .attack(anonymous, &scope, &[(name, value)], &[401, 403])
            .await
            .with_context(|| name.to_owned())?;
    }
    let attacker: Caller<'_> = server.writer();
    scene
        .attack(attacker, &scope, &[("Authorization", &bearer)], &[400, 401, 403])
        .await
        .context("a second Authorization field")
}
