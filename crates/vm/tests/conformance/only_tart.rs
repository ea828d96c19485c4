//! Where `tart` lies or its host fails.

mod supervisor;

use crate::world::{
    TartWorld, World as _, answers, cloned, command, cpus, image, running, until, until_lost, vm, words,
};
use futures::future::LocalBoxFuture;
use russet_sim_tart::{ForcedFailure, PullFault};
use russet_telemetry::Secret;
use russet_vm::{
    Access, Credentials, Error, ExecRequest, How, Launch, Owner, Power, Pull, Runtime as _, Share, Source,
    StartFailure, TerminalSize, collect,
};
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

pub(crate) use supervisor::{AGENT, agent};
use supervisor::{
    a_guest_that_does_not_shut_down_with_its_host_is_stopped_hard,
    a_program_whose_supervisor_is_told_to_end_is_lost_at_once, a_start_that_was_dropped_does_not_come_late,
    a_supervisor_killed_at_any_moment_never_hides_a_process, a_supervisor_that_is_told_to_end_stops_its_vm_in_order,
    a_vm_survives_the_violent_end_of_its_agent, a_vm_that_lost_its_supervisor_goes_on_and_its_end_is_unknown,
    what_happened_before_a_reboot_is_not_made_up,
};

pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) run: fn(TartWorld) -> LocalBoxFuture<'static, ()>,
}

macro_rules! cases {
    ($($name:ident),* $(,)?) => {
        pub(crate) const ALL: &[Case] = &[$(Case { name: stringify!($name), run: |world| Box::pin($name(world)) }),*];
    };
}

cases![
    a_vm_that_tart_calls_stopped_is_known_to_run_and_can_be_stopped,
    a_vm_whose_tart_does_not_listen_is_killed,
    without_a_gui_session_the_vm_says_so,
    a_start_that_fails_is_told_in_the_words_of_tart_and_tried_again,
    a_guest_without_network_has_no_address_and_stops_as_any_other,
    a_program_waits_for_a_guest_whose_agent_comes_late,
    a_download_that_broke_off_is_an_error_and_the_next_one_goes_through,
    a_vm_whose_process_was_killed_says_so,
    a_vm_that_lost_its_supervisor_goes_on_and_its_end_is_unknown,
    what_happened_before_a_reboot_is_not_made_up,
    nothing_remembered_is_no_reason_to_lose_a_vm,
    a_pull_that_is_dropped_ends_and_another_goes_on_beside_it,
    credentials_are_in_no_argument_and_in_no_file,
    shares_reach_the_guest_and_odd_ones_are_refused,
    a_terminal_has_the_size_it_is_given,
    a_guest_without_an_agent_is_told_from_a_program_that_fails,
    warnings_of_tart_are_not_taken_for_errors,
    an_answer_that_makes_no_sense_is_an_error_and_not_an_empty_host,
    a_missing_tart_is_named,
    a_full_disk_has_a_name,
    a_clone_without_room_has_a_name_and_fits_when_there_is_some,
    a_start_that_was_dropped_does_not_come_late,
    a_supervisor_killed_at_any_moment_never_hides_a_process,
    a_vm_survives_the_violent_end_of_its_agent,
    a_supervisor_that_is_told_to_end_stops_its_vm_in_order,
    a_guest_that_does_not_shut_down_with_its_host_is_stopped_hard,
    a_program_whose_supervisor_is_told_to_end_is_lost_at_once,
    a_vm_whose_deletion_was_cut_short_can_be_deleted_and_made_anew,
    no_image_goes_to_make_room_without_our_asking,
    a_program_may_say_what_it_likes_and_its_exit_code_is_true,
];

/// tart #967: the lock is lost, so `tart list` says stopped, `tart stop` refuses, and a second run fails.
async fn a_vm_that_tart_calls_stopped_is_known_to_run_and_can_be_stopped(world: TartWorld) {
    let (agent, name) = (world.tart(), vm("a"));
    world.switch(|switches| switches.lose_lock = true);
    cloned(&world, &name).await;
    let process = agent.start(&name, &Launch::default()).await.unwrap();
    until("the guest is up", async || agent.address(&name).await.unwrap()).await;
    assert_eq!(agent.power(&name).await.unwrap(), Some(Power::Running(Some(process))));
    let listed = agent.list().await.unwrap().vms;
    assert!(
        listed
            .iter()
            .any(|vm| vm.owner == Owner::Ours(name.clone()) && vm.running),
        "{listed:?}"
    );
    assert!(matches!(agent.delete(&name).await, Err(Error::Running(_))));
    agent.stop(&name, Duration::ZERO).await.unwrap();
    assert_eq!(agent.ended(&name).await.unwrap().how, How::Stopped);
    agent.delete(&name).await.unwrap();
}

