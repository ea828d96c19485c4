//! A Mac, with one thing going wrong.

use anyhow::Result;

use crate::life::{How, Place};
use crate::stage::cluster;
use crate::suite::{DIES, FAILS, every_call};
use crate::world::World;

/// What is written to Kubernetes for access to a host: whom the fleet's key lets in, what it joins with, how it is reached.
const ACCESS: [&str; 7] = [
    "POST keys",
    "PATCH keys",
    "POST tokens",
    "DELETE tokens",
    "DELETE certificatesigningrequests",
    "POST services",
    "DELETE services",
];
/// Calls to Scaleway that change something.
const EFFECTS: [&str; 6] = [
    "PATCH mark",
    "PATCH name",
    "PATCH release",
    "POST reinstall",
    "PATCH pool",
    "POST ssh-key",
];

/// What can happen to a call. To a read and to a write to Kubernetes, being late means nothing.
fn hows(place: Place, _: usize, label: &str) -> Vec<How> {
    match place {
        Place::Kube => vec![How::DieBefore, How::DieAfter, How::FailBefore, How::FailAfter],
        Place::Cloud if label.starts_with("GET") => vec![How::DieBefore, How::DieAfter, How::FailBefore],
        Place::Cloud => [DIES.as_slice(), &FAILS].concat(),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_provider_killed_at_any_call_leaves_nothing_leaked_doubled_or_unwiped() -> Result<()> {
    let cluster = cluster().await?;
    let world = async |name: String| World::new(cluster, &name, 2).await;
    let planned = every_call("case", world, hows, |_, how| {
        matches!(how, How::DieAfter | How::DieWhile)
    })
    .await?;
    for label in EFFECTS {
        planned.ensure(Place::Cloud, How::DieWhile, label)?;
        for how in FAILS {
            planned.ensure(Place::Cloud, how, label)?;
        }
    }
    for label in ACCESS {
        for how in FAILS {
            planned.ensure(Place::Kube, how, label)?;
        }
    }
    Ok(())
}
