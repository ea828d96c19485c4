//! What the tests share: a tiny part, a release host that can misbehave, and a watcher that remembers.

use std::{
    collections::HashMap,
    ffi::OsString,
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use axum::{Router, body::Body, extract::State, http::Uri, response::Response};
use futures::{StreamExt, stream};
use russet_parts::{Activity, Error, Manifest, Modules, Options, Outcome, Progress, Silent, SourceError, Store, Tools};
use tempfile::TempDir;

pub(crate) const DEADLINE: Duration = Duration::from_mins(2);

/// One part named `tiny` with the program `hello`, from a release, or from Go.
pub(crate) const RELEASE: &str = r#"
[[part]]
name = "tiny"
version = "v1.2.3"
about = "a test"
[[part.tool]]
name = "hello"
version_args = ["--version"]
[part.release]
url = "https://releases.test/{version}/{os}/{arch}/{tool}"
checksum = "https://releases.test/{version}/{os}/{arch}/{tool}.sha256"
"#;

pub(crate) const GO: &str = r#"
[part.go]
module = "tiny"
space_mib = 64
ldflags = "-X main.version={version}"
packages = { hello = "example.test/tiny/greeting/v2" }
"#;

/// The same without the release.
pub(crate) fn go_only() -> String {
    let (part, _) = RELEASE.split_once("[part.release]").unwrap();
    format!("{part}{GO}")
}

/// Its main package ends in a major version, so that the program has to be renamed.
pub(crate) fn modules(main: &str) -> Modules {
    let file = |name: &str, text: &str| (name.to_owned(), text.to_owned());
    Modules::from([(
        "tiny".to_owned(),
        vec![
            file("go.mod", "module example.test/tiny\n\ngo 1.21\n"),
            file("go.sum", ""),
            file("greeting/v2/main.go", main),
            file("files/a/one.yaml", "one"),
            file("files/two.yaml", "two"),
        ],
    )])
}

pub(crate) const MAIN: &str = "package main\n\nvar version = \"none\"\n\nfunc main() { print(\"hello \" + version) }\n";

pub(crate) fn manifest(text: &str) -> Manifest {
    Manifest::parse(text, modules(MAIN)).unwrap()
}

pub(crate) struct Fixture {
    pub(crate) folder: TempDir,
    pub(crate) options: Options,
}

impl Fixture {
    /// Its own cache; the network out of reach unless a mirror is set.
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut options = Options::new(folder.path().join("cache"));
        options.mirror = Some("http://127.0.0.1:1".to_owned());
        options.stall_timeout = Duration::from_millis(300);
        Self { folder, options }
    }

    pub(crate) fn with_mirror(mirror: &Mirror) -> Self {
        let mut fixture = Self::new();
        fixture.options.mirror = Some(mirror.url.clone());
        fixture
    }

    pub(crate) fn store(&self, text: &str) -> Store {
        Store::new(manifest(text), self.options.clone())
    }

    /// These tools of it.
    pub(crate) async fn tools(&self, text: &str, wanted: &[&str]) -> Tools {
        self.store(text).ensure(wanted, &Silent).await.unwrap()
    }

    /// Why these tools of it cannot be had.
    pub(crate) async fn refused(&self, text: &str, wanted: &[&str]) -> Error {
        self.store(text).ensure(wanted, &Silent).await.unwrap_err()
    }

    /// Every file of the cache that is neither a lock nor the written-out module.
    pub(crate) fn cached_files(&self) -> Vec<String> {
        let mut files = Vec::new();
        let mut folders = vec![self.options.cache.join("parts")];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(&folder).into_iter().flatten() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    folders.push(path);
                } else {
                    files.push(path.file_name().unwrap().to_string_lossy().into_owned());
                }
            }
        }
        files.sort();
        files
    }

    /// A folder on the search path with a program of ours, before the real ones.
    pub(crate) fn shadow(&mut self, program: &str, script: &str) {
        let folder = self.folder.path().join("shadow");
        fs::create_dir_all(&folder).unwrap();
        write_script(&folder.join(program), script);
        let path = self.options.search_path.clone().unwrap_or_else(real_path);
        let folders = std::iter::once(folder).chain(std::env::split_paths(&path));
        self.options.search_path = Some(std::env::join_paths(folders).unwrap());
    }

    /// A search path with nothing on it.
    pub(crate) fn without_programs(&mut self) {
        let empty = self.folder.path().join("empty");
        fs::create_dir_all(&empty).unwrap();
        self.options.search_path = Some(empty.into_os_string());
    }
}

