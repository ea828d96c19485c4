//! Random Pods on a host with two VMs, random things that happen to them, and what must always hold.

use super::*;
use crate::facts::{Exit, Hook, Unhealthy, reasons};
use crate::probe;
use crate::status::{Phase, status};
use crate::testing::{at, pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use proptest::prelude::*;
use serde_json::{Value, json};

const SLOTS: usize = 2;

#[derive(Clone, Debug)]
enum Event {
    /// Ask what is next, and begin it.
    Plan,
    /// The VM of a container came up.
    Up(usize),
    /// The VM of a container did not come up.
    NotUp(usize),
    /// A container ended.
    Exit(usize, i32),
    /// A probe gave up, or passed.
    Unhealthy(usize),
    Started(usize),
    Ready(usize, bool),
    /// A hook ended.
    Hooked(usize, bool),
    /// Time passes.
    Wait(u32),
    /// The clock is set back.
    Back(u32),
    /// Somebody deletes the Pod, perhaps again with less patience.
    Delete(u32),
    Evict,
    /// Somebody changes the image of a container.
    Image(usize, u32),
    /// VMs of strangers come and go.
    Strangers(usize),
}

fn container() -> impl Strategy<Value = Value> {
    let policy = prop_oneof![
        Just(None),
        Just(Some("Never")),
        Just(Some("OnFailure")),
        Just(Some("Always"))
    ];
    (any::<bool>(), any::<bool>(), policy).prop_map(|(startup, hook, policy)| {
        let mut container = json!({"restartPolicy": policy});
        if startup {
            container["startupProbe"] = json!({"tcpSocket": {"port": 1}});
        }
        if hook {
            container["lifecycle"] = json!({"postStart": {"sleep": {"seconds": 1}}});
        }
        container
    })
}

fn pods() -> impl Strategy<Value = Pod> {
    let policy = prop_oneof![Just("Always"), Just("OnFailure"), Just("Never")];
    let inits = prop::collection::vec(container(), 0..3);
    let mains = prop::collection::vec(container(), 1..3);
    (policy, inits, mains, prop::option::of(1..120_i64)).prop_map(|(policy, mut inits, mut mains, deadline)| {
        for (index, container) in inits.iter_mut().chain(&mut mains).enumerate() {
            container["name"] = json!(format!("c{index}"));
        }
        pod(json!({
            "restartPolicy": policy, "initContainers": inits, "containers": mains, "activeDeadlineSeconds": deadline,
        }))
    })
}

fn events() -> impl Strategy<Value = Vec<(usize, Event)>> {
    let which = || 0..5_usize;
    let event = prop_oneof![
        8 => Just(Event::Plan),
        6 => which().prop_map(Event::Up),
        1 => which().prop_map(Event::NotUp),
        4 => (which(), prop_oneof![3 => Just(0), 2 => Just(1)]).prop_map(|(which, code)| Event::Exit(which, code)),
        1 => which().prop_map(Event::Unhealthy),
        4 => which().prop_map(Event::Started),
        2 => (which(), any::<bool>()).prop_map(|(which, ready)| Event::Ready(which, ready)),
        4 => (which(), prop::bool::weighted(0.8)).prop_map(|(which, good)| Event::Hooked(which, good)),
        4 => (0..40_u32).prop_map(Event::Wait),
        1 => (0..4000_u32).prop_map(Event::Back),
        1 => (0..40_u32).prop_map(Event::Delete),
        1 => Just(Event::Evict),
        1 => (which(), 0..3_u32).prop_map(|(which, image)| Event::Image(which, image)),
        1 => (0..=SLOTS).prop_map(Event::Strangers),
    ];
    prop::collection::vec((0..3_usize, event), 0..120)
}

struct World {
    pods: Vec<(Pod, PodFacts, bool)>,
    strangers: usize,
    now: Timestamp,
}

impl World {
    fn new(pods: Vec<Pod>) -> Self {
        let pods = pods.into_iter().map(|pod| (pod, PodFacts::default(), false)).collect();
        Self {
            pods,
            strangers: 0,
            now: at(1_000_000),
        }
    }

    fn live(&self) -> usize {
        self.pods.iter().map(|(_, facts, _)| facts.live()).sum()
    }

    fn plan(&mut self, index: usize) {
        let room = Room {
            free: SLOTS.saturating_sub(self.live() + self.strangers),
        };
        let now = self.now;
        let Some((pod, facts, finished)) = self.pods.get_mut(index) else {
            return;
        };
        let plan = next(pod, facts, room, now);
        let again = next(pod, facts, room, now);
        assert_eq!(plan, again, "the same question has the same answer");
        // Whoever waits for a moment that has passed asks again and again.
        assert!(plan.wake.is_none_or(|wake| wake > now), "{plan:?} at {now}");
        if let Some(ending) = plan.ending {
            facts.ending = Some(ending);
        }
        let mut stops = true;
        for action in plan.actions {
            stops &= matches!(action, Action::Stop(_));
            match action {
                Action::Prepare => {
                    facts.prepared = true;
                    facts.started = Some(now);
                }
                Action::Start { container, attempt } => {
                    check_start(pod, facts, &container, attempt);
                    let image = spec::container(pod, &container).and_then(|(_, found)| found.image.clone());
                    let known = facts.container_mut(&container);
                    known.begun(now);
                    known.image = image;
                }
                Action::PostStart { container, .. } => facts.container_mut(&container).post_start = Hook::Running,
                Action::Stop(stop) => {
                    assert!(stops, "stops come first");
                    assert!(
                        facts.container(&stop.container).state.is_live(),
                        "only what is live can be stopped"
                    );
                    let known = facts.container_mut(&stop.container);
                    known.told_to_stop(stop.deadline);
                    known.replaced |= stop.why == StopWhy::Changed;
                }
                Action::Finish => {
                    assert_eq!(facts.live(), 0, "a Pod is finished when nothing of it is live");
                    *finished = true;
                }
            }
        }
    }

    fn happen(&mut self, index: usize, event: &Event) {
        let now = self.now;
        match event {
            Event::Plan => return self.plan(index),
            Event::Wait(seconds) => {
                self.now = after(now, Duration::from_secs(u64::from(*seconds)));
                return;
            }
            Event::Back(seconds) => {
                self.now = at(now.as_second() - i64::from(*seconds));
                return;
            }
            Event::Strangers(count) => {
                // Strangers take what is free; they do not push anybody out.
                self.strangers = (*count).min(SLOTS.saturating_sub(self.live()));
                return;
            }
            _ => {}
        }
        let Some((pod, facts, _)) = self.pods.get_mut(index) else {
            return;
        };
        match event {
            Event::Delete(grace) => {
                let grace = i64::from(*grace);
                let before = pod.metadata.deletion_grace_period_seconds.unwrap_or(i64::MAX);
                pod.metadata.deletion_timestamp = Some(Time(now));
                pod.metadata.deletion_grace_period_seconds = Some(grace.min(before));
                pod.metadata.generation = Some(2);
                return;
            }
            Event::Image(which, image) => {
                let spec = pod.spec.iter_mut();
                let all = spec.flat_map(|spec| {
                    spec.containers
                        .iter_mut()
                        .chain(spec.init_containers.iter_mut().flatten())
                });
                for container in all.filter(|container| container.name == format!("c{which}")) {
                    container.image = Some(format!("registry.test/mac:{image}"));
                }
                return;
            }
            Event::Evict => {
                let why = Why::Evicted {
                    message: "disk".to_owned(),
                };
                if let Some(ending) = evicted(pod, facts, why, now) {
                    facts.ending = Some(ending);
                }
                return;
            }
            _ => {}
        }
        let name = match event {
            Event::Up(which)
            | Event::NotUp(which)
            | Event::Exit(which, _)
            | Event::Unhealthy(which)
            | Event::Started(which)
            | Event::Ready(which, _)
            | Event::Hooked(which, _) => format!("c{which}"),
            _ => return,
        };
        if spec::container(pod, &name).is_none() {
            return;
        }
        let known = facts.container_mut(&name);
        match (event, known.state.clone()) {
            (Event::Up(_), State::Starting { .. }) => known.running("tart://x", now),
            (Event::NotUp(_), State::Starting { .. }) if known.stopping.is_some() => known.abandoned(),
            (Event::NotUp(_), State::Starting { .. }) => {
                known.stuck(reasons::RUN, "no", after(now, Duration::from_secs(10)));
            }
            (Event::Exit(_, code), State::Running { .. }) => known.exited(Exit::with_code(*code, now)),
            (Event::Unhealthy(_), State::Running { .. }) => {
                known.unhealthy = Some(Unhealthy {
                    probe: probe::Kind::Liveness,
                    grace: None,
                });
            }
            (Event::Started(_), State::Running { .. }) => known.startup_passed = true,
            (Event::Ready(_, ready), State::Running { .. }) => known.readiness_passed = *ready,
            (Event::Hooked(_, good), State::Running { .. }) if known.post_start == Hook::Running => {
                known.post_start = if *good {
                    Hook::Done
                } else {
                    Hook::Failed("no".to_owned())
                };
            }
            _ => {}
        }
    }

    /// Publishes the status of a Pod and holds it against the one before.
    fn publish(&mut self, index: usize) {
        let now = self.now;
        if let Some((pod, facts, _)) = self.pods.get_mut(index) {
            let new = status(pod, facts, now);
            let rank = |status: Option<&k8s_openapi::api::core::v1::PodStatus>| {
                status
                    .and_then(|status| status.phase.as_deref())
                    .and_then(Phase::parse)
                    .unwrap_or(Phase::Pending)
            };
            let (before, phase) = (rank(pod.status.as_ref()), rank(Some(&new)));
            assert!(phase >= before, "from {before:?} back to {phase:?}");
            assert!(!before.is_terminal() || phase == before, "from {before:?} to {phase:?}");
            assert!(
                !phase.is_terminal() || facts.live() == 0,
                "{phase:?} while something runs"
            );
            pod.status = Some(new);
            let again = status(pod, facts, now);
            let found = crate::status::patch("u", pod.status.as_ref(), &again);
            assert_eq!(found, None, "nothing has changed");
        }
    }

    /// Everybody does as told until the Pod is finished.
    fn wind_down(&mut self, index: usize) {
        for _ in 0..20 {
            self.plan(index);
            let Some((_, facts, finished)) = self.pods.get_mut(index) else {
                return;
            };
            if *finished {
                return;
            }
            for known in facts.containers.values_mut().filter(|known| known.stopping.is_some()) {
                match known.state {
                    State::Starting { .. } => known.abandoned(),
                    _ => known.exited(Exit::with_code(143, self.now)),
                }
            }
            self.publish(index);
        }
        panic!("a Pod that was deleted never ended: {:#?}", self.pods.get(index));
    }
}

fn check_start(pod: &Pod, facts: &PodFacts, name: &str, attempt: u32) {
    let known = facts.container(name);
    assert!(!known.state.is_live(), "two instances of {name}");
    assert!(facts.ending.is_none(), "a Pod that is being ended starts nothing");
    let restarts = known.restarts + u32::from(matches!(known.state, State::Exited(_)));
    assert_eq!(attempt, restarts, "instances are numbered");
    if known.was_begun() {
        return;
    }
    for (kind, earlier) in spec::containers(pod).take_while(|(_, earlier)| earlier.name != name) {
        let before = facts.container(&earlier.name);
        match kind {
            Kind::Init => assert!(
                matches!(&before.state, State::Exited(exit) if exit.code == 0),
                "{name} before {} was done",
                earlier.name
            ),
            Kind::Sidecar => {
                let later = spec::containers(pod)
                    .skip_while(|(_, later)| later.name != earlier.name)
                    .skip(1);
                let passed = later
                    .into_iter()
                    .any(|(_, later)| facts.container(&later.name).was_begun());
                assert!(
                    is_started(earlier, before) || passed && before.was_begun(),
                    "{name} before its sidecar {}",
                    earlier.name
                );
            }
            Kind::Main => {}
        }
    }
}

proptest! {
    // More by PROPTEST_CASES.
    #![proptest_config(ProptestConfig { max_shrink_iters: 20_000, ..ProptestConfig::default() })]

    #[test]
    fn whatever_happens_the_promises_hold(
        pods in prop::collection::vec(pods(), 1..4),
        events in events(),
    ) {
        let mut world = World::new(pods);
        for (index, event) in &events {
            world.happen(*index, event);
            prop_assert!(world.live() + world.strangers <= SLOTS, "a third VM after {event:?}");
            world.publish(*index);
        }
        for index in 0..world.pods.len() {
            world.happen(index, &Event::Delete(5));
            world.wind_down(index);
            world.publish(index);
            let phase = world.pods[index].0.status.as_ref().and_then(|status| status.phase.clone());
            prop_assert!(matches!(phase.as_deref(), Some("Succeeded" | "Failed")), "{phase:?}");
        }
    }

    #[test]
    fn a_pod_whose_containers_do_what_they_should_succeeds(pod in pods()) {
        let mut pod = pod;
        if let Some(spec) = &mut pod.spec {
            spec.restart_policy = Some("Never".to_owned());
            spec.active_deadline_seconds = None;
            for container in &mut spec.containers {
                container.restart_policy = None;
            }
        }
        let peak = spec::peak_vms(&pod);
        let mut world = World::new(vec![pod]);
        // Big enough for it; the host of two is the other test's.
        world.strangers = 0;
        for _ in 0..60 {
            if world.pods[0].2 || peak > SLOTS {
                break;
            }
            world.plan(0);
            world.publish(0);
            let names: Vec<_> = spec::containers(&world.pods[0].0).map(|(kind, c)| (kind, c.name.clone())).collect();
            for (kind, name) in names {
                let now = world.now;
                let known = world.pods[0].1.container_mut(&name);
                match &known.state {
                    State::Starting { .. } => known.running("tart://x", now),
                    State::Running { .. } if known.post_start == Hook::Running => known.post_start = Hook::Done,
                    State::Running { .. } if known.stopping.is_some() || kind != Kind::Sidecar && known.startup_passed => {
                        known.exited(Exit::with_code(0, now));
                    }
                    State::Running { .. } => known.startup_passed = true,
                    _ => {}
                }
            }
        }
        prop_assert!(world.pods[0].2 || peak > SLOTS, "never finished: {:#?}", world.pods[0].1);
        if peak <= SLOTS {
            world.publish(0);
            let phase = world.pods[0].0.status.as_ref().and_then(|status| status.phase.clone());
            prop_assert_eq!(phase.as_deref(), Some("Succeeded"));
        }
    }
}
