//! What holds for every fleet, and what a rollout as a whole comes to.

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::Timestamp;
use proptest::prelude::*;

use super::host::later;
use super::*;

fn start() -> Timestamp {
    Timestamp::from_second(1_800_000_000).unwrap()
}

/// A host that is well and has configuration `old`.
fn host(name: &str) -> Host {
    Host {
        name: name.to_owned(),
        desired: "new".to_owned(),
        current: Some("old".to_owned()),
        failed: None,
        attempts: 0,
        last_failure: None,
        gave_up: false,
        changed: Some(start()),
        set_up: true,
        ready: true,
        lost_since: None,
        updating: false,
        deleting: false,
        paused: false,
        work: None,
    }
}

fn work() -> Work {
    Work {
        pods: vec!["ci/job".to_owned()],
        since: start(),
    }
}

fn fleet(size: usize) -> Vec<Host> {
    (0..size).map(|number| host(&format!("mac-{number:03}"))).collect()
}

fn apply(host: &mut Host, marks: Marks) {
    host.current = marks.current;
    host.failed = marks.failed;
    host.attempts = marks.attempts;
    host.last_failure = marks.last_failure;
    host.gave_up = marks.gave_up;
}

/// A fleet, its time, and which hosts can be updated at all.
struct Rollout<'a> {
    hosts: Vec<Host>,
    policy: Policy,
    now: Timestamp,
    works: &'a dyn Fn(&str) -> bool,
    touched: BTreeSet<String>,
    /// Most hosts that were out of service at once.
    worst: usize,
}

impl<'a> Rollout<'a> {
    fn new(hosts: Vec<Host>, policy: Policy, works: &'a dyn Fn(&str) -> bool) -> Self {
        Self {
            hosts,
            policy,
            now: start(),
            works,
            touched: BTreeSet::new(),
            worst: 0,
        }
    }

    fn plan(&self) -> Plan {
        plan(&self.hosts, &self.policy, self.now)
    }

    /// Does what the plan allows, or waits as long as it says. Whether anything was left to do.
    fn step(&mut self) -> bool {
        for host in &mut self.hosts {
            let marks = marks(host, &self.policy, self.now);
            apply(host, marks);
        }
        let plan = self.plan();
        let updates: BTreeSet<String> = plan.updates().map(str::to_owned).collect();
        if updates.is_empty() {
            let Some(wake) = plan.wake else { return false };
            assert!(wake > self.now, "a wake in the past would spin");
            self.now = wake;
            return true;
        }
        let out = |host: &&Host| updates.contains(&host.name) || !host.ready;
        self.worst = self.worst.max(self.hosts.iter().filter(out).count());
        let (policy, now) = (self.policy.clone(), later(self.now, Duration::from_mins(3)));
        for host in self.hosts.iter_mut().filter(|host| updates.contains(&host.name)) {
            let desired = host.desired.clone();
            let marks = if (self.works)(&host.name) {
                host.changed = Some(now);
                succeeded(&desired)
            } else {
                failed(host, &desired, &policy, now)
            };
            apply(host, marks);
        }
        self.touched.extend(updates);
        self.now = now;
        true
    }

    /// Runs until nothing is left to do or the time is over.
    fn run(&mut self, time: Duration) {
        let end = later(self.now, time);
        while self.now < end && self.step() {}
    }

    fn waiting(&self) -> Vec<String> {
        let drifted = self.hosts.iter().filter(|host| host.drifted());
        drifted.map(|host| host.name.clone()).collect()
    }
}

fn any_share() -> impl Strategy<Value = Share> {
    prop_oneof![(0_u32..6).prop_map(Share::Count), (0_u8..=100).prop_map(Share::Percent)]
}

prop_compose! {
    fn any_policy()(
        canary in any_share(), max_unavailable in any_share(), pause_failures in any_share(),
        minutes in prop::array::uniform5(0_u64..120), max_attempts in 0_u32..7,
    ) -> Policy {
        let [soak, lost_after, busy, retry, terminal] = minutes.map(Duration::from_mins);
        Policy {
            canary, max_unavailable, pause_failures, max_attempts, lost_after,
            soak, busy_patience: busy, retry_delay: retry, terminal_retry_after: terminal,
        }
    }
}

