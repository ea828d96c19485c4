//! The action-cache snapshot.

use super::{World, wire};
use russet_reapi::client::tonic::Request;
use russet_reapi::proto::reapi;
use russet_reapi::snapshot::{Snapshot, body_of};
use russet_reapi::{Digest, Function};

impl World {
    async fn cache(&self, name: &str, outputs: &[(&str, &Digest)], branch: Option<&str>) -> [u8; 32] {
        let action = Function::Sha256.digest(name.as_bytes());
        let mut request = Request::new(reapi::UpdateActionResultRequest {
            action_digest: Some(wire(&action)),
            action_result: Some(reapi::ActionResult {
                output_files: outputs
                    .iter()
                    .map(|(path, digest)| reapi::OutputFile {
                        path: (*path).to_owned(),
                        digest: Some(wire(digest)),
                        ..Default::default()
                    })
                    .collect(),
                ..Default::default()
            }),
            ..Default::default()
        });
        if let Some(branch) = branch {
            request.metadata_mut().insert("x-tuist-branch", branch.parse().unwrap());
            request.metadata_mut().insert_bin(
                "x-tuist-trunk-branch-bin",
                russet_reapi::client::tonic::metadata::MetadataValue::from_bytes(b"main"),
            );
        }
        self.actions().update_action_result(request).await.unwrap();
        action.hash
    }

    async fn snapshot(&self, after: Option<u64>, trunk: bool) -> Snapshot {
        let mut request = Request::new(reapi::GetActionResultRequest {
            action_digest: Some(wire(&Function::Sha256.digest(b"tuist-actioncache-snapshot/v2"))),
            inline_output_files: after
                .iter()
                .map(|after| format!("tuist-snapshot-after:{after}"))
                .collect(),
            ..Default::default()
        });
        if trunk {
            request
                .metadata_mut()
                .insert("x-tuist-trunk-branch", "main".parse().unwrap());
        }
        let answer = self.actions().get_action_result(request).await.unwrap().into_inner();
        assert_eq!(answer.output_files.len(), 1);
        assert_eq!(answer.output_files[0].path, "tuist-actioncache-snapshot");
        Snapshot::read(&body_of(&answer.output_files[0].contents).unwrap()).unwrap()
    }
}

fn actions(snapshot: &Snapshot) -> Vec<[u8; 32]> {
    snapshot.keys.iter().map(|(action, _)| *action).collect()
}

#[tokio::test]
async fn a_snapshot_has_what_can_be_used_newest_first() {
    let world = World::start(&[]);
    assert_eq!(world.snapshot(None, false).await, Snapshot::default());
    let blob = world.store(b"object").await;
    let first = world.cache("one", &[("00ff", &blob)], None).await;
    let second = world.cache("two", &[("00ff", &blob), ("01", &blob)], None).await;
    world.cache("not hexadecimal", &[("bazel-out/x", &blob)], None).await;
    world
        .cache("has a hole", &[("02", &Function::Sha256.digest(b"gone"))], None)
        .await;
    let snapshot = world.snapshot(None, false).await;
    assert_eq!(actions(&snapshot), [second, first]);
    assert_eq!(snapshot.nodes.len(), 2, "an output two actions share is listed once");
    assert_eq!(snapshot.keys[0].1, [0, 1]);
    assert_eq!((snapshot.nodes[0].hash, snapshot.nodes[0].size), (blob.hash, 6));
    assert_eq!(&*snapshot.nodes[0].id, &[0x00, 0xff]);
    // From the watermark on, inclusive, oldest first.
    let third = world.cache("three", &[("03", &blob)], None).await;
    let fourth = world.cache("four", &[("04", &blob)], None).await;
    let more = world.snapshot(Some(snapshot.watermark), false).await;
    assert_eq!(actions(&more), [second, third, fourth]);
    assert!(more.watermark > snapshot.watermark);
    let last = world.snapshot(Some(more.watermark + 1), false).await;
    assert_eq!((actions(&last), last.watermark), (vec![], more.watermark + 1));
}

#[tokio::test]
async fn what_was_once_made_on_the_trunk_stays_so() {
    let world = World::start(&[]);
    let blob = world.store(b"object").await;
    let trunk = world.cache("trunk", &[("01", &blob)], Some("main")).await;
    let branch = world.cache("branch", &[("02", &blob)], Some("topic")).await;
    let untold = world.cache("untold", &[("03", &blob)], None).await;
    assert_eq!(actions(&world.snapshot(None, true).await), [trunk]);
    assert_eq!(actions(&world.snapshot(None, false).await), [untold, branch, trunk]);
    world.cache("trunk", &[("0a", &blob)], Some("topic")).await;
    world.cache("trunk", &[("0b", &blob)], None).await;
    world.cache("branch", &[("02", &blob)], Some("main")).await;
    assert_eq!(actions(&world.snapshot(None, true).await), [trunk, branch]);
}
