//! Downloads, registries, credentials, room on the disk (facts/macos-host.md 6.1 to 6.3).

use crate::harness::{Host, IMAGE, Said, wait, write};
use russet_sim_tart::PullFault;

#[test]
fn a_pull_says_what_it_does_and_a_second_one_that_there_is_nothing_to_do() {
    let host = Host::new();
    let first = host.good(&["pull", IMAGE]);
    let lines: Vec<_> = first.lines().collect();
    let begins = "pulling ghcr.io/acme/mac:v1...\npulling manifest...\npulling disk (18.5 GB compressed)...";
    assert_eq!(lines[..3].join("\n"), begins);
    // Each per cent is written over the one before, though nobody looks, unless it is a build.
    let over = "\u{1b}[1A\u{1b}[J";
    assert_eq!(lines[3..5], ["0%".to_owned(), format!("{over}20%")]);
    let ends = format!("{over}100%");
    assert_eq!(lines[lines.len() - 2..], [ends.as_str(), "pulling NVRAM..."]);
    let again = host.good(&["pull", IMAGE]);
    assert!(again.ends_with(" image is already cached and linked!\n"), "{again}");
    let local = host.good(&["pull", "local"]);
    assert_eq!(local, "\"local\" is a local image, nothing to pull here!\n");
}

#[test]
fn an_image_that_is_not_there_and_a_name_that_is_none_fail_each_in_its_way() {
    let host = Host::new();
    let said = host.tart(&["pull", "ghcr.io/acme/other:v1"]);
    assert_eq!(said.code, Some(1));
    let start = "Error: UnexpectedHTTPStatusCode(when: \"pulling manifest\", code: 404";
    assert!(said.err.starts_with(start), "{said:?}");
    let none = host.tart(&["pull", "ghcr.io/"]);
    assert!(none.err.starts_with("failed to parse remote name:"), "{none:?}");
    host.switch(|switches| switches.pull = Some(PullFault::Status(503)));
    assert!(host.tart(&["pull", IMAGE]).err.contains("code: 503"));
}

#[test]
fn a_broken_connection_is_tried_five_times() {
    let host = Host::new();
    host.switch(|switches| {
        switches.pull = Some(PullFault::Network);
        switches.pull_times = Some(4);
    });
    let said = host.good(&["pull", IMAGE]);
    assert_eq!(said.matches("attempting to re-try...").count(), 4);
    host.good(&["delete", IMAGE]);
    host.switch(|switches| switches.pull_times = Some(5));
    host.bad(&["pull", IMAGE], "Error: The network connection was lost.", 1);
}

#[test]
fn a_disk_that_fills_in_the_middle_aborts_the_process() {
    let host = Host::new();
    host.switch(|switches| switches.pull = Some(PullFault::DiskFull));
    let said = host.tart(&["pull", IMAGE]);
    assert_eq!(said.code, None, "killed by a signal");
    assert!(said.err.contains("No space left on device"), "{said:?}");
}

/// How a command ends that must not make room for itself.
fn unpruned(host: &Host, words: &[&str]) -> Option<i32> {
    let mut command = host.command(words);
    Said::from(command.env("TART_NO_AUTO_PRUNE", "").output().unwrap()).code
}

#[test]
fn clones_share_their_blocks_and_pulls_make_room_by_deleting_the_oldest_image() {
    let host = Host::new();
    host.switch(|switches| switches.capacity_gb = Some(60));
    host.clone("vm");
    host.good(&["clone", "vm", "copy"]);
    // 25 GB are taken, once. A second image fits, a third only in the place of a cached one.
    host.push("ghcr.io/acme/two:v1", |image| image.label = "2".into());
    host.push("ghcr.io/acme/three:v1", |image| image.label = "3".into());
    host.good(&["pull", "ghcr.io/acme/two:v1"]);
    assert_eq!(unpruned(&host, &["pull", "ghcr.io/acme/three:v1"]), None);
    // The oldest goes first. Its blocks are those of the two VMs, so that frees nothing, which the real one does not know either.
    assert_eq!(host.tart(&["pull", "ghcr.io/acme/three:v1"]).code, None);
    let left = host.good(&["list", "--quiet"]);
    assert!(!left.contains(IMAGE) && left.contains("acme/two"), "{left}");
    host.good(&["pull", "ghcr.io/acme/three:v1"]);
    let left = host.good(&["list", "--quiet"]);
    assert!(!left.contains("acme/two") && left.contains("acme/three"), "{left}");
}

