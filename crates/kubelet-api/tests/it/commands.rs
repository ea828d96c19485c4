//! `kubectl exec` without a terminal.

use std::path::Path;

use crate::stage::{BOTH, Via, eventually, on_stage, read};

#[test]
fn a_command_gives_its_output_its_errors_and_its_exit_code() {
    on_stage(async |stage| {
        stage.backend.add("worker", 1);
        stage.announce("worker").await;
        for via in BOTH {
            let script = "echo to stdout; echo to stderr >&2; exit 7";
            let ran = stage
                .kubectl_with(via, &["exec", "worker", "--", "sh", "-c", script], &[])
                .await;
            assert_eq!(ran.status.code(), Some(7), "{via:?} {ran:?}");
            assert_eq!(ran.text(), "to stdout\n");
            assert!(ran.stderr.starts_with("to stderr\n"), "{ran:?}");
            let killed = stage
                .kubectl_with(via, &["exec", "worker", "--", "sh", "-c", "kill -9 $$"], &[])
                .await;
            assert_eq!(killed.status.code(), Some(137), "{killed:?}");
            let ran = stage
                .kubectl_with(via, &["exec", "worker", "--", "true"], &[])
                .await
                .ok();
            assert_eq!((ran.text(), ran.stderr), (String::new(), String::new()));
        }
    });
}

#[test]
fn input_of_any_size_arrives_whole_and_its_end_is_seen() {
    on_stage(async |stage| {
        stage.backend.add("reader", 1);
        stage.announce("reader").await;
        let input: Vec<u8> = (0..8_000_000_u32).map(|number| number.to_le_bytes()[1]).collect();
        for via in BOTH {
            let ran = stage
                .kubectl_with(via, &["exec", "-i", "reader", "--", "cat"], &input)
                .await
                .ok();
            assert!(ran.stdout == input, "{via:?}: {} bytes came back", ran.stdout.len());
            // Output goes on after the end of the input.
            let script = "cat > /dev/null; echo done";
            let ran = stage
                .kubectl_with(via, &["exec", "-i", "reader", "--", "sh", "-c", script], &input)
                .await;
            assert_eq!(ran.ok().text(), "done\n");
        }
    });
}

/// A command comes in the first line of its request, and lines over 64 KiB were refused with 414.
#[test]
fn a_script_of_a_hundred_kilobytes_is_an_argument_like_any_other() {
    on_stage(async |stage| {
        stage.backend.add("scripted", 1);
        stage.announce("scripted").await;
        let script = format!("echo {} | wc -c", "y ".repeat(50_000));
        for via in BOTH {
            let ran = stage
                .kubectl_with(via, &["exec", "scripted", "--", "sh", "-c", &script], &[])
                .await;
            assert_eq!(ran.ok().text().trim(), "100000", "{via:?}");
        }
    });
}

/// Input that nobody reads fills every buffer on the way. The exit code must still come through, and not be lost to a reset.
#[test]
fn a_command_that_ends_without_reading_its_input_still_gives_its_exit_code() {
    on_stage(async |stage| {
        stage.backend.add("deaf", 1);
        stage.announce("deaf").await;
        let input = vec![b'x'; 8_000_000];
        for via in BOTH {
            let ran = stage
                .kubectl_with(
                    via,
                    &["exec", "-i", "deaf", "--", "sh", "-c", "echo bye; exit 3"],
                    &input,
                )
                .await;
            assert_eq!(ran.status.code(), Some(3), "{via:?} {ran:?}");
            assert_eq!(ran.text(), "bye\n");
        }
    });
}

#[test]
fn what_cannot_be_run_is_explained() {
    on_stage(async |stage| {
        stage.backend.add("bare", 1);
        stage.announce("bare").await;
        stage.announce("elsewhere").await;
        let ran = stage.kubectl(&["exec", "bare", "--", "/no/such/program"]).await;
        assert_eq!(ran.status.code(), Some(1));
        assert!(ran.stderr.contains("No such file or directory"), "{ran:?}");
        // The apiserver knows this Pod, the node does not.
        let ran = stage.kubectl(&["exec", "elsewhere", "--", "true"]).await;
        assert!(ran.stderr.contains("pod does not exist"), "{ran:?}");
    });
}

#[test]
fn a_command_ends_when_its_caller_leaves() {
    on_stage(async |stage| {
        stage.backend.add("left", 1);
        stage.announce("left").await;
        let folder = stage.folder("left");
        for via in BOTH {
            let file = folder.join(format!("{via:?}"));
            let script = format!("echo $$ > {0}.new; mv {0}.new {0}; exec sleep 1000", file.display());
            let mut child = stage.spawn(via, &["exec", "left", "--", "sh", "-c", &script]);
            eventually("the command runs", async || file.exists()).await;
            let pid = read(&file).trim().to_owned();
            child.start_kill().unwrap();
            eventually("the command ends", async || !runs(&pid)).await;
        }
    });
}

pub(crate) fn runs(pid: &str) -> bool {
    let stat = std::fs::read_to_string(Path::new("/proc").join(pid).join("stat")).unwrap_or_default();
    stat.rsplit_once(')')
        .is_some_and(|(_, rest)| !rest.trim_start().starts_with('Z'))
}

#[test]
fn many_commands_run_at_once() {
    on_stage(async |stage| {
        stage.backend.add("crowd", 1);
        stage.announce("crowd").await;
        let run = async |number: usize| {
            let text = format!("number {number}");
            let ran = stage
                .kubectl_with(Via::Spdy, &["exec", "crowd", "--", "echo", &text], &[])
                .await;
            assert_eq!(ran.ok().text(), format!("{text}\n"));
        };
        futures::future::join_all((0..8).map(run)).await;
    });
}
