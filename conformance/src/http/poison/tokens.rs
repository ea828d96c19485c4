//! Tokens that must not be believed.

use anyhow::{Context, Result};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};

use super::Scene;
use crate::http::Server;
use crate::http::tokens::{Es256, Forge, grants, hs256, now, unsigned};
use crate::{Check, checks, not_applicable};

pub(super) const CHECKS: &[Check<Server>] = checks! {
    none, "poison-token-none", "contract: auth":
        "who shows no token writes, reads and deletes nothing",
        naive: "is open, or checks reads only";
    tampered, "poison-token-tampered", "RFC 7515 §5.2" [guarded]:
        "a good token whose claims were exchanged is refused",
        naive: "reads the claims without checking the signature";
    wrong_key, "poison-token-forged", "RFC 7515 §5.2" [guarded]:
        "tokens signed with another key, an empty one or a well-known one are refused",
        naive: "accepts any well-formed signature, or ships with a default secret";
    alg_none, "poison-token-alg-none", "RFC 8725 §3.1" [guarded]:
        "unsigned tokens are refused, however none is spelled",
        naive: "takes the algorithm from the token, and none for an algorithm";
    confusion, "poison-token-key-confusion", "RFC 8725 §2.1" [guarded]:
        "the public key used as an HMAC secret signs nothing",
        naive: "takes the algorithm from the token and the key from the configuration";
    embedded, "poison-token-embedded-key", "RFC 8725 §3.10" [guarded]:
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
    let project = format!("{}/{}", server.tenant, server.victim_project);
    grants(&[&server.tenant], &[&project])
}

/// Uses each token where its claims would allow everything.
async fn refused(server: &Server, tokens: &[(&str, String)]) -> Result<()> {
    let scene = Scene::set(server).await?;
    for (what, token) in tokens {
        let attack = scene
            .attack(server.bearer(token), &scene.scope(), &[], &[401, 403])
            .await;
        attack.with_context(|| (*what).to_owned())?;
    }
    Ok(())
}

/// A key the server believes. Before a token of the forge may be refused for what is wrong with it, one without fault must be accepted.
async fn forge(server: &Server) -> Result<&Forge> {
    let Some(forge) = &server.credentials.forge else {
        return not_applicable("no signing key was given to make such tokens with");
    };
    let token = forge.sign(&wanted(server))?;
    let target = server.api_of(&server.victim_project, "gradle/none");
    let accepted = server.bearer(&token).miss(&target).await;
    accepted.context("the signing key is not the server's: a faultless token is refused")?;
    Ok(forge)
}

async fn none(server: &Server) -> Result<()> {
    let (scene, anonymous) = (Scene::set(server).await?, server.anonymous());
    let query = scene.scope();
    scene.attack(anonymous, &query, &[], &[401]).await?;
    for value in ["", "Bearer", "Bearer ", "Basic ", "Basic Og==", "Basic !", "Digest x"] {
        let fields = [("Authorization", value)];
        let attack = scene.attack(anonymous, &query, &fields, &[400, 401, 403]).await;
        attack.with_context(|| format!("Authorization: {value}"))?;
    }
    Ok(())
}

