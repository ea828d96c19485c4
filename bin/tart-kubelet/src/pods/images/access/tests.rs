use std::os::unix::fs::PermissionsExt as _;

use russet_telemetry::Secret;

use super::*;

fn image(digit: &str) -> Pinned {
    let text = format!("ghcr.io/acme/mac@sha256:{}", digit.repeat(64));
    ImageRef::parse(&text).unwrap().pinned().unwrap()
}

fn other_repository() -> Pinned {
    let text = format!("ghcr.io/acme/other@sha256:{}", "a".repeat(64));
    ImageRef::parse(&text).unwrap().pinned().unwrap()
}

fn credentials(password: &str) -> Credentials {
    Credentials {
        host: "ghcr.io".to_owned(),
        username: "robot".to_owned(),
        password: Secret::new(password.to_owned()),
    }
}

fn pod(password: &str) -> Asker {
    Asker::Pod(vec![credentials(password)])
}

fn stranger() -> Asker {
    Asker::Pod(Vec::new())
}

/// Whether an image that is here is given without asking.
fn admitted(access: &Access, image: &Pinned, asker: &Asker) -> bool {
    access.door(asker, None).admits(image)
}

/// The registry is asked, and gives.
fn pulled(access: &Access, image: &Pinned, asker: &Asker) {
    let door = access.door(asker, asker.credentials().first());
    door.asks(&image.to_ref()).unwrap();
    door.given(image);
}

/// The registry is asked, and refuses.
fn refused(access: &Access, image: &Pinned, asker: &Asker) {
    let door = access.door(asker, asker.credentials().first());
    door.asks(&image.to_ref()).unwrap();
    door.refused(&image.to_ref());
}

fn file(dir: &tempfile::TempDir) -> PathBuf {
    dir.path().join(FILE)
}

#[test]
fn an_image_is_given_to_those_whose_it_is() {
    let record = |open, prints: &[&str]| Record {
        image: String::new(),
        open,
        prints: prints.iter().map(|print| (*print).to_owned()).collect(),
    };
    let (open, theirs, nobodys) = (record(true, &[]), record(false, &["a", "b"]), record(false, &[]));
    let table: [(Option<&Record>, bool, &[&str], bool); 11] = [
        // It was here before any Pod asked.
        (None, false, &[], true),
        (None, false, &["a"], true),
        // It may have come with a secret of which nothing was written down.
        (None, true, &[], false),
        (None, true, &["a"], false),
        // What was free once is free for ever, whatever else comes from there.
        (Some(&open), false, &[], true),
        (Some(&open), true, &[], true),
        (Some(&theirs), false, &[], false),
        (Some(&theirs), false, &["c"], false),
        (Some(&theirs), false, &["c", "b"], true),
        (Some(&theirs), true, &["a"], true),
        (Some(&nobodys), false, &["a"], false),
    ];
    for (known, doubtful, shown, given) in table {
        let prints = shown.iter().map(|print| (*print).to_owned()).collect();
        let is = may_use(known, doubtful, &prints);
        assert_eq!(is, given, "{known:?} {doubtful} {shown:?}");
    }
}

