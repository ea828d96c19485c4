//! The disk.

use crate::harness::{World, shell};

#[tokio::test]
async fn the_system_is_sealed_and_the_rest_belongs_to_whom_it_does_on_a_mac() {
    let (world, client) = World::and_client().await;
    let ran = client
        .run("ls -ld /usr/local/bin /etc/resolver ~/Library/LaunchAgents")
        .await;
    assert_eq!(ran.err.lines().count(), 3, "{ran:?}");
    shell!(client, "touch /Library/mine" => Ends(1));
    client.free_sudo(&world.host(1)).await;
    let ran = client.run("sudo touch /usr/bin/mine /mine").await;
    assert!(ran.err.contains("Read-only file system"), "{ran:?}");
    shell!(client,
        "sudo mkdir -p /usr/local/bin /etc/resolver && sudo chown m1:staff /usr/local/bin && echo x > /usr/local/bin/x" => Done,
        "ls -l /usr/local/bin/x | cut -d' ' -f3,4" => Out("m1 staff\n"),
    );
}

#[tokio::test]
async fn what_macos_does_not_have_is_not_there() {
    let (_world, client) = World::and_client().await;
    for missing in ["timeout 1 true", "systemctl", "apt-get", "setpriv"] {
        let ran = client.run(missing).await;
        assert_eq!(ran.code, Some(127), "{missing}: {ran:?}");
    }
}

#[tokio::test]
async fn each_mac_has_its_own_files_and_processes() {
    let world = World::with(2).await;
    let (one, two) = (world.host(1), world.host(2));
    let one = crate::harness::Client::login(&one).await.unwrap();
    let two = crate::harness::Client::login(&two).await.unwrap();
    shell!(one, "echo one > /tmp/who; (sleep 1000 </dev/null >/dev/null 2>&1 &); true" => Done);
    shell!(two,
        "cat /tmp/who" => Ends(1),
        "pgrep -x sleep" => Ends(1),
    );
}
