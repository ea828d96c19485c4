//! Builds, with the real Go.

use std::fs;

use russet_parts::{Error, FreeSpace, Manifest, Origin, PartState, Silent, SourceError, Store};

use crate::support::{Fixture, Recorder, gives, go_only, modules, output_of};

#[tokio::test]
async fn a_program_is_built_named_as_its_tool_and_knows_its_version() {
    let fixture = Fixture::new();
    let recorder = Recorder::default();
    let store = fixture.store(&go_only());
    assert_eq!(store.locate("hello").unwrap(), None);
    let tools = store.ensure(&["hello"], &recorder).await.unwrap();
    let located = tools.located("hello").unwrap();
    let found = (located.origin, located.version.as_deref());
    assert_eq!(found, (Origin::Go, Some("v1.2.3")));
    assert_eq!(output_of(&located.path), "hello v1.2.3");
    assert_eq!(fixture.cached_files(), ["hello", "hello.receipt.toml"]);
    assert!(recorder.has("tiny start Compiling"), "{:?}", recorder.all());
    assert!(recorder.has("tiny finish Ready"), "{:?}", recorder.all());
    assert!(matches!(&store.list()[0].state, PartState::Found { origin: Origin::Go, size, .. } if *size > 0));
}

#[tokio::test]
async fn a_folder_is_copied_out_of_a_module() {
    let fixture = Fixture::new();
    let text = go_only().replace(
        "[part.go]",
        "[[part.tool]]\nname = \"config\"\nkind = \"directory\"\n[part.go]",
    ) + "copies = { config = { module = \"example.test/tiny\", path = \"files\" } }\n";
    let tools = fixture.tools(&text, &["config"]).await;
    let folder = tools.path("config").unwrap();
    assert_eq!(fs::read_to_string(folder.join("a/one.yaml")).unwrap(), "one");
    assert_eq!(fs::read_to_string(folder.join("two.yaml")).unwrap(), "two");
}

#[tokio::test]
async fn a_failed_build_shows_what_the_compiler_said_and_leaves_nothing() {
    let fixture = Fixture::new();
    let broken = modules("package main\n\nfunc main() { undefinedThing() }\n");
    let store = Store::new(Manifest::parse(&go_only(), broken).unwrap(), fixture.options.clone());
    let error = store.ensure(&["hello"], &Silent).await.unwrap_err();
    gives!(error, SourceError::Command { .. });
    assert!(error.to_string().contains("undefined: undefinedThing"), "{error}");
    assert_eq!(fixture.cached_files(), Vec::<String>::new());
}

#[tokio::test]
async fn a_dependency_that_go_sum_does_not_know_is_refused() {
    let fixture = Fixture::new();
    let main = "package main\n\nimport _ \"golang.org/x/text/language\"\n\nfunc main() {}\n";
    let store = Store::new(
        Manifest::parse(&go_only(), modules(main)).unwrap(),
        fixture.options.clone(),
    );
    let error = store.ensure(&["hello"], &Silent).await.unwrap_err();
    gives!(error, SourceError::Command { .. });
    assert!(error.to_string().contains("golang.org/x/text/language"), "{error}");
}

#[tokio::test]
async fn an_old_go_that_may_not_fetch_a_newer_one_is_named() {
    let mut fixture = Fixture::new();
    fixture.shadow("go", "printf 'go1.20.4\\nlocal\\n/tmp\\n/tmp\\n'");
    let error = fixture.refused(&go_only(), &["hello"]).await;
    gives!(error, SourceError::GoTooOld { found, needed } if found == "1.20.4" && needed == "1.21");
}

#[tokio::test]
async fn a_full_disk_is_noticed_before_anything_is_built() {
    let mut fixture = Fixture::new();
    fixture.options.free_space = FreeSpace::new(|_| Ok(5 << 20));
    let error = fixture.refused(&go_only(), &["hello"]).await;
    assert!(
        matches!(&error, Error::NoSpace { needed, free: Some(free), .. } if *needed == 64 << 20 && *free == 5 << 20)
    );
    let text = error.to_string();
    let told = text.contains("64 MiB") && text.contains("5 MiB") && text.contains("RUSSET_CACHE_DIR");
    assert!(told, "{text}");
    assert_eq!(fixture.cached_files(), Vec::<String>::new());
}

#[tokio::test]
async fn a_cached_program_that_was_damaged_is_built_again() {
    let fixture = Fixture::new();
    let store = fixture.store(&go_only());
    let tools = store.ensure(&["hello"], &Silent).await.unwrap();
    let path = tools.path("hello").unwrap();
    let whole = fs::read(path).unwrap();
    let mut flipped = whole.clone();
    *flipped.last_mut().unwrap() ^= 1;
    for damaged in [&whole[..whole.len() / 2], &flipped, b""] {
        fs::write(path, damaged).unwrap();
        assert_eq!(store.locate("hello").unwrap(), None);
        store.ensure(&["hello"], &Silent).await.unwrap();
        assert_eq!(output_of(path), "hello v1.2.3");
    }
}

/// The quick look trusts size and time; `verify` does not, and what it finds is built again.
#[tokio::test]
async fn a_receipt_with_another_digest_is_found_by_verify_and_the_tool_built_again() {
    let fixture = Fixture::new();
    let store = fixture.store(&go_only());
    let path = store
        .ensure(&["hello"], &Silent)
        .await
        .unwrap()
        .path("hello")
        .unwrap()
        .to_owned();
    assert!(store.verify().await.unwrap()[0].problem.is_none());

    let receipt = path.with_file_name("hello.receipt.toml");
    let text = fs::read_to_string(&receipt).unwrap();
    let digest = text
        .lines()
        .find_map(|line| line.strip_prefix("sha256 = "))
        .unwrap()
        .trim_matches('"')
        .to_owned();
    fs::write(&receipt, text.replace(&digest, &"0".repeat(64))).unwrap();
    let problem = store.verify().await.unwrap()[0].problem.clone().unwrap();
    assert!(problem.contains(&digest), "{problem}");
    assert_eq!(store.locate("hello").unwrap(), None);

    store.ensure(&["hello"], &Silent).await.unwrap();
    assert!(fs::read_to_string(&receipt).unwrap().contains(&digest));
}
