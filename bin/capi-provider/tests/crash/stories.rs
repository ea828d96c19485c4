//! Bugs that were found on the way, told once more.

use std::num::NonZeroU32;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Secret as KubeSecret;
use kube::ResourceExt as _;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use russet_api::ScalewayAppleSiliconMachine as Mac;
use russet_api::conditions;
use russet_api::groups::LEASE_CAPI_PROVIDER;
use russet_capi_provider::flight::{Answer, HostCall};
use russet_capi_provider::inventory::Inventories;
use russet_capi_provider::metrics::ProviderMetrics;
use russet_capi_provider::registry::Registry;
use russet_capi_provider::spend::Budget;
use russet_scaleway::{Client, Context, Rate};
use russet_sim_scaleway::{Minis, Options, Sim, Zone};
use russet_telemetry::Metrics;
use russet_testkit::wait::{self, Look};
use russet_testkit::{Extras, TestCluster, crds};
use serde_json::json;

use crate::life::Life;
use crate::replica::{Replica, scaleway};
use crate::stage::{PATIENCE, bootstrappers, cluster, core_crds};
use crate::suite::Played as _;
use crate::world::World;

/// Our own limiter held a call back for longer than calls may be in flight, and it was sent when the host had another owner.
#[tokio::test]
async fn a_call_that_our_own_limiter_holds_back_too_long_is_never_sent() -> Result<()> {
    let sim = Sim::start(Options::default()).await?;
    let ids = sim.handle().add_minis(Minis::default())?;
    let server = ids[0].as_str().parse()?;
    let zone = "fr-par-1".parse()?;
    let mut config = scaleway(sim.url())?;
    config.rate = Rate {
        burst: NonZeroU32::MIN,
        interval: Duration::from_secs(1),
    };
    let client = Client::new(&config, Context::default())?;
    let metrics = ProviderMetrics::new(&Metrics::new());
    let inventories = Inventories::new(client, Registry::default(), metrics, Budget::new(None));
    inventories.see(&zone, &server).await?;
    let call = HostCall::Rename {
        to: "too-late".to_owned(),
    };
    let answer = inventories.send(&zone, &server, &call, Duration::from_millis(50)).await;
    ensure!(answer == Answer::Unknown, "{answer:?}");
    // Whoever is served after it shows that its turn has come and gone.
    inventories.see(&zone, &server).await?;
    let renames = sim.handle().calls("PATCH", "/apple-silicon/v1alpha1/zones/*/servers/*");
    ensure!(renames == 0, "it was sent after all");
    // In time, the same call goes through.
    let answer = inventories.send(&zone, &server, &call, Duration::from_secs(20)).await;
    ensure!(matches!(answer, Answer::Done(_)), "{answer:?}");
    Ok(())
}

/// The report looked for the host of each claim in each zone by itself, and found nearly all of them missing.
#[tokio::test]
async fn a_claim_for_a_host_of_another_zone_is_no_orphan() -> Result<()> {
    let mut world = World::new(cluster().await?, "two-zones", 1).await?;
    world.report_every = Duration::from_secs(2);
    world.add_minis(Minis {
        name: "tuist-pool-far".to_owned(),
        zone: Zone::new("fr-par-3"),
        server_type: "M1-M".to_owned(),
        ..Minis::default()
    })?;
    let replica = Replica::start(&world, Life::new(None)).await?;
    let spec = json!({"zone": "fr-par-3", "type": "M1-M"});
    let name = world.add_machine_with(spec).await?;
    world.until_ready(&name).await?;
    world.check_serving(&name).await?;
    // A true orphan that came later is reported; what was wrong before it would be by then.
    world.add_minis(Minis {
        name: "stray".to_owned(),
        ..Minis::default()
    })?;
    world.until_orphans_count().await?;
    wait::until_true("the stray to be reported", PATIENCE, || async {
        Ok(replica.metric(&["scaleway_orphan_servers{", "fr-par-1", "unknown"]) == Some(1.0))
    })
    .await?;
    for zone in ["fr-par-1", "fr-par-3"] {
        let found = replica.metric(&["scaleway_orphan_servers{", zone, "claim_without_host"]);
        ensure!(found == Some(0.0), "{zone}: {found:?}");
    }
    replica.kill().await
}

