//! Callers without a credential, and static tokens beside them.

use russet_identity::config::{Config, TokenSource};
use russet_identity::{Access, Anonymous, Clock as _, Decision, Denial, Grants, Scope, StaticToken, account_handle};

use crate::world::{World, scope};

const TOKEN: &str = "0123456789abcdef0123";

/// What is said to a caller without a credential.
fn decided(world: &World, target: &str, access: Access) -> Decision {
    let now = world.clock.now();
    world.authorizer.decide_now(None, &scope(target), access, now)
}

fn nobody(world: &World, target: &str, access: Access) -> u16 {
    match decided(world, target, access) {
        Decision::Allow => 200,
        Decision::Deny(denial) => denial.http_status(),
        Decision::NeedsBackend => 0,
    }
}

fn with_token(anonymous: Anonymous) -> Config {
    let grants = Grants::of([
        (scope("acme").into_owned(), Access::Write),
        (scope("acme/app").into_owned(), Access::Read),
    ]);
    let mut config = Config::open(anonymous);
    config.tokens = Some(TokenSource::List(vec![
        StaticToken::new("ci", &TOKEN.into(), grants).unwrap(),
    ]));
    config.tenant = Some(account_handle("acme").unwrap());
    config
}

#[tokio::test]
async fn an_open_cache_gives_what_it_was_told_to_and_ignores_credentials() {
    let world = World::new(Config::open(Anonymous::Read));
    assert_eq!(nobody(&world, "any/thing", Access::Read), 200);
    assert_eq!(nobody(&world, "any/thing", Access::Write), 403);
    assert_eq!(world.status_now("whatever", "any", Access::Read), 200);
    assert_eq!(world.status_now("whatever", "any", Access::Write), 403);
    let world = World::new(Config::open(Anonymous::ReadWrite));
    assert_eq!(nobody(&world, "any", Access::Write), 200);
    assert!(!world.authorizer.checks_credentials());
}

#[tokio::test]
async fn a_missing_header_is_complained_about_before_everything_else() {
    let world = World::new(with_token(Anonymous::Nothing));
    let Decision::Deny(denial) = decided(&world, "other", Access::Read) else {
        panic!("it was not refused")
    };
    let told = (denial.http_status(), denial.message());
    assert_eq!(told, (401, "Missing Authorization header"));
    let unscoped = Scope::parse("", "").unwrap_err();
    let denial = world.authorizer.refuse_unscoped(None, unscoped.clone());
    assert_eq!(denial, Denial::missing_header());
    let open = World::new(Config::open(Anonymous::Read));
    let denial = open.authorizer.refuse_unscoped(None, unscoped);
    assert_eq!((denial.http_status(), denial.message()), (400, "Missing tenant_id"));
}

#[tokio::test]
async fn static_tokens_write_where_strangers_read() {
    let world = World::new(with_token(Anonymous::Read));
    assert_eq!(nobody(&world, "acme/secret", Access::Read), 200);
    assert_eq!(nobody(&world, "acme", Access::Write), 401);
    assert_eq!(nobody(&world, "other", Access::Read), 403);
    assert_eq!(world.status_now(TOKEN, "acme", Access::Write), 200);
    assert_eq!(world.status_now(TOKEN, "acme/app", Access::Read), 200);
    assert_eq!(world.status_now(TOKEN, "acme/app", Access::Write), 403);
    assert_eq!(world.status_now(TOKEN, "other", Access::Read), 403);
    // A wrong token is not a missing one.
    assert_eq!(world.status_now("0123456789abcdef0124", "acme", Access::Read), 401);
    assert_eq!(world.status(TOKEN, "acme", Access::Write).await, 200);
    assert_eq!(world.authorizer.remembered(), 0);
}