fn any_hash() -> impl Strategy<Value = String> {
    prop_oneof![4 => Just("new"), 2 => Just("old"), 1 => Just("other")].prop_map(str::to_owned)
}

fn any_time() -> impl Strategy<Value = Option<Timestamp>> {
    let times = (-200_i64..30).prop_map(|minutes| Timestamp::from_second(1_800_000_000 + minutes * 60).unwrap());
    prop::option::weighted(0.8, times)
}

prop_compose! {
    fn any_host(number: usize)(
        desired in any_hash(), current in prop::option::of(any_hash()), failed in prop::option::weighted(0.3, any_hash()),
        attempts in 0_u32..8, last_failure in any_time(), changed in any_time(), lost in any_time(),
        facts in prop::array::uniform5(prop::bool::weighted(0.2)), ready in prop::bool::weighted(0.8), set_up in prop::bool::weighted(0.9),
    ) -> Host {
        let [gave_up, updating, deleting, paused, busy] = facts;
        let work = busy.then(|| Work { pods: Vec::new(), since: changed.unwrap_or(start()) });
        Host {
            name: format!("mac-{number:03}"),
            lost_since: lost.filter(|_| !ready),
            desired, current, failed, attempts, last_failure, gave_up, changed, set_up, ready, updating, deleting, paused, work,
        }
    }
}

fn any_fleet() -> impl Strategy<Value = Vec<Host>> {
    (0_usize..14).prop_flat_map(|size| (0..size).map(any_host).collect::<Vec<_>>())
}

