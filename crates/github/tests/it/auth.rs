//! Who we are, and what GitHub makes of it.

use std::sync::atomic::Ordering;
use std::time::Duration;

use russet_github::error::Kind;
use russet_sim_github::{Act, Deed, Fault};

use crate::{APP, INSTALLATION, World, another_key, credentials, key, tuist};

#[tokio::test]
async fn a_host_registers_with_the_token_that_is_minted() {
    for pem in [key().pkcs1_pem(), key().pkcs8_pem()] {
        let world = World::with(credentials(APP, INSTALLATION, &pem), |_| ()).await;
        let token = world.client.registration_token(&tuist()).await.unwrap();
        assert_eq!(token.expires_at.duration_since(world.handle().now()).as_secs(), 3600);
        let register = Deed::Register {
            org: "tuist".to_owned(),
            token: token.token.expose().clone(),
            name: "mac-1".to_owned(),
            labels: vec!["macos".to_owned()],
        };
        world.handle().perform(register).unwrap();
        let runners = world.client.list_runners(&tuist()).await.unwrap();
        assert_eq!(runners.len(), 1);
        assert!(runners[0].name == "mac-1" && runners[0].is_online());
    }
}

#[tokio::test]
async fn an_enterprise_server_is_reached_below_its_path() {
    let world = World::with(credentials(APP, INSTALLATION, &key().pkcs1_pem()), |config| {
        config.url.set_path("/api/v3");
    })
    .await;
    world.client.registration_token(&tuist()).await.unwrap();
}

#[tokio::test]
async fn an_installation_token_is_kept_until_shortly_before_its_end() {
    let world = World::new().await;
    for _ in 0..3 {
        world.client.registration_token(&tuist()).await.unwrap();
    }
    assert_eq!((world.mints(), world.registrations()), (1, 3));
    world.handle().advance(Duration::from_mins(54));
    world.client.registration_token(&tuist()).await.unwrap();
    assert_eq!(world.mints(), 1);
    world.handle().advance(Duration::from_mins(2));
    world.client.registration_token(&tuist()).await.unwrap();
    assert_eq!(world.mints(), 2);
}

#[tokio::test]
async fn callers_who_come_together_share_one_token() {
    let world = World::new().await;
    let org = tuist();
    let calls = (0..16).map(|_| world.client.registration_token(&org));
    for result in futures::future::join_all(calls).await {
        result.unwrap();
    }
    assert_eq!((world.mints(), world.registrations()), (1, 16));
}

#[tokio::test]
async fn a_token_that_was_revoked_is_replaced_once() {
    let world = World::new().await;
    world.client.registration_token(&tuist()).await.unwrap();
    let installation = INSTALLATION;
    world.handle().perform(Deed::RevokeTokens { installation }).unwrap();
    world.client.registration_token(&tuist()).await.unwrap();
    assert_eq!(world.mints(), 2);
    // Revoked again and again, right before each use: there is an end to it.
    let revoke = Act::Meanwhile(vec![Deed::RevokeTokens { installation }]);
    world.handle().inject(Fault::new("POST", "/orgs/**", revoke).for_ever());
    let error = world.client.registration_token(&tuist()).await.unwrap_err();
    assert_eq!(error.reason(), "BadCredentials");
    assert!(error.is_transient());
    assert_eq!(world.mints(), 3);
}

#[tokio::test]
async fn a_key_of_another_app_is_bad_credentials() {
    let world = World::with(credentials(APP, INSTALLATION, &another_key().pkcs1_pem()), |_| ()).await;
    let error = world.client.registration_token(&tuist()).await.unwrap_err();
    assert_eq!(error.reason(), "BadCredentials");
    assert!(!error.is_transient());
    assert!(error.advice().contains("private-key"), "{}", error.advice());
    assert_eq!((world.mints(), world.registrations()), (1, 0));
    // The operator adds the key on GitHub.
    let public_key = another_key().public_pem();
    world.handle().perform(Deed::AddKey { app: APP, public_key }).unwrap();
    world.client.registration_token(&tuist()).await.unwrap();
}

