//! Connections that end in the middle, hosts that restart in the middle.

use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::harness::{STAYS, World};
use russet_bootstrap::mac::{Failed, Fleet, Remote};
use russet_bootstrap::ssh::{self, Exec, Output, Session};
use russet_sim_mac::macos::{Faults, SshFault};

/// A connection over which only so many commands go. The last one is run, and its answer lost.
struct Cut<'a> {
    session: &'a Session,
    left: AtomicU32,
    address: std::net::SocketAddr,
}

impl Cut<'_> {
    fn lost(&self) -> ssh::Error {
        ssh::Error::Dropped {
            address: self.address,
            during: ssh::During::Command,
            reason: None,
        }
    }

    fn answer(&self, answer: Result<Output, ssh::Error>) -> Result<Output, ssh::Error> {
        match self.left.fetch_sub(1, Ordering::Relaxed) {
            0 | 1 => Err(self.lost()),
            _ => answer,
        }
    }
}

impl Remote for Cut<'_> {
    async fn run(&self, exec: Exec<'_>) -> Result<Output, ssh::Error> {
        self.answer(self.session.run(exec).await)
    }

    async fn send(&self, command: &str, file: &Path, from: u64, deadline: Duration) -> Result<Output, ssh::Error> {
        self.answer(self.session.send_file(command, file, from, deadline).await)
    }
}

/// After every command there is a moment in which the host has done it and we do not know.
#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_is_cut_after_each_of_its_steps_goes_on_where_it_was() {
    let world = World::new().await;
    let (fleet, host) = (world.full(), world.full_host());
    let mini = world.mini();
    let mut uploaded = 0;
    for attempt in 0.. {
        assert!(attempt < 60, "it never ends");
        let session = world.session().await.unwrap();
        let cut = Cut {
            session: &session,
            // The first login needs two more: nobody is root yet.
            left: AtomicU32::new(if attempt < 2 { 4 } else { 2 }),
            address: (mini.address, mini.ssh_port).into(),
        };
        match world.run_on(&cut, &fleet, &host).await {
            Ok(report) => {
                uploaded += report.uploaded;
                break;
            }
            Err(Failed::Ssh(_)) => {}
            Err(other) => panic!("{other}"),
        }
    }
    let after = world.run_as(&fleet, &host).await.unwrap();
    assert_eq!(
        (after.changed.as_slice(), after.held.as_slice()),
        ([].as_slice(), [].as_slice())
    );
    assert_eq!(uploaded, 0, "what was uploaded before the cut was used");
    world.holds_no_secret_but_where_it_must().await;
}

fn padded(world: &World) -> Fleet {
    world.fleet(&format!("{STAYS}#{}\n", "x".repeat(200_000)))
}

/// Whether the connection was cut; any other failure is none of a cut.
fn cut<T>(run: Result<T, Failed>) -> bool {
    match run {
        Ok(_) => false,
        Err(Failed::Ssh(_)) => true,
        Err(other) => panic!("{other}"),
    }
}

