//! Accidents of the process that keeps a VM, and of the agent that started it.

use crate::world::{TartWorld, World as _, answers, cloned, command, running, shut_down, until, until_lost, vm};
use russet_vm::{How, Launch, Power, Process, Runtime as _, VmName};
use rustix::process::{Pid, Signal, kill_process};
use std::time::Duration;
use tokio::io::AsyncWriteExt as _;

fn kill(pid: u32) {
    kill_process(Pid::from_raw(i32::try_from(pid).unwrap()).unwrap(), Signal::KILL).unwrap();
}

/// The supervisor is the parent of `tart run`.
fn supervisor(process: &Process) -> u32 {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", process.pid)).unwrap();
    stat.rsplit_once(')')
        .unwrap()
        .1
        .split_ascii_whitespace()
        .nth(1)
        .unwrap()
        .parse()
        .unwrap()
}

pub(super) async fn a_vm_that_lost_its_supervisor_goes_on_and_its_end_is_unknown(world: TartWorld) {
    let (agent, name) = (world.tart(), vm("a"));
    let process = running(&world, &name).await;
    let keeper = supervisor(&process);
    kill(keeper);
    until("the supervisor is gone", async || {
        Process::look_up(keeper).is_none().then_some(())
    })
    .await;
    assert_eq!(agent.power(&name).await.unwrap(), Some(Power::Running(Some(process))));
    answers(&agent, &name).await;
    agent.stop(&name, Duration::from_mins(1)).await.unwrap();
    let exit = agent.ended(&name).await.unwrap();
    assert_eq!((exit.how, exit.finished), (How::Unknown, None));
}

/// A power cut takes supervisor and VM together.
pub(super) async fn what_happened_before_a_reboot_is_not_made_up(world: TartWorld) {
    let name = vm("a");
    let process = running(&world, &name).await;
    let command = command(&world, &["sleep", "100000"]);
    world.tart().spawn(&name, "main", &command).await.unwrap();
    kill(supervisor(&process));
    kill(process.pid);
    world.control.reboot().unwrap();
    let agent = world.tart();
    assert_eq!(agent.ended(&name).await.unwrap().how, How::Unknown);
    until_lost(&agent, &name).await;
    agent.start(&name, &Launch::default()).await.unwrap();
    answers(&agent, &name).await;
}

/// Makes this program an agent that starts a VM and is then in nobody's way.
pub(crate) const AGENT: &str = "--agent";

pub(crate) fn agent(words: &[std::ffi::OsString]) {
    use std::io::Write as _;
    let path = |index: usize| std::path::PathBuf::from(&words[index]);
    let this = std::env::current_exe().unwrap();
    let tart = russet_vm::Tart::new(russet_vm::tart::Options {
        program: path(1),
        home: path(2),
        state: path(3),
        supervisor: russet_vm::supervise::Supervisor {
            program: this,
            words: vec![crate::world::SUPERVISE.into()],
        },
    });
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        tart.start(&vm("a"), &Launch::default()).await.unwrap();
        assert!(writeln!(std::io::stdout(), "started").is_ok());
        std::future::pending::<()>().await;
    });
}

/// launchd kills the whole process group of a job that it restarts.
pub(super) async fn a_vm_survives_the_violent_end_of_its_agent(world: TartWorld) {
    use tokio::io::AsyncBufReadExt as _;
    let name = vm("a");
    cloned(&world, &name).await;
    let mut first = tokio::process::Command::new(std::env::current_exe().unwrap())
        .arg(AGENT)
        .args([&world.options.program, &world.options.home, &world.options.state])
        .stdout(std::process::Stdio::piped())
        .process_group(0)
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut line = String::new();
    tokio::io::BufReader::new(first.stdout.take().unwrap())
        .read_line(&mut line)
        .await
        .unwrap();
    assert_eq!(line, "started\n");
    let group = Pid::from_raw(i32::try_from(first.id().unwrap()).unwrap()).unwrap();
    rustix::process::kill_process_group(group, Signal::KILL).unwrap();
    first.wait().await.unwrap();

    let second = world.tart();
    let Some(Power::Running(Some(process))) = second.power(&name).await.unwrap() else {
        panic!("the VM is gone")
    };
    assert!(russet_vm::is_alive(&process));
    answers(&second, &name).await;
    shut_down(&second, &name).await;
    assert_eq!(second.ended(&name).await.unwrap().how, How::ShutDown);
}

/// Tells the supervisor of a VM that its host goes down, and gives how the VM ended and the last that `tart run` said.
async fn told_to_end(world: &TartWorld, name: &VmName) -> (How, String) {
    let agent = world.tart();
    let process = running(world, name).await;
    let keeper = Pid::from_raw(i32::try_from(supervisor(&process)).unwrap()).unwrap();
    let found = rustix::process::getsid(Some(keeper)).unwrap();
    assert_eq!(found, keeper, "a session of its own");
    kill_process(keeper, Signal::TERM).unwrap();
    let exit = agent.ended(name).await.unwrap();
    assert!(exit.finished.is_some(), "somebody saw it");
    let log = std::fs::read_to_string(agent.log(name)).unwrap();
    (exit.how, log.lines().last().unwrap_or_default().to_owned())
}

/// When the host goes down, everybody gets SIGTERM, and `tart` does not know it. The guest has time to shut down; but a Pod that was half
/// done must not count as one that succeeded, which is what a guest that shuts down by itself means.
pub(super) async fn a_supervisor_that_is_told_to_end_stops_its_vm_in_order(world: TartWorld) {
    let (how, said) = told_to_end(&world, &vm("a")).await;
    assert_eq!(
        (how, said.as_str()),
        (How::Stopped, "guest has stopped the virtual machine")
    );
}

