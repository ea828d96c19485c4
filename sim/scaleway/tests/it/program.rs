//! The program itself.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

fn program() -> Command {
    Command::new(env!("CARGO_BIN_EXE_sim-scaleway"))
}

/// Ends the child if the test does not.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start(arguments: &[&str]) -> (Running, String) {
    let mut child = program()
        .args(["--listen", "127.0.0.1:0"])
        .args(arguments)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut url = String::new();
    BufReader::new(child.stdout.take().unwrap())
        .read_line(&mut url)
        .unwrap();
    (Running(child), url.trim().to_owned())
}

#[tokio::test]
async fn the_program_says_where_it_is_serves_a_pool_and_keeps_it_when_terminated() {
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().join("state.json");
    let arguments = [
        "--pool",
        "3",
        "--clock-factor",
        "60",
        "--state",
        state.to_str().unwrap(),
    ];
    let (mut running, url) = start(&arguments);
    let servers = |url: String| async move {
        let response = reqwest::Client::new()
            .get(format!("{url}/apple-silicon/v1alpha1/zones/fr-par-1/servers"))
            .header("X-Auth-Token", russet_sim_scaleway::DEFAULT_SECRET_KEY)
            .send()
            .await
            .unwrap();
        response.json::<serde_json::Value>().await.unwrap()["total_count"].clone()
    };
    assert_eq!(servers(url).await, 3);
    let pid = running.0.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    let deadline = Instant::now() + Duration::from_secs(30);
    let status = loop {
        if let Some(status) = running.0.try_wait().unwrap() {
            break status;
        }
        assert!(Instant::now() < deadline, "still running");
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    assert!(status.success(), "{status}");
    let (_running, url) = start(&["--state", state.to_str().unwrap()]);
    assert_eq!(servers(url).await, 3);
}

#[test]
fn a_bad_seed_or_factor_is_explained() {
    let folder = tempfile::tempdir().unwrap();
    let seed = folder.path().join("seed.json");
    std::fs::write(&seed, r#"{"deeds": [{"deed": "add_minis", "type": "M9"}]}"#).unwrap();
    for (arguments, says) in [
        (vec!["--seed-file", seed.to_str().unwrap()], "M9 is not offered"),
        (vec!["--seed-file", "/nowhere/seed.json"], "/nowhere/seed.json"),
        (vec!["--clock-factor", "-1"], "factor"),
        (vec!["--clock-factor=fast"], "not a number"),
    ] {
        let output = program()
            .args(["--listen", "127.0.0.1:0"])
            .args(&arguments)
            .output()
            .unwrap();
        assert!(!output.status.success());
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(text.contains(says), "{arguments:?}: {text}");
    }
}

#[test]
fn the_help_shows_examples() {
    let output = program().arg("--help").output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("Examples:") && text.contains("/_sim/faults"), "{text}");
}