async fn a_vm_whose_tart_does_not_listen_is_killed(world: TartWorld) {
    let (agent, name) = (world.tart(), vm("a"));
    world.switch(|switches| {
        switches.deaf_run = true;
        switches.deaf_guest = true;
    });
    running(&world, &name).await;
    agent.stop(&name, Duration::from_millis(200)).await.unwrap();
    assert_eq!(agent.ended(&name).await.unwrap().how, How::Killed(9));
}

async fn without_a_gui_session_the_vm_says_so(world: TartWorld) {
    let (agent, name) = (world.tart(), vm("a"));
    cloned(&world, &name).await;
    // The login keychain is opened by the same login.
    for (aqua, keychain_locked) in [(false, false), (true, true)] {
        world.switch(|switches| {
            switches.aqua = Some(aqua);
            switches.keychain_locked = keychain_locked;
        });
        agent.start(&name, &Launch::default()).await.unwrap();
        let found = agent.ended(&name).await.unwrap().how;
        assert_eq!(found, How::Failed(StartFailure::NoGuiSession));
    }
    // Once somebody has logged in, the same VM starts.
    world.switch(|switches| switches.keychain_locked = false);
    agent.start(&name, &Launch::default()).await.unwrap();
    answers(&agent, &name).await;
}

async fn a_start_that_fails_is_told_in_the_words_of_tart_and_tried_again(world: TartWorld) {
    let (agent, name) = (world.tart(), vm("a"));
    cloned(&world, &name).await;
    let said = "Error Domain=VZErrorDomain Code=1 \"Internal Virtualization error.\"";
    let forced = ForcedFailure {
        text: said.to_owned(),
        code: 1,
        times: Some(1),
    };
    world.switch(|switches| drop(switches.fail.insert("run".to_owned(), forced)));
    agent.start(&name, &Launch::default()).await.unwrap();
    let found = agent.ended(&name).await.unwrap().how;
    assert_eq!(found, How::Failed(StartFailure::Other(said.to_owned())));
    agent.start(&name, &Launch::default()).await.unwrap();
    answers(&agent, &name).await;
}

async fn a_guest_without_network_has_no_address_and_stops_as_any_other(world: TartWorld) {
    let (agent, name) = (world.tart(), vm("a"));
    world.switch(|switches| switches.no_network = true);
    cloned(&world, &name).await;
    agent.start(&name, &Launch::default()).await.unwrap();
    answers(&agent, &name).await;
    assert_eq!(agent.address(&name).await.unwrap(), None);
    agent.stop(&name, Duration::from_mins(1)).await.unwrap();
    assert_eq!(agent.ended(&name).await.unwrap().how, How::ShutDown);
}

/// It begins with the login of the guest, after the guest has asked for its address.
async fn a_program_waits_for_a_guest_whose_agent_comes_late(world: TartWorld) {
    let (agent, name) = (world.tart(), vm("a"));
    world.switch(|switches| switches.agent_ms = 1_500);
    cloned(&world, &name).await;
    agent.start(&name, &Launch::default()).await.unwrap();
    until("an address", async || agent.address(&name).await.unwrap()).await;
    let exec = agent.exec(&name, words(&["sh", "-c", "exit 3"])).await.unwrap();
    assert_eq!(collect(exec, b"", 100).await.unwrap().code, 3);
}

/// `tart` tries five times by itself.
async fn a_download_that_broke_off_is_an_error_and_the_next_one_goes_through(world: TartWorld) {
    let agent = world.tart();
    world.publish(&image(), "one");
    world.switch(|switches| {
        switches.pull = Some(PullFault::Network);
        switches.pull_times = Some(5);
    });
    let error = agent.pull(&image(), Pull::default()).await.unwrap_err();
    assert!(matches!(error, Error::Registry { .. }), "{error:?}");
    agent.pull(&image(), Pull::default()).await.unwrap();
}