pub(crate) fn real_path() -> OsString {
    std::env::var_os("PATH").unwrap()
}

pub(crate) fn real(program: &str) -> PathBuf {
    std::env::split_paths(&real_path())
        .map(|folder| folder.join(program))
        .find(|path| path.is_file())
        .unwrap()
}

pub(crate) fn write_script(path: &Path, script: &str) {
    fs::write(path, format!("#!/bin/sh\n{script}\n")).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

/// Waits for a condition.
pub(crate) async fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let began = Instant::now();
    while !condition() {
        assert!(began.elapsed() < DEADLINE, "not within {DEADLINE:?}: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

pub(crate) fn output_of(program: &Path) -> String {
    let output = std::process::Command::new(program).output().unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

/// The reasons the sources gave.
pub(crate) fn reasons(error: &Error) -> Vec<&SourceError> {
    match error {
        Error::Unobtainable(all) => all.attempts.iter().map(|attempt| &attempt.error).collect(),
        other => panic!("another error: {other}"),
    }
}

/// Fails unless the one source that was tried gave this reason.
macro_rules! gives {
    ($error:expr, $reason:pat $(if $more:expr)?) => {
        assert!(matches!($crate::support::reasons(&$error)[..], [$reason] $(if $more)?), "{}", $error)
    };
}
pub(crate) use gives;

/// Remembers what it was told.
#[derive(Default)]
pub(crate) struct Recorder {
    seen: Mutex<Vec<String>>,
}

impl Recorder {
    pub(crate) fn all(&self) -> Vec<String> {
        self.seen.lock().unwrap().clone()
    }

    pub(crate) fn has(&self, text: &str) -> bool {
        self.all().iter().any(|line| line.contains(text))
    }

    fn push(&self, line: String) {
        self.seen.lock().unwrap().push(line);
    }
}

impl Progress for Recorder {
    fn start(&self, part: &str, activity: &Activity) {
        self.push(format!("{part} start {activity:?}"));
    }
    fn advance(&self, part: &str, done: u64, detail: &str) {
        self.push(format!("{part} advance {done} {detail}"));
    }
    fn note(&self, part: &str, message: &str) {
        self.push(format!("{part} note {message}"));
    }
    fn finish(&self, part: &str, outcome: &Outcome) {
        self.push(format!("{part} finish {outcome:?}"));
    }
}

/// What the release host does when asked for a file.
#[derive(Clone)]
pub(crate) enum Answer {
    Whole(Vec<u8>),
    /// Announces the whole length, sends half, hangs up.
    Half(Vec<u8>),
    /// Sends half, then nothing, and does not hang up.
    Stall(Vec<u8>),
    Status(u16),
}

#[derive(Clone)]
struct Host {
    answers: Arc<HashMap<String, Answer>>,
    asked: Arc<Mutex<Vec<String>>>,
}

/// A release host on loopback.
pub(crate) struct Mirror {
    pub(crate) url: String,
    host: Host,
    server: tokio::task::JoinHandle<()>,
}

impl Mirror {
    pub(crate) async fn start(answers: impl IntoIterator<Item = (String, Answer)>) -> Self {
        let host = Host {
            answers: Arc::new(answers.into_iter().collect()),
            asked: Arc::default(),
        };
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let router = Router::new().fallback(answer).with_state(host.clone());
        let server = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { url, host, server }
    }

    /// Paths, in the order they were asked for.
    pub(crate) fn asked(&self) -> Vec<String> {
        self.host.asked.lock().unwrap().clone()
    }
}

impl Drop for Mirror {
    fn drop(&mut self) {
        self.server.abort();
    }
}

async fn answer(State(host): State<Host>, uri: Uri) -> Response {
    host.asked.lock().unwrap().push(uri.path().to_owned());
    let half = |bytes: &[u8]| Ok::<_, std::io::Error>(bytes[..bytes.len() / 2].to_vec());
    let response = Response::builder();
    match host.answers.get(uri.path()) {
        None => response.status(404).body(Body::empty()),
        Some(Answer::Status(status)) => response.status(*status).body(Body::empty()),
        Some(Answer::Whole(bytes)) => response.body(Body::from(bytes.clone())),
        Some(Answer::Half(bytes)) => {
            response
                .header("content-length", bytes.len())
                .body(Body::from_stream(stream::iter([
                    half(bytes),
                    Err(std::io::Error::other("hang up")),
                ])))
        }
        Some(Answer::Stall(bytes)) => response
            .header("content-length", bytes.len())
            .body(Body::from_stream(stream::iter([half(bytes)]).chain(stream::pending()))),
    }
    .unwrap()
}
