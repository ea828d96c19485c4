//! The clusters of fleets: with Cluster API core and the CRDs of our chart.

use std::sync::Arc;

use anyhow::Result;
use russet_testkit::chart::{Helm, Release};
use russet_testkit::cluster::{Extras, TestCluster};
use russet_testkit::crds;
use serde_json::json;
use tokio::sync::Mutex;

use super::Manner;

const CRDS: &str = "russet-crds";

static SHARED: Mutex<Option<Arc<TestCluster>>> = Mutex::const_new(None);

/// The one that fleets of this process share.
pub(super) async fn shared() -> Result<Arc<TestCluster>> {
    let mut shared = SHARED.lock().await;
    if let Some(cluster) = &*shared {
        return Ok(Arc::clone(cluster));
    }
    let cluster = Arc::new(start(Manner::Test).await?);
    *shared = Some(Arc::clone(&cluster));
    Ok(cluster)
}

/// Ends the cluster that fleets share once no fleet is on it any more, for programs that go on, or that leave nothing behind.
pub async fn release() {
    SHARED.lock().await.take();
}

/// One of its own.
pub(super) async fn start(manner: Manner) -> Result<TestCluster> {
    let cluster = TestCluster::start(Extras {
        controller_manager: true,
        cluster_api: true,
        cluster_api_in_earnest: manner == Manner::Earnest,
        ..Extras::default()
    })
    .await?;
    install(&cluster).await?;
    Ok(cluster)
}

/// Installs the CRDs of our chart.
pub(super) async fn install(cluster: &TestCluster) -> Result<()> {
    let release = Release {
        name: CRDS,
        chart: CRDS,
        namespace: CRDS,
        values: &json!({}),
    };
    Helm::new().await?.install(cluster, release).await?;
    crds::established(&cluster.client().await?, &russet_api::all_crds()).await
}