/// Numbers that look random and are the same each time.
fn dice(seed: u64) -> impl Iterator<Item = u64> {
    let mut state = seed;
    std::iter::repeat_with(move || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        state >> 33
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_is_cut_at_any_byte_costs_only_time() {
    let world = World::new().await;
    let fleet = padded(&world);
    let mac = world.mac().await;
    for (attempt, roll) in dice(7).enumerate() {
        assert!(attempt < 60, "it never ends");
        let bytes = 2_000 + roll % 20_000 + attempt as u64 * 6_000;
        mac.set_faults(|faults| faults.ssh = SshFault::DropAfter(bytes));
        if !cut(world.run(&fleet).await) {
            break;
        }
    }
    mac.set_faults(|faults| *faults = Faults::default());
    let after = world.run(&fleet).await.unwrap();
    assert_eq!(after.changed, [""; 0], "{after:?}");
    world.holds_no_secret_but_where_it_must().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_falls_silent_is_given_up() {
    let world = World::new().await;
    let (fleet, host) = (padded(&world), world.host());
    let mac = world.mac().await;
    mac.set_faults(|faults| faults.ssh = SshFault::StallAfter(60_000));
    let session = world.impatient().await.unwrap();
    let failed = world.run_on(&session, &fleet, &host).await.unwrap_err();
    assert!(matches!(failed, Failed::Ssh(_)), "{failed}");
    mac.set_faults(|faults| *faults = Faults::default());
    world.run(&fleet).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_restarts_under_it_is_finished_later() {
    let world = World::new().await;
    let fleet = padded(&world);
    let mac = world.mac().await;
    for (attempt, roll) in dice(11).enumerate() {
        assert!(attempt < 60, "it never ends");
        let bytes = 8_000 + roll % 40_000 + attempt as u64 * 20_000;
        mac.set_faults(|faults| faults.ssh = SshFault::RebootAfter(bytes));
        if !cut(world.run(&fleet).await) {
            break;
        }
        mac.set_faults(|faults| *faults = Faults::default());
        world.until_back().await;
    }
    mac.set_faults(|faults| *faults = Faults::default());
    mac.reboot().await;
    // A headless Mac comes back without a desktop session, and nothing else is amiss.
    let after = world.run(&fleet).await.unwrap();
    assert!(after.changed.iter().all(|step| *step == "auto-login"), "{after:?}");
    assert_eq!(after.uploaded, 0);
    assert!(!world.agent_pid().await.is_empty());
    world.holds_no_secret_but_where_it_must().await;
    // One with a display comes back with its session.
    mac.set_quirks(|quirks| quirks.headless = false);
    mac.reboot().await;
    let again = world.run(&fleet).await.unwrap();
    assert_eq!(again.changed, [""; 0]);
}

/// In the middle of a program, between any two commands of it.
#[tokio::test(flavor = "multi_thread")]
async fn a_host_whose_power_is_cut_in_the_middle_of_a_step_is_finished_later() {
    let world = World::new().await;
    let (fleet, host) = (world.full(), world.full_host());
    let mac = world.mac().await;
    for (attempt, roll) in dice(3).enumerate() {
        assert!(attempt < 40, "it never ends");
        let commands = 20 + u32::try_from(roll % 120).unwrap() + u32::try_from(attempt).unwrap() * 30;
        mac.set_faults(|faults| faults.reboot_at_command = Some(commands));
        match world.run_as(&fleet, &host).await {
            Ok(report) if report.held.is_empty() => break,
            // The power may go while a tool answers, which the program sees first; where the tool was one of an optional step, that step
            // is reported, and not done.
            Ok(_) | Err(Failed::Ssh(_) | Failed::Step { .. } | Failed::NoAnswer { .. }) => {}
            Err(other) => panic!("{other}"),
        }
        mac.set_faults(|faults| *faults = Faults::default());
        world.until_back().await;
    }
    mac.set_faults(|faults| *faults = Faults::default());
    let after = world.run_as(&fleet, &host).await.unwrap();
    assert_eq!((after.uploaded, after.held.as_slice()), (0, [].as_slice()), "{after:?}");
    assert_eq!(world.run_as(&fleet, &host).await.unwrap().changed, [""; 0]);
    world.holds_no_secret_but_where_it_must().await;
}

/// A host that was reinstalled has another key, and is another host until somebody says so.
#[tokio::test(flavor = "multi_thread")]
async fn a_changed_host_key_ends_it_before_anything_is_sent_and_a_new_pin_begins_again() {
    let world = World::new().await;
    let fleet = world.fleet(STAYS);
    world.run(&fleet).await.unwrap();
    let before = world.mini();
    let pin = world.session().await.unwrap().host_key().clone();
    world.pinned(Some(pin.clone())).await.unwrap();
    world.reinstall().await;
    let refused = world.pinned(Some(pin)).await.unwrap_err();
    assert!(matches!(refused, ssh::Error::HostKeyChanged { .. }), "{refused}");
    assert!(world.mac().await.calls().is_empty(), "nothing was run on it");
    assert_ne!(world.mini().password, before.password);
    let again = world.run(&fleet).await.unwrap();
    assert_eq!(again.uploaded, fleet.agent.program.len());
    assert!(!world.agent_pid().await.is_empty());
}
