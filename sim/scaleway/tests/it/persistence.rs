//! State that survives.

use crate::harness::{Api, MINIS, options, server};
use russet_sim_scaleway::{Deed, HostChange, Minis, Options, Sim, SimError, Snapshot};
use serde_json::json;
use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

fn kept(path: &std::path::Path) -> Options {
    Options {
        state: Some(path.to_owned()),
        deeds: vec![Deed::AddMinis(Minis {
            count: 2,
            ..Minis::default()
        })],
        ..options()
    }
}

#[tokio::test]
async fn a_restart_goes_on_where_it_stopped_and_does_not_seed_again() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("deep/state.json");
    let api = Api::with(kept(&path)).await;
    let id = api.handle().host("tuist-pool-1").unwrap().server_id;
    api.patch(server(&id), json!({"name": "claimed"})).await.ok();
    api.post(format!("{}/reinstall", server(&id)), json!({})).await.ok();
    api.advance(Duration::from_mins(4));
    let (before, bill, now) = (api.handle().servers(), api.handle().bill(), api.handle().now());
    api.sim.stop().await.unwrap();
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let found = std::fs::read_dir(path.parent().unwrap()).unwrap().count();
    assert_eq!(found, 1, "nothing half-written is left");

    let api = Api::with(kept(&path)).await;
    assert_eq!(
        (api.handle().servers(), api.handle().bill(), api.handle().now()),
        (before, bill, now)
    );
    let installed = api.handle().events_after(0);
    assert_eq!(installed.len(), 2, "machines are announced again");
    assert!(installed.iter().all(|event| event.change == HostChange::Installed));
    api.advance(Duration::from_mins(6));
    assert_eq!(api.server(&id).await["status"], "ready");
    let made = api.order("new").await.ok();
    assert_ne!(made["id"], json!(id), "ids are not handed out twice");
}

#[tokio::test]
async fn the_state_is_kept_while_it_runs() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state.json");
    let api = Api::with(kept(&path)).await;
    api.order("kept").await.ok();
    let deadline = std::time::Instant::now() + Duration::from_secs(30);
    loop {
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        if text.contains("\"kept\"") {
            break;
        }
        assert!(std::time::Instant::now() < deadline, "not written");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(Snapshot::read(&path).unwrap().is_some());
}

#[tokio::test]
async fn a_snapshot_is_restored_over_http() {
    let api = Api::start().await;
    let id = api.mini("m");
    let snapshot = api.read("/_sim/snapshot").await;
    api.handle().vanish(&id).unwrap();
    let late = api.mini("late");
    api.put("/_sim/snapshot", snapshot).await.ok();
    assert_eq!(api.server(&id).await["name"], "m");
    assert_eq!(api.get(server(&late)).await.status, 404);
    let gone = api.handle().events_after(0);
    assert!(
        gone.iter()
            .any(|event| event.change == HostChange::Gone && event.host.server_id == late)
    );
    let answer = api.put("/_sim/snapshot", json!({"version": 1})).await;
    assert_eq!(answer.status, 400);
    assert_eq!(api.read(MINIS).await["total_count"], 1);
}

#[tokio::test]
async fn a_file_that_is_no_state_is_refused_and_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state.json");
    for (text, says) in [("{", "is not a state"), (r#"{"version": 99}"#, "version 99")] {
        std::fs::write(&path, text).unwrap();
        let error = Sim::start(kept(&path)).await.unwrap_err();
        assert!(matches!(error, SimError::Snapshot(_)));
        assert!(error.to_string().contains(says), "{error}");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
    }
}
