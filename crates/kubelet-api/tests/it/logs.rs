//! `kubectl logs`.

use jiff::{SignedDuration, Timestamp};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::time::timeout;

use crate::stage::{PATIENCE, Via, eventually, on_stage};

#[test]
fn logs_come_in_every_way_kubectl_asks_for() {
    on_stage(async |stage| {
        let runs = stage.backend.add("talker", 2);
        stage.announce("talker").await;
        let now = Timestamp::now();
        let ago = |seconds| now.checked_sub(SignedDuration::from_secs(seconds)).unwrap();
        runs[0].write(ago(9000), "of an earlier life");
        runs[0].end();
        runs[1].write(ago(7200), "two hours old");
        runs[1].write(ago(60), "a minute old");
        runs[1].write(now, "now");

        let logs = async |more: &[&str]| {
            let args: Vec<&str> = ["logs", "talker"].iter().chain(more).copied().collect();
            stage.kubectl(&args).await.ok().text()
        };
        assert_eq!(logs(&[]).await, "two hours old\na minute old\nnow\n");
        assert_eq!(logs(&["--tail=2"]).await, "a minute old\nnow\n");
        assert_eq!(logs(&["--tail=0"]).await, "");
        assert_eq!(logs(&["--since=1h"]).await, "a minute old\nnow\n");
        assert_eq!(logs(&["--since-time=2000-01-01T00:00:00Z", "--tail=1"]).await, "now\n");
        assert_eq!(logs(&["--limit-bytes=5"]).await, "two h");
        assert_eq!(logs(&["--previous"]).await, "of an earlier life\n");
        assert_eq!(logs(&["--timestamps", "--tail=1"]).await, format!("{now:.9} now\n"));
    });
}

#[test]
fn a_followed_log_shows_lines_as_they_come_and_ends_with_the_container() {
    on_stage(async |stage| {
        let log = stage.backend.add("follower", 1).remove(0);
        stage.announce("follower").await;
        log.write(Timestamp::now(), "first");
        let mut child = stage.spawn(Via::WebSocket, &["logs", "-f", "follower"]);
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut next = async || timeout(PATIENCE, lines.next_line()).await.unwrap().unwrap();
        assert_eq!(next().await.as_deref(), Some("first"));
        log.write(Timestamp::now(), "second");
        assert_eq!(next().await.as_deref(), Some("second"));
        log.write(Timestamp::now(), "last");
        log.end();
        assert_eq!(next().await.as_deref(), Some("last"));
        assert_eq!(next().await, None);
        assert!(timeout(PATIENCE, child.wait()).await.unwrap().unwrap().success());
    });
}

#[test]
fn a_followed_log_is_let_go_when_its_reader_leaves() {
    on_stage(async |stage| {
        let log = stage.backend.add("forgotten", 1).remove(0);
        stage.announce("forgotten").await;
        let mut child = stage.spawn(Via::WebSocket, &["logs", "-f", "forgotten"]);
        eventually("the log is read", async || log.readers() == 1).await;
        child.start_kill().unwrap();
        eventually("the log is let go", async || log.readers() == 0).await;
    });
}

#[test]
fn a_log_that_cannot_be_shown_says_why() {
    on_stage(async |stage| {
        stage.backend.add("newborn", 1);
        stage.announce("newborn").await;
        let ran = stage.kubectl(&["logs", "--previous", "newborn"]).await;
        assert!(!ran.status.success());
        assert!(
            ran.stderr
                .contains("previous terminated container \"c\" in pod \"newborn\" not found"),
            "{ran:?}"
        );
    });
}
