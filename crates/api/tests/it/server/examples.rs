//! The examples we show to newcomers apply as they are; the wrong ones are refused with a message that says what is wrong.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use russet_testkit::{Sandbox, TestCluster, crds};

fn yaml_files(folder: &str) -> Result<Vec<PathBuf>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(folder);
    let mut files: Vec<PathBuf> = std::fs::read_dir(&folder)
        .with_context(|| format!("failed to read {}", folder.display()))?
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "yaml"))
        .collect();
    files.sort();
    Ok(files)
}

async fn create(sandbox: &Sandbox<'_>, yaml: &str) -> Result<String> {
    let (mut object, resource) = crds::parse(yaml)?;
    object.metadata.namespace = Some(sandbox.namespace().to_owned());
    crds::create_strictly(&sandbox.client().await?, &object, &resource).await?;
    Ok(resource.kind)
}

#[tokio::test]
async fn every_example_applies_under_strict_field_validation_and_every_kind_has_one() -> Result<()> {
    let cluster = TestCluster::shared().await?;
    let sandbox = cluster.sandbox("examples").await?;
    crds::install(&sandbox.client().await?, &russet_api::all_crds()).await?;
    let mut kinds = Vec::new();
    for file in yaml_files("examples")? {
        let text = std::fs::read_to_string(&file)?;
        ensure!(
            text.starts_with('#'),
            "{} must open with a comment for the reader",
            file.display()
        );
        kinds.push(
            create(&sandbox, &text)
                .await
                .with_context(|| format!("{} is refused", file.display()))?,
        );
    }
    for crd in russet_api::all_crds() {
        ensure!(
            kinds.contains(&crd.spec.names.kind),
            "no example of kind {}",
            crd.spec.names.kind
        );
    }
    Ok(())
}

#[tokio::test]
async fn every_wrong_example_is_refused_with_the_message_it_promises() -> Result<()> {
    let cluster = TestCluster::shared().await?;
    let sandbox = cluster.sandbox("invalid").await?;
    crds::install(&sandbox.client().await?, &russet_api::all_crds()).await?;
    let files = yaml_files("examples/invalid")?;
    ensure!(files.len() >= 8, "the wrong examples are gone");
    for file in files {
        let text = std::fs::read_to_string(&file)?;
        let expected = text
            .lines()
            .next()
            .and_then(|line| line.strip_prefix("# expect: "))
            .with_context(|| format!("{} must open with `# expect: <message>`", file.display()))?;
        match create(&sandbox, &text).await {
            Ok(kind) => anyhow::bail!("{} was accepted as a {kind}", file.display()),
            Err(error) => {
                let message = format!("{error:#}");
                ensure!(
                    message.contains(expected),
                    "{}: expected {expected:?} in {message:?}",
                    file.display()
                );
            }
        }
    }
    Ok(())
}
