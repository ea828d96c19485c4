//! Incident `token-in-events`: no secret leaves by a log line, a span, an error or a `Debug`.

use russet_github::resolver;
use russet_sim_github::{Act, Deed, Fault};
use russet_sim_kit::logged::logged;

use crate::{INSTALLATION, World, key, tuist};

#[tokio::test]
async fn nothing_that_is_printed_holds_a_key_a_jwt_or_a_token() {
    let world = World::new().await;
    let token = world.client.registration_token(&tuist()).await.unwrap();
    let mut printed = format!("{token:?} {:?}", world.client);
    let revoke = Act::Meanwhile(vec![Deed::RevokeTokens {
        installation: INSTALLATION,
    }]);
    for act in [Act::Status(500), Act::Cut, revoke] {
        world.handle().inject(Fault::new("POST", "/**", act).for_ever());
        let error = world.client.registration_token(&tuist()).await.unwrap_err();
        let resolved = resolver::Error::from(error.clone());
        printed = format!("{printed} {error} {error:?} {} {resolved} {resolved:?}", error.advice());
        world.handle().clear_faults();
    }
    let logged = logged();
    assert!(
        logged.contains("actions.create_registration_token_for_org"),
        "the calls are not traced"
    );
    let pem = key().pkcs1_pem();
    let line = pem.lines().nth(3).unwrap();
    for text in [printed, logged] {
        // Installation tokens begin with ghs_, JWTs with the base64 of a brace and a quote.
        for secret in ["ghs_", "eyJ", line, token.token.expose()] {
            let leak = text.lines().find(|line| line.contains(secret));
            assert_eq!(leak, None);
        }
    }
}
