//! The control plane, with the real etcd, kube-apiserver, kube-controller-manager and kube-scheduler.

use std::{net::TcpListener, time::Duration};

use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod, ServiceAccount};
use kube::api::{Api, ObjectMeta, PostParams};
use russet_cluster::{
    ControlPlane, Supervisor,
    control_plane::{Extras, name},
    kubeconfig,
    process::State,
};
use rustix::process::{Pid, Signal, kill_process};

use crate::support::{Stage, eventually, find, in_state, is_gone, pids};

fn config_map(name: &str) -> ConfigMap {
    ConfigMap {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            ..ObjectMeta::default()
        },
        data: Some([("kept".to_owned(), "yes".to_owned())].into()),
        ..ConfigMap::default()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_whole_control_plane_starts_resumes_and_leaves_nothing() {
    let stage = Stage::new().await;
    let began = std::time::Instant::now();
    let options = stage.options(Extras::all());
    let first = stage.start(options.clone()).await.unwrap();
    eprintln!("first start: {:?}", began.elapsed());
    for snapshot in stage.supervisor.snapshot() {
        eprintln!("  {}: ready after {:?}", snapshot.name, snapshot.ready_after.unwrap());
    }
    let client = first.client().await.unwrap();
    let maps: Api<ConfigMap> = Api::default_namespaced(client.clone());
    let made = maps.create(&PostParams::default(), &config_map("survivor")).await;
    made.unwrap();
    // A Pod is scheduled nowhere, but the scheduler says so: it works with its own identity.
    let pods: Api<Pod> = Api::default_namespaced(client);
    let pod: Pod = serde_json::from_value(serde_json::json!({
        "metadata": { "name": "p" },
        "spec": { "containers": [{ "name": "c", "image": "localhost/none" }] },
    }))
    .unwrap();
    pods.create(&PostParams::default(), &pod).await.unwrap();
    eventually("the scheduler looks at the Pod", async || {
        let status = pods.get("p").await.unwrap().status;
        let conditions = status.and_then(|status| status.conditions).unwrap_or_default();
        let mut reasons = conditions.iter().map(|condition| condition.reason.as_deref());
        reasons.any(|reason| reason == Some("Unschedulable"))
    })
    .await;
    let running = pids(&stage.supervisor);
    assert_eq!(running.len(), 4);
    let ended = std::time::Instant::now();
    stage.supervisor.shutdown().await;
    eprintln!("shutdown: {:?}", ended.elapsed());
    assert!(running.into_iter().all(is_gone));

    // One port was taken meanwhile: that part moves, the others stay.
    let url: http::Uri = first.etcd_url().parse().unwrap();
    let squatter = TcpListener::bind(("127.0.0.1", url.port_u16().unwrap())).unwrap();
    let supervisor = Supervisor::new(stage.dir.path());
    let began = std::time::Instant::now();
    let second = ControlPlane::start(&stage.tools, &supervisor, options).await.unwrap();
    eprintln!("resumed: {:?}", began.elapsed());
    assert_ne!(second.etcd_url(), first.etcd_url());
    assert_eq!(second.server(), first.server());
    assert_eq!(second.ca_pem(), first.ca_pem());
    let maps: Api<ConfigMap> = Api::default_namespaced(second.client().await.unwrap());
    assert_eq!(maps.get("survivor").await.unwrap().data, config_map("survivor").data);
    drop(squatter);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_apiserver_comes_back_and_the_same_client_works() {
    let stage = Stage::new().await;
    let control_plane = stage.start(stage.options(Extras::default())).await.unwrap();
    let namespaces: Api<Namespace> = Api::all(control_plane.client().await.unwrap());
    namespaces.get("default").await.unwrap();
    let pid = find(&stage.supervisor, name::APISERVER).pid.unwrap();
    kill_process(Pid::from_raw(i32::try_from(pid).unwrap()).unwrap(), Signal::KILL).unwrap();
    let restarts = || find(&stage.supervisor, name::APISERVER).restarts;
    eventually("the kill is noticed", async || restarts() == 1).await;
    let snapshot = in_state(&stage.supervisor, name::APISERVER, State::Running).await;
    assert!(snapshot.last_exit.unwrap().starts_with("killed by signal 9"));
    eventually("the client works again", async || {
        namespaces.get("default").await.is_ok()
    })
    .await;
    assert_eq!(find(&stage.supervisor, name::ETCD).restarts, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_account_kubeconfig_has_that_accounts_rights_and_the_audit_log_shows_it() {
    let stage = Stage::new().await;
    let mut options = stage.options(Extras::default());
    options.audit = true;
    let control_plane = stage.start(options).await.unwrap();
    let admin = control_plane.client().await.unwrap();
    let accounts: Api<ServiceAccount> = Api::default_namespaced(admin.clone());
    let account = ServiceAccount {
        metadata: ObjectMeta {
            name: Some("limited".to_owned()),
            ..ObjectMeta::default()
        },
        ..ServiceAccount::default()
    };
    accounts.create(&PostParams::default(), &account).await.unwrap();
    let dest = stage.dir.path().join("limited.kubeconfig");
    let written = kubeconfig::for_service_account(admin, &control_plane, "default", "limited", &dest).await;
    written.unwrap();
    let limited = kubeconfig::client(&dest).await.unwrap();
    let secrets: Api<k8s_openapi::api::core::v1::Secret> = Api::default_namespaced(limited);
    let denied = secrets.list(&kube::api::ListParams::default()).await.unwrap_err();
    assert!(matches!(denied, kube::Error::Api(status) if status.code == 403));

    let log = control_plane.audit_log().unwrap();
    let entries = std::fs::read_to_string(&log).unwrap();
    let denials: Vec<serde_json::Value> = entries
        .lines()
        .map(|line| serde_json::from_str(line).expect("one JSON object per line"))
        .filter(|entry: &serde_json::Value| entry["responseStatus"]["code"] == 403)
        .filter(|entry| entry["user"]["username"] == "system:serviceaccount:default:limited")
        .collect();
    assert_eq!(denials.len(), 1);
    assert_eq!(denials[0]["objectRef"]["resource"], "secrets");
    assert_eq!(denials[0]["level"], "Metadata");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_start_that_fails_leaves_nothing_running() {
    let stage = Stage::new().await;
    let mut options = stage.options(Extras::default());
    options.apiserver_args = vec!["--no-such-flag".to_owned()];
    let error = stage.start(options.clone()).await.unwrap_err();
    assert!(error.to_string().contains("unknown flag: --no-such-flag"), "{error}");
    assert!(pids(&stage.supervisor).is_empty());
    assert_eq!(find(&stage.supervisor, name::ETCD).state, State::Stopped);
    // The same supervisor can try again.
    options.apiserver_args.clear();
    let again = stage.start(options);
    tokio::time::timeout(Duration::from_mins(2), again)
        .await
        .unwrap()
        .unwrap();
}
