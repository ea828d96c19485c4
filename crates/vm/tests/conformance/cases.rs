//! The rules, one case each.

use crate::world::{World, answers, cloned, command, cpus, image, running, shut_down, until, until_lost, vm, words};
use futures::future::LocalBoxFuture;
use russet_telemetry::Secret;
use russet_vm::{
    Credentials, Error, ExecRequest, GoldenKey, Goldens, Hardware, How, ImageRef, Launch, Owner, Power, Pull,
    PullPolicy, Source, StartFailure, Step, VmName, collect,
};
use std::time::Duration;

const GRACE: Duration = Duration::from_mins(1);

pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) run: fn(Box<dyn World>) -> LocalBoxFuture<'static, ()>,
}

macro_rules! cases {
    ($($name:ident),* $(,)?) => {
        pub(crate) const ALL: &[Case] = &[$(Case { name: stringify!($name), run: |world| Box::pin($name(world)) }),*];
    };
}

cases![
    a_vm_is_cloned_started_used_stopped_and_deleted,
    a_clone_never_replaces_a_vm,
    what_is_not_there_can_be_stopped_and_deleted,
    what_is_not_there_cannot_be_used,
    a_vm_that_runs_is_neither_started_nor_changed_nor_deleted,
    a_third_vm_does_not_come_up_and_says_why,
    a_crash_is_never_a_success,
    a_guest_that_is_asked_shuts_down_and_one_that_is_not_is_stopped,
    another_agent_finds_the_vm_and_its_true_end,
    a_program_left_in_the_guest_has_a_true_end_for_another_agent,
    a_program_that_the_vm_took_down_is_lost,
    a_program_gets_input_and_gives_output_and_exit_code,
    a_vm_that_has_ended_has_no_address,
    vms_of_others_are_listed_and_cannot_be_named,
    a_tag_that_moved_is_noticed_by_a_pull,
    a_golden_base_is_cloned_by_name,
    a_base_is_made_once_however_many_ask,
    a_base_needs_no_registry_once_it_is_there,
    a_private_registry_takes_credentials_for_one_pull_or_for_all,
    an_image_that_nobody_has_is_not_pulled,
    a_call_that_is_dropped_can_be_repeated,
    an_image_that_was_dropped_is_gone,
    an_image_is_here_only_once_it_was_pulled_however_it_is_named,
];

async fn a_vm_is_cloned_started_used_stopped_and_deleted(world: Box<dyn World>) {
    let (agent, name) = (world.agent(), vm("a"));
    cloned(world.as_ref(), &name).await;
    assert_eq!(agent.power(&name).await.unwrap(), Some(Power::Off));
    agent
        .configure(
            &name,
            Hardware {
                cpu: Some(6),
                own_identity: true,
                ..Hardware::default()
            },
        )
        .await
        .unwrap();
    let process = agent.start(&name, &Launch::default()).await.unwrap();
    assert_eq!(agent.power(&name).await.unwrap(), Some(Power::Running(Some(process))));
    until("an address", async || agent.address(&name).await.unwrap()).await;
    answers(agent.as_ref(), &name).await;
    agent.stop(&name, GRACE).await.unwrap();
    assert_eq!(agent.ended(&name).await.unwrap().how, How::ShutDown);
    agent.delete(&name).await.unwrap();
    assert_eq!(agent.power(&name).await.unwrap(), None);
    let disk = agent.disk().await.unwrap();
    assert!(disk.free <= disk.total && disk.total > 0);
    assert!(agent.version().await.unwrap().contains("://"));
}

/// `tart clone` replaces a VM of the same name without a word, even one that runs.
async fn a_clone_never_replaces_a_vm(world: Box<dyn World>) {
    let (agent, name) = (world.agent(), vm("a"));
    cloned(world.as_ref(), &name).await;
    let digest = agent.resolve(&image()).await.unwrap().unwrap();
    let again = agent.clone_vm(&Source::Image(image().at(digest)), &name).await;
    assert!(matches!(again, Err(Error::Exists(_))), "{again:?}");
}

async fn what_is_not_there_can_be_stopped_and_deleted(world: Box<dyn World>) {
    let agent = world.agent();
    agent.stop(&vm("ghost"), GRACE).await.unwrap();
    agent.delete(&vm("ghost")).await.unwrap();
    let digest = world.publish(&image(), "one");
    agent.remove_image(&image().at(digest)).await.unwrap();
}