async fn tampered(server: &Server) -> Result<()> {
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
    let claims = wanted(server).to_string();
    let hs256 = |secret: &str| hs256(r#"{"alg":"HS256","typ":"JWT"}"#, &claims, secret);
    let es256 = Es256::generate()?.sign(&json!({"alg": "ES256"}), &wanted(server))?;
    let tokens = [
        ("another secret", hs256("another-secret-altogether-of-32-bytes")),
        ("empty secret", hs256("")),
        ("well-known secret", hs256("secret")),
        ("the neighbour's secret", hs256("kura-auth-jwt-secret")),
        ("another ES256 key", es256),
    ];
    refused(server, &tokens).await
}

async fn alg_none(server: &Server) -> Result<()> {
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
    let Forge::Es256(key) = forge(server).await? else {
        return not_applicable("the server's key is a secret: there is no public key to confuse it with");
    };
    let claims = wanted(server).to_string();
    let mut tokens = Vec::new();
    for header in [r#"{"alg":"HS256"}"#, r#"{"alg":"ES256"}"#] {
        tokens.push((header, hs256(header, &claims, &key.public_pem)));
        tokens.push((header, hs256(header, &claims, key.public_pem.trim_end())));
    }
    // And an ES256 signature of nothing at all: r = s = 0.
    let (text, zero) = (
        unsigned(r#"{"alg":"ES256"}"#, &claims),
        URL_SAFE_NO_PAD.encode([0u8; 64]),
    );
    tokens.push(("zero signature", format!("{text}.{zero}")));
    refused(server, &tokens).await
}

async fn embedded(server: &Server) -> Result<()> {
    let (mine, claims) = (Es256::generate()?, wanted(server));
    let brought = |name: &str, value: Value| mine.sign(&json!({"alg": "ES256", name: value}), &claims);
    let kid = |kid: &str, secret| {
        hs256(
            &format!(r#"{{"alg":"HS256","kid":"{kid}"}}"#),
            &claims.to_string(),
            secret,
        )
    };
    let jwk = json!({"kty": "EC", "crv": "P-256", "x": "AA", "y": "AA"});
    let tokens = [
        ("jwk", brought("jwk", jwk)?),
        ("jku", brought("jku", json!("http://127.0.0.1:9/keys"))?),
        ("x5c", brought("x5c", json!([mine.public_pem]))?),
        ("kid as a path", kid("../../../dev/null", "")),
        ("kid as SQL", kid("x' UNION SELECT 'k", "k")),
    ];
    refused(server, &tokens).await
}

async fn expired(server: &Server) -> Result<()> {
    let forge = forge(server).await?;
    let mut tokens = Vec::new();
    for (what, exp) in [
        ("an hour ago", json!(now() - 3600)),
        ("1970", json!(0)),
        ("before 1970", json!(-1)),
        ("a fraction of 1970", json!(0.5)),
        ("a word", json!("never")),
        ("no end", Value::Null),
    ] {
        let mut claims = wanted(server);
        let object = claims.as_object_mut().context("claims")?;
        object.remove("exp");
        if !exp.is_null() {
            object.insert("exp".to_owned(), exp);
        }
        tokens.push((what, forge.sign(&claims)?));
    }
    refused(server, &tokens).await
}

async fn early(server: &Server) -> Result<()> {
    let forge = forge(server).await?;
    let mut claims = wanted(server);
    if let Some(object) = claims.as_object_mut() {
        object.insert("nbf".to_owned(), json!(now() + 3600));
        object.insert("exp".to_owned(), json!(now() + 7200));
    }
    refused(server, &[("in an hour", forge.sign(&claims)?)]).await
}

async fn repeated(server: &Server) -> Result<()> {
    let (forge, tenant, exp) = (forge(server).await?, &server.tenant, now() + 600);
    let grant = |project: &str| format!(r#""cache_grants":{{"project":{{"write":["{tenant}/{project}"]}}}}"#);
    let (mine, theirs) = (grant(&server.project), grant(&server.victim_project));
    let past = now() - 3600;
    let mut tokens = Vec::new();
    for (what, claims) in [
        ("grants, theirs last", format!(r#"{{"exp":{exp},{mine},{theirs}}}"#)),
        ("grants, theirs first", format!(r#"{{"exp":{exp},{theirs},{mine}}}"#)),
        ("end", format!(r#"{{"exp":{past},"exp":{exp},{theirs}}}"#)),
    ] {
        tokens.push((what, forge.sign_text(&claims)?));
    }
    refused(server, &tokens).await
}

async fn critical(server: &Server) -> Result<()> {
    let forge = forge(server).await?;
    let header = json!({"alg": forge.algorithm(), "crit": ["b64"], "b64": false});
    refused(server, &[("crit", forge.sign_with(&header, &wanted(server))?)]).await
}

async fn mistyped(server: &Server) -> Result<()> {
    let (forge, exp) = (forge(server).await?, now() + 600);
    let (tenant, theirs) = (&server.tenant, &server.victim_project);
    let grant = |value: Value| json!({"exp": exp, "cache_grants": value});
    let written = |project: String| grant(json!({"project": {"write": [project]}}));
    let full = format!("{tenant}/{theirs}");
    let prefix = full.get(..full.len() - 1).unwrap_or_default();
    let stars = json!({"project": {"write": ["*"]}, "account": {"write": ["*"]}});
    let mut tokens = Vec::new();
    for (what, claims) in [
        ("a string", grant(json!({"project": {"write": full}}))),
        ("a star", grant(stars)),
        ("a star below the account", written(format!("{tenant}/*"))),
        ("no account", written(theirs.clone())),
        ("another account", written(format!("{tenant}x/{theirs}"))),
        ("a prefix", written(prefix.to_owned())),
        ("more than the name", written(format!("{full}/x"))),
        ("the account only", grant(json!({"account": {"write": [tenant]}}))),
        ("another verb", grant(json!({"project": {"admin": [full]}}))),
        ("an empty object", json!({"exp": exp})),
        ("true", grant(json!(true))),
    ] {
        tokens.push((what, forge.sign(&claims)?));
    }
    refused(server, &tokens).await
}

async fn replayed(server: &Server) -> Result<()> {
    let scene = Scene::set(server).await?;
    // Warm the decision first: a cache of decisions must not remember more than was asked.
    server.writer().miss(&server.gradle(&scene.fresh)).await?;
    scene.attack(server.writer(), &scene.scope(), &[], &[403]).await
}

async fn other_tenant(server: &Server) -> Result<()> {
    let scene = Scene::set(server).await?;
    for query in [scene.scope(), server.scope()] {
        scene.attack(server.stranger()?, &query, &[], &[403]).await?;
    }
    Ok(())
}

async fn read_only(server: &Server) -> Result<()> {
    let scene = Scene::set(server).await?;
    let (reader, key) = (server.reader()?, &scene.fresh);
    let kept = server.gradle(&server.key("kept"));
    server.writer().store(&kept, b"kept").await?;
    for (method, target) in [
        ("PUT", server.gradle(key)),
        ("POST", server.api(&format!("cas/{key}"))),
        ("PUT", server.api("keyvalue")),
        ("POST", format!("{}&hash={key}&name=n", server.api("module/start"))),
        ("DELETE", server.api("clean")),
        ("PUT", format!("/v1/cache/{key}")),
        ("PUT", format!("/api/metro/cache/{key}")),
        ("DELETE", server.gradle(key)),
        ("PATCH", server.gradle(key)),
    ] {
        let refused = reader.send(method, &target, &[], b"poison").await?;
        refused.expect_any(&[403, 405])?;
    }
    server.writer().hit(&kept, b"kept").await?;
    scene.unharmed().await
}

async fn elsewhere(server: &Server) -> Result<()> {
    let (scene, anonymous) = (Scene::set(server).await?, server.anonymous());
    let scope = scene.scope();
    let good = server.credentials.victim.as_ref().context("no credential")?.expose();
    for name in ["access_token", "token", "authorization", "jwt"] {
        let query = format!("{scope}&{name}={good}");
        let attack = scene.attack(anonymous, &query, &[], &[400, 401, 403]).await;
        attack.with_context(|| format!("in the query as {name}"))?;
    }
    let cookie = format!("token={good}; authorization={good}");
    let bearer = format!("Bearer {good}");
    for (name, value) in [
        ("Cookie", &cookie),
        ("Proxy-Authorization", &bearer),
        ("X-Authorization", &bearer),
        ("X-Forwarded-Authorization", &bearer),
    ] {
        let attack = scene.attack(anonymous, &scope, &[(name, value)], &[401, 403]).await;
        attack.context(name)?;
    }
    let second = [("Authorization", bearer.as_str())];
    let attack = scene.attack(server.writer(), &scope, &second, &[400, 401, 403]).await;
    attack.context("a second Authorization field")
}