async fn a_vm_whose_process_was_killed_says_so(world: TartWorld) {
    let (agent, name) = (world.tart(), vm("a"));
    running(&world, &name).await;
    world.control.kill_run(&name.to_string()).unwrap();
    assert_eq!(agent.ended(&name).await.unwrap().how, How::Killed(9));
}

async fn nothing_remembered_is_no_reason_to_lose_a_vm(world: TartWorld) {
    let name = vm("a");
    running(&world, &name).await;
    let mut options = world.options.clone();
    options.state = world.scratch("another-state");
    let forgetful = russet_vm::Tart::new(options);
    assert_eq!(forgetful.power(&name).await.unwrap(), Some(Power::Running(None)));
    assert!(matches!(forgetful.delete(&name).await, Err(Error::Running(_))));
    forgetful.stop(&name, Duration::from_secs(1)).await.unwrap();
    assert_eq!(forgetful.power(&name).await.unwrap(), Some(Power::Off));
}

/// A pull of twenty minutes once blocked everything else.
async fn a_pull_that_is_dropped_ends_and_another_goes_on_beside_it(world: TartWorld) {
    let agent = world.tart();
    running(&world, &vm("a")).await;
    let slow = russet_vm::ImageRef::parse("ghcr.io/acme/slow:v1").unwrap();
    world.publish(&slow, "slow");
    world.switch(|switches| switches.pull = Some(PullFault::Stall));
    let (progress, mut shown) = tokio::sync::watch::channel(0);
    {
        let pull = agent.pull(
            &slow,
            Pull {
                progress: Some(&progress),
                ..Pull::default()
            },
        );
        tokio::pin!(pull);
        tokio::select! {
            result = &mut pull => panic!("{result:?}"),
            _ = shown.wait_for(|percent| *percent == 40) => {}
        }
        // The other VM is stopped and deleted meanwhile.
        tokio::select! {
            result = &mut pull => panic!("{result:?}"),
            () = async {
                agent.stop(&vm("a"), Duration::ZERO).await.unwrap();
                agent.delete(&vm("a")).await.unwrap();
            } => {}
        }
    }
    // The dropped one holds no lock any more, so this one gets through.
    world.switch(|switches| switches.pull = None);
    agent.pull(&slow, Pull::default()).await.unwrap();
}

async fn credentials_are_in_no_argument_and_in_no_file(world: TartWorld) {
    let (agent, image) = (world.tart(), image());
    world.publish(&image, "one");
    // Not in the emulated registry's own files: what it wants would be found there.
    world.switch(|switches| switches.pull = Some(PullFault::Stall));
    let secret = format!("s3cret-{}", std::process::id());
    let credentials = Credentials {
        host: "ghcr.io".into(),
        username: "robot".into(),
        password: Secret::new(secret.clone()),
    };
    let (progress, mut shown) = tokio::sync::watch::channel(0);
    let pull = agent.pull(
        &image,
        Pull {
            credentials: Some(&credentials),
            progress: Some(&progress),
        },
    );
    tokio::pin!(pull);
    tokio::select! {
        result = &mut pull => panic!("{result:?}"),
        _ = shown.wait_for(|percent| *percent == 40) => {}
    }
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let words = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        assert!(
            !String::from_utf8_lossy(&words).contains(&secret),
            "{}",
            entry.path().display()
        );
    }
    let found = std::process::Command::new("grep")
        .args(["-r", &secret])
        .arg(world.scratch(""))
        .output()
        .unwrap();
    let code = found.status.code();
    assert_eq!(code, Some(1), "{}", String::from_utf8_lossy(&found.stdout));
}

