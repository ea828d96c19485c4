//! Folders the user named.

use std::{
    fs,
    os::unix::fs::{PermissionsExt, symlink},
    path::PathBuf,
};

use russet_parts::{Error, Origin, PartState, Silent};

use crate::support::{Fixture, Recorder, go_only, write_script};

fn given(fixture: &mut Fixture, name: &str) -> PathBuf {
    let folder = fixture.folder.path().join(name);
    fs::create_dir_all(&folder).unwrap();
    fixture.options.given.push(folder.clone());
    folder
}

async fn problem(fixture: &Fixture) -> String {
    let store = fixture.store(&go_only());
    let error = store.ensure(&["hello"], &Silent).await.unwrap_err();
    let of_user = matches!(error, Error::Given { .. } | Error::GivenFolder { .. });
    assert!(of_user, "{error}");
    assert!(matches!(&store.list()[0].state, PartState::Unusable { .. }));
    error.to_string()
}

#[tokio::test]
async fn the_first_given_folder_wins_over_the_second_and_over_the_cache() {
    let mut fixture = Fixture::new();
    fixture.tools(&go_only(), &["hello"]).await;
    given(&mut fixture, "empty");
    for name in ["first", "second"] {
        write_script(&given(&mut fixture, name).join("hello"), "echo v1.2.3");
    }
    let recorder = Recorder::default();
    let tools = fixture.store(&go_only()).ensure(&["hello"], &recorder).await.unwrap();
    let located = tools.located("hello").unwrap();
    assert_eq!(located.path, fixture.folder.path().join("first/hello"));
    assert_eq!(located.origin, Origin::Given);
    assert_eq!(recorder.all(), Vec::<String>::new());
}

#[tokio::test]
async fn another_version_is_used_with_a_remark() {
    let mut fixture = Fixture::new();
    write_script(&given(&mut fixture, "given").join("hello"), "echo 'Hello v1.1.9'");
    let recorder = Recorder::default();
    fixture.store(&go_only()).ensure(&["hello"], &recorder).await.unwrap();
    let remark = "is version 1.1.9; Russet is tested with 1.2.3";
    assert!(recorder.has(remark), "{:?}", recorder.all());
}

#[tokio::test]
async fn a_given_file_that_is_not_executable_is_an_error() {
    let mut fixture = Fixture::new();
    let path = given(&mut fixture, "given").join("hello");
    write_script(&path, "echo v1.2.3");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    let text = problem(&fixture).await;
    assert!(text.contains("chmod +x") && text.contains("given/hello"), "{text}");
}

#[tokio::test]
async fn a_given_program_for_another_machine_is_an_error() {
    let mut fixture = Fixture::new();
    let path = given(&mut fixture, "given").join("hello");
    let mut elf = b"\x7fELF\x02\x01\x01".to_vec();
    elf.resize(64, 0);
    elf[18] = 243;
    fs::write(&path, elf).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    let text = problem(&fixture).await;
    assert!(text.contains("linux-riscv64"), "{text}");
}

#[tokio::test]
async fn a_given_program_that_fails_to_tell_its_version_is_an_error() {
    let mut fixture = Fixture::new();
    let hello = given(&mut fixture, "given").join("hello");
    write_script(&hello, "echo 'cannot open libfoo.so' >&2; exit 127");
    let store = fixture.store(&go_only());
    let error = store.ensure(&["hello"], &Silent).await.unwrap_err().to_string();
    assert!(error.contains("127") && error.contains("libfoo"), "{error}");
}

#[tokio::test]
async fn a_link_that_leads_nowhere_and_a_folder_that_is_not_there_are_errors() {
    let mut fixture = Fixture::new();
    let folder = given(&mut fixture, "given");
    symlink("/nowhere/hello", folder.join("hello")).unwrap();
    assert!(problem(&fixture).await.contains("No such file"));

    let mut fixture = Fixture::new();
    fixture.options.given.push(PathBuf::from("/no/such/folder"));
    let text = problem(&fixture).await;
    let told = text.contains("/no/such/folder") && text.contains("RUSSET_PARTS_DIR");
    assert!(told, "{text}");
}
