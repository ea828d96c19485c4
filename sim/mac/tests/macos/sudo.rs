//! sudo.

use crate::harness::{World, shell};

#[tokio::test]
async fn sudo_without_a_password_says_what_it_needs() {
    let (_world, client) = World::and_client().await;
    shell!(client, "sudo -n true" => Err(1, "sudo: a password is required\n"));
    let ran = client.run("sudo true").await;
    assert!(ran.err.starts_with("sudo: a terminal is required"), "{ran:?}");
}

#[tokio::test]
async fn sudo_takes_the_password_from_its_input_and_leaves_the_rest_to_the_command() {
    let world = World::with(1).await;
    let password = world.host(1).password;
    let client = world.login().await;
    let ran = client
        .feed(
            "sudo -S -p '' sh -c 'id -u; cat; exit 3'",
            format!("{password}\nthe rest\n").as_bytes(),
        )
        .await;
    assert_eq!((ran.out.as_str(), ran.code), ("0\nthe rest\n", Some(3)), "{ran:?}");
}

#[tokio::test]
async fn three_wrong_passwords_are_told_and_ten_lock_the_account() {
    let world = World::with(1).await;
    let password = world.host(1).password;
    let client = world.login().await;
    let ran = client.feed("sudo -S true", b"a\nb\nc\n").await;
    assert_eq!(
        ran.err,
        "Password:Sorry, try again.\nPassword:Sorry, try again.\nPassword:sudo: 3 incorrect password attempts\n"
    );
    assert_eq!(ran.code, Some(1));
    for _ in 0..3 {
        client.feed("sudo -S true", b"a\nb\nc\n").await;
    }
    let ran = client.feed("sudo -S true", format!("{password}\n").as_bytes()).await;
    assert_eq!(ran.code, Some(1), "{ran:?}");
}

#[tokio::test]
async fn a_file_in_sudoers_d_frees_the_account_unless_its_name_has_a_dot() {
    let world = World::with(1).await;
    let host = world.host(1);
    let client = world.login().await;
    let write = |name: &str| {
        format!(
            "sudo -S sh -c 'echo \"m1 ALL=(ALL) NOPASSWD: ALL\" > /etc/sudoers.d/{name}; chmod 440 /etc/sudoers.d/{name}'"
        )
    };
    let password = format!("{}\n", host.password);
    client.put(&write("with.dot"), password.as_bytes()).await;
    shell!(client, "sudo -n true" => Ends(1));
    client.put(&write("plain"), password.as_bytes()).await;
    shell!(client, "sudo -n id -un" => Out("root\n"));
}

#[tokio::test]
async fn a_sudoers_file_that_cannot_be_parsed_ends_sudo_for_everybody() {
    let (_world, client) = World::and_free_client().await;
    shell!(client,
        "sudo sh -c 'echo nonsense > /etc/sudoers.d/broken; chmod 440 /etc/sudoers.d/broken'" => Done,
        "sudo -n true" => Says(1, "syntax error"),
    );
}

#[tokio::test]
async fn sudo_keeps_the_path_and_the_home_of_the_caller() {
    let (_world, client) = World::and_free_client().await;
    let out = client
        .ok("PATH=/opt/x:$PATH; A=1 sudo sh -c 'echo $PATH; echo $HOME; echo [$A]; echo $SUDO_USER'; sudo -u m1 id -u")
        .await;
    assert_eq!(out, "/opt/x:/usr/bin:/bin:/usr/sbin:/sbin\n/Users/m1\n[]\nm1\n501\n");
}

#[tokio::test]
async fn a_flag_nobody_knows_fails_and_is_remembered() {
    let (world, client) = World::and_client().await;
    shell!(client, "sudo -Z true" => Ends(1));
    assert_eq!(world.mac().await.unexpected(), ["sudo -Z true"]);
}
