//! Signed tokens: what is believed, and every forgery we could think of.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use russet_identity::config::{Config, Error, HmacAlgorithm, Jwt, JwtKeys, PemSource};
use russet_identity::{Access, Anonymous, account_handle};
use serde_json::json;

use crate::mint::{Es256, claims, hs, unsigned, with, writer};
use crate::world::{START, World};

const SECRET: &str = "a secret of forty characters, or nearly so";

fn es256(pem: impl Into<String>) -> Config {
    let mut config = Config::open(Anonymous::Nothing);
    config.jwt = Some(Jwt::new(JwtKeys::Es256(PemSource::Inline(pem.into()))));
    config
}

fn hmac(algorithm: HmacAlgorithm) -> Config {
    let mut config = Config::open(Anonymous::Nothing);
    config.jwt = Some(Jwt::new(JwtKeys::Hmac {
        algorithm,
        secret: SECRET.into(),
    }));
    config
}

#[tokio::test]
async fn a_good_token_has_exactly_its_grants() {
    let key = Es256::new();
    let world = World::new(es256(key.public_pem()));
    let token = key.sign(&claims(&json!({
        "account": {"read": ["Acme"], "write": ["other"]},
        "project": {"read": ["acme/Docs"], "write": ["acme/app"]},
    })));
    let table = [
        ("acme", 200, 403),
        ("ACME", 200, 403),
        ("other", 200, 200),
        ("acme/docs", 200, 403),
        ("acme/APP", 200, 200),
        ("acme/else", 403, 403),
        ("other/app", 403, 403),
        ("stranger", 403, 403),
    ];
    // Twice: by signature, then from memory.
    for _ in 0..2 {
        for (target, read, write) in table {
            assert_eq!(world.status_now(&token, target, Access::Read), read, "{target} read");
            assert_eq!(world.status_now(&token, target, Access::Write), write, "{target} write");
        }
    }
}

#[tokio::test]
async fn any_key_of_a_bundle_may_have_signed_and_no_other() {
    let (old, new, foreign) = (Es256::new(), Es256::new(), Es256::new());
    let world = World::new(es256(format!("{}\n{}", old.public_pem(), new.public_pem())));
    assert_eq!(world.status_now(&old.sign(&writer()), "acme/app", Access::Write), 200);
    assert_eq!(world.status_now(&new.sign(&writer()), "acme/app", Access::Write), 200);
    let status = world.status_now(&foreign.sign(&writer()), "acme/app", Access::Write);
    assert_eq!(status, 401);
    // A key id is a hint at most.
    let header = json!({"alg": "ES256", "kid": "../../etc/passwd"});
    let hinted = new.sign_with(&header, &writer());
    assert_eq!(world.status_now(&hinted, "acme/app", Access::Write), 200);
}

#[tokio::test]
async fn a_key_that_the_token_brings_along_is_not_used() {
    let (key, thief) = (Es256::new(), Es256::new());
    let world = World::new(es256(key.public_pem()));
    let header = json!({
        "alg": "ES256",
        "jwk": {"kty": "EC", "crv": "P-256", "x": "AA", "y": "AA"},
        "x5c": [thief.public_pem()],
        "jku": "http://127.0.0.1:1/keys",
    });
    let token = thief.sign_with(&header, &writer());
    assert_eq!(world.status_now(&token, "acme/app", Access::Read), 401);
}

#[tokio::test]
async fn tokens_without_a_signature_are_never_accepted() {
    let key = Es256::new();
    let good = key.sign(&writer());
    let signature = good.rsplit_once('.').unwrap().1.to_owned();
    for config in [es256(key.public_pem()), hmac(HmacAlgorithm::Hs256)] {
        let world = World::new(config);
        for alg in ["none", "None", "NONE", "nOnE", "", "null"] {
            let text = unsigned(&json!({ "alg": alg }), &writer());
            for end in [".", "", &format!(".{signature}"), ".AAAA"] {
                let token = format!("{text}{end}");
                assert_eq!(world.status_now(&token, "acme/app", Access::Read), 401, "{alg:?}");
            }
        }
        let text = unsigned(&json!({}), &writer());
        assert_eq!(world.status_now(&format!("{text}."), "acme/app", Access::Read), 401);
    }
}

