//! Logging in and running commands.

use crate::harness::{Client, PATIENCE, World, shell, until, until_closed};
use russet_sim_mac::macos::SshFault;
use russh::client::AuthResult;
use russh::keys::{PrivateKey, PrivateKeyWithHashAlg};
use std::sync::Arc;
use std::time::Duration;

#[tokio::test]
async fn a_command_runs_in_zsh_as_the_user_with_the_bare_path_of_a_mac() {
    let (_world, client) = World::and_client().await;
    let ran = client
        .run("print -r -- $ZSH_VERSION; id -un; id -u; pwd; print $PATH; print $0; exit 7")
        .await;
    let lines: Vec<&str> = ran.out.lines().collect();
    assert_eq!(
        lines.get(1..),
        Some(["m1", "501", "/Users/m1", "/usr/bin:/bin:/usr/sbin:/sbin", "zsh"].as_slice()),
        "{ran:?}"
    );
    assert!(lines.first().unwrap().starts_with("5."), "{ran:?}");
    assert_eq!(ran.code, Some(7));
}

#[tokio::test]
async fn a_command_is_no_login_shell_and_an_unmatched_glob_ends_it() {
    let (_world, client) = World::and_client().await;
    let ran = client
        .run("x='a b'; for word in $x; do print -r -- $word; done; ls /nowhere/*")
        .await;
    assert_eq!(ran.out, "a b\n");
    assert_eq!(ran.err, "zsh:1: no matches found: /nowhere/*\n");
    assert_eq!(ran.code, Some(1));
}

#[tokio::test]
async fn a_process_that_is_killed_ends_its_session_with_the_signal() {
    let (_world, client) = World::and_client().await;
    let ran = client.run("kill -9 $$").await;
    assert_eq!((ran.code, ran.signal.as_deref()), (None, Some("KILL")), "{ran:?}");
}

#[tokio::test]
async fn several_sessions_share_a_connection_and_a_megabyte_of_input_arrives_whole() {
    let (_world, client) = World::and_client().await;
    let input = vec![b'x'; 1 << 20];
    let (count, other) = tokio::join!(client.feed("wc -c; cat", &input), client.run("echo meanwhile"));
    assert_eq!(count.ok().trim(), "1048576");
    assert_eq!(other.ok(), "meanwhile\n");
}

#[tokio::test]
async fn a_wrong_password_is_refused_and_a_project_key_is_let_in() {
    let world = World::with(1).await;
    let mut host = world.host(1);
    let mut client = Client::connect(&host).await.unwrap();
    let wrong = client.handle.authenticate_password("m1", "wrong").await.unwrap();
    assert!(matches!(wrong, AuthResult::Failure { .. }), "{wrong:?}");

    let key = PrivateKey::from(russh::keys::ssh_key::private::Ed25519Keypair::from_seed(&[7; 32]));
    let line = key.public_key().to_openssh().unwrap();
    let offered = || PrivateKeyWithHashAlg::new(Arc::new(key.clone()), None);
    let unknown = client.handle.authenticate_publickey("m1", offered()).await.unwrap();
    assert!(matches!(unknown, AuthResult::Failure { .. }), "{unknown:?}");

    host.password = world.host(1).password;
    let owner = Client::login(&host).await.unwrap();
    owner
        .ok(&format!(
            "echo '{line}' >> ~/.ssh/authorized_keys && chmod 600 ~/.ssh/authorized_keys"
        ))
        .await;
    let mut client = Client::connect(&host).await.unwrap();
    let known = client.handle.authenticate_publickey("m1", offered()).await.unwrap();
    assert!(matches!(known, AuthResult::Success), "{known:?}");
}

#[tokio::test]
async fn sshd_reads_its_configuration_anew_for_every_connection() {
    let (world, client) = World::and_free_client().await;
    let host = world.host(1);
    client
        .ok("printf 'PasswordAuthentication no\\nKbdInteractiveAuthentication no\\n' | sudo tee /etc/ssh/sshd_config.d/050-keys.conf")
        .await;
    let mut other = Client::connect(&host).await.unwrap();
    let refused = other.handle.authenticate_password("m1", &host.password).await.unwrap();
    assert!(matches!(refused, AuthResult::Failure { .. }), "{refused:?}");
}

#[tokio::test]
async fn a_reinstalled_mac_has_another_host_key_and_an_empty_disk() {
    let world = World::with(1).await;
    let before = world.host(1);
    let client = world.login().await;
    client.ok("echo mine > ~/mine").await;
    let first = client.host_key();
    world.act(&before, "reinstall").await;
    world.sim.handle().advance(Duration::from_hours(1));
    until("the new installation answers", || async {
        let host = world.host(1);
        host.generation > before.generation && Client::connect(&host).await.is_ok()
    })
    .await;
    let client = world.login().await;
    assert_ne!(client.host_key(), first);
    shell!(client, "cat ~/mine" => Ends(1));
}

