use super::*;
use crate::env::{Environment, environment};
use crate::objects::{Context, Objects, Token, TokenKey};
use crate::quantity::Amount;
use crate::testing::{at, pod, pod_of};
use k8s_openapi::api::core::v1::Pod;
use proptest::prelude::*;
use russet_telemetry::Secret;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

fn objects() -> Objects {
    let config = json!({"data": {"a": "1", "b": "2"}, "binaryData": {"raw": "/w=="}});
    let secret = json!({"data": {"key": "c2VjcmV0"}});
    let (audience, seconds) = ("tuist-runners-dispatch".to_owned(), 3600);
    let (value, expires) = (Secret::from("t0ken"), at(9_999_999));
    Objects {
        config_maps: [("config".to_owned(), serde_json::from_value(config).unwrap())].into(),
        secrets: [("secret".to_owned(), serde_json::from_value(secret).unwrap())].into(),
        tokens: [(TokenKey { audience, seconds }, Token { value, expires })].into(),
        ..Objects::default()
    }
}

/// A Pod that has no address yet, on a host of which nothing is known.
fn context<'a>(pod: &'a Pod, allocatable: &'a BTreeMap<String, Amount>) -> Context<'a> {
    let (host_ips, pod_ips) = (&[], &[]);
    Context {
        pod,
        host_ips,
        pod_ips,
        allocatable,
    }
}

fn rendered_in(pod: &Pod, mut volume: Value) -> Result<Rendered, Error> {
    volume["name"] = json!("v");
    let volume = serde_json::from_value(volume).unwrap();
    render(&context(pod, &BTreeMap::new()), &volume, &objects())
}

fn rendered(volume: Value) -> Result<Rendered, Error> {
    let pod = pod(json!({"containers": [{"name": "a", "resources": {"limits": {"cpu": "2"}}}]}));
    rendered_in(&pod, volume)
}

/// Path, contents and mode of every file.
fn files(volume: Value) -> Vec<(String, String, u32)> {
    let Rendered::Files(tree) = rendered(volume).unwrap() else {
        panic!("no files")
    };
    let read = |(path, found): (&str, &File)| file(path, &String::from_utf8_lossy(&found.contents), found.mode);
    tree.iter().map(read).collect()
}

fn tree(entries: &[(&str, &str, u32)]) -> Tree {
    let mut tree = Tree::default();
    for (path, contents, mode) in entries {
        let contents = Bytes::copy_from_slice(contents.as_bytes());
        tree.insert((*path).to_owned(), File { contents, mode: *mode });
    }
    tree
}

fn file(path: &str, contents: &str, mode: u32) -> (String, String, u32) {
    (path.to_owned(), contents.to_owned(), mode)
}

#[test]
fn every_key_of_an_object_is_a_file() {
    let all = files(json!({"configMap": {"name": "config"}}));
    assert_eq!(
        all,
        [("a", "1"), ("b", "2"), ("raw", "\u{fffd}")].map(|(path, text)| file(path, text, 0o644))
    );
    let secret = files(json!({"secret": {"secretName": "secret", "defaultMode": 0o400}}));
    assert_eq!(secret, [file("key", "secret", 0o400)]);
}

#[test]
fn items_choose_keys_paths_and_modes() {
    let items = json!([{"key": "a", "path": "deep/er/x"}, {"key": "b", "path": "y", "mode": 0o600}]);
    let all = files(json!({"configMap": {"name": "config", "items": items, "defaultMode": 0o440}}));
    assert_eq!(all, [file("deep/er/x", "1", 0o440), file("y", "2", 0o600)]);
}

