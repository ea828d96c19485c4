//! The SSH client against a server that behaves as told.

use std::net::SocketAddr;
use std::time::Duration;

use russet_bootstrap::ssh::{Auth, During, Error, Exec, Exit, HostKeyPin, Limits, Session, Target, connect};
use russet_telemetry::Secret;
use russh::keys::PrivateKey;
use russh::keys::ssh_key::LineEnding;
use tokio::net::TcpListener;

use crate::ssh_server::{Behaviour, PASSWORD, Server, USER, ecdsa, ed25519};
use crate::waiting::{LONG, eventually, overrun};

fn limits() -> Limits {
    Limits {
        dial: LONG,
        auth: LONG,
        keepalive: LONG,
        output: 64 * 1024,
    }
}

fn limits_with(change: impl FnOnce(&mut Limits)) -> Limits {
    let mut limits = limits();
    change(&mut limits);
    limits
}

fn with_password(server: &Server) -> Target {
    target(server.address)
}

fn with(server: &Server, auth: Auth) -> Target {
    Target {
        auth,
        ..with_password(server)
    }
}

fn target(address: SocketAddr) -> Target {
    Target {
        address,
        user: USER.to_owned(),
        auth: Auth::Password(Secret::from(PASSWORD)),
        pin: None,
    }
}

fn secret(key: &PrivateKey) -> Auth {
    Auth::Key(Secret::new(key.to_openssh(LineEnding::LF).unwrap().to_string()))
}

fn exec(command: &str) -> Exec<'_> {
    Exec {
        command,
        stdin: None,
        deadline: LONG,
    }
}

async fn session(server: &Server) -> Session {
    connect(&with_password(server), &limits()).await.unwrap()
}

/// Whether an error is a connection that broke in that part.
fn is_dropped(error: &Error, part: During) -> bool {
    matches!(error, Error::Dropped { during, .. } if *during == part)
}

/// Whether an error is silence in that part.
fn is_timeout(error: &Error, part: During) -> bool {
    matches!(error, Error::Timeout { during, .. } if *during == part)
}

#[tokio::test]
async fn a_password_and_a_key_open_the_door_and_strangers_stay_out() {
    let (key, stranger) = (ed25519(), ed25519());
    let server = Server::start(vec![ed25519()], Some(key.public_key().clone()), Behaviour::default()).await;
    for auth in [Auth::Password(Secret::from(PASSWORD)), secret(&key)] {
        let target = with(&server, auth);
        connect(&target, &limits()).await.unwrap().close().await;
    }
    for (auth, method) in [
        (Auth::Password(Secret::from("wrong")), "password"),
        (secret(&stranger), "key"),
    ] {
        let target = with(&server, auth);
        let error = connect(&target, &limits()).await.unwrap_err();
        let Error::AuthRejected {
            method: seen,
            ref accepts,
            ref host_key,
            ..
        } = error
        else {
            panic!("{error:?}");
        };
        assert_eq!(seen, method);
        assert!(accepts.contains(&"publickey".to_owned()), "{error}");
        assert_eq!(
            host_key.algorithm(),
            Some("ssh-ed25519"),
            "the host key is known even so"
        );
        assert!(!error.is_transient());
        assert!(!format!("{error} {error:?}").contains("canary"));
    }
}

#[tokio::test]
async fn a_key_that_cannot_be_used_costs_the_host_no_connection() {
    let server = Server::behaving(|_| {}).await;
    for text in [
        "",
        "canary",
        "-----BEGIN OPENSSH PRIVATE KEY-----\ncanary\n-----END OPENSSH PRIVATE KEY-----\n",
    ] {
        let target = Target {
            auth: Auth::Key(Secret::from(text)),
            ..with_password(&server)
        };
        let error = connect(&target, &limits()).await.unwrap_err();
        assert!(matches!(error, Error::BadKey { .. }), "{error:?}");
        assert!(!format!("{error} {error:?}").contains("canary"));
    }
    assert_eq!(server.seen.lock().unwrap().connections, 0);
}

#[tokio::test]
async fn a_changed_host_key_ends_the_call_before_anything_secret_is_said() {
    let old = HostKeyPin::of(ed25519().public_key());
    let server = Server::behaving(|it| it.stall_in_auth = true).await;
    let target = Target {
        pin: Some(old.clone()),
        ..with_password(&server)
    };
    let error = connect(&target, &limits()).await.unwrap_err();
    let Error::HostKeyChanged {
        ref expected,
        ref found,
        ..
    } = error
    else {
        panic!("{error:?}");
    };
    assert_eq!(*expected, old);
    assert_ne!(found, expected);
    assert!(error.to_string().contains("reinstalled"), "{error}");
    assert_eq!(error.host_key(), Some(found));
}

