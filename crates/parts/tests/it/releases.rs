//! Official releases.

use std::io::Write;

use russet_parts::{Origin, Platform, Silent, SourceError};
use sha2::{Digest, Sha256};

use crate::support::{Answer, Fixture, GO, Mirror, RELEASE, Recorder, gives, output_of};

const PROGRAM: &[u8] = b"#!/bin/sh\necho released\n";

fn sha256(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    Sha256::digest(bytes).iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").unwrap();
        text
    })
}

fn path(file: &str) -> String {
    let Platform { os, arch } = Platform::host();
    format!("/releases.test/v1.2.3/{os}/{arch}/{file}")
}

/// A mirror with the program and what is published as its checksum, and a store that asks it.
async fn host(program: Answer, checksum: &str) -> (Mirror, Fixture) {
    let checksum = Answer::Whole(checksum.as_bytes().to_vec());
    let mirror = Mirror::start([(path("hello"), program), (path("hello.sha256"), checksum)]).await;
    let fixture = Fixture::with_mirror(&mirror);
    (mirror, fixture)
}

#[tokio::test]
async fn a_release_with_the_published_checksum_is_used_and_fetched_once() {
    let (mirror, fixture) = host(Answer::Whole(PROGRAM.to_vec()), &sha256(PROGRAM)).await;
    let recorder = Recorder::default();
    let tools = fixture.store(RELEASE).ensure(&["hello"], &recorder).await.unwrap();
    assert_eq!(tools.located("hello").unwrap().origin, Origin::Release);
    assert_eq!(output_of(tools.path("hello").unwrap()), "released\n");
    assert_eq!(fixture.cached_files(), ["hello", "hello.receipt.toml"]);
    let told = recorder.has(&format!("total: Some({})", PROGRAM.len()));
    assert!(told, "{:?}", recorder.all());

    let again = fixture.store(RELEASE).ensure(&["hello"], &recorder).await.unwrap();
    assert_eq!(again.path("hello").unwrap(), tools.path("hello").unwrap());
    assert_eq!(mirror.asked(), [path("hello.sha256"), path("hello")]);
}

#[tokio::test]
async fn a_release_with_another_checksum_is_discarded() {
    let (_mirror, fixture) = host(Answer::Whole(PROGRAM.to_vec()), &sha256(b"something else")).await;
    let error = fixture.refused(RELEASE, &["hello"]).await;
    gives!(error, SourceError::ChecksumMismatch { .. });
    assert_eq!(fixture.cached_files(), Vec::<String>::new());
}

#[tokio::test]
async fn a_page_instead_of_a_checksum_file_is_refused_before_the_download() {
    let (mirror, fixture) = host(Answer::Whole(PROGRAM.to_vec()), "<html>please sign in</html>").await;
    let error = fixture.refused(RELEASE, &["hello"]).await;
    gives!(error, SourceError::ChecksumMissing { .. });
    assert_eq!(mirror.asked(), [path("hello.sha256")]);
}

#[tokio::test]
async fn a_download_that_breaks_off_is_tried_once_more_and_never_used() {
    let (mirror, fixture) = host(Answer::Half(PROGRAM.to_vec()), &sha256(PROGRAM)).await;
    let error = fixture.refused(RELEASE, &["hello"]).await;
    gives!(error, SourceError::Interrupted { .. });
    assert_eq!(mirror.asked(), [path("hello.sha256"), path("hello"), path("hello")]);
    assert_eq!(fixture.cached_files(), Vec::<String>::new());
}

#[tokio::test]
async fn a_download_that_stalls_is_given_up() {
    let (_mirror, fixture) = host(Answer::Stall(PROGRAM.to_vec()), &sha256(PROGRAM)).await;
    let error = fixture.refused(RELEASE, &["hello"]).await;
    gives!(error, SourceError::Stalled { .. });
    assert_eq!(fixture.cached_files(), Vec::<String>::new());
}

