//! Token and key files that change while the process runs.

use std::fs;

use russet_identity::config::{Config, Error, Jwt, JwtKeys, PemSource, TokenSource};
use russet_identity::observer::Reload;
use russet_identity::{Access, Anonymous};

use crate::mint::{Es256, writer};
use crate::world::{World, eventually};

const TOKEN: &str = "0123456789abcdef0123";

fn file(access: &str) -> String {
    format!("[[token]]\nname = \"ci\"\nsecret = \"{TOKEN}\"\n{access} = [\"acme\"]\n")
}

#[tokio::test]
async fn a_changed_token_file_is_in_force_and_a_broken_one_is_not() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tokens.toml");
    fs::write(&path, file("write")).unwrap();
    let mut config = Config::open(Anonymous::Nothing);
    config.tokens = Some(TokenSource::File(path.clone()));
    let world = World::new(config);
    let write = || world.status_now(TOKEN, "acme", Access::Write);
    assert_eq!(write(), 200);
    assert_eq!(world.authorizer.reload().unwrap(), Reload::Unchanged);

    fs::write(&path, "[[token]]\nname = ").unwrap();
    assert!(matches!(
        world.authorizer.reload(),
        Err(Error::TokenFile { line: 2, .. })
    ));
    assert_eq!(write(), 200);
    fs::remove_file(&path).unwrap();
    let error = world.authorizer.reload().unwrap_err();
    assert!(error.to_string().contains("tokens.toml"), "{error}");
    assert_eq!(write(), 200);

    fs::write(&path, file("read")).unwrap();
    assert_eq!(world.authorizer.reload().unwrap(), Reload::Applied);
    assert_eq!(write(), 403);

    // Nobody has to ask for it.
    fs::write(&path, file("write")).unwrap();
    eventually("the file is read again", || write() == 200).await;
    world.authorizer.shutdown().await;
    assert!(world.notes.reloads.lock().unwrap().contains(&Reload::Failed));
}

#[tokio::test]
async fn taking_a_key_out_of_the_bundle_voids_what_it_signed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("keys.pem");
    let (old, new) = (Es256::new(), Es256::new());
    fs::write(&path, old.public_pem() + &new.public_pem()).unwrap();
    let mut config = Config::open(Anonymous::Nothing);
    config.jwt = Some(Jwt::new(JwtKeys::Es256(PemSource::File(path.clone()))));
    let world = World::new(config);
    let (by_old, by_new) = (old.sign(&writer()), new.sign(&writer()));
    let both = || {
        (
            world.status_now(&by_old, "acme/app", Access::Write),
            world.status_now(&by_new, "acme/app", Access::Write),
        )
    };
    assert_eq!(both(), (200, 200));
    fs::write(&path, new.public_pem()).unwrap();
    assert_eq!(world.authorizer.reload().unwrap(), Reload::Applied);
    assert_eq!(both(), (401, 200));
    fs::write(&path, new.private_pem()).unwrap();
    assert!(world.authorizer.reload().is_err());
    assert_eq!(both(), (401, 200));
    world.authorizer.shutdown().await;
}