async fn what_is_not_there_cannot_be_used(world: Box<dyn World>) {
    let (agent, ghost) = (world.agent(), vm("ghost"));
    assert_eq!(agent.power(&ghost).await.unwrap(), None);
    let missing = |result: Result<(), Error>| assert!(matches!(result, Err(Error::Missing(_))), "{result:?}");
    missing(agent.start(&ghost, &Launch::default()).await.map(drop));
    missing(agent.address(&ghost).await.map(drop));
    missing(agent.exec(&ghost, words(&["true"])).await.map(drop));
    missing(agent.ended(&ghost).await.map(drop));
    missing(agent.configure(&ghost, cpus(4)).await);
    missing(agent.clone_vm(&Source::Vm(ghost.clone()), &vm("copy")).await);
    let digest = world.publish(&image(), "never pulled");
    missing(agent.clone_vm(&Source::Image(image().at(digest)), &vm("copy")).await);
    assert_eq!(agent.step(&ghost, "main").await.unwrap(), None);
}

async fn a_vm_that_runs_is_neither_started_nor_changed_nor_deleted(world: Box<dyn World>) {
    let (agent, name) = (world.agent(), vm("a"));
    let process = running(world.as_ref(), &name).await;
    let running = |result: Result<(), Error>| assert!(matches!(result, Err(Error::Running(_))), "{result:?}");
    running(agent.start(&name, &Launch::default()).await.map(drop));
    running(agent.configure(&name, cpus(8)).await);
    running(agent.delete(&name).await);
    assert_eq!(agent.power(&name).await.unwrap(), Some(Power::Running(Some(process))));
}

/// The kernel allows two macOS VMs, whoever runs them.
async fn a_third_vm_does_not_come_up_and_says_why(world: Box<dyn World>) {
    let agent = world.agent();
    for pod in ["a", "b"] {
        running(world.as_ref(), &vm(pod)).await;
    }
    cloned(world.as_ref(), &vm("c")).await;
    agent.start(&vm("c"), &Launch::default()).await.unwrap();
    let exit = agent.ended(&vm("c")).await.unwrap();
    assert!(matches!(exit.how, How::Failed(StartFailure::TooMany(_))), "{exit:?}");
    agent.stop(&vm("a"), Duration::ZERO).await.unwrap();
    agent.start(&vm("c"), &Launch::default()).await.unwrap();
    answers(agent.as_ref(), &vm("c")).await;
}

/// `tart run` ends with 0 after a crash of the guest.
async fn a_crash_is_never_a_success(world: Box<dyn World>) {
    let (agent, name) = (world.agent(), vm("a"));
    running(world.as_ref(), &name).await;
    world.crash(&name);
    let exit = agent.ended(&name).await.unwrap();
    assert!(
        matches!(exit.how, How::Crashed(_)) && exit.finished.is_some(),
        "{exit:?}"
    );
}

async fn a_guest_that_is_asked_shuts_down_and_one_that_is_not_is_stopped(world: Box<dyn World>) {
    let (agent, name) = (world.agent(), vm("a"));
    running(world.as_ref(), &name).await;
    agent.stop(&name, GRACE).await.unwrap();
    assert_eq!(agent.ended(&name).await.unwrap().how, How::ShutDown);
    agent.start(&name, &Launch::default()).await.unwrap();
    answers(agent.as_ref(), &name).await;
    agent.stop(&name, Duration::ZERO).await.unwrap();
    assert_eq!(agent.ended(&name).await.unwrap().how, How::Stopped);
}

/// A crashed VM was once reported as succeeded because the agent that had started it was gone.
async fn another_agent_finds_the_vm_and_its_true_end(world: Box<dyn World>) {
    let name = vm("a");
    let process = running(world.as_ref(), &name).await;
    let second = world.agent();
    assert_eq!(second.power(&name).await.unwrap(), Some(Power::Running(Some(process))));
    shut_down(second.as_ref(), &name).await;
    let third = world.agent();
    assert_eq!(third.ended(&name).await.unwrap().how, How::ShutDown);
    let fourth = world.agent();
    let Some(Power::Ended(exit)) = fourth.power(&name).await.unwrap() else {
        panic!("it has ended")
    };
    assert_eq!(exit.how, How::ShutDown);
}

