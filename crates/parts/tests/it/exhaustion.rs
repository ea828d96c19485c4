//! Nothing works: the error has to be enough to go on.

use russet_parts::{Error, Manifest, Silent, SourceError, Store};

use crate::support::{Fixture, go_only, reasons};

#[tokio::test]
async fn without_go_and_without_network_the_error_names_what_was_tried_and_the_three_ways_out() {
    let mut fixture = Fixture::new();
    fixture.without_programs();
    let store = Store::new(Manifest::embedded(), fixture.options.clone());
    let error = store
        .ensure(&["etcd", "kube-apiserver", "helm"], &Silent)
        .await
        .unwrap_err();
    assert!(
        matches!(
            reasons(&error)[..],
            [SourceError::Unreachable { .. }, SourceError::NoGo { .. }]
        ),
        "{error}"
    );
    let Error::Unobtainable(details) = &error else {
        panic!("{error}")
    };
    assert_eq!(details.missing, ["etcd", "kube-apiserver", "helm"]);
    let text = error.to_string();
    for expected in [
        "could not obtain kubernetes v1.35.4",
        "tried the official release: 127.0.0.1 could not be reached",
        "tried a build with Go: no `go` command on the PATH",
        "1. install Go 1.26.0 or newer",
        "2. put etcd, kube-apiserver, helm into a folder and name it in RUSSET_PARTS_DIR (or KUBEBUILDER_ASSETS)",
        "3. use a cluster you already have: russet up --kubeconfig",
    ] {
        assert!(text.contains(expected), "{expected:?} is not in:\n{text}");
    }
}

#[tokio::test]
async fn a_build_that_is_not_allowed_is_said_so() {
    let mut fixture = Fixture::new();
    fixture.options.build = false;
    let error = fixture.refused(&go_only(), &["hello"]).await;
    assert!(matches!(reasons(&error)[..], [SourceError::BuildNotAllowed]), "{error}");
}

#[tokio::test]
async fn a_cache_that_cannot_be_written_is_an_error_with_its_path() {
    let mut fixture = Fixture::new();
    let file = fixture.folder.path().join("file");
    std::fs::write(&file, "").unwrap();
    fixture.options.cache = file.join("cache");
    let error = fixture.refused(&go_only(), &["hello"]).await;
    assert!(error.to_string().contains("file/cache"), "{error}");
}

#[test]
fn asking_can_be_sent_between_threads() {
    fn sendable<T: Send>(_: &T) {}
    let store = Fixture::new().store(&go_only());
    sendable(&store.ensure(&["hello"], &Silent));
}