#[test]
fn what_is_missing_is_told_in_the_words_of_a_kubelet() {
    let said = |volume| rendered(volume).unwrap_err().to_string();
    assert_eq!(said(json!({"configMap": {"name": "no"}})), "configmap \"no\" not found");
    assert_eq!(said(json!({"secret": {"secretName": "no"}})), "secret \"no\" not found");
    let items = json!([{"key": "no", "path": "x"}]);
    let config = json!({"configMap": {"name": "config", "items": items}});
    assert_eq!(said(config), "references non-existent config key: no");
    let secret = json!({"secret": {"secretName": "secret", "items": items}});
    assert_eq!(said(secret), "references non-existent secret key: no");
    let token = json!({"projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}});
    assert_eq!(said(token), "the token for audience \"\" has not been issued yet");
    let left_out = said(json!({"projected": {"sources": [{}]}}));
    let words = "an API server leaves out what it does not serve";
    assert!(left_out.contains(words), "{left_out}");
}

#[test]
fn what_is_optional_and_missing_is_an_empty_volume() {
    assert_eq!(files(json!({"configMap": {"name": "no", "optional": true}})), []);
    let items = json!([{"key": "no", "path": "x"}, {"key": "key", "path": "y"}]);
    let secret = files(json!({"secret": {"secretName": "secret", "items": items, "optional": true}}));
    assert_eq!(secret, [file("y", "secret", 0o644)]);
}

#[test]
fn a_path_cannot_lead_out_of_its_volume() {
    for path in ["../x", "/etc/passwd", "a/../../x", "..data", "", "."] {
        let items = json!([{"key": "a", "path": path}]);
        let refused = rendered(json!({"configMap": {"name": "config", "items": items}}));
        assert_eq!(refused, Err(Error::Path(path.to_owned())));
    }
}

#[test]
fn a_projected_volume_has_all_its_sources() {
    let all = files(json!({"projected": {"defaultMode": 0o640, "sources": [
        {"configMap": {"name": "config", "items": [{"key": "a", "path": "ca.crt"}]}},
        {"secret": {"name": "secret"}},
        {"downwardAPI": {"items": [
            {"path": "namespace", "fieldRef": {"fieldPath": "metadata.namespace"}},
            {"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}},
            {"path": "cpu", "mode": 0o444, "resourceFieldRef": {"containerName": "a", "resource": "limits.cpu"}},
        ]}},
        {"serviceAccountToken": {"path": "token", "audience": "tuist-runners-dispatch"}},
    ]}}));
    let expected = [
        file("ca.crt", "1", 0o640),
        file("cpu", "2", 0o444),
        file("key", "secret", 0o640),
        file("labels", "app=\"x\"", 0o640),
        file("namespace", "ci", 0o640),
        file("token", "t0ken", 0o640),
    ];
    assert_eq!(all, expected);
}

#[test]
fn a_token_is_for_its_user_alone_where_the_pod_names_one() {
    let pod = pod(json!({"containers": [], "securityContext": {"fsGroup": 20}}));
    let source = json!({"serviceAccountToken": {"path": "token", "audience": "tuist-runners-dispatch"}});
    let Rendered::Files(tree) = rendered_in(&pod, json!({"projected": {"sources": [source]}})).unwrap() else {
        panic!()
    };
    assert_eq!(tree.get("token").unwrap().mode, 0o600);
}

#[test]
fn an_empty_dir_has_its_limit() {
    let limited = rendered(json!({"emptyDir": {"sizeLimit": "1Ki"}}));
    assert_eq!(limited, Ok(Rendered::Empty { limit: Some(1024) }));
    assert_eq!(rendered(json!({"emptyDir": {}})), Ok(Rendered::Empty { limit: None }));
    let nfs = rendered(json!({"nfs": {"path": "/", "server": "s"}}));
    assert_eq!(nfs, Err(Error::Unsupported));
}

#[test]
fn a_sub_path_is_a_file_or_a_folder() {
    let tree = tree(&[("a/x", "1", 0o644), ("a/y", "2", 0o644), ("b", "3", 0o600)]);
    let below = tree.sub("a").unwrap();
    assert_eq!(below.iter().map(|(path, _)| path).collect::<Vec<_>>(), ["x", "y"]);
    assert_eq!(tree.sub("b").unwrap().get("").unwrap().mode, 0o600);
    assert_eq!(tree.sub("c"), None);
}

#[test]
fn contents_are_never_printed() {
    let text = format!("{:?}", tree(&[("a", "canary", 0o600)]));
    assert!(text.contains("6 bytes, 600") && !text.contains("canary"), "{text}");
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

fn read(folder: &Path, path: &str) -> String {
    fs::read_to_string(folder.join(path)).unwrap()
}

fn listing(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let mut names: Vec<_> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn a_folder_holds_exactly_the_files_and_is_changed_as_a_whole() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("pod/v");
    let folder = Folder::open(&path).unwrap();
    let first = tree(&[("a", "1", 0o644), ("deep/x", "2", 0o400), ("gone", "3", 0o644)]);
    assert_eq!(folder.write(&first, at(100)).unwrap(), Change::Written);
    assert_eq!([read(&path, "a"), read(&path, "deep/x")], ["1", "2"]);
    assert_eq!(listing(&path), ["..100.0", "..data", "a", "deep", "gone"]);
    assert_eq!(folder.write(&first, at(200)).unwrap(), Change::None);
    assert_eq!(listing(&path), ["..100.0", "..data", "a", "deep", "gone"]);

    let old = fs::File::open(path.join("a")).unwrap();
    let second = tree(&[("a", "changed", 0o644), ("deep/x", "2", 0o400), ("new", "4", 0o644)]);
    assert_eq!(folder.write(&second, at(300)).unwrap(), Change::Written);
    assert_eq!(listing(&path), ["..300.0", "..data", "a", "deep", "new"]);
    assert_eq!(read(&path, "a"), "changed");
    let rest = std::io::read_to_string(old).unwrap();
    assert_eq!(rest, "1", "a reader of the old file reads it to its end");
    folder.remove().unwrap();
    assert!(!path.exists());
}

#[test]
fn only_the_mode_is_a_change_too() {
    let place = tempfile::tempdir().unwrap();
    let folder = Folder::open(place.path().join("pod/v")).unwrap();
    folder.write(&tree(&[("a", "1", 0o644)]), at(1)).unwrap();
    let change = folder.write(&tree(&[("a", "1", 0o600)]), at(1)).unwrap();
    assert_eq!((change, mode(&place.path().join("pod/v/a"))), (Change::Written, 0o600));
}

#[test]
fn no_other_user_of_the_host_reaches_a_volume() {
    let place = tempfile::tempdir().unwrap();
    let open_to_all = |name: &str| {
        let above = place.path().join(name);
        fs::create_dir(&above).unwrap();
        fs::set_permissions(&above, fs::Permissions::from_mode(0o755)).unwrap();
        above
    };
    let files = open_to_all("files");
    Folder::open(files.join("v")).unwrap();
    assert_eq!(mode(&files), 0o700);
    let empty = open_to_all("empty");
    make_empty_dir(&empty.join("e")).unwrap();
    assert_eq!((mode(&empty), mode(&empty.join("e"))), (0o700, 0o777));
}

/// An agent that was killed between any two steps leaves the old files or the new ones, and its rest is cleared away.
#[test]
fn what_a_killed_agent_left_is_cleared_away() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("pod/v");
    let folder = Folder::open(&path).unwrap();
    folder.write(&tree(&[("a", "1", 0o644)]), at(100)).unwrap();
    fs::create_dir(path.join("..200.0")).unwrap();
    fs::write(path.join("..200.0/a"), "half").unwrap();
    std::os::unix::fs::symlink("..200.0", path.join("..data_tmp")).unwrap();
    std::os::unix::fs::symlink("..data/stale", path.join("stale")).unwrap();
    assert_eq!(read(&path, "a"), "1");
    let folder = Folder::open(&path).unwrap();
    let change = folder.write(&tree(&[("a", "2", 0o644)]), at(200)).unwrap();
    assert_eq!(change, Change::Written);
    assert_eq!(read(&path, "a"), "2");
    assert_eq!(listing(&path), ["..200.1", "..data", "a"]);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Whatever was there before, a folder shows the files of the last write and no others.
    #[test]
    fn a_folder_shows_what_was_written_last(
        writes in prop::collection::vec(
            prop::collection::btree_map("[abc]", ("[a-z]{0,3}", prop_oneof![Just(0o600_u32), Just(0o644)], any::<bool>()), 0..4),
            1..5,
        ),
    ) {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("pod/v");
        let folder = Folder::open(&path).unwrap();
        for (second, files) in (0..).zip(&writes) {
            // The same name is a file in one write and a folder in the next.
            let named: Vec<_> = files
                .iter()
                .map(|(name, (text, mode, deep))| (if *deep { format!("{name}/x") } else { name.clone() }, text, *mode))
                .collect();
            let entries: Vec<_> = named.iter().map(|(name, text, mode)| (name.as_str(), text.as_str(), *mode)).collect();
            folder.write(&tree(&entries), at(second)).unwrap();
            for (name, text, mode) in &entries {
                prop_assert_eq!(&read(&path, name), text);
                prop_assert_eq!(self::mode(&path.join(name)), *mode);
            }
            let names: Vec<_> = listing(&path).into_iter().filter(|name| !name.starts_with("..")).collect();
            prop_assert_eq!(names, files.keys().cloned().collect::<Vec<_>>());
        }
    }
}

#[test]
fn an_empty_tree_is_an_empty_folder() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("pod/v");
    let folder = Folder::open(&path).unwrap();
    folder.write(&tree(&[("a", "1", 0o644)]), at(1)).unwrap();
    folder.write(&Tree::default(), at(2)).unwrap();
    assert_eq!(listing(&path), ["..2.0", "..data"]);
}

fn bytes(folder: &Path) -> u64 {
    let measured = usage(folder).unwrap();
    assert!(measured.hidden.is_none(), "{measured:?}");
    measured.bytes
}

#[test]
fn what_a_volume_takes_is_measured() {
    let place = tempfile::tempdir().unwrap();
    fs::create_dir(place.path().join("d")).unwrap();
    fs::write(place.path().join("d/x"), vec![1_u8; 100_000]).unwrap();
    let used = bytes(place.path());
    assert!(used >= 100_000, "{used}");
    assert_eq!(bytes(&place.path().join("gone")), 0);
}

/// A guest makes folders in folders. All but the last are opened by their names, as no path is long enough. Returns the last.
fn nested(top: &Path, depth: usize) -> std::os::fd::OwnedFd {
    use rustix::fs::{Mode, OFlags, mkdirat, open, openat};
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut here = open(top, flags, Mode::empty()).unwrap();
    for _ in 0..depth {
        mkdirat(&here, "deep", Mode::RWXU).unwrap();
        here = openat(&here, "deep", flags, Mode::empty()).unwrap();
    }
    here
}

/// Removes what no path reaches, which a temporary folder cannot do for itself.
fn unnest(top: &Path) {
    let removed = std::process::Command::new("rm").arg("-rf").arg(top).status().unwrap();
    assert!(removed.success());
}

/// Paths end at 4096 bytes, on a Mac at 1024. What a guest had further down counted as nothing.
#[test]
fn what_lies_deeper_than_a_path_can_say_is_measured() {
    use std::io::Write as _;
    let place = tempfile::tempdir().unwrap();
    let top = place.path().join("v");
    fs::create_dir_all(top.join("a")).unwrap();
    fs::create_dir_all(top.join("z")).unwrap();
    for beside in ["a/x", "z/x"] {
        fs::write(top.join(beside), vec![1_u8; 100_000]).unwrap();
    }
    let last = nested(&top, 3000);
    let flags = rustix::fs::OFlags::WRONLY | rustix::fs::OFlags::CREATE;
    let file = rustix::fs::openat(&last, "x", flags, rustix::fs::Mode::RUSR).unwrap();
    fs::File::from(file).write_all(&vec![1_u8; 1_000_000]).unwrap();
    let used = bytes(&top);
    assert!((1_200_000..1_300_000).contains(&used), "{used}");
    unnest(&top);
}

/// A guest that moves what is being measured must not lead us elsewhere, nor make us forget what is beside it.
#[test]
fn a_folder_that_moves_while_it_is_measured_is_left_for_the_one_it_was_in() {
    use std::sync::atomic::{AtomicBool, Ordering};
    let place = tempfile::tempdir().unwrap();
    let top = place.path().join("v");
    fs::write(place.path().join("outside"), vec![1_u8; 1_000_000]).unwrap();
    for folder in ["a/moved/b/c", "elsewhere", "z/y"] {
        fs::create_dir_all(top.join(folder)).unwrap();
        fs::write(top.join(folder).join("x"), vec![1_u8; 10_000]).unwrap();
    }
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (from, to) = (top.join("a/moved"), top.join("elsewhere/moved"));
            while !over.load(Ordering::Relaxed) {
                fs::rename(&from, &to).unwrap();
                fs::rename(&to, &from).unwrap();
            }
        });
        for _ in 0..500 {
            let used = bytes(&top);
            // What stays is always found; what moves may be met twice, or not at all.
            assert!((20_000..60_000).contains(&used), "{used}");
        }
        over.store(true, Ordering::Relaxed);
    });
}