/// The classic: the server holds a public key, the token says HS256, and a careless library uses the one as the
/// secret of the other.
#[tokio::test]
async fn the_public_key_is_no_hmac_secret() {
    let key = Es256::new();
    let pem = key.public_pem();
    let world = World::new(es256(pem.clone()));
    let der: Vec<u8> = {
        let body: String = pem.lines().filter(|l| !l.starts_with("-----")).collect();
        base64::engine::general_purpose::STANDARD.decode(body).unwrap()
    };
    for algorithm in ["HS256", "HS384", "HS512"] {
        for secret in [pem.as_bytes(), pem.trim_end().as_bytes(), &der, &der[27..], b""] {
            let token = hs(algorithm, secret, &writer());
            assert_eq!(world.status_now(&token, "acme/app", Access::Read), 401);
        }
    }
    // The other way round: an HMAC node does not accept ES256, whoever signed.
    let world = World::new(hmac(HmacAlgorithm::Hs256));
    assert_eq!(world.status_now(&key.sign(&writer()), "acme/app", Access::Read), 401);
}

#[tokio::test]
async fn a_good_signature_under_another_name_is_not_good() {
    let key = Es256::new();
    let world = World::new(es256(key.public_pem()));
    for alg in ["HS256", "ES384", "es256", "ES256 ", "RS256"] {
        let token = key.sign_with(&json!({ "alg": alg }), &writer());
        assert_eq!(world.status_now(&token, "acme/app", Access::Read), 401, "{alg}");
    }
}

#[tokio::test]
async fn only_the_configured_hmac_is_accepted() {
    let all = [
        (HmacAlgorithm::Hs256, "HS256"),
        (HmacAlgorithm::Hs384, "HS384"),
        (HmacAlgorithm::Hs512, "HS512"),
    ];
    for (configured, name) in all {
        let world = World::new(hmac(configured));
        for (_, signed_as) in all {
            let expected = if signed_as == name { 200 } else { 401 };
            let token = hs(signed_as, SECRET.as_bytes(), &writer());
            let status = world.status_now(&token, "acme/app", Access::Write);
            assert_eq!(status, expected, "{name} {signed_as}");
        }
        let wrong = hs(name, b"another secret", &writer());
        assert_eq!(world.status_now(&wrong, "acme/app", Access::Write), 401);
        let lower = unsigned(&json!({"alg": name.to_lowercase()}), &writer()) + ".AAAA";
        assert_eq!(world.status_now(&lower, "acme/app", Access::Write), 401);
    }
}

#[tokio::test]
async fn time_is_kept_with_a_minute_of_leeway() {
    let key = Es256::new();
    let table = [
        ("exp", json!(START - 59), 200),
        ("exp", json!(START - 60), 401),
        ("exp", json!(START - 100_000), 401),
        ("exp", json!(null), 401),
        ("exp", json!("tomorrow"), 401),
        ("nbf", json!(START + 60), 200),
        ("nbf", json!(START + 61), 401),
    ];
    for (member, value, expected) in table {
        let world = World::new(es256(key.public_pem()));
        let token = key.sign(&with(writer(), member, value.clone()));
        let status = world.status_now(&token, "acme/app", Access::Write);
        assert_eq!(status, expected, "{member} {value}");
    }
}

#[tokio::test]
async fn a_remembered_token_ends_when_it_says_and_a_clock_set_back_does_not_prolong_it() {
    let key = Es256::new();
    let world = World::new(es256(key.public_pem()));
    let token = key.sign(&with(writer(), "exp", json!(START + 100)));
    assert_eq!(world.status_now(&token, "acme/app", Access::Write), 200);
    world.set_wall_clock(START - 50_000);
    world.advance(159);
    assert_eq!(world.status_now(&token, "acme/app", Access::Write), 200);
    world.advance(1);
    assert_eq!(world.status_now(&token, "acme/app", Access::Write), 401);
}

#[tokio::test]
async fn a_token_from_the_future_is_good_once_its_time_has_come() {
    let key = Es256::new();
    let world = World::new(es256(key.public_pem()));
    let token = key.sign(&with(writer(), "nbf", json!(START + 70)));
    assert_eq!(world.status_now(&token, "acme/app", Access::Write), 401);
    world.advance(11);
    assert_eq!(world.status_now(&token, "acme/app", Access::Write), 200);
}