#[tokio::test]
async fn an_app_or_an_installation_that_does_not_exist_is_not_installed() {
    for (app, installation) in [(APP, 9), (9, INSTALLATION)] {
        let world = World::with(credentials(app, installation, &key().pkcs1_pem()), |_| ()).await;
        let error = world.client.registration_token(&tuist()).await.unwrap_err();
        assert_eq!(error.kind, Kind::NotInstalled { app, installation });
    }
}

#[tokio::test]
async fn an_installation_elsewhere_is_told_apart_from_a_missing_right() {
    let world = World::new().await;
    for asked in ["acme", "nobody-has-this"] {
        let error = world
            .client
            .registration_token(&asked.parse().unwrap())
            .await
            .unwrap_err();
        let (installed_on, asked) = ("tuist".to_owned(), asked.to_owned());
        assert_eq!(error.kind, Kind::WrongOrg { installed_on, asked });
        assert!(error.advice().contains("ghOrg"), "{}", error.advice());
    }
    world
        .client
        .registration_token(&"TUIST".parse().unwrap())
        .await
        .unwrap();
}

#[tokio::test]
async fn a_missing_right_is_named_when_the_token_is_asked_for_and_when_it_is_used() {
    let world = World::new().await;
    let grant = |runners: Option<&str>| Deed::Grant {
        installation: INSTALLATION,
        runners: runners.map(str::to_owned),
    };
    world.handle().perform(grant(Some("read"))).unwrap();
    let error = world.client.registration_token(&tuist()).await.unwrap_err();
    assert!(
        matches!(&error.kind, Kind::PermissionDenied { what } if what.contains("organization_self_hosted_runners")),
        "{error}"
    );
    assert!(error.advice().contains("Self-hosted runners"), "{}", error.advice());
    assert_eq!(world.registrations(), 0);
    world.handle().perform(grant(Some("write"))).unwrap();
    world.client.registration_token(&tuist()).await.unwrap();
    world.handle().perform(grant(None)).unwrap();
    let error = world.client.registration_token(&tuist()).await.unwrap_err();
    assert!(
        matches!(&error.kind, Kind::PermissionDenied { what } if what.contains("organization_self_hosted_runners")),
        "{error}"
    );
}

#[tokio::test]
async fn a_suspended_installation_says_so_before_and_after_the_token() {
    let world = World::new().await;
    let suspend = |suspended| Deed::Suspend {
        installation: INSTALLATION,
        suspended,
    };
    world.handle().perform(suspend(true)).unwrap();
    assert_eq!(
        world.client.registration_token(&tuist()).await.unwrap_err().kind,
        Kind::Suspended
    );
    world.handle().perform(suspend(false)).unwrap();
    world.client.registration_token(&tuist()).await.unwrap();
    world.handle().perform(suspend(true)).unwrap();
    assert_eq!(
        world.client.registration_token(&tuist()).await.unwrap_err().kind,
        Kind::Suspended
    );
}

#[tokio::test]
async fn a_clock_that_is_minutes_off_heals_by_githubs_own() {
    for wrong_by in [-3600, -600, 45, 600, 3600] {
        let world = World::new().await;
        world.clock.wrong_by.store(wrong_by, Ordering::SeqCst);
        world.client.registration_token(&tuist()).await.unwrap();
        assert_eq!(world.mints(), 2, "{wrong_by}");
        // The token is kept for its hour, not for what the wrong clock makes of it.
        world.handle().advance(Duration::from_mins(54));
        world.client.registration_token(&tuist()).await.unwrap();
        assert_eq!(world.mints(), 2, "{wrong_by}");
        world.handle().advance(Duration::from_mins(2));
        world.client.registration_token(&tuist()).await.unwrap();
        assert_eq!(world.mints(), 3, "{wrong_by}");
    }
}

#[tokio::test]
async fn a_clock_that_is_a_little_off_is_not_noticed() {
    for wrong_by in [-60, -20, 20, 30] {
        let world = World::new().await;
        world.clock.wrong_by.store(wrong_by, Ordering::SeqCst);
        world.client.registration_token(&tuist()).await.unwrap();
        assert_eq!(world.mints(), 1, "{wrong_by}");
    }
}