async fn shares_reach_the_guest_and_odd_ones_are_refused(world: TartWorld) {
    let (agent, name) = (world.tart(), vm("a"));
    cloned(&world, &name).await;
    let folder = world.scratch("env dir");
    std::fs::create_dir(&folder).unwrap();
    std::fs::write(folder.join("tuist.env"), "A=1\n").unwrap();
    let share = |name: &str, path: &std::path::Path| Share {
        name: name.into(),
        path: path.into(),
        access: Access::ReadOnly,
    };
    for odd in [
        share("a:b", &folder),
        share("", &folder),
        share("env", "relative".as_ref()),
        share("env", "/with:colon".as_ref()),
    ] {
        let refused = agent
            .start(
                &name,
                &Launch {
                    shares: vec![odd],
                    ..Launch::default()
                },
            )
            .await;
        assert!(matches!(refused, Err(Error::BadShare { .. })), "{refused:?}");
    }
    agent
        .start(
            &name,
            &Launch {
                shares: vec![share("env", &folder)],
                ..Launch::default()
            },
        )
        .await
        .unwrap();
    answers(&agent, &name).await;
    let run = async |line: &[&str]| {
        collect(agent.exec(&name, words(line)).await.unwrap(), b"", 100)
            .await
            .unwrap()
    };
    let found = run(&["cat", "/Volumes/My Shared Files/env/tuist.env"]).await.stdout;
    assert_eq!(found, b"A=1\n");
    std::fs::write(folder.join("sa_token"), "rotated").unwrap();
    let found = run(&["cat", "/Volumes/My Shared Files/env/sa_token"]).await.stdout;
    assert_eq!(found, b"rotated");
    assert_ne!(run(&["touch", "/Volumes/My Shared Files/env/x"]).await.code, 0);
}

