//! Objects of every era still apply, and the apiserver keeps every field of them.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use russet_testkit::{Extras, TestCluster, crds};

/// Fixtures are applied under the CRDs that the API crate has now. The older schemas themselves are checked by `xtask check-crds`.
#[tokio::test]
async fn every_fixture_applies_unpruned_and_every_kind_has_one() -> Result<()> {
    let cluster = TestCluster::shared().await?;
    let client = cluster.client().await?;
    crds::install(&client, &russet_api::all_crds()).await?;
    let mut kinds = Vec::new();
    for (name, yaml) in crds::FIXTURES {
        let stored = crds::restore(&client, yaml)
            .await
            .with_context(|| format!("fixture {name}"))?;
        kinds.extend(stored.types.map(|types| types.kind));
    }
    for crd in russet_api::all_crds() {
        ensure!(
            kinds.contains(&crd.spec.names.kind),
            "no fixture of kind {}",
            crd.spec.names.kind
        );
    }
    Ok(())
}

/// An operator upgrades step by step: objects stored under every older schema stay readable and writable when ours arrives.
#[tokio::test]
async fn our_crds_apply_over_every_older_schema() -> Result<()> {
    let cluster = TestCluster::start(Extras::default()).await?;
    let client = cluster.client().await?;
    let history = Path::new(env!("CARGO_MANIFEST_DIR")).join("schema-history");
    let mut eras: Vec<_> = std::fs::read_dir(&history)?
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.is_dir())
        .collect();
    eras.sort();
    ensure!(eras.len() >= 3, "the schema history is gone");
    for era in eras {
        let mut older = Vec::new();
        for file in std::fs::read_dir(&era)?.flatten() {
            let text = std::fs::read_to_string(file.path())?;
            older.push(serde_yaml_ng::from_str(&text).with_context(|| format!("{}", file.path().display()))?);
        }
        crds::install(&client, &older)
            .await
            .with_context(|| format!("{}", era.display()))?;
        crds::install(&client, &russet_api::all_crds())
            .await
            .with_context(|| format!("over {}", era.display()))?;
    }
    Ok(())
}