#[tokio::test]
async fn issuer_and_audience_are_checked_when_configured() {
    let key = Es256::new();
    let mut config = es256(key.public_pem());
    let jwt = config.jwt.as_mut().unwrap();
    jwt.issuer = Some("tuist".into());
    jwt.audiences = vec!["tuist".into(), "cache".into()];
    let world = World::new(config);
    let table = [
        ("iss", json!("tuist"), 200),
        ("iss", json!("Tuist"), 401),
        ("iss", json!("evil"), 401),
        ("iss", json!(null), 401),
        ("iss", json!(["tuist"]), 401),
        ("aud", json!("cache"), 200),
        ("aud", json!(["other", "cache"]), 200),
        ("aud", json!(["other"]), 401),
        ("aud", json!([]), 401),
        ("aud", json!(null), 401),
        ("aud", json!({"tuist": true}), 401),
    ];
    for (member, value, expected) in table {
        let token = key.sign(&with(writer(), member, value.clone()));
        let status = world.status_now(&token, "acme/app", Access::Write);
        assert_eq!(status, expected, "{member} {value}");
    }
}

#[tokio::test]
async fn payment_is_asked_for_only_where_grants_do_not_suffice() {
    let key = Es256::new();
    let world = World::new(es256(key.public_pem()));
    let token = key.sign(&with(writer(), "cache_payment_required", json!(["Acme"])));
    assert_eq!(world.status_now(&token, "acme/app", Access::Write), 200);
    assert_eq!(world.status_now(&token, "acme/else", Access::Read), 402);
    assert_eq!(world.status_now(&token, "acme", Access::Read), 402);
    assert_eq!(world.status_now(&token, "other", Access::Read), 403);
}

#[tokio::test]
async fn another_account_is_refused_before_grants_are_looked_at() {
    let key = Es256::new();
    let mut config = es256(key.public_pem());
    config.tenant = Some(account_handle("Acme").unwrap());
    let world = World::new(config);
    let token = key.sign(&claims(&json!({"account": {"write": ["acme", "other"]}})));
    assert_eq!(world.status_now(&token, "acme", Access::Write), 200);
    assert_eq!(world.status_now(&token, "other", Access::Write), 403);
    // A forged token learns no more about other accounts than a good one.
    assert_eq!(world.status_now("forged", "other", Access::Write), 403);
    assert_eq!(world.status_now("forged", "acme", Access::Write), 401);
}

#[tokio::test]
async fn huge_and_mangled_tokens_are_refused_cheaply() {
    let key = Es256::new();
    let world = World::new(es256(key.public_pem()));
    let names: Vec<String> = (0..20_000).map(|n| format!("acme/p{n}")).collect();
    let huge = key.sign(&claims(&json!({"project": {"write": names}})));
    assert!(huge.len() > 100_000);
    assert_eq!(world.status_now(&huge, "acme/p1", Access::Write), 401);
    let good = key.sign(&writer());
    let (text, signature) = good.rsplit_once('.').unwrap();
    let raw = URL_SAFE_NO_PAD.decode(signature).unwrap();
    for mangled in [
        format!("{text}.{signature}A"),
        format!("{text}.{signature}="),
        format!("{text}.{}", &signature[1..]),
        format!("{text}.{}", URL_SAFE_NO_PAD.encode([0; 64])),
        format!("{text}.{}", URL_SAFE_NO_PAD.encode([&raw[32..], &raw[..32]].concat())),
        format!("{good}.{signature}"),
        format!(".{good}"),
        good.replace('.', ".."),
    ] {
        assert_eq!(world.status_now(&mangled, "acme/app", Access::Write), 401);
    }
}

#[tokio::test]
async fn unicode_names_in_grants_never_match_their_lookalikes() {
    let key = Es256::new();
    let world = World::new(es256(key.public_pem()));
    let token = key.sign(&claims(&json!({
        "account": {"write": ["\u{212a}ura", "ACM\u{c9}", "acme\u{0}", "\u{ff41}cme"]},
        "project": {"write": ["acme/\u{212a}ey", "\u{430}cme/app"]},
    })));
    for target in ["kura", "acme", "acme/key", "acme/app"] {
        assert_eq!(world.status_now(&token, target, Access::Read), 403, "{target}");
    }
}

#[tokio::test]
async fn bundles_that_are_no_public_keys_are_refused_with_a_reason() {
    let key = Es256::new();
    let refuse = |pem: String| World::try_new(es256(pem)).unwrap_err();
    assert!(matches!(refuse("garbage".into()), Error::Pem(_)));
    let private = refuse(key.private_pem());
    assert!(private.to_string().contains("private key"), "{private}");
    let p384 = format!("{}{}", key.public_pem(), Es256::p384().public_pem());
    assert!(matches!(refuse(p384), Error::NotP256(2)));
    assert!(matches!(refuse(key.public_pem().repeat(17)), Error::Pem(_)));
    let broken = key.public_pem().replace("MFkw", "!!!!");
    assert!(matches!(refuse(broken), Error::Pem(_) | Error::NotP256(_)));
}