/// A clone shares its blocks, and `tart` makes room for those that it may come to write: an image that somebody is about to clone
/// may be gone then.
#[test]
fn a_clone_makes_room_for_what_it_may_write_at_the_cost_of_other_images() {
    let host = Host::new();
    let other = "ghcr.io/acme/other:v1";
    host.push(other, |image| image.label = "2".into());
    host.good(&["pull", other]);
    host.good(&["pull", IMAGE]);
    // Both take 25 GB, and the clone may write 25 more.
    host.switch(|switches| switches.capacity_gb = Some(60));
    assert_eq!(unpruned(&host, &["clone", IMAGE, "first"]), Some(0));
    host.good(&["clone", IMAGE, "limited", "--prune-limit", "5"]);
    assert!(host.good(&["list", "--quiet"]).contains("acme/other"));
    host.good(&["clone", IMAGE, "second"]);
    let left = host.good(&["list", "--quiet"]);
    assert!(!left.contains("acme/other") && left.contains(IMAGE), "{left}");
    // Its own image stays, however little that leaves.
    host.switch(|switches| switches.capacity_gb = Some(26));
    host.good(&["clone", IMAGE, "third"]);
    assert!(host.good(&["list", "--quiet"]).contains(IMAGE));
}

/// Even where it may prune: the copy comes first.
#[test]
fn a_clone_on_a_full_disk_says_so_and_leaves_nothing() {
    let host = Host::new();
    host.good(&["pull", IMAGE]);
    host.switch(|switches| switches.capacity_gb = Some(25));
    let said = host.tart(&["clone", IMAGE, "vm"]);
    assert_eq!(said.code, Some(1), "{said:?}");
    assert!(
        said.err.starts_with("Error: “disk.img” couldn’t be copied to “"),
        "{said:?}"
    );
    assert!(said.err.ends_with("” because there isn’t enough space.\n"), "{said:?}");
    assert_eq!(std::fs::read_dir(host.control.home().join("tmp")).unwrap().count(), 0);
    assert_eq!(host.good(&["list", "--source", "local", "--quiet"]), "");
    host.switch(|switches| switches.capacity_gb = Some(26));
    host.clone("vm");
}

#[test]
fn a_private_registry_takes_credentials_from_the_environment_dockers_file_or_a_login() {
    let host = Host::new();
    host.control.require_login("ghcr.io", "robot", "s3cret").unwrap();
    let refusal = "Error: AuthFailed(why: \"received unexpected HTTP status code 401 while retrieving an authentication \
                   token\", details: \"unauthorized\")";
    host.bad(&["pull", IMAGE], refusal, 1);

    let with = |hostname: &str| {
        let mut command = host.command(&["pull", IMAGE]);
        command
            .env("TART_REGISTRY_USERNAME", "robot")
            .env("TART_REGISTRY_PASSWORD", "s3cret");
        Said::from(command.env("TART_REGISTRY_HOSTNAME", hostname).output().unwrap()).code
    };
    assert_eq!((with("docker.io"), with("ghcr.io")), (Some(1), Some(0)));

    let auths = r#"{"auths":{"ghcr.io":{"auth":"cm9ib3Q6czNjcmV0"}}}"#;
    write(&host.path(".docker/config.json"), auths);
    host.good(&["pull", IMAGE]);
    std::fs::remove_file(host.path(".docker/config.json")).unwrap();
    host.bad(&["pull", IMAGE], refusal, 1);

    let words = ["login", "ghcr.io", "--username", "robot", "--password-stdin"];
    let login = |password: &str| host.feed(&words, password.as_bytes());
    assert!(login("wrong").err.starts_with("invalid credentials: "));
    assert_eq!(login("s3cret\n").code, Some(0));
    host.good(&["pull", IMAGE]);
    // After a boot without a login the keychain is locked: a warning, then the attempt as nobody.
    host.switch(|switches| switches.keychain_locked = true);
    let said = host.tart(&["pull", IMAGE]);
    assert!(said.code == Some(1) && said.out.contains("Keychain"), "{said:?}");
}

#[test]
fn two_pulls_from_one_host_wait_for_each_other() {
    let host = Host::new();
    host.switch(|switches| switches.pull = Some(PullFault::Stall));
    let (first_log, second_log) = (host.path("first.log"), host.path("second.log"));
    let pull = |log| {
        let log = std::fs::File::create(log).unwrap();
        host.command(&["pull", IMAGE]).stdout(log).spawn().unwrap()
    };
    let says = |log, words| std::fs::read_to_string(log).is_ok_and(|said: String| said.contains(words));
    let mut first = pull(&first_log);
    wait("the first pull is under way", || says(&first_log, "40%"));
    host.switch(|switches| switches.pull = None);
    let mut second = pull(&second_log);
    wait("the second pull waits", || says(&second_log, "waiting for lock..."));
    first.kill().unwrap();
    first.wait().unwrap();
    assert!(second.wait().unwrap().success());
}
