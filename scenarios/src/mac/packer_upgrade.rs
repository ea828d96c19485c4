//! A Packer that was upgraded has another code signature, and macOS takes its access to the local network back.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use futures::FutureExt;
use futures::future::LocalBoxFuture;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, ObjectMeta, PostParams};
use russet_api::conditions::types;
use russet_sim_github::{AppKey, Deed, Options, Sim};
use russet_stages::macs::Yard;
use serde_json::json;

use super::Mini;
use super::program::stays;
use super::runner::{self, VERSION};
use super::under_provider::{Image, condition, holds, mini_of, set_up};
use crate::{Play, Scenario, Stage, promise};

pub(crate) const SCENARIO: Scenario = Scenario {
    name: "packer-upgrade-revokes-tcc",
    from: "S3",
    what_happened: "a brew upgrade changed the code signature of Packer, and macOS revoked its Local Network access",
    must_hold: "Packer is pinned; a signature that changed all the same is detected and reported as a condition",
    without: Some(include_str!("packer_upgrade.without.patch")),
    play: Play::Own(run),
};

const PACKER: &str = "/opt/homebrew/bin/packer";
const SECRET: &str = "builders-github-app";

/// What the user of the host does at a terminal.
fn brew(words: &str) -> String {
    format!("/opt/homebrew/bin/brew {words}")
}

fn run<'a>(stage: &'a mut Stage<'_, ()>) -> LocalBoxFuture<'a, Result<()>> {
    async move {
        stage.step(
            "a real control plane with Cluster API core and the provider, which sets up an emulated Mac as a builder",
        );
        let key = AppKey::generate()?;
        let github = Sim::start(Options {
            deeds: vec![
                Deed::AddApp {
                    app: 7,
                    public_key: key.public_pem(),
                },
                Deed::install(7, 42, "tuist"),
            ],
            ..Options::default()
        })
        .await?;
        let image = Image::with(&stays("1"))?;
        let flags = [
            format!("--github-api-url={}", github.url()),
            "--bootstrap-look-interval=1s".to_owned(),
            "--bootstrap-held-interval=1s".to_owned(),
        ];
        let fleet = image.fleet(&flags).await?;
        let yard = fleet.yard("packer", 1).await?;
        store(&yard, &key).await?;
        let mini = mini_of(&yard).await?;
        runner::can_be_downloaded(&mini).await?;
        let spec = json!({"ghActionsRunner": {"ghRunnerVersion": VERSION, "ghAppSecretName": SECRET}});
        set_up(&yard, spec).await?;
        ours(stage, &yard, &mini).await
    }
    .boxed_local()
}

async fn store(yard: &Yard<'_>, key: &AppKey) -> Result<()> {
    let data = [
        ("app-id", "7".to_owned()),
        ("installation-id", "42".to_owned()),
        ("private-key", key.pkcs8_pem()),
    ];
    let secret = Secret {
        metadata: ObjectMeta {
            name: Some(SECRET.to_owned()),
            ..ObjectMeta::default()
        },
        string_data: Some(
            data.map(|(name, value)| (name.to_owned(), value))
                .into_iter()
                .collect::<BTreeMap<_, _>>(),
        ),
        ..Secret::default()
    };
    let secrets: Api<Secret> = Api::namespaced(yard.client.clone(), &yard.namespace);
    secrets.create(&PostParams::default(), &secret).await?;
    Ok(())
}

async fn by_hand(mini: &Mini, words: &str) -> Result<()> {
    let said = mini.user(&brew(words)).await?;
    ensure!(said.status.is_success(), "brew {words}: {said:?}");
    Ok(())
}

async fn ours(stage: &mut Stage<'_, ()>, yard: &Yard<'_>, mini: &Mini) -> Result<()> {
    let mac = mini.mac().await?;
    stage.step("an operator clicks Allow over VNC, and some weeks later brew upgrades everything");
    mac.grant_local_network(PACKER);
    ensure!(mac.has_local_network(PACKER), "the click did not count");
    by_hand(mini, "upgrade").await?;
    promise!(
        "packer-is-pinned",
        mac.has_local_network(PACKER),
        "brew upgraded Packer, and macOS took its access to the local network back"
    );
    stage.holds("Packer is pinned: brew upgrades everything else, and the access stays");

    stage.step("somebody takes the pin out and upgrades Packer, and nothing else is to be done to the host for weeks");
    let said = mini
        .user(&format!("{}; {}", brew("unpin packer"), brew("upgrade packer")))
        .await?;
    ensure!(said.status.is_success() && !mac.has_local_network(PACKER), "{said:?}");
    let reported = yard
        .mac_until("the machine to say so", |machine| {
            let said = condition(machine, types::UP_TO_DATE).and_then(|condition| condition.message.as_deref());
            said.is_some_and(|said| said.contains("another code signature"))
        })
        .await?;
    let said = condition(&reported, types::UP_TO_DATE).and_then(|condition| condition.message.clone());
    let said = said.context("no message")?;
    let asks = !holds(&reported, types::UP_TO_DATE) && said.contains("github-runner");
    promise!(
        "change-is-reported",
        asks,
        "the condition does not say that something is to be done: {said}"
    );
    promise!(
        "goes-on-serving",
        holds(&reported, types::READY),
        "the host is taken out of service for it"
    );
    stage.holds(format!(
        "a condition of the machine says so, and the host goes on serving: {said}"
    ));

    stage.step("somebody clicks Allow and removes the mark, as the condition says");
    mac.grant_local_network(PACKER);
    mini.root("rm /usr/local/lib/russet/installed/packer.cdhash").await?;
    yard.mac_until("the machine to be up to date", |machine| {
        let steps = machine.status.iter().flat_map(|status| &status.steps);
        holds(machine, types::UP_TO_DATE) && steps.into_iter().all(|step| step.message.is_none())
    })
    .await?;
    stage.holds("then the machine is up to date, with the new signature");
    Ok(())
}
