use std::os::unix::fs::PermissionsExt as _;

use super::pair::{Flaw, judge};
use super::*;

const HOST: Ipv4Addr = Ipv4Addr::LOCALHOST;

fn content(dir: &Path) -> std::collections::BTreeMap<PathBuf, Vec<u8>> {
    std::fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .map(|path| (path.clone(), std::fs::read(path).unwrap()))
        .collect()
}

fn fresh() -> (tempfile::TempDir, Pki) {
    let dir = tempfile::tempdir().unwrap();
    let pki = Pki::ensure(dir.path(), HOST).unwrap();
    (dir, pki)
}

fn text(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap()
}

#[test]
fn identities_are_made_once_and_their_keys_are_private() {
    let (dir, _) = fresh();
    let first = content(dir.path());
    Pki::ensure(dir.path(), HOST).unwrap();
    assert_eq!(content(dir.path()), first);
    for path in first.keys().filter(|path| path.extension().is_some_and(|e| e == "key")) {
        let mode = std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, 0o600, "{}", path.display());
    }
}

#[test]
fn a_half_written_set_is_repaired_and_the_rest_is_kept() {
    let (dir, pki) = fresh();
    let before = content(dir.path());
    std::fs::remove_file(&pki.admin.cert).unwrap();
    std::fs::write(&pki.scheduler.cert, "-----BEGIN CERTIFICATE-----\nMIIB").unwrap();
    std::fs::copy(&pki.etcd.key, &pki.apiserver.key).unwrap();
    std::fs::write(dir.path().join("sa.pub"), "").unwrap();
    Pki::ensure(dir.path(), HOST).unwrap();
    let after = content(dir.path());
    let changed: Vec<&str> = before
        .iter()
        .filter(|(path, bytes)| after[*path] != **bytes)
        .map(|(path, _)| path.file_stem().unwrap().to_str().unwrap())
        .collect();
    assert_eq!(
        changed,
        ["admin", "admin", "apiserver", "apiserver", "scheduler", "scheduler"]
    );
}

#[test]
fn a_new_authority_replaces_everything_it_signed_and_nothing_else() {
    let (dir, pki) = fresh();
    let (admin, etcd) = (text(&pki.admin.cert), text(&pki.etcd.cert));
    std::fs::remove_file(pki.ca().key()).unwrap();
    let pki = Pki::ensure(dir.path(), HOST).unwrap();
    assert_ne!(text(&pki.admin.cert), admin);
    assert_eq!(text(&pki.etcd.cert), etcd);
}

#[test]
fn another_address_gets_another_serving_certificate() {
    let (dir, pki) = fresh();
    let (apiserver, admin) = (text(&pki.apiserver.cert), text(&pki.admin.cert));
    let pki = Pki::ensure(dir.path(), Ipv4Addr::new(10, 77, 0, 1)).unwrap();
    assert_ne!(text(&pki.apiserver.cert), apiserver);
    assert_eq!(text(&pki.admin.cert), admin);
}

#[test]
fn a_certificate_is_judged_by_key_authority_age_and_subject() {
    let (_dir, pki) = fresh();
    let now = OffsetDateTime::now_utc();
    let admin = Profile::client("russet-admin", Some(MASTERS));
    let (cert, key) = (text(&pki.admin.cert), text(&pki.admin.key));
    let ca = pki.ca().pem();
    let (etcd, etcd_ca) = (text(&pki.etcd.key), pki.etcd_ca().pem());
    let other = Profile::client("russet-admin", None);
    let (in_a_year, yesterday) = (now + time::Duration::days(320), now - time::Duration::days(1));
    for (name, cert, key, ca, profile, now, verdict) in [
        ("as it was made", &*cert, &*key, ca, &admin, now, Ok(())),
        ("no certificate", "", &key, ca, &admin, now, Err(Flaw::Unreadable)),
        ("another key", &cert, &etcd, ca, &admin, now, Err(Flaw::OtherKey)),
        (
            "another CA",
            &cert,
            &key,
            etcd_ca,
            &admin,
            now,
            Err(Flaw::OtherAuthority),
        ),
        ("soon over", &cert, &key, ca, &admin, in_a_year, Err(Flaw::Expiring)),
        ("not begun", &cert, &key, ca, &admin, yesterday, Err(Flaw::Expiring)),
        ("another subject", &cert, &key, ca, &other, now, Err(Flaw::OtherSubject)),
    ] {
        assert_eq!(judge(cert, key, ca, profile, now), verdict, "{name}");
    }
}

#[test]
fn nothing_secret_is_printed() {
    let (_dir, pki) = fresh();
    let issued = pki.ca().issue(&Profile::client("x", None)).unwrap();
    assert!(!format!("{pki:?} {issued:?}").contains("PRIVATE KEY"));
}