async fn a_terminal_has_the_size_it_is_given(world: TartWorld) {
    let (agent, name) = (world.tart(), vm("a"));
    running(&world, &name).await;
    let request = ExecRequest {
        stdin: true,
        terminal: Some(TerminalSize { columns: 100, rows: 30 }),
        ..words(&["sh", "-c", "stty size; while read line; do stty size; done"])
    };
    let mut exec = agent.exec(&name, request).await.unwrap();
    let mut seen = String::new();
    let mut read = async |until: &str| {
        let mut buffer = [0; 256];
        while !seen.contains(until) {
            let count = exec.stdout.read(&mut buffer).await.unwrap();
            assert_ne!(count, 0, "{seen}");
            seen.push_str(&String::from_utf8_lossy(&buffer[..count]));
        }
    };
    read("30 100").await;
    exec.resize
        .as_ref()
        .unwrap()
        .send(TerminalSize { columns: 120, rows: 40 })
        .unwrap();
    let mut stdin = exec.stdin.take().unwrap();
    // The new size needs a moment on its way; every line asks again.
    let ask = async {
        loop {
            stdin.write_all(b"\n").await.unwrap();
            stdin.flush().await.unwrap();
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::select! {
        () = ask => {}
        () = read("40 120") => {}
    }
}

async fn a_guest_without_an_agent_is_told_from_a_program_that_fails(world: TartWorld) {
    let (agent, name) = (world.tart(), vm("a"));
    world.switch(|switches| switches.no_agent = true);
    cloned(&world, &name).await;
    agent.start(&name, &Launch::default()).await.unwrap();
    until("an address", async || agent.address(&name).await.unwrap()).await;
    let error = collect(agent.exec(&name, words(&["true"])).await.unwrap(), b"", 100)
        .await
        .unwrap_err();
    assert!(matches!(error, Error::NoAgent { .. }), "{error:?}");
    let command = command(&world, &["true"]);
    agent.spawn(&name, "main", &command).await.unwrap();
    until_lost(&agent, &name).await;
}

async fn warnings_of_tart_are_not_taken_for_errors(world: TartWorld) {
    let agent = world.tart();
    world.switch(|switches| switches.gc_error = Some("no such file".into()));
    assert!(agent.list().await.unwrap().vms.is_empty());
    cloned(&world, &vm("a")).await;
    let error = agent.configure(&vm("a"), cpus(2)).await.unwrap_err();
    assert!(error.to_string().contains("4 CPU cores at minimum"), "{error}");
}

fn stand_in(world: &TartWorld, script: &str) -> russet_vm::Tart {
    let mut options = world.options.clone();
    options.program = world.scratch("stand-in");
    russet_program::write(&options.program, script).unwrap();
    russet_vm::Tart::new(options)
}

/// An empty list would make an agent believe that all its VMs are gone.
async fn an_answer_that_makes_no_sense_is_an_error_and_not_an_empty_host(world: TartWorld) {
    for script in [
        "#!/bin/sh\necho '[{]'\n",
        "#!/bin/sh\n",
        "#!/bin/sh\necho '[{\"Name\":1}]'\n",
    ] {
        let error = stand_in(&world, script).list().await.unwrap_err();
        assert!(matches!(error, Error::Answer { .. }), "{error:?}");
    }
}

async fn a_missing_tart_is_named(world: TartWorld) {
    let mut options = world.options.clone();
    options.program = world.scratch("no/such/tart");
    let error = russet_vm::Tart::new(options).list().await.unwrap_err();
    assert!(error.to_string().contains("no/such/tart; is it installed?"), "{error}");
}

async fn a_full_disk_has_a_name(world: TartWorld) {
    let agent = world.tart();
    world.publish(&image(), "one");
    world.switch(|switches| switches.pull = Some(PullFault::DiskFull));
    let error = agent.pull(&image(), Pull::default()).await.unwrap_err();
    assert!(matches!(error, Error::NoSpace(_)), "{error:?}");
}

/// A clone shares its blocks, and yet needs a disk that is not full to the last byte.
async fn a_clone_without_room_has_a_name_and_fits_when_there_is_some(world: TartWorld) {
    let (agent, name) = (world.tart(), vm("a"));
    let source = Source::Image(image().at(world.publish(&image(), "one")));
    agent.pull(&image(), Pull::default()).await.unwrap();
    // The image alone takes a little more than 25 GB.
    let capacity = |gb| world.switch(|switches| switches.capacity_gb = Some(gb));
    capacity(25);
    let error = agent.clone_vm(&source, &name).await.unwrap_err();
    assert!(matches!(error, Error::NoSpace(_)), "{error:?}");
    assert_eq!(agent.power(&name).await.unwrap(), None, "nothing is left of it");
    capacity(26);
    agent.clone_vm(&source, &name).await.unwrap();
    assert_eq!(agent.power(&name).await.unwrap(), Some(Power::Off));
}

/// An agent that was cancelled killed its `tart delete` in the middle. What was left had no `config.json`: `tart` did not list it,
/// and refused to delete it for ever after.
async fn a_vm_whose_deletion_was_cut_short_can_be_deleted_and_made_anew(world: TartWorld) {
    let (agent, name) = (world.tart(), vm("a"));
    cloned(&world, &name).await;
    let folder = world.options.home.join("vms").join(name.to_string());
    std::fs::remove_file(folder.join("config.json")).unwrap();
    assert_eq!(agent.power(&name).await.unwrap(), None);
    agent.delete(&name).await.unwrap();
    assert!(!folder.exists());
    cloned(&world, &name).await;
    assert_eq!(agent.power(&name).await.unwrap(), Some(Power::Off));
}

/// `tart` makes room by itself, and may take the image that the next Pod is about to be made of.
async fn no_image_goes_to_make_room_without_our_asking(world: TartWorld) {
    let agent = world.tart();
    let other = russet_vm::ImageRef::parse("ghcr.io/acme/other:v1").unwrap();
    let source = Source::Image(image().at(world.publish(&image(), "one")));
    world.publish(&other, "other");
    for image in [&other, &image()] {
        agent.pull(image, Pull::default()).await.unwrap();
    }
    // Each takes 25 GB, and a clone may come to write as much again.
    world.switch(|switches| switches.capacity_gb = Some(60));
    agent.clone_vm(&source, &vm("a")).await.unwrap();
    assert!(agent.resolve(&other).await.unwrap().is_some());
}

/// What sounded like the words of `tart` was taken for them.
async fn a_program_may_say_what_it_likes_and_its_exit_code_is_true(world: TartWorld) {
    let (agent, name) = (world.tart(), vm("a"));
    running(&world, &name).await;
    for (says, code) in [
        ("the database is not running", 2),
        ("the file does not exist", 2),
        ("is the Tart Guest Agent running?", 1),
    ] {
        let script = format!("echo {says} >&2; exit {code}");
        let exec = agent.exec(&name, words(&["sh", "-c", &script])).await.unwrap();
        assert_eq!(collect(exec, b"", 1 << 10).await.unwrap().code, code, "{says}");
    }
}