proptest! {
    #[test]
    fn only_hosts_that_may_be_touched_are_updated(hosts in any_fleet(), policy in any_policy()) {
        let plan = plan(&hosts, &policy, start());
        prop_assert_eq!(plan.verdicts().count(), hosts.len());
        for host in &hosts {
            let verdict = plan.verdict(&host.name).unwrap();
            if matches!(verdict, Verdict::Update { .. }) {
                prop_assert!(host.drifted() && !host.deleting && !host.paused && !host.updating);
                prop_assert_eq!(host.given_up_until(&policy, start()), None);
                let waited = |work: &Work| later(work.since.min(start()), policy.busy_patience) <= start();
                prop_assert!(host.work.as_ref().is_none_or(waited) || host.is_lost(&policy, start()));
            }
            let settled = host.set_up && !host.deleting && !host.updating && !host.drifted();
            prop_assert_eq!(*verdict == Verdict::UpToDate, settled);
        }
    }

    #[test]
    fn no_update_takes_more_hosts_out_of_service_than_allowed(hosts in any_fleet(), policy in any_policy()) {
        let plan = plan(&hosts, &policy, start());
        let updates: BTreeSet<&str> = plan.updates().collect();
        let fleet: Vec<&Host> = hosts.iter().filter(|host| host.set_up && !host.deleting).collect();
        let before = fleet.iter().filter(|host| !host.ready || host.updating).count();
        let taken = fleet.iter().filter(|host| host.ready && updates.contains(host.name.as_str())).count();
        prop_assert!(taken == 0 || before + taken <= policy.max_unavailable.at_most(fleet.len()).max(1));
    }

    #[test]
    fn a_configuration_that_fails_or_is_unproved_goes_to_no_further_host(hosts in any_fleet(), policy in any_policy()) {
        let plan = plan(&hosts, &policy, start());
        for desired in ["new", "old", "other"] {
            let cohort: Vec<&Host> =
                hosts.iter().filter(|host| host.set_up && !host.deleting && host.desired == desired).collect();
            let update = |host: &&&Host| matches!(plan.verdict(&host.name), Some(Verdict::Update { .. }));
            let fresh = cohort.iter().filter(update).filter(|host| !host.is_failing()).count();
            let bad = |host: &&&Host| if host.drifted() { host.is_failing() } else { !host.ready };
            let limit = policy.pause_failures.at_least(cohort.len());
            let mut without = cohort.iter().filter(|host| host.drifted() && !host.updating);
            if without.all(|host| host.is_lost(&policy, start())) {
                let failed = cohort.iter().filter(|host| host.drifted() && host.is_failing()).count();
                prop_assert!(limit == 0 || failed < limit || fresh == 0);
                continue;
            }
            if limit > 0 && cohort.iter().filter(bad).count() >= limit {
                prop_assert_eq!(fresh, 0);
            }
            let soaked = |host: &Host| later(host.changed.unwrap_or(start()).min(start()), policy.soak) <= start();
            let has = cohort.iter().filter(|host| !host.drifted() && host.ready);
            let proved = has.clone().filter(|host| soaked(host)).count();
            let needed = policy.canary.at_least(cohort.len()).min(cohort.len());
            if proved < needed {
                let trying = cohort.iter().filter(|host| host.drifted() && host.updating && !host.is_failing()).count();
                prop_assert!(fresh == 0 || has.count() + trying + fresh <= needed);
            }
        }
    }

    #[test]
    fn the_order_of_the_hosts_does_not_matter((hosts, shuffled) in any_fleet().prop_flat_map(|hosts| {
        (Just(hosts.clone()), Just(hosts).prop_shuffle())
    }), policy in any_policy()) {
        prop_assert_eq!(plan(&hosts, &policy, start()), plan(&shuffled, &policy, start()));
    }

    #[test]
    fn a_wait_that_time_ends_is_woken_from_and_every_wait_is_explained(hosts in any_fleet(), policy in any_policy()) {
        let plan = plan(&hosts, &policy, start());
        for (name, verdict) in plan.verdicts() {
            let sentence = verdict.to_string();
            prop_assert!(sentence.starts_with(char::is_uppercase) && !sentence.ends_with('.'), "{}: {}", name, sentence);
            if let Verdict::Wait(wait) = verdict && let Some(until) = wait.until() {
                prop_assert!(until > start());
                prop_assert!(plan.wake.is_some_and(|wake| wake <= until));
            }
        }
    }

    #[test]
    fn a_good_configuration_reaches_every_host(
        size in 1_usize..30, policy in any_policy(), busy in prop::collection::vec(any::<bool>(), 30),
    ) {
        let mut hosts = fleet(size);
        for (host, busy) in hosts.iter_mut().zip(busy) {
            host.work = busy.then(work);
        }
        let mut rollout = Rollout::new(hosts, policy.clone(), &|_| true);
        rollout.run(Duration::from_hours(24 * 30));
        prop_assert_eq!(rollout.waiting(), Vec::<String>::new());
        prop_assert!(rollout.worst <= policy.max_unavailable.at_most(size).max(1));
    }

    #[test]
    fn a_bad_configuration_touches_few_hosts(size in 1_usize..30, policy in any_policy()) {
        prop_assume!(policy.pause_failures != Share::Count(0) && policy.pause_failures != Share::Percent(0));
        prop_assume!(policy.retry_delay > Duration::ZERO);
        let mut rollout = Rollout::new(fleet(size), policy.clone(), &|_| false);
        rollout.run(Duration::from_hours(12));
        let canaries = policy.canary.at_least(size).min(size);
        let at_once = if canaries == 0 { policy.max_unavailable.at_most(size).max(1) } else { canaries };
        let limit = policy.pause_failures.at_least(size) - 1 + at_once;
        prop_assert!(rollout.touched.len() <= limit, "{} > {limit}", rollout.touched.len());
    }

    #[test]
    fn a_few_broken_hosts_do_not_hold_up_the_others(size in 3_usize..30, broken in 0_usize..30) {
        let broken = format!("mac-{:03}", broken % size);
        let works = |name: &str| name != broken;
        let mut rollout = Rollout::new(fleet(size), Policy::default(), &works);
        rollout.run(Duration::from_hours(12));
        prop_assert_eq!(rollout.waiting(), [broken.clone()]);
    }
}

