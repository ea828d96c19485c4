//! No secret leaves by a log line, a span, an error or a `Debug`.

use std::io::Write;
use std::sync::{Mutex, OnceLock};

use serde_json::json;
use tracing_subscriber::fmt::format::FmtSpan;

use crate::server::Script;
use crate::{PROJECT, World, mac, mac_id, zone};

/// Everything any test of this program logged.
static LOGGED: Mutex<Vec<u8>> = Mutex::new(Vec::new());

struct Sink;

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        LOGGED.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Logs everything there is, for the whole program: a subscriber of one test would miss call sites that another test's
/// thread met first.
pub(crate) fn listen() {
    static ONCE: OnceLock<()> = OnceLock::new();
    ONCE.get_or_init(|| {
        tracing_subscriber::fmt()
            .with_max_level(tracing::Level::TRACE)
            .with_span_events(FmtSpan::FULL)
            .with_ansi(false)
            .with_writer(|| Sink)
            .init();
    });
}

#[tokio::test]
async fn nothing_that_is_printed_holds_a_key_or_a_password() {
    const GET: &str = "GET /apple-silicon/v1alpha1/zones/fr-par-1/servers/2f1c7a50-9f3b-4f5e-8a53-0f6a0e1d2c3b";
    let denied = json!({"type": "denied_authentication", "method": "api_key", "reason": "canary-secret-key unknown"});
    let script = Script::new()
        .answer(GET, 401, denied)
        .answer(GET, 500, r#"{"message":"canary-secret-key broke us"}"#)
        .answer(GET, 200, mac(mac_id().as_str(), "tuist-pool-1", PROJECT))
        .answer(
            GET,
            200,
            r#"{"id":"s1","sudo_password":"canary-sudo-password","name":7}"#,
        );
    let world = World::new(script).await;
    let refused = world.client.get_mac(&zone(), &mac_id()).await.unwrap_err();
    let mac = world.client.get_mac(&zone(), &mac_id()).await.unwrap();
    let unreadable = world.client.get_mac(&zone(), &mac_id()).await.unwrap_err();
    let printed = format!(
        "{refused} {refused:?} {mac:?} {unreadable} {unreadable:?} {:?}",
        world.client
    );
    let logged = String::from_utf8_lossy(&LOGGED.lock().unwrap()).into_owned();
    assert!(logged.contains("apple_silicon.get_server"), "the calls are not traced");
    assert!(printed.contains("[redacted] unknown"), "{printed}");
    for text in [printed, logged] {
        let leak = text.lines().find(|line| line.contains("canary"));
        assert_eq!(leak, None);
    }
    world.finish();
}
