use super::*;

#[test]
fn a_cache_nobody_could_use_is_refused() {
    let shut = Config::open(Anonymous::Nothing).validate();
    assert!(matches!(shut, Err(Error::NobodyMayEnter)));
    assert!(Config::open(Anonymous::Read).validate().is_ok());
}

#[test]
fn only_read_write_lets_strangers_write() {
    let table = [
        (Anonymous::Nothing, false, false),
        (Anonymous::Read, true, false),
        (Anonymous::ReadWrite, true, true),
    ];
    for (anonymous, read, write) in table {
        assert_eq!(anonymous.permits(Access::Read), read);
        assert_eq!(anonymous.permits(Access::Write), write);
        assert_eq!(anonymous.as_str().parse::<Anonymous>().unwrap(), anonymous);
    }
    assert!("write".parse::<Anonymous>().is_err());
}

#[test]
fn addresses_that_would_leak_or_mislead_are_refused() {
    for bad in [
        "",
        "tuist.dev",
        "ftp://tuist.dev",
        "https://",
        "https://user:canary@tuist.dev",
        "https://user@tuist.dev",
        "https://tuist.dev?x=1",
        "unix:/run/x",
    ] {
        let error = ControlPlane::new(bad).unwrap_err();
        assert!(!format!("{error} {error:?}").contains("canary"));
    }
    assert!(ControlPlane::new("http://tuist.default.svc:8080/base/").is_ok());
}

#[test]
fn answers_are_never_believed_for_longer_than_a_minute() {
    let with = |change: fn(&mut Memory)| {
        let mut config = Config::open(Anonymous::Read);
        change(&mut config.memory);
        config.validate().is_ok()
    };
    assert!(with(|_| {}));
    assert!(!with(|m| m.revocation = Duration::from_secs(61)));
    assert!(!with(|m| m.refresh_after = m.revocation));
    assert!(!with(|m| m.refusal = Duration::ZERO));
    assert!(!with(|m| m.back_off = Duration::from_hours(1)));
    assert!(!with(|m| m.entries = 0));
}

#[test]
fn a_public_key_is_not_accepted_as_a_secret() {
    let mut config = Config::open(Anonymous::Nothing);
    config.jwt = Some(Jwt::new(JwtKeys::Hmac {
        algorithm: HmacAlgorithm::Hs256,
        secret: Secret::from("-----BEGIN PUBLIC KEY-----\nMFkw\n-----END PUBLIC KEY-----"),
    }));
    assert!(matches!(config.validate(), Err(Error::SecretIsPem)));
}