async fn a_program_left_in_the_guest_has_a_true_end_for_another_agent(world: Box<dyn World>) {
    let name = vm("a");
    running(world.as_ref(), &name).await;
    let command = |line: &[&str]| command(world.as_ref(), line);
    let first = world.agent();
    first
        .spawn(&name, "main", &command(&["sh", "-c", "exit 7"]))
        .await
        .unwrap();
    drop(first);
    let second = world.agent();
    let end = async |id: &str| {
        until("the end", async || match second.step(&name, id).await.unwrap() {
            Some(Step::Running { .. }) => None,
            other => other,
        })
        .await
    };
    assert!(matches!(end("main").await, Step::Ended { code: 7, .. }));
    second
        .spawn(&name, "hello", &command(&["echo", "hello"]))
        .await
        .unwrap();
    assert!(matches!(end("hello").await, Step::Ended { code: 0, .. }));
    assert_eq!(std::fs::read_to_string(world.scratch("log")).unwrap(), "hello\n");
    assert_eq!(second.step(&name, "never").await.unwrap(), None);
    // What is remembered goes with the VM.
    second.stop(&name, Duration::ZERO).await.unwrap();
    second.delete(&name).await.unwrap();
    assert_eq!(second.step(&name, "main").await.unwrap(), None);
}

async fn a_program_that_the_vm_took_down_is_lost(world: Box<dyn World>) {
    let (agent, name) = (world.agent(), vm("a"));
    running(world.as_ref(), &name).await;
    let command = command(world.as_ref(), &["sleep", "100000"]);
    agent.spawn(&name, "main", &command).await.unwrap();
    assert!(matches!(
        agent.step(&name, "main").await.unwrap(),
        Some(Step::Running { .. })
    ));
    let twice = agent.spawn(&name, "main", &command).await;
    assert!(matches!(twice, Err(Error::Running(_))), "{twice:?}");
    agent.stop(&name, Duration::ZERO).await.unwrap();
    until_lost(agent.as_ref(), &name).await;
}

async fn a_program_gets_input_and_gives_output_and_exit_code(world: Box<dyn World>) {
    let (agent, name) = (world.agent(), vm("a"));
    running(world.as_ref(), &name).await;
    let run = async |request: ExecRequest, input: &[u8]| {
        collect(agent.exec(&name, request).await.unwrap(), input, 1 << 20)
            .await
            .unwrap()
    };
    assert_eq!(run(words(&["echo", "a", "b"]), b"").await.stdout, b"a b\n");
    assert_eq!(run(words(&["sh", "-c", "exit 42"]), b"").await.code, 42);
    assert_eq!(run(words(&["false"]), b"").await.code, 1);
    let cat = ExecRequest {
        stdin: true,
        ..words(&["cat"])
    };
    let large = vec![b'x'; 300_000];
    assert_eq!(run(cat, &large).await.stdout, large);
}

/// `tart ip` answers for a day after a VM is gone.
async fn a_vm_that_has_ended_has_no_address(world: Box<dyn World>) {
    let (agent, name) = (world.agent(), vm("a"));
    running(world.as_ref(), &name).await;
    until("an address", async || agent.address(&name).await.unwrap()).await;
    agent.stop(&name, Duration::ZERO).await.unwrap();
    let answer = agent.address(&name).await;
    assert!(matches!(answer, Err(Error::NotRunning(_))), "{answer:?}");
}

async fn vms_of_others_are_listed_and_cannot_be_named(world: Box<dyn World>) {
    let agent = world.agent();
    world.add_foreign("packer-build");
    world.add_foreign("rvm_ci_pod");
    cloned(world.as_ref(), &vm("ours")).await;
    let owners: Vec<_> = agent.list().await.unwrap().vms.into_iter().map(|vm| vm.owner).collect();
    for foreign in ["packer-build", "rvm_ci_pod"] {
        assert!(owners.contains(&Owner::Foreign(foreign.into())), "{owners:?}");
        assert_eq!(VmName::parse(foreign), None);
    }
    assert!(owners.contains(&Owner::Ours(vm("ours"))), "{owners:?}");
}

