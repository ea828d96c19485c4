//! What is reported about hosts that belong to nobody.

use std::collections::BTreeSet;
use std::time::Duration;

use proptest::prelude::*;
use russet_api::values::ServerId;
use russet_capi_provider::claims::Claims;
use russet_capi_provider::names::{claim_marker, is_pooled, release_marker};
use russet_capi_provider::orphans::{Watch, Why, find};
use russet_capi_provider::rules::Rules;

use crate::replica::{Fault, Replica, owners, run_to_rest};
use crate::world::{World, pool, project};

fn report(world: &World) -> Vec<(String, Why)> {
    let owners = owners(&world.clusters[0]);
    find(
        &world.inventory(),
        &world.clusters[0].claims,
        &owners,
        &BTreeSet::from([pool()]),
        &project(),
    )
    .into_iter()
    .map(|orphan| (orphan.server.to_string(), orphan.why))
    .collect()
}

fn id(text: &str) -> ServerId {
    text.parse().unwrap()
}

#[test]
fn every_way_to_be_lost_has_its_own_name() {
    let mut world = World::new(4, 1, Rules::default());
    world.add_machine(0, "mac-1");
    run_to_rest(&mut world);
    let owned = world.clusters[0]
        .objects
        .values()
        .next()
        .unwrap()
        .server
        .clone()
        .unwrap();
    let mut free = world
        .servers
        .keys()
        .filter(|s| s.as_str().starts_with('s') && **s != owned)
        .cloned();
    let (marked, releasing, held) = (free.next().unwrap(), free.next().unwrap(), free.next().unwrap());
    drop(free);
    world.servers.get_mut(&marked).unwrap().host.name = claim_marker("x");
    world.servers.get_mut(&releasing).unwrap().host.name = release_marker("x");
    world.servers.get_mut(&owned).unwrap().host.name = pool().name("oops");
    let gone = russet_capi_provider::claims::Holder {
        uid: "uid-gone".into(),
        namespace: "default".into(),
        name: "gone".into(),
    };
    world.clusters[0]
        .claims
        .take(held.clone(), gone.clone(), "c1".into())
        .unwrap();
    world.clusters[0].claims.take(id("s99"), gone, "c2".into()).unwrap();
    world.refresh_list();
    let mut wanted = vec![
        (marked.to_string(), Why::AbandonedClaim),
        (releasing.to_string(), Why::AbandonedRelease),
        (owned.to_string(), Why::OwnedInPool),
        (held.to_string(), Why::HolderGone),
        ("u1".to_owned(), Why::Unknown),
        ("s99".to_owned(), Why::ClaimWithoutHost),
    ];
    let mut found = report(&world);
    wanted.sort();
    found.sort();
    assert_eq!(found, wanted);
}

#[test]
fn a_finding_counts_only_when_it_stays() {
    let orphan = |server: &str| russet_capi_provider::orphans::Orphan {
        server: id(server),
        why: Why::Unknown,
        name: "x".into(),
    };
    let at = |seconds: i64| jiff::Timestamp::from_second(seconds).unwrap();
    let patience = Duration::from_mins(1);
    let mut watch = Watch::default();
    assert!(watch.update(vec![orphan("a"), orphan("b")], at(0), patience).is_empty());
    assert!(watch.update(vec![orphan("a")], at(30), patience).is_empty());
    assert_eq!(
        watch.update(vec![orphan("a"), orphan("b")], at(60), patience),
        [orphan("a")]
    );
    assert_eq!(watch.update(vec![orphan("b")], at(120), patience), [orphan("b")]);
}

proptest! {
    /// Strangers rename and delete hosts, objects vanish without their finalizer having run. Nothing is wiped that is in
    /// use, and in the end each host that is paid for is in use, free, or in the report.
    #[test]
    fn whatever_strangers_do_each_host_is_used_free_or_reported(
        events in prop::collection::vec((0..9_u8, 0..4_usize, 0..4_usize, 0..90_u64), 0..120),
    ) {
        let mut world = World::new(3, 1, Rules::default());
        world.strangers = true;
        (0..3).for_each(|index| world.add_machine(0, &format!("mac-{index}")));
        let mut replicas = [Replica::new(0), Replica::new(0)];
        for (kind, a, b, seconds) in events {
            match kind {
                0 => {
                    let names = ["tuist-pool-again".to_owned(), "keep".into(), claim_marker("z"), release_marker("z")];
                    if let Some(server) = world.servers.get_mut(&id(&format!("s{a}"))) {
                        server.host.name.clone_from(&names[b]);
                    }
                }
                1 if a == 0 => drop(world.servers.remove(&id(&format!("s{b}")))),
                2 if a == 0 => drop(world.clusters[0].objects.pop_first()),
                3 => {
                    if let Some(uid) = world.clusters[0].objects.keys().nth(a).cloned() {
                        world.delete_machine(0, &uid);
                    }
                }
                _ => {
                    for _ in 0..6 {
                        replicas[b % 2].step(&mut world, a, Fault::None);
                    }
                    world.pass(Duration::from_secs(seconds));
                    world.refresh_list();
                }
            }
            world.check();
        }
        run_to_rest(&mut world);
        world.check();
        let reported: BTreeSet<String> = report(&world).into_iter().map(|(server, _)| server).collect();
        let claims: &Claims = &world.clusters[0].claims;
        for (server, state) in world.servers.iter().filter(|(_, s)| s.host.project == project()) {
            let held = claims.get(server).and_then(|claim| world.clusters[0].objects.get(&claim.holder.uid));
            let used = held.is_some();
            let free = is_pooled(&pool(), &state.host.name);
            prop_assert!(used || free || reported.contains(server.as_str()), "{} is lost: {:?}", server, state);
        }
    }
}
