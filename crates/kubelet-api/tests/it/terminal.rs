//! `kubectl exec -it`, on a terminal of its own.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::timeout;

use crate::local::{file, on_terminal, set_size, terminal};
use crate::stage::{BOTH, PATIENCE, on_stage};

#[test]
fn a_terminal_has_a_size_that_follows_a_line_discipline_and_an_exit_code() {
    on_stage(async |stage| {
        stage.backend.add("screen", 1);
        stage.announce("screen").await;
        for via in BOTH {
            let (master, slave) = terminal();
            set_size(&master, 101, 33);
            let script = "stty size; read line; echo \"you said $line\"; \
                          until [ \"$(stty size)\" = '44 90' ]; do sleep 0.05; done; echo resized; exit 5";
            let args = stage.kubectl_args(&["exec", "-it", "screen", "--", "sh", "-c", script]);
            let mut command = on_terminal(stage.kubectl_path().to_str().unwrap(), &args, &slave);
            stage.environment(&mut command, via);
            let mut child = command.spawn().unwrap();
            // The command holds copies of our end of the terminal; as long as it lives, so does the screen.
            drop((command, slave));
            let (mut screen, mut keys) = (file(&master), file(&master));
            let mut seen = String::new();
            let mut until = async |text: &str| {
                let mut buffer = [0; 4096];
                while !seen.contains(text) {
                    let read = timeout(PATIENCE, screen.read(&mut buffer)).await;
                    let read = read.unwrap_or_else(|_| panic!("no {text:?} in {seen:?}"));
                    let read = read.unwrap_or_else(|error| panic!("no {text:?} in {seen:?}: {error}"));
                    seen.push_str(&String::from_utf8_lossy(&buffer[..read]));
                }
            };
            until("33 101").await;
            keys.write_all(b"hello\r").await.unwrap();
            keys.flush().await.unwrap();
            until("you said hello").await;
            set_size(&master, 90, 44);
            until("resized").await;
            let status = timeout(PATIENCE, child.wait()).await.unwrap().unwrap();
            assert_eq!(status.code(), Some(5), "{via:?}: {seen:?}");
        }
    });
}