pub(super) async fn a_guest_that_does_not_shut_down_with_its_host_is_stopped_hard(world: TartWorld) {
    world.switch(|switches| switches.deaf_guest = true);
    let (how, said) = told_to_end(&world, &vm("a")).await;
    assert_eq!((how, said.as_str()), (How::Stopped, "Stopping VM..."));
}

/// Programs in guests have supervisors, too, and those know nothing of VMs.
pub(super) async fn a_program_whose_supervisor_is_told_to_end_is_lost_at_once(world: TartWorld) {
    use russet_vm::supervise::{Seen, look};
    let (agent, name) = (world.tart(), vm("a"));
    running(&world, &name).await;
    let command = command(&world, &["sleep", "100000"]);
    agent.spawn(&name, "main", &command).await.unwrap();
    let folder = world.options.state.join(name.to_string()).join("steps/main");
    let Seen::Running(Some(started)) = look(&folder).unwrap() else {
        panic!("it does not run")
    };
    let keeper = Pid::from_raw(i32::try_from(supervisor(&started.process)).unwrap()).unwrap();
    kill_process(keeper, Signal::TERM).unwrap();
    until_lost(&agent, &name).await;
    let Seen::Ended(_, Some(finished)) = look(&folder).unwrap() else {
        panic!("nobody saw it end")
    };
    // Of the first word: the time is for guests.
    assert_eq!((finished.signal, finished.told), (Some(Signal::USR2.as_raw()), true));
    answers(&agent, &name).await;
}

/// A supervisor that still waits for its order.
fn keeper_of(world: &TartWorld) -> tokio::process::Child {
    tokio::process::Command::new(&world.options.supervisor.program)
        .args(&world.options.supervisor.words)
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap()
}

/// Processes of this machine that were started with these words.
fn started_with(words: &[&str]) -> Vec<u32> {
    let wanted: Vec<_> = words.iter().flat_map(|word| word.bytes().chain([0])).collect();
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(|pid| std::fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|words| words == wanted))
        .collect()
}

/// Whatever moment it is killed in, a process that was started is seen to run, and one that was not is not made up.
pub(super) async fn a_supervisor_killed_at_any_moment_never_hides_a_process(world: TartWorld) {
    use russet_vm::supervise::{Order, Seen, look};
    for round in 0..60_u32 {
        let seconds = format!("600.{}{round:03}", std::process::id());
        let dir = world.scratch("supervised").join(round.to_string());
        let order = Order {
            dir: dir.clone(),
            program: "sleep".into(),
            words: vec![seconds.clone()],
            environment: std::collections::BTreeMap::new(),
            log: world.scratch("supervised.log"),
            rotation: None,
        };
        let mut keeper = keeper_of(&world);
        let mut text = serde_json::to_vec(&order).unwrap();
        text.extend_from_slice(b"\ngo\n");
        keeper.stdin.take().unwrap().write_all(&text).await.unwrap();
        tokio::time::sleep(Duration::from_micros(u64::from(round) * 250)).await;
        keeper.kill().await.unwrap();
        let running = until("what is seen agrees with what is", async || {
            let alive = started_with(&["sleep", &seconds]);
            match look(&dir).unwrap() {
                Seen::Running(started) => {
                    let right = started.is_none_or(|started| alive == [started.process.pid]);
                    (alive.len() == 1 && right).then_some(alive)
                }
                Seen::Never | Seen::Ended(_, None) => alive.is_empty().then_some(alive),
                Seen::Ended(_, Some(finished)) => panic!("nobody saw {finished:?}"),
            }
        })
        .await;
        for pid in running {
            kill(pid);
            until("it is over", async || {
                (!matches!(look(&dir).unwrap(), Seen::Running(_))).then_some(())
            })
            .await;
        }
    }
}

/// A dropped call's supervisor once waited for the lock, got it when the VM had been stopped, and started the VM again.
pub(super) async fn a_start_that_was_dropped_does_not_come_late(world: TartWorld) {
    let (agent, name) = (world.tart(), vm("a"));
    running(&world, &name).await;
    let order = russet_vm::supervise::Order {
        dir: world.options.state.join(name.to_string()),
        program: world.options.program.clone(),
        words: vec!["run".into(), name.to_string()],
        environment: std::collections::BTreeMap::new(),
        log: agent.log(&name),
        rotation: None,
    };
    let launch = || {
        let mut keeper = keeper_of(&world);
        let mut text = serde_json::to_vec(&order).unwrap();
        text.push(b'\n');
        let mut stdin = keeper.stdin.take().unwrap();
        async move {
            let _ = stdin.write_all(&text).await;
            (keeper, stdin)
        }
    };
    // While the VM runs, another supervisor gives up at once; so it cannot be there when the VM ends.
    let (mut busy, _still_open) = launch().await;
    assert!(!busy.wait().await.unwrap().success());
    agent.stop(&name, Duration::ZERO).await.unwrap();
    // One whose agent is gone before it said "go" starts nothing.
    let (mut unwanted, stdin) = launch().await;
    drop(stdin);
    assert!(!unwanted.wait().await.unwrap().success());
    assert_eq!(agent.ended(&name).await.unwrap().how, How::Stopped);
    assert_eq!(world.control.running().unwrap(), Vec::<String>::new());
}