/// With the CRDs of an older release the API server dropped `status.intent` without a word, and every crash began from nothing.
#[tokio::test]
async fn nothing_is_done_to_a_host_while_the_api_server_forgets_the_intent() -> Result<()> {
    let cluster = TestCluster::start(Extras::default()).await?;
    let client = cluster.client().await?;
    let kind = "ScalewayAppleSiliconMachine";
    let old = crds::without_property(crds::of_kind(kind)?, &["status"], "intent")?;
    let others: Vec<_> = russet_api::all_crds()
        .into_iter()
        .filter(|crd| crd.spec.names.kind != kind)
        .collect();
    crds::install(&client, &others).await?;
    crds::install(&client, &[old]).await?;
    crds::install(&client, &core_crds()?).await?;
    Api::all(client.clone())
        .create(&PostParams::default(), &bootstrappers()?)
        .await?;
    let world = World::new(&cluster, "pruned", 1).await?;
    let replica = Replica::start(&world, Life::new(None)).await?;
    let name = world.add_machine().await?;
    wait::until("the provider to find out", PATIENCE, || async {
        let waits = replica.metric(&["russet_reconcile_total", "apple-silicon-machine", "waiting"]);
        Ok(Look::done_if(waits >= Some(1.0), waits))
    })
    .await?;
    let changes: Vec<_> = world.sim.handle().journal();
    let on_a_host = |path: &str| path.contains("/servers/");
    let changes: Vec<_> = changes
        .iter()
        .filter(|entry| entry.method != "GET" && on_a_host(&entry.path))
        .collect();
    ensure!(changes.is_empty(), "{changes:?}");
    ensure!(world.claims().await?.is_empty(), "a host was claimed");
    // With the CRD of this release it goes on.
    crds::install(&client, &[crds::of_kind(kind)?]).await?;
    let touch = json!({"metadata": {"annotations": {"touched": "yes"}}});
    world
        .macs()
        .patch(&name, &PatchParams::default(), &Patch::Merge(&touch))
        .await?;
    world.until_ready(&name).await?;
    replica.kill().await
}

/// The host of a machine whose provider lost the Lease in mid set-up was to be set up by the next one, by it alone, and once more.
#[tokio::test]
async fn a_leader_that_is_replaced_in_mid_bootstrap_is_followed_by_one_that_finishes_it() -> Result<()> {
    let mut world = World::new(cluster().await?, "leaders", 2).await?;
    world.elect = true;
    world.flags = ["lease-duration=3s", "renew-deadline=2s", "retry-period=300ms"]
        .map(|flag| format!("--leader-election-{flag}"))
        .to_vec();
    world.doors.send_replace(false);
    let first = Replica::start(&world, Life::new(None)).await?;
    let name = world.add_machine().await?;
    let knocked = async |times: usize| {
        wait::until("a set-up to begin", PATIENCE, || async {
            let knocks = world.ledger.knocks();
            Ok(Look::done_if(knocks >= times, knocks))
        })
        .await
    };
    knocked(1).await?;
    let second = Replica::start(&world, Life::new(None)).await?;
    // Somebody else takes the Lease from under the first.
    let leases: Api<Lease> = Api::namespaced(world.stage.client.clone(), &world.stage.namespace);
    let lost = json!({"spec": {"holderIdentity": "somebody-else", "leaseDurationSeconds": 1}});
    leases
        .patch(LEASE_CAPI_PROVIDER, &PatchParams::default(), &Patch::Merge(&lost))
        .await?;
    tokio::select! {
        () = first.life.ended() => first.kill().await?,
        () = second.life.ended() => anyhow::bail!("the standby ended"),
        () = tokio::time::sleep(PATIENCE) => anyhow::bail!("the first never noticed"),
    }
    knocked(2).await.context("the second never took over")?;
    world.doors.send_replace(true);
    world.until_ready(&name).await?;
    world.check_serving(&name).await?;
    world.delete_machine(&name).await?;
    world.until_gone(&name).await?;
    world.check_at_rest().await?;
    ensure!(
        world.ledger.knocks() == 2,
        "set up once by each: {}",
        world.ledger.knocks()
    );
    second.kill().await
}