/// Bases that were keyed by the text of a reference never saw a new image behind a tag.
async fn a_tag_that_moved_is_noticed_by_a_pull(world: Box<dyn World>) {
    let agent = world.agent();
    assert_eq!(agent.resolve(&image()).await.unwrap(), None);
    let old = world.publish(&image(), "old");
    assert_eq!(agent.pull(&image(), Pull::default()).await.unwrap(), old);
    let new = world.publish(&image(), "new");
    assert_eq!(agent.resolve(&image()).await.unwrap(), Some(old.clone()));
    assert_eq!(agent.pull(&image(), Pull::default()).await.unwrap(), new);
    assert_eq!(agent.resolve(&image()).await.unwrap(), Some(new.clone()));
    assert_ne!(GoldenKey::of(&image().at(old)), GoldenKey::of(&image().at(new)));
}

async fn a_golden_base_is_cloned_by_name(world: Box<dyn World>) {
    let agent = world.agent();
    let digest = world.publish(&image(), "one");
    let (progress, shown) = tokio::sync::watch::channel(0);
    agent
        .pull(
            &image(),
            Pull {
                progress: Some(&progress),
                ..Pull::default()
            },
        )
        .await
        .unwrap();
    assert_eq!(*shown.borrow(), 100);
    let pinned = image().at(digest);
    let golden = VmName::from(GoldenKey::of(&pinned));
    agent.clone_vm(&Source::Image(pinned.clone()), &golden).await.unwrap();
    agent.remove_image(&pinned).await.unwrap();
    agent.clone_vm(&Source::Vm(golden.clone()), &vm("a")).await.unwrap();
    agent.start(&vm("a"), &Launch::default()).await.unwrap();
    answers(agent.as_ref(), &vm("a")).await;
    assert_eq!(agent.power(&golden).await.unwrap(), Some(Power::Off));
}

async fn a_base_is_made_once_however_many_ask(world: Box<dyn World>) {
    let agent = world.agent();
    world.publish(&image(), "one");
    let (goldens, image) = (Goldens::new(agent.clone()), image());
    let ask = || goldens.ensure(&image, PullPolicy::IfNotPresent, Pull::default());
    let (one, two, three) = tokio::join!(ask(), ask(), ask());
    let (golden, two, three) = (one.unwrap(), two.unwrap(), three.unwrap());
    assert_eq!((&two.vm, &three.vm), (&golden.vm, &golden.vm));
    let made = [&golden, &two, &three].iter().filter(|golden| golden.fresh).count();
    assert_eq!(made, 1, "the others find it made");
    let vms = agent.list().await.unwrap().vms;
    assert_eq!(vms.len(), 1);
    assert_eq!(vms[0].owner, Owner::Ours(golden.vm.clone()));
    // Behind the tag is another image now; only who asks the registry notices.
    world.publish(&image, "two");
    assert_eq!(ask().await.unwrap().vm, golden.vm);
    let newer = goldens
        .ensure(&image, PullPolicy::Always, Pull::default())
        .await
        .unwrap();
    assert_ne!(newer.vm, golden.vm);
}

async fn a_base_needs_no_registry_once_it_is_there(world: Box<dyn World>) {
    let agent = world.agent();
    let digest = world.publish(&image(), "one");
    let goldens = Goldens::new(agent.clone());
    let never = goldens.ensure(&image(), PullPolicy::Never, Pull::default()).await;
    assert!(matches!(never, Err(Error::Missing(_))), "{never:?}");
    let pinned = image().at(digest);
    let golden = goldens
        .ensure(&pinned.to_ref(), PullPolicy::IfNotPresent, Pull::default())
        .await
        .unwrap();
    agent.remove_image(&pinned).await.unwrap();
    world.require_login("ghcr.io", "nobody", "knows");
    let again = goldens
        .ensure(&pinned.to_ref(), PullPolicy::Never, Pull::default())
        .await
        .unwrap();
    assert_eq!((again.vm, again.fresh), (golden.vm, false));
}

