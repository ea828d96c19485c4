//! `kubectl cp`.

use crate::stage::{BOTH, on_stage};

#[test]
fn files_and_folders_are_copied_both_ways() {
    on_stage(async |stage| {
        stage.backend.add("disk", 1);
        stage.announce("disk").await;
        for via in BOTH {
            let folder = stage.folder(&format!("copies-{via:?}"));
            let path = |name: &str| folder.join(name).to_str().unwrap().to_owned();
            let content: Vec<u8> = (0..5_000_000_u32).map(|number| (number * 7).to_le_bytes()[1]).collect();
            std::fs::write(path("here"), &content).unwrap();
            let there = format!("disk:{}", path("there"));
            stage.kubectl_with(via, &["cp", &path("here"), &there], &[]).await.ok();
            assert!(std::fs::read(path("there")).unwrap() == content, "{via:?}");
            stage
                .kubectl_with(via, &["cp", "--retries=3", &there, &path("back")], &[])
                .await
                .ok();
            assert!(std::fs::read(path("back")).unwrap() == content, "{via:?}");

            std::fs::create_dir_all(folder.join("tree/leaf")).unwrap();
            std::fs::write(folder.join("tree/leaf/note"), "small").unwrap();
            let grown = format!("disk:{}", path("grown"));
            stage.kubectl_with(via, &["cp", &path("tree"), &grown], &[]).await.ok();
            assert_eq!(std::fs::read(folder.join("grown/leaf/note")).unwrap(), b"small");
            // kubectl may leave before it has heard what was wrong, with any kubelet; but it must have copied nothing.
            let absent = format!("disk:{}", path("absent"));
            stage.kubectl_with(via, &["cp", &absent, &path("x")], &[]).await;
            assert!(!folder.join("x").exists());
        }
    });
}