/// A host went back to its pool, its claim was dropped a moment later, and whoever waited for a host heard of the first only.
#[tokio::test]
async fn a_machine_that_waits_is_served_when_the_claim_of_the_host_before_it_is_dropped() -> Result<()> {
    let world = World::new(cluster().await?, "queue", 1).await?;
    let replica = Replica::start(&world, Life::new(None)).await?;
    let first = world.add_machine().await?;
    world.until_ready(&first).await?;
    let second = world.add_machine().await?;
    let waits = |mac: Option<&Mac>| {
        let status = mac.and_then(|mac| mac.status.clone()).unwrap_or_default();
        conditions::find(&status.conditions, "Provisioned")
            .is_some_and(|condition| condition.reason.as_deref() == Some("NoAvailableHost"))
    };
    world.until("waiting", &second, waits).await?;
    world.delete_machine(&first).await?;
    world.until_gone(&first).await?;
    // Without being told it looks again after a minute.
    let soon = Duration::from_secs(45);
    tokio::time::timeout(soon, world.until_ready(&second))
        .await
        .context("nobody told it")??;
    replica.kill().await
}

/// Whatever a machine leaves behind when somebody removes its finalizer by force is reported, and nothing of a machine that is there.
#[tokio::test]
async fn what_machines_that_are_gone_left_behind_is_reported_by_kind() -> Result<()> {
    let mut world = World::new(cluster().await?, "leftovers", 1).await?;
    world.report_every = Duration::from_secs(2);
    let replica = Replica::start(&world, Life::new(None)).await?;
    let name = world.add_machine().await?;
    world.until_ready(&name).await?;
    let secret: KubeSecret = serde_json::from_value(json!({
        "metadata": {
            "name": "gone-bootstrap",
            "labels": {"tuist.dev/managed-by": "capi-scaleway-applesilicon"},
            "ownerReferences": [{
                "apiVersion": "infrastructure.cluster.x-k8s.io/v1alpha1", "kind": "ScalewayAppleSiliconMachine",
                "name": "gone", "uid": "00000000-0000-0000-0000-000000000001",
            }],
        },
    }))?;
    let secrets: Api<KubeSecret> = Api::namespaced(world.stage.client.clone(), &world.stage.namespace);
    secrets.create(&PostParams::default(), &secret).await?;
    let scaleway = world.scaleway()?;
    let public = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ5o0ckfLFHEyRXrjMNYNwDbLuXzFKOxX6FsyXTbYmyN";
    scaleway
        .create_ssh_key("gone", &format!("{public} tuist-capi-gone"))
        .await?;
    let count = |kind: &str| replica.metric(&["scaleway_orphans{", kind]);
    world.until_orphans_count().await?;
    wait::until("both to be reported", PATIENCE, || async {
        let found = (count("credential_secret"), count("ssh_key"));
        Ok(Look::done_if(found == (Some(1.0), Some(1.0)), found))
    })
    .await?;
    ensure!(
        count("signing_request") == Some(0.0) && count("egress_service") == Some(0.0),
        "nothing else is"
    );
    secrets.delete("gone-bootstrap", &DeleteParams::default()).await?;
    wait::until_true("the count to fall", PATIENCE, || async {
        Ok(count("credential_secret") == Some(0.0))
    })
    .await?;
    ensure!(count("bootstrap_token") == Some(0.0), "that of a machine that is there");
    replica.kill().await?;
    world.delete_machine(&name).await?;
    let forced = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    world.macs().patch(&name, &PatchParams::default(), &forced).await?;
    world.until_gone(&name).await?;
    // The claim still says whose host it was.
    let replica = Replica::start(&world, Life::new(None)).await?;
    let count = |kind: &str| replica.metric(&["scaleway_orphans{", kind]);
    world.until_orphans_count().await?;
    wait::until("its token to be reported", PATIENCE, || async {
        let found = count("bootstrap_token");
        Ok(Look::done_if(found == Some(1.0), found))
    })
    .await?;
    let tokens: Api<KubeSecret> = Api::namespaced(world.stage.client.clone(), "kube-system");
    let of_machine = ListParams::default().labels(&format!("{}={name}", russet_api::labels::MACHINE));
    let left = tokens.list(&of_machine).await?.items;
    ensure!(left.len() == 1, "it is reported and never touched: {}", left.len());
    tokens.delete(&left[0].name_any(), &DeleteParams::default()).await?;
    wait::until_true("the count of tokens to fall", PATIENCE, || async {
        Ok(count("bootstrap_token") == Some(0.0))
    })
    .await?;
    replica.kill().await
}
