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

/// What can happen to a call. To a read, being late means nothing; and a write to Kubernetes whose answer is lost is like one
/// whose writer died, but for who goes on, so every third will do.
fn hows(place: Place, index: usize, label: &str) -> Vec<How> {
    match place {
        Place::Kube if ACCESS.contains(&label) => {
            vec![How::DieBefore, How::DieAfter, How::FailBefore, How::FailAfter]
        }
        Place::Kube if index.is_multiple_of(3) => vec![How::DieBefore, How::DieAfter, How::FailAfter],
        Place::Kube => vec![How::DieBefore, How::DieAfter],
        Place::Cloud if label.starts_with("GET") => vec![How::DieBefore, How::DieAfter, How::FailBefore],
        Place::Cloud => [DIES.as_slice(), &FAILS].concat(),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_provider_killed_at_any_call_leaves_nothing_leaked_doubled_or_unwiped() -> Result<()> {
    let cluster = cluster().await?;
    let world = async |name: String| World::new(cluster, &name, 2).await;
    let struck = every_call("case", world, hows, |_, how| {
        matches!(how, How::DieAfter | How::DieWhile)
    })
    .await?;
    for label in EFFECTS {
        struck.ensure(Place::Cloud, How::DieWhile, label)?;
        for how in FAILS {
            struck.ensure(Place::Cloud, how, label)?;
        }
    }
    for label in ACCESS {
        for how in FAILS {
            struck.ensure(Place::Kube, how, label)?;
        }
    }
    Ok(())
}