/// Pins that the Go provider stored are of the host's ECDSA key, and do not say so. A client that asks for another key first
/// sees a stranger on every known host.
#[tokio::test]
async fn pins_of_the_ecdsa_key_without_its_name_still_fit() {
    let (first, second) = (ed25519(), ecdsa());
    let bare = |key: &PrivateKey| {
        HostKeyPin::of(key.public_key())
            .fingerprint()
            .parse::<HostKeyPin>()
            .unwrap()
    };
    let pins = [
        bare(&second),
        bare(&first),
        HostKeyPin::of(second.public_key()),
        HostKeyPin::of(first.public_key()),
    ];
    let server = Server::start(vec![first.clone(), second.clone()], None, Behaviour::default()).await;
    for (pin, connections) in pins.into_iter().zip([1, 2, 1, 1]) {
        server.seen.lock().unwrap().connections = 0;
        let target = Target {
            pin: Some(pin.clone()),
            ..with_password(&server)
        };
        let session = connect(&target, &limits())
            .await
            .unwrap_or_else(|error| panic!("{pin}: {error}"));
        assert_eq!(session.host_key().fingerprint(), pin.fingerprint());
        assert!(
            session.host_key().algorithm().is_some(),
            "what is kept from now on names its algorithm"
        );
        assert_eq!(server.seen.lock().unwrap().connections, connections, "{pin}");
    }
    let target = Target {
        pin: Some(bare(&ecdsa())),
        ..with_password(&server)
    };
    let error = connect(&target, &limits()).await.unwrap_err();
    assert!(
        matches!(error, Error::HostKeyChanged { .. }),
        "a pin of no key is still a stranger: {error:?}"
    );
}

#[tokio::test]
async fn a_closed_port_is_refused_and_silence_is_a_timeout() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let target = target(address);
    // The kernel accepts; nobody ever says a word.
    let short = limits_with(|it| it.dial = Duration::from_millis(50));
    let error = connect(&target, &short).await.unwrap_err();
    assert!(is_timeout(&error, During::Dial), "{error:?}");
    assert!(error.is_transient());

    // Bound, so that no other test gets this port, and never listening.
    let closed = tokio::net::TcpSocket::new_v4().unwrap();
    closed.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let target = self::target(closed.local_addr().unwrap());
    let error = connect(&target, &limits()).await.unwrap_err();
    assert!(matches!(error, Error::Refused { .. }), "{error:?}");
    assert!(error.to_string().contains("no SSH server listens"), "{error}");
}

#[tokio::test]
async fn what_speaks_no_ssh_is_told_apart_from_a_lost_connection() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let answers = tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let _ = tokio::io::AsyncWriteExt::shutdown(&mut stream).await;
        }
    });
    let target = target(address);
    let error = connect(&target, &limits()).await.unwrap_err();
    assert!(is_dropped(&error, During::Dial), "{error:?}");
    answers.abort();
}

#[tokio::test]
async fn a_host_that_stalls_or_hangs_up_while_we_authenticate_is_not_a_rejection() {
    let stalls = Server::behaving(|it| it.stall_in_auth = true).await;
    let short = limits_with(|it| it.auth = Duration::from_millis(50));
    let error = connect(&with_password(&stalls), &short).await.unwrap_err();
    assert!(is_timeout(&error, During::Authentication), "{error:?}");
    assert!(error.host_key().is_some());

    let drops = Server::behaving(|it| it.drop_in_auth = true).await;
    let error = connect(&with_password(&drops), &limits()).await.unwrap_err();
    assert!(is_dropped(&error, During::Authentication), "{error:?}");
    assert!(error.is_transient());
}

#[tokio::test]
async fn input_arrives_whole_and_output_and_status_come_back() {
    let server = Server::behaving(|_| {}).await;
    let session = session(&server).await;
    // Larger than a window and a packet, smaller than what is kept.
    let limits = limits_with(|it| it.output = 8 << 20);
    let wide = connect(&with_password(&server), &limits).await.unwrap();
    let input: Vec<u8> = (0..3_000_000_u32)
        .map(|number| b'a' + u8::try_from(number % 26).unwrap())
        .collect();
    let output = wide
        .run(Exec {
            command: "cat",
            stdin: Some(Secret::new(input.clone())),
            deadline: LONG,
        })
        .await
        .unwrap();
    assert!(output.status.is_success());
    assert_eq!(output.stdout.len(), input.len());
    assert!(output.stdout.as_bytes() == input, "not what was sent");

    let output = session.run(exec("fail")).await.unwrap();
    assert_eq!(output.status, Exit::Code(7));
    assert_eq!(output.stderr, "broken\n");
    assert_eq!(output.stdout, "");
}