const UNPRIVILEGED: &str = "RUSSET_POD_UNPRIVILEGED";

/// A guest took the right to list a folder away, and what was in it counted as nothing. Its Pod had no limit then, and on a full
/// disk another one went. The agent on a Mac is not root, which may list everything.
#[test]
fn what_a_guest_keeps_to_itself_is_measured() {
    let program = std::env::current_exe().unwrap();
    let Some(mut command) = russet_skip::without_root(russet_skip::test_name!(), &program) else {
        return;
    };
    command.args(["--exact", "volumes::tests::child_that_may_not_list_everything"]);
    let output = command.arg("--nocapture").env(UNPRIVILEGED, "1").output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).contains("measured as another user");
    assert!(output.status.success() && said, "{output:?}");
}

#[test]
fn child_that_may_not_list_everything() {
    if std::env::var_os(UNPRIVILEGED).is_none() {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let allow = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    fs::create_dir(place.path().join("outside")).unwrap();
    allow(&place.path().join("outside"), 0o311);
    for mode in [0o311, 0o644, 0o000] {
        let top = place.path().join("v");
        fs::create_dir_all(top.join("d/below")).unwrap();
        fs::write(top.join("d/below/x"), vec![1_u8; 1024 * 1024]).unwrap();
        std::os::unix::fs::symlink("../outside", top.join("link")).unwrap();
        allow(&top.join("d/below"), mode);
        allow(&top.join("d"), mode);
        let used = bytes(&top);
        assert!(used >= 1024 * 1024, "{mode:o}: {used}");
        allow(&top.join("d"), 0o700);
        allow(&top.join("d/below"), 0o700);
        fs::remove_dir_all(&top).unwrap();
    }
    assert_eq!(mode(&place.path().join("outside")), 0o311, "a link was followed");
    // Somebody else's, to which we cannot give ourselves a right.
    let closed = fs::read_dir("/proc/1/task/1/fd").is_err();
    if closed {
        let measured = usage(Path::new("/proc/1/task/1/fd")).unwrap();
        let why = measured.hidden.unwrap().to_string();
        assert!(why.starts_with("a folder in it cannot be looked into: "), "{why}");
    }
    allow(&place.path().join("outside"), 0o700);
    eprintln!("measured as another user");
}

fn mounted(mount: Value) -> Result<Vec<Mount>, BadMount> {
    let (mut pod, container) =
        pod_of(json!({"name": "a", "volumeMounts": Value::Array(vec![mount]), "env": [{"name": "N", "value": "sub"}]}));
    let volumes = json!([{"name": "e", "emptyDir": {}}, {"name": "c", "configMap": {"name": "config"}}]);
    pod.spec.as_mut().unwrap().volumes = serde_json::from_value(volumes).unwrap();
    let objects = Objects::default();
    let env: Environment = environment(&context(&pod, &BTreeMap::new()), &container, &objects).unwrap();
    mounts(&pod, &container, &env)
}

#[test]
fn files_of_kubernetes_are_read_only_whatever_the_mount_says() {
    let read_only = |mount| mounted(mount).unwrap()[0].read_only;
    assert!(read_only(json!({"name": "c", "mountPath": "/c"})));
    assert!(!read_only(json!({"name": "e", "mountPath": "/e"})));
    assert!(read_only(json!({"name": "e", "mountPath": "/e", "readOnly": true})));
}

/// An agent that looked for `..data` on the disk could be led anywhere on the host by a link that a guest had left in its emptyDir.
#[test]
fn the_spec_says_which_volumes_are_files_of_ours() {
    let files = |mount| mounted(mount).unwrap()[0].files;
    assert!(files(json!({"name": "c", "mountPath": "/c", "subPath": "key"})));
    assert!(!files(json!({"name": "e", "mountPath": "/e", "subPath": "key"})));
}

#[test]
fn a_sub_path_is_filled_in_and_stays_inside() {
    let sub = |mount| mounted(mount).map(|mounts| mounts[0].sub_path.clone());
    let expr = |path: &str| json!({"name": "e", "mountPath": "/e", "subPathExpr": path});
    assert_eq!(sub(expr("x/$(N)")), Ok(Some("x/sub".to_owned())));
    assert_eq!(sub(expr("$(NO)")), Err(BadMount::Unset("$(NO)".to_owned())));
    let out = json!({"name": "e", "mountPath": "/e", "subPath": "../x"});
    assert_eq!(sub(out), Err(BadMount::SubPath("../x".to_owned())));
    let missing = mounted(json!({"name": "no", "mountPath": "/e"})).unwrap_err();
    let found = missing.to_string();
    assert_eq!(found, "cannot find volume \"no\" to mount into container \"a\"");
}