#[tokio::test]
async fn a_command_outlives_its_connection_and_its_input_just_ends() {
    let world = World::with(1).await;
    let mac = world.mac().await;
    mac.set_faults(|faults| faults.ssh = SshFault::DropAfter(200_000));
    let client = world.login().await;
    let cut = client
        .try_feed("cat > ~/upload; echo $? > ~/result", &vec![b'x'; 1 << 20])
        .await;
    assert!(
        cut.is_err() || cut.as_ref().is_ok_and(|ran| ran.code.is_none()),
        "{cut:?}"
    );
    mac.set_faults(|faults| faults.ssh = SshFault::None);
    let client = world.login().await;
    until("the orphan ends", || async {
        client.run("cat ~/result").await.code == Some(0)
    })
    .await;
    shell!(client, "cat ~/result" => Out("0\n"));
    let size: u64 = client.ok("wc -c < ~/upload").await.trim().parse().unwrap();
    assert!(size > 0 && size < 1 << 20, "{size}");
}

#[tokio::test]
async fn ssh_refuses_or_stalls_when_told_so() {
    let world = World::with(1).await;
    let (mac, host) = (world.mac().await, world.host(1));
    mac.set_faults(|faults| faults.ssh = SshFault::Refuse);
    until_closed(&host).await;
    mac.set_faults(|faults| faults.ssh = SshFault::Stall);
    until("the port is open", || async {
        tokio::net::TcpStream::connect((host.address, host.ssh_port))
            .await
            .is_ok()
    })
    .await;
    // Whatever time it is given, a stalled server says nothing: this one is only as long as patience is cheap.
    let said = tokio::time::timeout(Duration::from_millis(300), Client::connect(&host)).await;
    assert!(said.is_err());
    mac.set_faults(|faults| faults.ssh = SshFault::None);
    world.login().await;
}

#[tokio::test]
async fn no_more_connections_are_served_than_launchd_allows() {
    let world = World::made(1, |options| options.connections = 2).await;
    let host = world.host(1);
    let (first, _second) = (world.login().await, world.login().await);
    let third = tokio::spawn(async move { Client::login(&host).await.map(drop) });
    first.ok("true").await;
    assert!(!third.is_finished());
    drop(first);
    tokio::time::timeout(PATIENCE, third).await.unwrap().unwrap().unwrap();
}

#[tokio::test]
async fn a_reboot_kills_everything_and_keeps_the_disk() {
    let world = World::with(1).await;
    let (mac, host) = (world.mac().await, world.host(1));
    let client = world.login().await;
    shell!(client, "echo kept > ~/kept; (sleep 1000 >/dev/null 2>&1 </dev/null &) ; echo done" => Done);
    let sleeping = tokio::spawn(async move { client.try_feed("sleep 1000", b"").await });
    until("the command runs", || async {
        mac.calls().iter().any(|call| call.args == ["sleep 1000"])
    })
    .await;
    mac.reboot().await;
    let ended = tokio::time::timeout(PATIENCE, sleeping).await.unwrap().unwrap();
    assert!(ended.as_ref().map_or(true, |ran| ran.code.is_none()), "{ended:?}");
    let client = Client::login(&host).await.unwrap();
    shell!(client,
        "cat ~/kept" => Out("kept\n"),
        "pgrep -x sleep" => Ends(1),
    );
}

#[tokio::test]
async fn the_power_goes_in_the_middle_of_an_upload_and_the_mac_comes_back() {
    let world = World::with(1).await;
    let (mac, host) = (world.mac().await, world.host(1));
    mac.set_faults(|faults| faults.ssh = SshFault::RebootAfter(100_000));
    let client = world.login().await;
    let cut = client.try_feed("cat > ~/upload", &vec![b'x'; 1 << 20]).await;
    assert!(cut.as_ref().map_or(true, |ran| ran.code.is_none()), "{cut:?}");
    until("it is back", || async { Client::connect(&host).await.is_ok() }).await;
    world.login().await.ok("true").await;
}

#[tokio::test]
async fn an_eleventh_session_on_one_connection_is_refused() {
    let (_world, client) = World::and_client().await;
    let mut open = Vec::new();
    for _ in 0..10 {
        open.push(client.handle.channel_open_session().await.unwrap());
    }
    assert!(client.handle.channel_open_session().await.is_err());
    drop(open);
}
