//! Lists, removals and just-in-time runners.

use russet_github::error::Kind;
use russet_github::runners::{JitRequest, Removed, RunnerId};
use russet_sim_github::{Act, Deed, Fault, RunnerStatus};

use crate::{World, tuist};

const LIST: &str = "/orgs/*/actions/runners";
const JIT: &str = "/orgs/*/actions/runners/generate-jitconfig";

fn add(count: u32) -> Deed {
    let org = "tuist".to_owned();
    Deed::AddRunners { org, count }
}

fn request(name: &str) -> JitRequest {
    JitRequest {
        name: name.to_owned(),
        runner_group_id: 1,
        labels: vec!["macos".to_owned()],
        work_folder: None,
    }
}

#[tokio::test]
async fn a_list_is_whole_however_small_its_pages_are() {
    for (count, cap) in [(0, None), (1, Some(1)), (7, Some(3)), (9, Some(3)), (230, None)] {
        let world = World::new().await;
        world.handle().set(|settings| settings.page_cap = cap);
        world.handle().perform(add(count)).unwrap();
        let runners = world.client.list_runners(&tuist()).await.unwrap();
        let ids: Vec<u64> = runners.iter().map(|runner| runner.id.0).collect();
        assert_eq!(ids, (1..=u64::from(count)).collect::<Vec<_>>());
    }
}

/// Runner 1 goes after page 1 was read: runner 3 slips from page 2 to page 1 and would never be seen.
#[tokio::test]
async fn a_runner_that_slips_between_two_pages_is_not_missed() {
    let world = World::new().await;
    world.handle().set(|settings| settings.page_cap = Some(2));
    world.handle().perform(add(4)).unwrap();
    let remove = Deed::RemoveRunner {
        org: "tuist".to_owned(),
        name: "runner-1".to_owned(),
    };
    world
        .handle()
        .inject(Fault::new("GET", LIST, Act::Meanwhile(vec![remove, add(1)])).after_effect());
    let runners = world.client.list_runners(&tuist()).await.unwrap();
    let ids: Vec<u64> = runners.iter().map(|runner| runner.id.0).collect();
    assert_eq!(ids, [2, 3, 4, 5]);
}

#[tokio::test]
async fn a_list_that_never_rests_is_given_up() {
    let world = World::new().await;
    world.handle().set(|settings| settings.page_cap = Some(2));
    world.handle().perform(add(4)).unwrap();
    // Each reading ends, because two rows come with each page and only one is added.
    let grow = Act::Meanwhile(vec![add(1)]);
    world
        .handle()
        .inject(Fault::new("GET", LIST, grow).for_ever().after_effect());
    let error = world.client.list_runners(&tuist()).await.unwrap_err();
    assert_eq!(error.reason(), "ListRestless");
    world.handle().clear_faults();
    world.client.list_runners(&tuist()).await.unwrap();
}

#[tokio::test]
async fn a_runner_is_removed_once_and_a_busy_one_is_not() {
    let world = World::new().await;
    world.handle().perform(add(2)).unwrap();
    let busy = Deed::SetRunner {
        org: "tuist".to_owned(),
        name: "runner-2".to_owned(),
        status: RunnerStatus::Online,
        busy: true,
    };
    world.handle().perform(busy).unwrap();
    let remove = |id| world.client.remove_runner(tuist_ref(), RunnerId(id));
    assert_eq!(remove(1).await.unwrap(), Removed::Now);
    assert_eq!(remove(1).await.unwrap(), Removed::Before);
    let error = remove(2).await.unwrap_err();
    assert!(
        matches!(&error.kind, Kind::Invalid { message } if message.contains("running a job")),
        "{error}"
    );
    assert_eq!(world.handle().runner_names("tuist"), ["runner-2"]);
}

fn tuist_ref() -> &'static russet_github::Org {
    static ORG: std::sync::OnceLock<russet_github::Org> = std::sync::OnceLock::new();
    ORG.get_or_init(tuist)
}

#[tokio::test]
async fn a_removal_whose_answer_was_lost_is_done() {
    for act in [Act::Status(502), Act::Cut] {
        let world = World::new().await;
        world.handle().perform(add(1)).unwrap();
        world
            .handle()
            .inject(Fault::new("DELETE", "/orgs/**", act).after_effect());
        assert_eq!(
            world.client.remove_runner(&tuist(), RunnerId(1)).await.unwrap(),
            Removed::Now
        );
        assert_eq!(world.handle().calls("DELETE", "/orgs/**"), 2);
    }
}

#[tokio::test]
async fn a_removal_in_the_wrong_organisation_does_not_pass_for_done() {
    let world = World::new().await;
    let error = world.client.remove_runner(&"acme".parse().unwrap(), RunnerId(1)).await;
    assert_eq!(error.unwrap_err().reason(), "WrongOrg");
}

#[tokio::test]
async fn a_just_in_time_runner_is_registered_and_its_name_is_taken() {
    let world = World::new().await;
    let config = world
        .client
        .generate_jit_config(&tuist(), &request("job-1"))
        .await
        .unwrap();
    assert_eq!(
        (config.runner.name.as_str(), config.runner.is_online()),
        ("job-1", false)
    );
    assert!(!config.encoded_jit_config.expose().is_empty());
    let error = world
        .client
        .generate_jit_config(&tuist(), &request("job-1"))
        .await
        .unwrap_err();
    assert_eq!(error.reason(), "Conflict");
    let labels = Vec::new();
    let empty = JitRequest {
        labels,
        ..request("job-2")
    };
    let error = world.client.generate_jit_config(&tuist(), &empty).await.unwrap_err();
    assert!(
        matches!(&error.kind, Kind::Invalid { message } if message.contains("labels")),
        "{error}"
    );
    for (group, reason) in [(2, "PermissionDenied"), (99, "NotFound")] {
        let request = JitRequest {
            runner_group_id: group,
            ..request("job-3")
        };
        let error = world.client.generate_jit_config(&tuist(), &request).await.unwrap_err();
        assert_eq!(error.reason(), reason);
    }
}

/// A runner that was registered twice would stay behind for ever, and one that was not would be waited for.
#[tokio::test]
async fn a_registration_is_never_repeated_blindly() {
    for act in [Act::Status(502), Act::Cut] {
        for after in [false, true] {
            let world = World::new().await;
            let fault = Fault::new("POST", JIT, act.clone());
            world.handle().inject(if after { fault.after_effect() } else { fault });
            let error = world
                .client
                .generate_jit_config(&tuist(), &request("job-1"))
                .await
                .unwrap_err();
            assert_eq!(error.reason(), "Unknown", "{error}");
            assert_eq!(world.handle().calls("POST", JIT), 1);
            let runners = world.client.list_runners(&tuist()).await.unwrap();
            assert_eq!(runners.len(), usize::from(after));
        }
    }
}
