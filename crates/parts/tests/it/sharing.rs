//! Several processes and one cache.
//!
//! The other process is this test program again, told to run one (ignored) test: [`another_process_builds`].

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::Arc,
};

use russet_parts::{Options, Silent, Store};

use crate::support::{DEADLINE, Fixture, Recorder, eventually, go_only, manifest, output_of, real};

const CACHE: &str = "RUSSET_TEST_CACHE";
const SEARCH_PATH: &str = "RUSSET_TEST_SEARCH_PATH";

#[tokio::test]
#[ignore = "run by the other tests of this file, in a process of its own"]
async fn another_process_builds() {
    let mut options = Options::new(PathBuf::from(std::env::var_os(CACHE).unwrap()));
    options.search_path = std::env::var_os(SEARCH_PATH);
    let store = Store::new(manifest(&go_only()), options);
    store.ensure(&["hello"], &Silent).await.unwrap();
}

fn another_process(options: &Options) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "sharing::another_process_builds", "--ignored"])
        .env(CACHE, &options.cache)
        .env(SEARCH_PATH, options.search_path.as_ref().unwrap())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// A `go` that counts its builds and does not begin one before it may. It ends with the folder of its test.
struct Gate {
    builds: PathBuf,
    open: PathBuf,
}

impl Gate {
    fn before_go(fixture: &mut Fixture) -> Self {
        let gate = Self {
            builds: fixture.folder.path().join("builds"),
            open: fixture.folder.path().join("open"),
        };
        let (builds, open, go) = (gate.builds.display(), gate.open.display(), real("go"));
        let waits = format!("while [ ! -e {open} ]; do [ -e {builds} ] || exit 1; sleep 0.05; done");
        let gated = format!("if [ \"$1\" = build ]; then echo build >> {builds}\n{waits}; fi");
        fixture.shadow("go", &format!("{gated}\nexec {} \"$@\"", go.display()));
        gate
    }

    fn builds(&self) -> usize {
        fs::read_to_string(&self.builds).unwrap_or_default().lines().count()
    }

    fn open(&self) {
        fs::write(&self.open, "").unwrap();
    }
}

async fn end_of(mut child: Child) -> std::process::ExitStatus {
    let waiting = tokio::task::spawn_blocking(move || child.wait());
    tokio::time::timeout(DEADLINE, waiting).await.unwrap().unwrap().unwrap()
}

fn hello(fixture: &Fixture) -> PathBuf {
    fixture.store(&go_only()).locate("hello").unwrap().unwrap().path
}

#[tokio::test]
async fn two_processes_and_two_tasks_build_once_and_those_who_wait_are_told_for_whom() {
    let mut fixture = Fixture::new();
    let gate = Gate::before_go(&mut fixture);
    let other = another_process(&fixture.options);
    let pid = other.id();
    eventually("the other process builds", || gate.builds() == 1).await;

    let tasks: Vec<_> = (0..2)
        .map(|_| {
            let recorder = Arc::new(Recorder::default());
            let (store, watcher) = (fixture.store(&go_only()), Arc::clone(&recorder));
            let task = tokio::spawn(async move { store.ensure(&["hello"], &*watcher).await });
            (recorder, task)
        })
        .collect();
    for (recorder, _) in &tasks {
        let waits = format!("Waiting {{ pid: Some({pid}) }}");
        eventually("the wait is reported", || recorder.has(&waits)).await;
    }
    gate.open();
    assert!(end_of(other).await.success());
    for (_, task) in tasks {
        let tools = tokio::time::timeout(DEADLINE, task).await.unwrap().unwrap().unwrap();
        assert_eq!(output_of(tools.path("hello").unwrap()), "hello v1.2.3");
    }
    assert_eq!(gate.builds(), 1);
}

/// The killed one's `go` lives on for a while, as it would in real life; it must not disturb.
#[tokio::test]
async fn a_builder_killed_midway_leaves_nothing_that_the_next_one_stumbles_over() {
    let mut fixture = Fixture::new();
    let gate = Gate::before_go(&mut fixture);
    let mut other = another_process(&fixture.options);
    eventually("the other process builds", || gate.builds() == 1).await;
    other.kill().unwrap();
    end_of(other).await;
    assert!(has_staging(&fixture.options.cache));
    assert_eq!(fixture.store(&go_only()).locate("hello").unwrap(), None);

    fixture.options.search_path = None;
    fixture.tools(&go_only(), &["hello"]).await;
    gate.open();
    assert_eq!(output_of(&hello(&fixture)), "hello v1.2.3");
    assert!(!has_staging(&fixture.options.cache));
}

/// Dropping the future, as Ctrl-C does, releases the lock and removes the work in progress.
#[tokio::test]
async fn a_cancelled_build_lets_the_next_one_begin_at_once() {
    let mut fixture = Fixture::new();
    let gate = Gate::before_go(&mut fixture);
    let store = fixture.store(&go_only());
    let task = tokio::spawn(async move { store.ensure(&["hello"], &Silent).await.map(drop) });
    eventually("the build begins", || gate.builds() == 1).await;
    task.abort();
    assert!(task.await.unwrap_err().is_cancelled());
    assert!(!has_staging(&fixture.options.cache));
    gate.open();
    fixture.tools(&go_only(), &["hello"]).await;
    assert_eq!(output_of(&hello(&fixture)), "hello v1.2.3");
}

fn has_staging(cache: &Path) -> bool {
    fs::read_dir(cache.join("parts")).into_iter().flatten().any(|part| {
        fs::read_dir(part.unwrap().path())
            .unwrap()
            .any(|entry| entry.unwrap().file_name().to_string_lossy().starts_with(".staging-"))
    })
}
