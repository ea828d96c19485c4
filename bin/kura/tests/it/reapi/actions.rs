//! The action cache.

use super::{World, code, noise, wire};
use prost::Message as _;
use russet_reapi::client::tonic::{self, Code};
use russet_reapi::proto::reapi;
use russet_reapi::{Digest, Function};

fn get(digest: &Digest) -> reapi::GetActionResultRequest {
    reapi::GetActionResultRequest {
        action_digest: Some(wire(digest)),
        digest_function: digest.function.value(),
        ..Default::default()
    }
}

fn update(digest: &Digest, result: reapi::ActionResult) -> reapi::UpdateActionResultRequest {
    reapi::UpdateActionResultRequest {
        action_digest: Some(wire(digest)),
        action_result: Some(result),
        digest_function: digest.function.value(),
        ..Default::default()
    }
}

fn file(path: &str, digest: &Digest) -> reapi::OutputFile {
    reapi::OutputFile {
        path: path.to_owned(),
        digest: Some(wire(digest)),
        ..Default::default()
    }
}

/// An action hit implies its blobs: with a hole anywhere it is a miss, and once the hole is filled it is a hit.
#[tokio::test]
async fn a_hit_implies_that_everything_is_there() {
    let world = World::start(&[]).await;
    let action = Function::Sha256.digest(b"action");
    assert_eq!(
        code(world.actions().get_action_result(get(&action)).await),
        Code::NotFound
    );
    let (late, leaf) = (b"late".to_vec(), b"leaf".to_vec());
    let tree = reapi::Tree {
        root: Some(reapi::Directory {
            files: vec![reapi::FileNode {
                name: "leaf".to_owned(),
                digest: Some(wire(&Function::Sha256.digest(&leaf))),
                ..Default::default()
            }],
            ..Default::default()
        }),
        ..Default::default()
    };
    let result = reapi::ActionResult {
        output_files: vec![
            file("a", &Function::Sha256.digest(&late)),
            file("empty", &Function::Sha256.digest(b"")),
        ],
        output_directories: vec![reapi::OutputDirectory {
            path: "d".to_owned(),
            tree_digest: Some(wire(&Function::Sha256.digest(&tree.encode_to_vec()))),
            ..Default::default()
        }],
        stdout_digest: Some(wire(&world.store(b"printed").await)),
        exit_code: 7,
        ..Default::default()
    };
    let echoed = world
        .actions()
        .update_action_result(update(&action, result.clone()))
        .await
        .unwrap();
    assert_eq!(echoed.into_inner(), result);
    for missing in [late, tree.encode_to_vec(), leaf] {
        assert_eq!(
            code(world.actions().get_action_result(get(&action)).await),
            Code::NotFound
        );
        world.store(&missing).await;
    }
    assert_eq!(
        world
            .actions()
            .get_action_result(get(&action))
            .await
            .unwrap()
            .into_inner(),
        result
    );
    let blake = Digest {
        function: Function::Blake3,
        ..action
    };
    assert_eq!(
        code(world.actions().get_action_result(get(&blake)).await),
        Code::NotFound,
        "another function, another action"
    );
}

#[tokio::test]
async fn what_was_asked_for_is_inlined() {
    let world = World::start(&[]).await;
    let action = Function::Sha256.digest(b"inline");
    let (small, other) = (world.store(b"small").await, world.store(b"other").await);
    let large = noise(1, 33 << 20);
    let large_digest = world.store(&large).await;
    let result = reapi::ActionResult {
        output_files: vec![
            file("small", &small),
            file("other", &other),
            file("large", &large_digest),
        ],
        stdout_digest: Some(wire(&world.store(b"out").await)),
        stderr_digest: Some(wire(&world.store(b"err").await)),
        ..Default::default()
    };
    world
        .actions()
        .update_action_result(update(&action, result.clone()))
        .await
        .unwrap();
    let ask = |stdout: bool, files: &[&str]| {
        let request = reapi::GetActionResultRequest {
            inline_stdout: stdout,
            inline_output_files: files.iter().map(|path| (*path).to_owned()).collect(),
            ..get(&action)
        };
        async {
            world
                .actions()
                .get_action_result(request)
                .await
                .map(tonic::Response::into_inner)
        }
    };
    let printed = ask(true, &[]).await.unwrap();
    assert_eq!(
        (&printed.stdout_raw[..], &printed.stderr_raw[..]),
        (&b"out"[..], &b""[..])
    );
    assert!(printed.output_files.iter().all(|file| file.contents.is_empty()));
    let named = ask(false, &["other"]).await.unwrap();
    let contents: Vec<_> = named.output_files.iter().map(|file| file.contents.clone()).collect();
    assert_eq!(contents, ["", "other", ""]);
    let all = ask(false, &["*"]).await.unwrap();
    let contents: Vec<_> = all.output_files.iter().map(|file| file.contents.clone()).collect();
    assert_eq!(contents, ["small", "other", ""], "what does not fit is left out");
    assert_eq!(code(ask(false, &["large"]).await), Code::ResourceExhausted);
    assert_eq!(ask(false, &["absent"]).await.unwrap(), result);
}

