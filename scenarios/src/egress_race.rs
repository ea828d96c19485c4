//! The Tailscale operator wrote an egress Service between our read and our write.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context, Result, ensure};
use futures::FutureExt;
use futures::future::BoxFuture;
use http::Method;
use k8s_openapi::api::core::v1::{Event, Service};
use kube::api::{Api, ListParams, PostParams};
use kube::{Client, ResourceExt};
use russet_capi_provider::egress::{Egress, EgressArgs};
use russet_capi_provider::machine_ref::MachineRef;
use russet_controller::metrics::ControllerMetrics;
use russet_controller::{Applier, Leadership};
use russet_telemetry::Metrics;
use russet_testkit::TestCluster;

use super::{Play, Scenario, Stage};

pub(super) const SCENARIO: Scenario = Scenario {
    name: "egress-service-race",
    from: "S0",
    what_happened: "the Tailscale operator wrote the same Service between read and write",
    must_hold: "a conflict is tried again at once, both writers' fields survive, and nobody sees an error",
    without: None,
    play: Play::Cluster(run),
};

const NAME: &str = "mac-1";
const PROXY: &str = "ts-mac-1.tailscale.svc.cluster.local";
const ROUND: &str = "operator/round";
const FINALIZER: &str = "tailscale.com/finalizer";
const FLEET: &str = "tuist.dev/fleet";
/// How often the operator is faster.
const RACES: u32 = 3;

fn run<'a>(stage: &'a mut Stage<'_, TestCluster>) -> BoxFuture<'a, Result<()>> {
    async move {
        let namespace = stage.world.sandbox("tailscale-operator").await?.namespace().to_owned();
        let client = stage.world.client().await?;
        let services: Api<Service> = Api::namespaced(client.clone(), &namespace);
        stage.step("an egress Service of ours, which the operator has pointed at its proxy");
        egress(client.clone(), &namespace)?.ensure(&mac(), Some("blue")).await?;
        operator(&services, 1).await?;

        naive(stage, &services).await?;

        operator(&services, 4).await?;
        stage.step(format!(
            "ours moves the Service to another fleet, and the operator writes {RACES} times in a row, each time just before we do"
        ));
        let puts = Arc::new(AtomicU32::new(0));
        let raced = raced(client.clone(), &namespace, Arc::clone(&puts));
        egress(raced, &namespace)?.ensure(&mac(), Some("green")).await?;
        let puts = puts.load(Ordering::SeqCst);
        ensure!(puts == RACES + 1, "{puts} writes, not one after {RACES} conflicts");
        stage.holds("it is read and written again until it fits, and the caller sees no error");

        let service = services.get(NAME).await?;
        ensure!(service.labels().get(FLEET).is_some_and(|fleet| fleet == "green"), "{service:?}");
        ensure!(keeps_the_operators(&service, 4 + RACES), "{service:?}");
        stage.holds("our label, and the operator's annotation, proxy and finalizer, all survive");

        let events = Api::<Event>::namespaced(client, &namespace).list(&ListParams::default()).await?;
        ensure!(events.items.is_empty(), "{:?}", events.items);
        stage.holds("there is no event about it");
        Ok(())
    }
    .boxed()
}

async fn naive(stage: &mut Stage<'_, TestCluster>, services: &Api<Service>) -> Result<()> {
    stage.step("a naive controller reads the Service, the operator writes, and the controller puts back what it read");
    let read = services.get(NAME).await?;
    operator(services, 2).await?;
    let refused = services.replace(NAME, &PostParams::default(), &read).await;
    match refused {
        Err(kube::Error::Api(status)) if status.is_conflict() => {
            stage.bites(format!("with the version it read it fails: {}", status.message));
        }
        other => anyhow::bail!("the staged fault did not bite: {other:?}"),
    }
    let mut forced = read;
    forced.metadata.resource_version = None;
    operator(services, 3).await?;
    let written = services.replace(NAME, &PostParams::default(), &forced).await?;
    ensure!(
        !keeps_the_operators(&written, 3),
        "the staged fault did not bite: {written:?}"
    );
    stage.bites("without a version it succeeds, and what the operator wrote is gone");
    Ok(())
}

fn mac() -> MachineRef {
    MachineRef {
        namespace: "fleet".to_owned(),
        name: NAME.to_owned(),
        uid: "u1".to_owned(),
    }
}

fn egress(client: Client, namespace: &str) -> Result<Egress> {
    let args = EgressArgs {
        proxy_group: "macmini-egress".to_owned(),
        namespace: namespace.to_owned(),
        magicdns_suffix: "tail1234.ts.net".to_owned(),
    };
    let metrics = ControllerMetrics::new(&Metrics::new());
    let applier = Applier::new(client, "capi-provider", Leadership::always("replay"), metrics);
    Egress::new(&args, applier)?.context("a proxy group was given")
}

/// The operator's write: a whole object, as it was just read.
async fn operator(services: &Api<Service>, round: u32) -> Result<(), kube::Error> {
    let mut service = services.get(NAME).await?;
    service.annotations_mut().insert(ROUND.to_owned(), round.to_string());
    service.metadata.finalizers = Some(vec![FINALIZER.to_owned()]);
    service.spec.get_or_insert_default().external_name = Some(PROXY.to_owned());
    services.replace(NAME, &PostParams::default(), &service).await?;
    Ok(())
}

fn keeps_the_operators(service: &Service, round: u32) -> bool {
    let proxy = service.spec.as_ref().and_then(|spec| spec.external_name.as_deref());
    service.annotations().get(ROUND) == Some(&round.to_string())
        && service.finalizers() == [FINALIZER]
        && proxy == Some(PROXY)
}

/// A client in front of whose first writes the operator squeezes its own.
fn raced(client: Client, namespace: &str, puts: Arc<AtomicU32>) -> Client {
    let services: Api<Service> = Api::namespaced(client.clone(), namespace);
    let between = tower::service_fn(move |request: http::Request<kube::client::Body>| {
        let (client, services, puts) = (client.clone(), services.clone(), Arc::clone(&puts));
        async move {
            if request.method() == Method::PUT {
                let before = puts.fetch_add(1, Ordering::SeqCst);
                if before < RACES {
                    operator(&services, 5 + before).await?;
                }
            }
            client.send(request).await
        }
    });
    Client::new(between, namespace)
}