#[tokio::test]
async fn an_http_error_is_reported_with_its_code() {
    for status in [404, 503] {
        let (_mirror, fixture) = host(Answer::Status(status), &sha256(PROGRAM)).await;
        let error = fixture.refused(RELEASE, &["hello"]).await;
        gives!(error, SourceError::Status { status: found, .. } if *found == status);
    }
}

#[tokio::test]
async fn a_release_that_cannot_be_had_is_built_instead_and_the_reason_is_told() {
    let (_mirror, fixture) = host(Answer::Status(404), &sha256(PROGRAM)).await;
    let recorder = Recorder::default();
    let tools = fixture
        .store(&format!("{RELEASE}{GO}"))
        .ensure(&["hello"], &recorder)
        .await
        .unwrap();
    assert_eq!(tools.located("hello").unwrap().origin, Origin::Go);
    let told = recorder.has("answered 404; next: a build with Go");
    assert!(told, "{:?}", recorder.all());
}

#[tokio::test]
async fn a_host_that_cannot_be_reached_is_tried_once_per_run() {
    let fixture = Fixture::new();
    let store = fixture.store(&format!(
        "{RELEASE}{}",
        RELEASE.replace("tiny", "other").replace("\"hello\"", "\"bye\"")
    ));
    let first = store.ensure(&["hello"], &Silent).await.unwrap_err();
    gives!(first, SourceError::Unreachable { .. });
    let second = store.ensure(&["bye"], &Silent).await.unwrap_err();
    gives!(second, SourceError::HostGivenUp { .. });
}

#[tokio::test]
async fn offline_asks_nobody() {
    let (mirror, mut fixture) = host(Answer::Whole(PROGRAM.to_vec()), &sha256(PROGRAM)).await;
    fixture.options.download = false;
    let error = fixture.refused(RELEASE, &["hello"]).await;
    gives!(error, SourceError::Offline);
    assert_eq!(mirror.asked(), Vec::<String>::new());
}

/// Two tools out of one archive, which is fetched once.
#[tokio::test]
async fn tools_are_taken_out_of_an_archive() {
    let text = r#"
[[part]]
name = "packed"
version = "v1.2.3"
about = "a test"
[[part.tool]]
name = "hello"
[[part.tool]]
name = "bye"
[[part.tool]]
name = "absent"
[part.release]
url = "https://releases.test/packed.tar.gz"
checksum = "https://releases.test/SHA256SUMS"
archive = "tar.gz"
path = "packed-{version}/{tool}"
"#;
    let mut tar = tar::Builder::new(flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast()));
    for (name, program) in [("hello", PROGRAM), ("bye", b"#!/bin/sh\necho bye\n" as &[u8])] {
        let mut header = tar::Header::new_gnu();
        header.set_size(program.len() as u64);
        header.set_mode(0o600);
        tar.append_data(&mut header, format!("./packed-v1.2.3/{name}"), program)
            .unwrap();
    }
    let mut encoder = tar.into_inner().unwrap();
    encoder.flush().unwrap();
    let archive = encoder.finish().unwrap();
    let sums = format!("{}  another.tar.gz\n{}  packed.tar.gz\n", sha256(b""), sha256(&archive));
    let mirror = Mirror::start([
        ("/releases.test/packed.tar.gz".to_owned(), Answer::Whole(archive)),
        ("/releases.test/SHA256SUMS".to_owned(), Answer::Whole(sums.into_bytes())),
    ])
    .await;
    let fixture = Fixture::with_mirror(&mirror);
    let store = fixture.store(text);
    let tools = store.ensure(&["hello", "bye"], &Silent).await.unwrap();
    assert_eq!(output_of(tools.path("hello").unwrap()), "released\n");
    assert_eq!(output_of(tools.path("bye").unwrap()), "bye\n");
    assert_eq!(mirror.asked().len(), 2);

    let error = store.ensure(&["absent"], &Silent).await.unwrap_err();
    gives!(error, SourceError::Archive { .. });
}
