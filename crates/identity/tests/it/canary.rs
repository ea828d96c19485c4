//! No token, key or client secret in anything that is printed.

use std::fmt::Write as _;
use std::io;
use std::sync::{Arc, Mutex};

use russet_identity::config::{Config, HmacAlgorithm, Jwt, JwtKeys, TokenSource};
use russet_identity::credential::Remembered;
use russet_identity::{Access, Anonymous, Credential, Grants, Settings, StaticToken};
use serde_json::json;
use tracing_subscriber::fmt::MakeWriter;

use crate::mint::{hs, with, writer};
use crate::server::{Reply, Server};
use crate::world::World;

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Log {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

fn no_canary(text: &str) {
    let at = text
        .find("canary")
        .map(|at| text[at.saturating_sub(60)..].chars().take(120).collect::<String>());
    assert_eq!(at, None);
}

#[tokio::test]
async fn secrets_are_in_no_log_line_no_error_and_no_debug_output() {
    let log = Log::default();
    // Everything, other people's crates included; the runtime has one thread, so all of it comes here.
    let subscriber = tracing_subscriber::fmt()
        .with_writer(log.clone())
        .with_max_level(tracing::Level::TRACE)
        .finish();
    let guard = tracing::subscriber::set_default(subscriber);

    let server = Server::start().await;
    let mut config = server.config();
    config.jwt = Some(Jwt::new(JwtKeys::Hmac {
        algorithm: HmacAlgorithm::Hs256,
        secret: "canary-hmac-secret".into(),
    }));
    let grants = Grants::everything(Access::Read);
    let token = StaticToken::new("ci", &"canary-static-token".into(), grants).unwrap();
    config.tokens = Some(TokenSource::List(vec![token]));
    no_canary(&format!("{config:?} {config:#?}"));
    let world = World::new(config);

    let signed = hs("HS256", b"canary-hmac-secret", &with(writer(), "sub", json!("canary")));
    let mut shown = String::new();
    let replies = [
        Reply::Say(500, "canary".into()),
        Reply::Say(200, "canary".into()),
        Reply::Say(
            200,
            r#"{"active":"canary","projects":["canary"],"exp":"canary"}"#.into(),
        ),
        Reply::Hang,
        Reply::Half,
        Reply::json(&json!({"active": true, "cache_grants": {"account": {"write": ["acme"]}}})),
    ];
    for (n, reply) in replies.iter().enumerate() {
        server.all(reply);
        for token in [
            format!("canary-token-{n}"),
            signed.clone(),
            "canary-static-token".into(),
        ] {
            for target in ["acme", "acme/app", "acme/other"] {
                let decision = world.now(&token, target, Access::Write);
                let asked = world.ask(&token, target, Access::Write).await;
                let _ = write!(
                    shown,
                    "{decision:?} {asked:?} {} ",
                    asked.as_ref().map_or_else(ToString::to_string, |()| String::new())
                );
            }
        }
        world.advance(4);
        let _ = write!(shown, "{:?}", world.authorizer);
    }
    for header in ["Bearer canary token", "Basic canary", "Digest canary", "canary\u{e9}"] {
        let _ = write!(shown, "{:?} ", Credential::from_header(header.as_bytes()));
    }
    let mut remembered = Remembered::default();
    remembered.read(b"Bearer canary-token").unwrap();
    let _ = write!(shown, "{remembered:?} {:?}", Credential::from_header(b"canary-token"));
    no_canary(&shown);

    let mut settings = Settings {
        jwt_secret: Some("canary-hmac-secret".into()),
        client_secret: Some("canary-client-secret".into()),
        ..Settings::default()
    };
    no_canary(&format!("{settings:?}"));
    settings.url = Some("https://me:canary@tuist.dev".into());
    let error = settings.into_config().unwrap_err();
    no_canary(&format!("{error} {error:?}"));
    let error = StaticToken::new("x", &"canary".into(), Grants::everything(Access::Read)).unwrap_err();
    no_canary(&format!("{error} {error:?}"));
    let error = World::try_new(Config {
        tokens: Some(TokenSource::List(Vec::new())),
        ..Config::open(Anonymous::Nothing)
    });
    let fine = error.is_ok();
    assert!(fine, "an empty list locks everyone out, which is a legitimate wish");

    world.authorizer.shutdown().await;
    drop(guard);
    let log = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    assert!(log.contains("gave no answer about a token"), "the log was not captured");
    no_canary(&log);
}