/// Any Pod that named an image on the host ran it, whoever had pulled it with which secret.
#[test]
fn what_came_with_a_secret_is_for_those_who_have_it_and_outlives_the_agent() {
    let dir = tempfile::tempdir().unwrap();
    pulled(&Access::open(dir.path()), &image("a"), &pod("canary-1"));
    let again = Access::open(dir.path());
    assert!(admitted(&again, &image("a"), &pod("canary-1")));
    assert!(!admitted(&again, &image("a"), &pod("canary-2")));
    assert!(!admitted(&again, &image("a"), &stranger()));
    // Who shows the registry something else that it takes is remembered beside the first.
    pulled(&again, &image("a"), &pod("canary-2"));
    let again = Access::open(dir.path());
    assert!(admitted(&again, &image("a"), &pod("canary-1")) && admitted(&again, &image("a"), &pod("canary-2")));
    assert!(!admitted(&again, &image("a"), &stranger()));
    let text = std::fs::read_to_string(file(&dir)).unwrap();
    assert!(!text.contains("canary") && !text.contains("robot"), "{text}");
    let mode = std::fs::metadata(file(&dir)).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn no_two_hosts_write_the_same_of_a_secret() {
    let prints = || {
        let dir = tempfile::tempdir().unwrap();
        let access = Access::open(dir.path());
        pulled(&access, &image("a"), &pod("s3cret"));
        let state = access.state();
        state
            .kept
            .images
            .values()
            .flat_map(|record| record.prints.clone())
            .collect::<Vec<_>>()
    };
    let (one, two) = (prints(), prints());
    assert_eq!((one.len(), two.len()), (1, 1));
    assert_ne!(one, two);
}

#[test]
fn what_came_without_a_secret_or_was_here_before_is_for_everybody_and_stays_so() {
    let dir = tempfile::tempdir().unwrap();
    let access = Access::open(dir.path());
    pulled(&access, &image("a"), &stranger());
    pulled(&access, &image("b"), &Asker::Owner);
    let preloaded = image("c");
    assert!(admitted(&access, &preloaded, &stranger()));
    for image in [image("a"), image("b"), preloaded] {
        pulled(&access, &image, &pod("s3cret"));
        assert!(admitted(&Access::open(dir.path()), &image, &stranger()), "{image}");
    }
    // And what came with a secret is, once the registry gave it to somebody without.
    pulled(&access, &image("d"), &pod("s3cret"));
    pulled(&access, &image("d"), &stranger());
    assert!(admitted(&Access::open(dir.path()), &image("d"), &stranger()));
}

/// An agent is replaced in the middle of a pull, and its `tart` goes on to the end of it. Nobody writes down whose that image is.
#[test]
fn an_image_whose_pull_nobody_saw_the_end_of_is_nobodys() {
    let dir = tempfile::tempdir().unwrap();
    let access = Access::open(dir.path());
    assert!(admitted(&access, &image("b"), &stranger()), "it was here before");
    let asker = pod("s3cret");
    access
        .door(&asker, asker.credentials().first())
        .asks(&ImageRef::parse("ghcr.io/acme/mac:v1").unwrap())
        .unwrap();
    for access in [access, Access::open(dir.path())] {
        assert!(!admitted(&access, &image("a"), &stranger()));
        assert!(
            !admitted(&access, &image("a"), &asker),
            "it has not shown that it may have it"
        );
        assert!(admitted(&access, &image("b"), &stranger()));
        assert!(admitted(&access, &other_repository(), &stranger()));
    }
    // That a registry refuses somebody else proves nothing about what is here.
    let next = Access::open(dir.path());
    refused(&next, &image("a"), &pod("wrong"));
    assert!(!admitted(&next, &image("a"), &stranger()));
    pulled(&next, &image("a"), &asker);
    assert!(admitted(&next, &image("a"), &asker) && !admitted(&next, &image("a"), &stranger()));
}

#[test]
fn a_pull_that_was_refused_leaves_nothing_in_doubt() {
    let dir = tempfile::tempdir().unwrap();
    let access = Access::open(dir.path());
    refused(&access, &image("a"), &pod("wrong"));
    for access in [access, Access::open(dir.path())] {
        assert!(access.state().kept.pulling.is_empty());
        assert!(admitted(&access, &image("a"), &stranger()));
    }
    // Of two at once the other one is still under way.
    let access = Access::open(dir.path());
    let asker = pod("s3cret");
    let door = access.door(&asker, asker.credentials().first());
    door.asks(&image("b").to_ref()).unwrap();
    refused(&access, &image("b"), &pod("wrong"));
    assert!(!admitted(&access, &image("b"), &stranger()));
    door.given(&image("b"));
    assert!(access.state().kept.pulling.is_empty());
}

/// To look after an image is not to give it away.
#[test]
fn the_owner_of_the_host_sees_what_came_with_a_secret_and_opens_it_to_nobody() {
    let dir = tempfile::tempdir().unwrap();
    let access = Access::open(dir.path());
    pulled(&access, &image("a"), &pod("s3cret"));
    assert!(admitted(&access, &image("a"), &Asker::Owner));
    assert!(!admitted(&access, &image("a"), &stranger()));
}

#[test]
fn a_memory_that_is_damaged_admits_nobody_and_one_that_is_gone_everybody() {
    let dir = tempfile::tempdir().unwrap();
    pulled(&Access::open(dir.path()), &image("a"), &pod("s3cret"));
    std::fs::write(file(&dir), "").unwrap();
    let access = Access::open(dir.path());
    assert!(!admitted(&access, &image("a"), &stranger()) && !admitted(&access, &image("a"), &pod("s3cret")));
    pulled(&access, &image("a"), &pod("s3cret"));
    pulled(&access, &image("b"), &stranger());
    // It is no less damaged for having been written since.
    let again = Access::open(dir.path());
    assert!(admitted(&again, &image("a"), &pod("s3cret")) && admitted(&again, &image("b"), &stranger()));
    assert!(!admitted(&again, &image("c"), &stranger()));
    std::fs::remove_file(file(&dir)).unwrap();
    assert!(admitted(&Access::open(dir.path()), &image("a"), &stranger()));
}

#[test]
fn what_cannot_be_written_down_is_not_pulled_with_a_secret() {
    let dir = tempfile::tempdir().unwrap();
    let access = Access::open(&dir.path().join("nowhere"));
    let (asker, nobody) = (pod("s3cret"), stranger());
    let with = access.door(&asker, asker.credentials().first());
    let answer = with.asks(&image("a").to_ref());
    assert!(matches!(answer, Err(Error::File { .. })), "{answer:?}");
    access.door(&nobody, None).asks(&image("a").to_ref()).unwrap();
    assert!(admitted(&access, &image("a"), &nobody), "it did not come");
}

#[test]
fn an_image_that_went_is_forgotten_unless_it_came_again_meanwhile() {
    let dir = tempfile::tempdir().unwrap();
    let access = Access::open(dir.path());
    let key = GoldenKey::of(&image("a"));
    pulled(&access, &image("a"), &pod("s3cret"));
    let mark = access.mark();
    pulled(&access, &image("a"), &pod("s3cret"));
    access.forget(&key, mark);
    assert!(!admitted(&access, &image("a"), &stranger()));
    access.forget(&key, access.mark());
    assert!(admitted(&Access::open(dir.path()), &image("a"), &stranger()));
}

#[test]
fn passwords_that_never_come_again_do_not_fill_the_memory() {
    let dir = tempfile::tempdir().unwrap();
    let access = Access::open(dir.path());
    for number in 0..=MOST {
        let credentials = credentials(&number.to_string());
        access.state().given(&image("a"), Some(&credentials));
    }
    assert!(!admitted(&access, &image("a"), &pod("0")), "the first had to go");
    assert!(admitted(&access, &image("a"), &pod("1")));
    assert!(admitted(&access, &image("a"), &pod(&MOST.to_string())));
}
