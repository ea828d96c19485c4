//! Cluster API core, really running.

use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, PostParams};
use russet_cluster::{capi, control_plane::Extras, process::State};

use crate::support::{Stage, find};

fn api(client: kube::Client, version: &str, kind: &str) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk("cluster.x-k8s.io", version, kind);
    Api::default_namespaced_with(client, &ApiResource::from_gvk(&kind))
}

fn machine(provider: &str, kubernetes: &str) -> DynamicObject {
    serde_json::from_value(serde_json::json!({
        "apiVersion": "cluster.x-k8s.io/v1beta2",
        "kind": "Machine",
        "metadata": { "name": provider },
        "spec": {
            "clusterName": "fleet",
            "version": kubernetes,
            "bootstrap": { "dataSecretName": "none" },
            "infrastructureRef": {
                "apiGroup": "infrastructure.cluster.x-k8s.io",
                "kind": "ScalewayAppleSiliconMachine",
                "name": "m",
            },
        },
    }))
    .unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn core_starts_its_webhooks_answer_and_a_second_start_is_quick() {
    let stage = Stage::new().await;
    let extras = Extras {
        controller_manager: Some(Vec::new()),
        scheduler: false,
    };
    let control_plane = stage.start(stage.options(extras)).await.unwrap();
    let options = capi::Options {
        pace: capi::Pace::Unlimited,
        ..capi::Options::new(stage.dir.path().join("capi"))
    };
    let began = std::time::Instant::now();
    let started = capi::start(&stage.tools, &stage.supervisor, &control_plane, options.clone()).await;
    started.unwrap();
    eprintln!("first start: {:?}", began.elapsed());

    let client = control_plane.client().await.unwrap();
    let v1beta2 = api(client.clone(), "v1beta2", "Machine");
    // Passes the schema; only core itself knows that it is not a version.
    let bad = machine("bad", "one.two");
    let refused = v1beta2.create(&PostParams::default(), &bad).await.unwrap_err();
    let kube::Error::Api(status) = &refused else {
        panic!("{refused}")
    };
    let said = &status.message;
    let refused = said.contains("admission webhook") && said.contains("spec.version");
    assert!(refused, "{said}");
    let good = machine("good", "v1.35.4");
    v1beta2.create(&PostParams::default(), &good).await.unwrap();
    // Read in the old version: the conversion webhook answers too. (A Machine would need the CRD it refers to.)
    let rule: DynamicObject = serde_json::from_value(serde_json::json!({
        "apiVersion": "cluster.x-k8s.io/v1beta2",
        "kind": "MachineDrainRule",
        "metadata": { "name": "skip" },
        "spec": { "drain": { "behavior": "Skip" } },
    }))
    .unwrap();
    let rules = api(client.clone(), "v1beta2", "MachineDrainRule");
    rules.create(&PostParams::default(), &rule).await.unwrap();
    let old = api(client, "v1beta1", "MachineDrainRule").get("skip").await.unwrap();
    assert_eq!(old.data["spec"]["drain"]["behavior"], "Skip");

    stage.supervisor.stop(capi::NAME).await.unwrap();
    let began = std::time::Instant::now();
    let started = capi::start(&stage.tools, &stage.supervisor, &control_plane, options).await;
    started.unwrap();
    eprintln!("second start: {:?}", began.elapsed());
    assert_eq!(find(&stage.supervisor, capi::NAME).state, State::Running);
    let log = std::fs::read_to_string(find(&stage.supervisor, capi::NAME).log).unwrap();
    assert!(!log.contains("forbidden"), "its own role suffices: {log}");
}

#[tokio::test(flavor = "multi_thread")]
async fn core_without_its_role_aggregator_is_refused() {
    let stage = Stage::new().await;
    let control_plane = stage.start(stage.options(Extras::default())).await.unwrap();
    let options = capi::Options::new(stage.dir.path().join("capi"));
    let error = capi::start(&stage.tools, &stage.supervisor, &control_plane, options)
        .await
        .unwrap_err();
    assert!(matches!(error, capi::Error::NeedsControllerManager), "{error}");
}
