//! What goes wrong on request.

use crate::harness::{Client, PATIENCE, SECOND, World, shell, until, until_answers, until_closed};
use russet_sim_mac::macos::serve_control;
use serde_json::{Value, json};

#[tokio::test]
async fn a_full_disk_breaks_an_upload_and_room_heals_it() {
    let world = World::made(1, |options| options.memory_disks = Some(64 << 20)).await;
    let (mac, client) = (world.mac().await, world.login().await);
    client.ok("echo before > ~/before").await;
    mac.leave_on_disk(Some(1 << 20)).unwrap();
    let ran = client.feed("cat > ~/upload", &vec![b'x'; 4 << 20]).await;
    assert!(
        ran.err.contains("No space left on device") && ran.code == Some(1),
        "{ran:?}"
    );
    mac.leave_on_disk(None).unwrap();
    client.put("cat > ~/upload", &vec![b'x'; 4 << 20]).await;
    mac.reboot().await;
    let client = world.login().await;
    let there = client.ok("cat ~/before; wc -c < ~/upload").await;
    assert_eq!(there.split_whitespace().collect::<Vec<_>>(), ["before", "4194304"]);
}

#[tokio::test]
async fn a_disk_that_is_a_folder_cannot_be_full_and_says_so() {
    let world = World::with(1).await;
    let refused = world.mac().await.leave_on_disk(Some(1)).unwrap_err();
    assert!(refused.to_string().contains("--memory-disks"), "{refused}");
}

#[tokio::test]
async fn a_job_that_is_booted_out_may_never_drain() {
    let (world, client) = World::and_free_client().await;
    let mac = world.mac().await;
    let plist = "<plist version=\"1.0\"><dict><key>Label</key><string>x</string><key>ProgramArguments</key><array><string>/bin/sleep</string>\
                 <string>100000</string></array><key>RunAtLoad</key><true/></dict></plist>";
    client.load("x", plist).await;
    until("it runs", || async { mac.daemon_pid("x").is_some() }).await;
    mac.set_faults(|faults| faults.bootout_never_ends = true);
    client.ok("sudo launchctl bootout system/x").await;
    // Longer than SIGTERM, SIGKILL and the rest would take.
    tokio::time::sleep(SECOND * 10).await;
    shell!(client,
        "launchctl print system/x" => Shows("state = SIGKILLed"),
        "sudo launchctl bootstrap system /Library/LaunchDaemons/x.plist" => Ends(5),
    );
}

#[tokio::test]
async fn sshd_that_launchd_forgot_listens_no_more() {
    let (world, client) = World::and_free_client().await;
    let host = world.host(1);
    // It listens elsewhere than a Mac does, and a script on the Mac that looks must not notice.
    client.ok("nc -z -G 3 127.0.0.1 22").await;
    client.ok("sudo launchctl bootout system/com.openssh.sshd").await;
    until_closed(&host).await;
    shell!(client,
        "nc -z -G 3 127.0.0.1 22" => Ends(1),
        "sudo launchctl bootstrap system /System/Library/LaunchDaemons/ssh.plist" => Done,
    );
    until_answers(&host).await;
}

#[tokio::test]
async fn faults_are_set_over_http_and_an_unknown_one_is_refused() {
    let world = World::with(1).await;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/_sim/macs", listener.local_addr().unwrap());
    let serving = tokio::spawn(serve_control(listener, world.macs.clone()));
    let http = reqwest::Client::builder().no_proxy().build().unwrap();
    let all: Vec<Value> = http.get(&url).send().await.unwrap().json().await.unwrap();
    assert_eq!(all.len(), 1);
    let name = all[0]["name"].as_str().unwrap();
    let patch = |body: Value| http.patch(format!("{url}/{name}/faults")).json(&body).send();
    let answer = patch(json!({"ssh": {"drop_after": 5}, "crash_loop_after": 7}))
        .await
        .unwrap();
    assert_eq!(answer.status(), 200);
    assert_eq!(world.mac().await.faults().crash_loop_after, Some(7));
    assert_eq!(patch(json!({"nonsense": true})).await.unwrap().status(), 400);
    assert!(Client::login(&world.host(1)).await.is_err());
    patch(json!({"ssh": "none"})).await.unwrap();
    world.login().await.ok("true").await;
    let answer = http.get(format!("{url}/{name}/calls")).send().await.unwrap();
    let calls: Vec<Value> = answer.json().await.unwrap();
    let ran = |call: &Value| call["tool"] == "ssh" && call["args"] == json!(["true"]);
    assert!(calls.iter().any(ran), "{calls:?}");
    serving.abort();
}

/// Everything at once on two cores: a hundred Macs, each with a namespace of its own, answer in one process.
#[tokio::test]
async fn a_hundred_macs_answer_at_once() {
    let world = World::with(100).await;
    let clients = futures::future::join_all((1..=100).map(|number| {
        let host = world.host(number);
        async move {
            let client = Client::login(&host).await.unwrap();
            (host.name.clone(), client.ok("scutil --get ComputerName").await)
        }
    }));
    let answers = tokio::time::timeout(PATIENCE * 4, clients).await.unwrap();
    for (name, answer) in answers {
        assert_eq!(answer.trim(), name);
    }
}

#[tokio::test]
async fn nothing_of_a_mac_outlives_the_emulator() {
    let (world, client) = World::and_client().await;
    client.ok("(sleep 424242 </dev/null >/dev/null 2>&1 &); true").await;
    until("it runs", || async { runs("424242") }).await;
    drop(client);
    drop(world);
    until("it is gone", || async { !runs("424242") }).await;
}

fn runs(word: &str) -> bool {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    processes.into_iter().any(|entry| {
        let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        line.split(|byte| *byte == 0).any(|part| part == word.as_bytes())
    })
}