#[test]
fn a_rollout_goes_canary_first_then_soaks_then_goes_on() {
    let mut rollout = Rollout::new(fleet(20), Policy::default(), &|_| true);
    let plan = rollout.plan();
    assert_eq!(plan.updates().collect::<Vec<_>>(), ["mac-000"]);
    let waits = plan.verdict("mac-001").unwrap().to_string();
    assert_eq!(waits, "The host waits; the new configuration is tried first on mac-000");
    rollout.step();
    let plan = rollout.plan();
    assert_eq!(plan.updates().count(), 0);
    let waits = plan.verdict("mac-001").unwrap().to_string();
    assert!(waits.contains("mac-000 must be well"), "{waits}");
    assert_eq!(plan.wake, Some(later(rollout.now, Duration::from_mins(10))));
    rollout.step();
    let plan = rollout.plan();
    assert_eq!(plan.updates().collect::<Vec<_>>(), ["mac-001", "mac-002"]);
    let waits = plan.verdict("mac-003").unwrap().to_string();
    assert!(
        waits.contains("2 of the fleet's hosts") && waits.ends_with("2 may be"),
        "{waits}"
    );
}

/// The reference pushed a configuration that no host could take to every host, until all had given up.
#[test]
fn a_configuration_that_no_host_can_take_stops_at_the_second() {
    let mut rollout = Rollout::new(fleet(100), Policy::default(), &|_| false);
    rollout.run(Duration::from_hours(6));
    assert_eq!(rollout.touched.len(), 2);
    let plan = rollout.plan();
    let waits = plan.verdict("mac-050").unwrap().to_string();
    assert!(
        waits.contains("paused") && waits.contains("mac-000, mac-001"),
        "{waits}"
    );
}

/// The update itself goes well, and the host never serves again: worse than a failure, and as visible.
#[test]
fn a_host_that_does_not_serve_after_its_update_counts_as_failing() {
    let mut hosts = fleet(10);
    for host in hosts.iter_mut().take(2) {
        host.current = Some("new".to_owned());
        host.ready = false;
    }
    let plan = plan(&hosts, &Policy::default(), start());
    assert_eq!(plan.updates().count(), 0);
    assert!(matches!(plan.verdict("mac-005"), Some(Verdict::Wait(Wait::Failing { hosts })) if hosts.len() == 2));
}

#[test]
fn a_paused_rollout_goes_on_by_itself_when_the_failing_hosts_heal() {
    let healed = std::cell::Cell::new(false);
    let works = |_: &str| healed.get();
    let mut rollout = Rollout::new(fleet(10), Policy::default(), &works);
    rollout.run(Duration::from_hours(2));
    assert_eq!(rollout.waiting().len(), 10);
    healed.set(true);
    rollout.run(Duration::from_hours(24));
    assert!(rollout.waiting().is_empty());
}

/// A corrected configuration must not be held up by what the first one did.
#[test]
fn a_corrected_configuration_starts_afresh() {
    let works = |_: &str| false;
    let mut rollout = Rollout::new(fleet(10), Policy::default(), &works);
    while !rollout.hosts.iter().any(|host| host.gave_up) {
        assert!(rollout.step());
    }
    let mut hosts = rollout.hosts;
    for host in &mut hosts {
        host.desired = "newer".to_owned();
    }
    let mut rollout = Rollout {
        now: rollout.now,
        ..Rollout::new(hosts, Policy::default(), &|_| true)
    };
    assert_eq!(rollout.plan().updates().count(), 1);
    rollout.run(Duration::from_hours(24));
    assert!(rollout.waiting().is_empty());
    assert!(rollout.hosts.iter().all(|host| !host.gave_up && host.attempts == 0));
}

