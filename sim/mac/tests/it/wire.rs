//! The stand-in wire, word by word.

use crate::harness::{World, client, idle, orders, until};
use russet_sim_mac::Phase;
use serde_json::json;

#[tokio::test]
async fn only_the_password_of_this_installation_opens_a_machine() {
    let world = World::with(2).await;
    let (first, second) = (world.host(1), world.host(2));
    assert!(idle(&world.state(&first).await.unwrap()));
    let url = world.url(&first, "/state");
    let strangers = [
        client().get(&url),
        client().get(&url).basic_auth(&first.username, Some("wrong")),
        client().get(&url).basic_auth(&first.username, Some(&second.password)),
        client().get(&url).basic_auth("root", Some(&first.password)),
        client().get(&url).header("authorization", "Basic ?"),
        client().get(&url).bearer_auth(&first.password),
        client().post(world.url(&first, "/join")).json(&orders(&first)),
    ];
    for stranger in strangers {
        let answer = stranger.send().await.unwrap();
        assert_eq!(answer.status(), 401);
        assert!(
            answer.headers()["www-authenticate"]
                .to_str()
                .unwrap()
                .starts_with("Basic")
        );
        let text = answer.text().await.unwrap();
        assert!(
            text.contains("wrong user or password") && !text.contains(&first.password),
            "{text}"
        );
    }
    assert!(
        idle(&world.state(&first).await.unwrap()),
        "a stranger changed something"
    );
}

#[tokio::test]
async fn orders_that_make_no_sense_are_refused_with_a_sentence_and_change_nothing() {
    let world = World::with(1).await;
    let host = world.host(1);
    let mut cases = Vec::new();
    for (field, value, sentence) in [
        ("nodeName", json!("No Name"), "nodeName"),
        (
            "providerID",
            json!("scw-applesilicon://fr-par-1/another"),
            "is not this machine",
        ),
        ("labels", json!({"node-role.kubernetes.io/mac": ""}), "NodeRestriction"),
        ("taints", json!([{"key": "a", "effect": "Never"}]), "unknown variant"),
        ("kubeconfig", json!("no kubeconfig at all"), "kubeconfig"),
        ("surprise", json!(1), "unknown field `surprise`"),
    ] {
        let mut body = orders(&host);
        body[field] = value;
        cases.push((body, sentence));
    }
    cases.push((json!([]), "not a join request"));
    for (body, sentence) in cases {
        let (status, answer) = world.post(&host, &body).await;
        let message = answer["message"].as_str().unwrap();
        assert_eq!(status, 400, "{message}");
        assert!(message.contains(sentence), "{message}");
    }
    assert!(idle(&world.state(&host).await.unwrap()));
}

#[tokio::test]
async fn other_paths_methods_and_endless_bodies_are_refused() {
    let world = World::with(1).await;
    let host = world.host(1);
    let ask = |method: &str, path: &str| {
        client()
            .request(method.parse().unwrap(), world.url(&host, path))
            .basic_auth(&host.username, Some(&host.password))
    };
    assert_eq!(ask("GET", "/").send().await.unwrap().status(), 404);
    let wrong = ask("GET", "/join").send().await.unwrap();
    assert_eq!(
        (wrong.status().as_u16(), wrong.headers()["allow"].to_str().unwrap()),
        (405, "POST")
    );
    assert_eq!(ask("DELETE", "/state").send().await.unwrap().status(), 405);
    let endless = ask("POST", "/join").body(vec![b' '; 2 << 20]).send().await;
    // The machine may hang up before it has heard it all.
    assert!(endless.is_err() || endless.unwrap().status() == 413);
}

#[tokio::test]
async fn a_machine_whose_cluster_is_away_keeps_trying_and_says_so() {
    let world = World::with(1).await;
    let host = world.host(1);
    let (status, answer) = world.post(&host, &orders(&host)).await;
    assert_eq!(
        (status, &answer["phase"], &answer["hash"]),
        (202, &json!("joining"), &json!("0123abcd"))
    );
    until("the machine says what is wrong", || async {
        let state = world.state(&host).await.unwrap();
        assert_eq!(state.phase, Phase::Joining, "{state:?}");
        assert!(!state.message.contains("s3cret"), "{state:?}");
        state.message.contains("trying again")
    })
    .await;
}

#[tokio::test]
async fn a_join_that_was_told_to_fail_fails_once() {
    let world = World::with(1).await;
    let host = world.host(1);
    assert!(world.fleet.fail_joins(&host.server_id, 1).await);
    world.post(&host, &orders(&host)).await;
    until("the join failed", || async {
        world.state(&host).await.unwrap().phase == Phase::Failed
    })
    .await;
    world.post(&host, &orders(&host)).await;
    until("the next join is tried in earnest", || async {
        let state = world.state(&host).await.unwrap();
        assert_eq!(state.phase, Phase::Joining);
        state.message.contains("trying again")
    })
    .await;
}