async fn a_private_registry_takes_credentials_for_one_pull_or_for_all(world: Box<dyn World>) {
    let agent = world.agent();
    world.publish(&image(), "one");
    world.require_login("ghcr.io", "robot", "s3cret");
    let with = |password: &str| Credentials {
        host: "ghcr.io".into(),
        username: "robot".into(),
        password: Secret::new(password.to_owned()),
    };
    let refused = |error: Error| {
        assert!(matches!(error, Error::Unauthorized(_)), "{error:?}");
        assert!(!format!("{error} {error:?}").contains("wr0ng"));
    };
    refused(agent.pull(&image(), Pull::default()).await.unwrap_err());
    let (wrong, right) = (with("wr0ng"), with("s3cret"));
    let pull = async |with: &Credentials| {
        let with = Pull {
            credentials: Some(with),
            ..Pull::default()
        };
        agent.pull(&image(), with).await
    };
    refused(pull(&wrong).await.unwrap_err());
    pull(&right).await.unwrap();
    // They were for that pull only.
    refused(agent.pull(&image(), Pull::default()).await.unwrap_err());
    refused(agent.login(&wrong).await.unwrap_err());
    agent.login(&right).await.unwrap();
    agent.pull(&image(), Pull::default()).await.unwrap();
}

async fn an_image_that_nobody_has_is_not_pulled(world: Box<dyn World>) {
    let other = ImageRef::parse("ghcr.io/acme/other:v1").unwrap();
    let error = world.agent().pull(&other, Pull::default()).await.unwrap_err();
    assert!(matches!(error, Error::NoSuchImage(_)), "{error:?}");
    assert_eq!(error.reason(), "ErrImagePull");
}

/// An agent may be cancelled between any two steps; the next one repeats the call.
async fn a_call_that_is_dropped_can_be_repeated(world: Box<dyn World>) {
    let (agent, name) = (world.agent(), vm("a"));
    cloned(world.as_ref(), &name).await;
    for micros in [0, 1_000, 5_000, 20_000, 50_000, 100_000] {
        let launch = Launch::default();
        let start = agent.start(&name, &launch);
        let _ = tokio::time::timeout(Duration::from_micros(micros), start).await;
    }
    // One of them may have started it; it is never started twice.
    let process = until("it runs", async || match agent.start(&name, &Launch::default()).await {
        Ok(process) => Some(process),
        Err(Error::Running(_)) => match agent.power(&name).await.unwrap() {
            Some(Power::Running(process)) => process,
            _ => None,
        },
        Err(other) => panic!("{other:?}"),
    })
    .await;
    answers(agent.as_ref(), &name).await;
    assert_eq!(agent.power(&name).await.unwrap(), Some(Power::Running(Some(process))));
    for millis in [0, 1, 20] {
        let _ = tokio::time::timeout(Duration::from_millis(millis), agent.stop(&name, GRACE)).await;
    }
    agent.stop(&name, GRACE).await.unwrap();
    for millis in [0, 1, 20] {
        let _ = tokio::time::timeout(Duration::from_millis(millis), agent.delete(&name)).await;
    }
    agent.delete(&name).await.unwrap();
    assert_eq!(agent.power(&name).await.unwrap(), None);
}

async fn an_image_that_was_dropped_is_gone(world: Box<dyn World>) {
    let agent = world.agent();
    let digest = world.publish(&image(), "one");
    agent.pull(&image(), Pull::default()).await.unwrap();
    let pinned = image().at(digest);
    let images = agent.list().await.unwrap().images;
    assert_eq!(images.len(), 1);
    assert_eq!(images[0].image, pinned);
    agent.remove_image(&pinned).await.unwrap();
    assert!(agent.list().await.unwrap().images.is_empty());
    assert_eq!(agent.resolve(&image()).await.unwrap(), None);
}

/// `tart fqn` repeats a digest whether its image is here or not. An image named so was never pulled: the clone that needed it fetched it
/// by itself, without credentials and within the time of a clone.
async fn an_image_is_here_only_once_it_was_pulled_however_it_is_named(world: Box<dyn World>) {
    let agent = world.agent();
    let digest = world.publish(&image(), "one");
    let pinned = ImageRef::parse(&image().at(digest.clone()).to_string()).unwrap();
    for name in [&image(), &pinned] {
        assert_eq!(agent.resolve(name).await.unwrap(), None, "{name}");
    }
    agent.pull(&pinned, Pull::default()).await.unwrap();
    assert_eq!(agent.resolve(&pinned).await.unwrap(), Some(digest.clone()));
    agent.pull(&image(), Pull::default()).await.unwrap();
    assert_eq!(agent.resolve(&image()).await.unwrap(), Some(digest));
}