#[test]
fn idle_hosts_come_before_busy_ones_and_a_busy_one_is_not_waited_for_for_ever() {
    let mut hosts = fleet(3);
    hosts[0].work = Some(work());
    let policy = Policy {
        canary: Share::Count(0),
        max_unavailable: Share::Count(1),
        ..Policy::default()
    };
    let first = plan(&hosts, &policy, start());
    assert_eq!(first.updates().collect::<Vec<_>>(), ["mac-001"]);
    let waits = first.verdict("mac-000").unwrap().to_string();
    assert!(waits.contains("ci/job; it is updated when they are done"), "{waits}");
    hosts.truncate(1);
    assert_eq!(plan(&hosts, &policy, start()).updates().count(), 0);
    let patience = later(start(), policy.busy_patience);
    assert_eq!(
        plan(&hosts, &policy, patience).updates().collect::<Vec<_>>(),
        ["mac-000"]
    );
    hosts[0].work = None;
    assert_eq!(plan(&hosts, &policy, start()).updates().count(), 1);
}

/// One host too many is down already: the only one that can be updated is that host itself.
#[test]
fn a_host_that_is_down_is_updated_although_the_budget_is_spent() {
    let mut hosts = fleet(3);
    hosts[1].ready = false;
    let plan = plan(&hosts, &Policy::default(), start());
    assert_eq!(plan.updates().collect::<Vec<_>>(), ["mac-001"]);
    let waits = plan.verdict("mac-000").unwrap().to_string();
    assert!(waits.contains("1 of the fleet's hosts"), "{waits}");
}

#[test]
fn a_canary_is_a_host_that_is_well() {
    let mut hosts = fleet(30);
    hosts[0].ready = false;
    let plan = plan(&hosts, &Policy::default(), start());
    assert_eq!(plan.updates().collect::<Vec<_>>(), ["mac-001"]);
}

/// The API server moved, every Node was lost at once, and what would have brought them back went to one Mac, which had to be well for
/// ten minutes before the next few got it: hours without a fleet, to protect a fleet that was not there.
#[test]
fn a_fleet_that_is_lost_as_a_whole_is_brought_back_at_once() {
    let lost = |hosts: &mut [Host]| {
        for host in hosts {
            host.ready = false;
            host.lost_since = Some(start());
            host.work = Some(work());
        }
    };
    let policy = Policy::default();
    let mut hosts = fleet(20);
    lost(&mut hosts);
    let soon = later(start(), Duration::from_mins(1));
    assert_eq!(plan(&hosts, &policy, soon).updates().count(), 0, "it may be a hiccup");
    let now = later(start(), Duration::from_mins(2));
    assert_eq!(plan(&hosts, &policy, now).updates().count(), 20);

    // Some are done: those that serve again, and those that are about to.
    for (index, host) in hosts.iter_mut().take(8).enumerate() {
        host.current = Some("new".to_owned());
        host.changed = Some(now);
        host.ready = index < 4;
        host.lost_since = host.lost_since.filter(|_| index >= 4);
    }
    assert_eq!(plan(&hosts, &policy, now).updates().count(), 12, "the others go on");

    // What comes to them does not help: two that should serve by now, or two on which it failed.
    let later_on = later(now, Duration::from_mins(2));
    let stuck = plan(&hosts, &policy, later_on);
    assert!(matches!(stuck.verdict("mac-012"), Some(Verdict::Wait(Wait::Failing { hosts })) if hosts.len() == 4));
    let mut refused = fleet(20);
    lost(&mut refused);
    for host in refused.iter_mut().take(2) {
        let marks = failed(host, "new", &policy, now);
        apply(host, marks);
    }
    assert_eq!(plan(&refused, &policy, now).updates().count(), 0);
}

#[test]
fn a_fleet_of_which_one_host_serves_is_rolled_with_care() {
    let mut hosts = fleet(20);
    for host in hosts.iter_mut().skip(1) {
        host.ready = false;
        host.lost_since = Some(start());
    }
    let now = later(start(), Duration::from_hours(1));
    let careful = plan(&hosts, &Policy::default(), now);
    assert_eq!(careful.updates().count(), 1);
    // Nothing is known of a Node that is not there.
    hosts[0].ready = false;
    assert_eq!(plan(&hosts, &Policy::default(), now).updates().count(), 1);
}