#[tokio::test]
async fn a_talkative_command_fills_no_memory_and_its_end_is_kept() {
    let server = Server::behaving(|_| {}).await;
    let small = limits_with(|it| it.output = 2048);
    let session = connect(&with_password(&server), &small).await.unwrap();
    let output = session.run(exec("flood")).await.unwrap();
    assert!(output.cut);
    assert_eq!(output.stdout.len(), 2048);
    assert!(output.stdout.contains("\n1999 xx"), "{}", &output.stdout[..40]);
}

#[tokio::test]
async fn many_commands_share_a_connection() {
    let server = Server::behaving(|_| {}).await;
    let session = session(&server).await;
    let runs = (0..16_u8).map(|number| {
        let stdin = Some(Secret::new(vec![b'a' + number; 1000]));
        session.run(Exec {
            command: "cat",
            stdin,
            deadline: LONG,
        })
    });
    for (number, output) in futures::future::join_all(runs).await.into_iter().enumerate() {
        let letter = char::from(b'a' + u8::try_from(number).unwrap());
        assert_eq!(output.unwrap().stdout, letter.to_string().repeat(1000));
    }
    assert_eq!(server.seen.lock().unwrap().connections, 1);
}

#[tokio::test]
async fn a_connection_that_breaks_in_the_middle_of_output_is_an_error_and_not_an_end() {
    let server = Server::behaving(|_| {}).await;
    let session = session(&server).await;
    let error = session.run(exec("drop")).await.unwrap_err();
    assert!(is_dropped(&error, During::Command), "{error:?}");
    assert!(session.is_closed());
    let error = session.run(exec("cat")).await.unwrap_err();
    assert!(matches!(error, Error::Dropped { .. }), "{error:?}");
}

#[tokio::test]
async fn a_command_without_a_status_and_a_refused_one_are_told_apart() {
    let server = Server::behaving(|_| {}).await;
    let session = session(&server).await;
    let error = session.run(exec("vanish")).await.unwrap_err();
    assert!(matches!(error, Error::NoStatus { .. }), "{error:?}");
    let error = session.run(exec("refuse")).await.unwrap_err();
    assert!(matches!(error, Error::CommandRefused { .. }), "{error:?}");

    let full = Server::behaving(|it| it.refuse_channels = true).await;
    let error = self::session(&full).await.run(exec("cat")).await.unwrap_err();
    assert!(matches!(error, Error::TooManyCommands { .. }), "{error:?}");
}

#[tokio::test]
async fn a_command_past_its_deadline_is_stopped_and_the_connection_lives_on() {
    let server = Server::behaving(|_| {}).await;
    let session = session(&server).await;
    let command = "stall with canary";
    let stdin = Some(Secret::new(b"canary".to_vec()));
    let error = overrun(&session, command, stdin, || server.runs(command)).await;
    assert!(matches!(error, Error::Deadline { .. }), "{error:?}");
    assert!(!format!("{error} {error:?}").contains("canary"), "{error:?}");
    eventually("the command is told to end", || {
        server.seen.lock().unwrap().signals == ["TERM"]
    })
    .await;
    eventually("its streams are closed", || server.seen.lock().unwrap().closed == 1).await;
    let output = session.run(Exec {
        command: "cat",
        stdin: Some(Secret::new(b"still here".to_vec())),
        deadline: LONG,
    });
    assert_eq!(output.await.unwrap().stdout, "still here");
}

#[tokio::test]
async fn dropping_a_run_stops_its_command() {
    let server = Server::behaving(|_| {}).await;
    let session = session(&server).await;
    tokio::select! {
        outcome = session.run(exec("stall")) => panic!("it ended: {outcome:?}"),
        () = eventually("the command has begun", || server.runs("stall")) => {}
    }
    eventually("the command is told to end", || {
        !server.seen.lock().unwrap().signals.is_empty()
    })
    .await;
    assert!(!session.is_closed());
}

/// A host that hangs keeps its connections: nothing arrives, and nothing says so.
#[tokio::test]
async fn a_host_that_freezes_is_given_up_after_its_keepalives() {
    let server = Server::behaving(|_| {}).await;
    let lively = Limits {
        keepalive: Duration::from_millis(300),
        dial: Duration::from_secs(5),
        ..limits()
    };
    let session = connect(&with_password(&server), &lively).await.unwrap();
    let error = session.run(exec("freeze")).await.unwrap_err();
    assert!(is_dropped(&error, During::Command), "{error:?}");
    assert!(session.is_closed());
}