#[tokio::test]
async fn results_no_client_could_use_are_refused() {
    let world = World::start(&[]).await;
    let action = Function::Sha256.digest(b"bad");
    let good = world.store(b"good").await;
    let bad_digest = reapi::OutputFile {
        digest: Some(reapi::Digest {
            hash: "nonsense".to_owned(),
            size_bytes: 1,
        }),
        ..file("a", &good)
    };
    let negative = reapi::Digest {
        size_bytes: -1,
        ..wire(&good)
    };
    let cases = [
        reapi::ActionResult {
            output_files: vec![bad_digest],
            ..Default::default()
        },
        reapi::ActionResult {
            output_files: vec![reapi::OutputFile {
                digest: None,
                ..file("a", &good)
            }],
            ..Default::default()
        },
        reapi::ActionResult {
            stderr_digest: Some(negative),
            ..Default::default()
        },
    ];
    for result in cases {
        assert_eq!(
            code(world.actions().update_action_result(update(&action, result)).await),
            Code::InvalidArgument
        );
    }
    let none = reapi::UpdateActionResultRequest {
        action_result: None,
        ..update(&action, reapi::ActionResult::default())
    };
    assert_eq!(
        code(world.actions().update_action_result(none).await),
        Code::InvalidArgument
    );
    let huge = reapi::ActionResult {
        stdout_raw: vec![1; (4 << 20) + 1].into(),
        ..Default::default()
    };
    assert_eq!(
        code(world.actions().update_action_result(update(&action, huge)).await),
        Code::FailedPrecondition
    );
    assert_eq!(
        code(world.actions().get_action_result(get(&action)).await),
        Code::NotFound
    );
}

#[tokio::test]
async fn the_last_result_counts_and_survives_a_crash() {
    let mut world = World::start(&[]).await;
    let action = Function::Sha256.digest(b"again");
    for exit_code in [1, 2, 2, 3] {
        let result = reapi::ActionResult {
            exit_code,
            ..Default::default()
        };
        world
            .actions()
            .update_action_result(update(&action, result))
            .await
            .unwrap();
        let found = world
            .actions()
            .get_action_result(get(&action))
            .await
            .unwrap()
            .into_inner();
        assert_eq!(found.exit_code, exit_code);
    }
    let metrics = String::from_utf8(world.node.send("GET", "/metrics", b"").body).unwrap();
    for line in [
        "kura_artifact_writes_total_total{producer=\"reapi_action\",result=\"created\"} 3",
        "kura_artifact_writes_total_total{producer=\"reapi_action\",result=\"exists\"} 1",
        "kura_grpc_requests_total_total{method=\"UpdateActionResult\",code=\"0\"} 4",
    ] {
        assert!(metrics.contains(line), "{line} is not in\n{metrics}");
    }
    let data = world.node.data.clone();
    world.node.kill();
    let again = crate::node::Node::start_in(&data, &crate::node::Options { args: &[], env: &[] });
    let fresh = World::with(again).await;
    assert_eq!(
        fresh
            .actions()
            .get_action_result(get(&action))
            .await
            .unwrap()
            .into_inner()
            .exit_code,
        3
    );
}
