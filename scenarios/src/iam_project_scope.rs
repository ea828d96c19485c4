//! A key for one project asked IAM for the SSH keys without naming the project, and was refused.

use anyhow::{Result, ensure};
use futures::FutureExt;
use futures::future::BoxFuture;
use russet_capi_provider::fleet_key::FleetKeys;
use russet_sim_scaleway::{DEFAULT_PROJECT, Deed, Options, PermissionSet, Sim};
use russet_testkit::TestCluster;
use serde_json::{Value, json};

use super::raw::{self, Key, Raw};
use super::{Play, Scenario, Stage};

pub(super) const SCENARIO: Scenario = Scenario {
    name: "iam-project-scope",
    from: "S3",
    what_happened: "listing SSH keys without the id of the project was refused, and no host could be set up",
    must_hold: "every call to IAM names its project; the emulator refuses those that do not",
    without: None,
    play: Play::Cluster(run),
};

const KEYS: &str = "/iam/v1alpha1/ssh-keys";
/// A key that may do everything about SSH keys, in one project.
const NARROW: Key = Key {
    access: "SCWONEPROJECTONLY000",
    secret: "5ca1ab1e-0000-4000-a000-00000000000c",
};

fn run<'a>(stage: &'a mut Stage<'_, TestCluster>) -> BoxFuture<'a, Result<()>> {
    async move {
        stage.step("an emulated Scaleway, and an API key whose policy covers the SSH keys of one project");
        let sim = Sim::start(Options::default()).await?;
        sim.handle().perform(Deed::AddKey {
            access_key: NARROW.access.to_owned(),
            secret_key: NARROW.secret.to_owned(),
            organization_id: None,
            projects: Some([DEFAULT_PROJECT.parse()?].into()),
            permission_sets: [PermissionSet::SshKeysFullAccess].into(),
            expires_at: None,
        })?;
        let url = format!("{}{KEYS}", sim.url());
        let raw = Raw::with(NARROW);

        stage.step("a naive client lists the keys, and registers one, without project_id");
        let (status, answer) = raw.send("GET", &url, Value::Null).await?;
        ensure!(status == 403, "the staged fault did not bite: {status} {answer}");
        stage.bites(format!("the list is refused: {answer}"));
        let key = json!({"name": "macs", "public_key": super::fleet_key_race::public_key()?});
        let (status, answer) = raw.send("POST", &url, key.clone()).await?;
        ensure!(status == 403, "the staged fault did not bite: {status} {answer}");
        stage.bites(format!("the registration is refused: {answer}"));

        stage.step("the provider makes and registers the key of a fleet, with the same API key");
        sim.handle().clear_journal();
        let namespace = stage.world.sandbox("iam").await?.namespace().to_owned();
        let made = FleetKeys::new(
            stage.world.client().await?,
            raw::client(&sim, NARROW)?,
            namespace,
            DEFAULT_PROJECT.parse()?,
        )
        .ensure("macs")
        .await?;
        let calls = sim.handle().journal();
        ensure!(
            calls.iter().any(|call| call.method == "GET") && calls.iter().any(|call| call.method == "POST"),
            "IAM was not asked: {calls:?}"
        );
        let named = format!("project_id={DEFAULT_PROJECT}");
        for call in calls.iter().filter(|call| call.path.starts_with("/iam/")) {
            ensure!(call.status < 300, "refused: {call:?}");
            ensure!(
                call.method != "GET" || call.query.split('&').any(|part| part == named),
                "a list that names no project: {call:?}"
            );
        }
        stage.holds("every list names the project, and no call was refused");

        let shown = raw.call("GET", &format!("{url}/{}", made.key_id), Value::Null).await?;
        ensure!(shown.get("project_id") == Some(&json!(DEFAULT_PROJECT)), "{shown}");
        stage.holds("the registration, which is refused without a project, is in ours");
        Ok(())
    }
    .boxed()
}
