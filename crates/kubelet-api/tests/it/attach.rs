//! `kubectl attach`.

use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::time::timeout;

use crate::stage::{BOTH, PATIENCE, eventually, on_stage};

#[test]
fn an_attached_caller_talks_to_the_container_and_leaves_it_running() {
    on_stage(async |stage| {
        stage
            .backend
            .start("echoer", "while read line; do echo \"heard $line\"; done");
        stage.announce("echoer").await;
        for via in BOTH {
            let mut child = stage.spawn(via, &["attach", "-i", "echoer", "-q"]);
            eventually("the node sees the caller", async || {
                stage.backend.attached("echoer") == 1
            })
            .await;
            let mut stdin = child.stdin.take().unwrap();
            let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
            for word in ["one", "two"] {
                stdin.write_all(format!("{word}\n").as_bytes()).await.unwrap();
                let line = timeout(PATIENCE, lines.next_line()).await.unwrap().unwrap();
                assert_eq!(line, Some(format!("heard {word}")), "{via:?}");
            }
            drop(stdin);
            assert!(timeout(PATIENCE, child.wait()).await.unwrap().unwrap().success());
            eventually("the caller is gone", async || stage.backend.attached("echoer") == 0).await;
        }
        // The second caller found the same process, which has heard both.
        let logs = stage.kubectl(&["logs", "echoer"]).await.ok().text();
        assert_eq!(logs, "heard one\nheard two\nheard one\nheard two\n");
    });
}
