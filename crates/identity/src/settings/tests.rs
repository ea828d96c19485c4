use super::*;

fn config(change: impl FnOnce(&mut Settings)) -> Result<Config, Error> {
    let mut settings = Settings::default();
    change(&mut settings);
    settings.into_config()
}

#[test]
fn nothing_set_means_everyone_reads_and_nobody_writes() {
    let config = config(|_| {}).unwrap();
    assert!(!config.checks_credentials());
    assert_eq!(config.anonymous, Anonymous::Read);
    assert_eq!(config.memory.entries, 100_000);
}

#[test]
fn any_means_of_checking_shuts_strangers_out() {
    let means: [fn(&mut Settings); 4] = [
        |s| s.url = Some("https://tuist.dev".into()),
        |s| s.jwt_secret = Some("secret".into()),
        |s| s.jwt_public_key = Some("pem".into()),
        |s| s.tokens_file = Some("tokens.toml".into()),
    ];
    for means in means {
        let closed = config(means).unwrap();
        assert!(closed.checks_credentials());
        assert_eq!(closed.anonymous, Anonymous::Nothing);
        // Switching off what is configured is a contradiction, not an open cache.
        let contradiction = config(|s| {
            means(s);
            s.enabled = Some(false);
        });
        assert!(matches!(contradiction, Err(Error::DisabledWithMeans)));
    }
    let enabled = config(|s| s.enabled = Some(true));
    assert!(matches!(enabled, Err(Error::EnabledWithoutMeans)));
}

#[test]
fn the_algorithm_must_fit_the_key() {
    let hmac = |algorithm: Option<&str>| {
        config(|s| {
            s.jwt_secret = Some("secret".into());
            s.jwt_algorithm = algorithm.map(str::to_owned);
        })
    };
    for (given, expected) in [
        (None, HmacAlgorithm::Hs256),
        (Some("HS384"), HmacAlgorithm::Hs384),
        (Some("HS512"), HmacAlgorithm::Hs512),
    ] {
        let config = hmac(given).unwrap();
        assert!(matches!(config.jwt.unwrap().keys, JwtKeys::Hmac { algorithm, .. } if algorithm == expected));
    }
    for bad in ["none", "ES256", "RS256", "hs256"] {
        assert!(matches!(hmac(Some(bad)), Err(Error::Algorithm)), "{bad}");
    }
    let es256 = |algorithm: &str| {
        config(|s| {
            s.jwt_public_key = Some("pem".into());
            s.jwt_algorithm = Some(algorithm.to_owned());
        })
    };
    assert!(es256("ES256").is_ok() && es256("").is_ok());
    assert!(matches!(es256("HS256"), Err(Error::Algorithm)));
}

#[test]
fn halves_and_contradictions_are_named() {
    let both = config(|s| {
        s.jwt_public_key = Some("pem".into());
        s.jwt_secret = Some("secret".into());
    });
    assert!(matches!(both, Err(Error::SecretAndPublicKey)));
    let half = config(|s| {
        s.url = Some("https://tuist.dev".into());
        s.client_id = Some("id".into());
    });
    assert!(matches!(half, Err(Error::HalfClient)));
    let issuer = config(|s| s.jwt_issuer = Some("tuist".into()));
    assert!(matches!(issuer, Err(Error::JwtWithoutKey("issuer"))));
    let audience = config(|s| s.jwt_audiences = vec!["a".into()]);
    assert!(matches!(audience, Err(Error::JwtWithoutKey(_))));
    let introspect = config(|s| s.jwt_introspect = true);
    assert!(matches!(introspect, Err(Error::JwtWithoutKey(_))));
    let alone = config(|s| {
        s.jwt_secret = Some("secret".into());
        s.jwt_introspect = true;
    });
    assert!(matches!(alone, Err(Error::IntrospectWithoutClient)));
}

#[test]
fn empty_text_is_not_set() {
    let config = config(|s| {
        s.url = Some(" ".into());
        s.jwt_secret = Some("".into());
        s.jwt_public_key = Some(String::new());
        s.client_id = Some(String::new());
        s.jwt_audiences = vec![String::new()];
    });
    assert!(!config.unwrap().checks_credentials());
}
