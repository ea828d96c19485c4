//! The program itself.

use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// Ends the child if the test does not.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start(folder: &Path) -> (Running, String) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_sim-github"))
        .args(["--listen", "127.0.0.1:0", "--org", "acme", "--app-id", "5"])
        .arg("--credentials")
        .arg(folder)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut url = String::new();
    let mut lines = BufReader::new(child.stdout.take().unwrap());
    lines.read_line(&mut url).unwrap();
    (Running(child), url.trim().to_owned())
}

#[tokio::test]
async fn the_program_writes_credentials_only_their_owner_can_read_and_keeps_the_key() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().join("github");
    let (mut running, url) = start(&folder);
    let health = reqwest::get(format!("{url}/_sim/health")).await.unwrap();
    assert!(health.status().is_success());
    let read = |name: &str| std::fs::read_to_string(folder.join(name)).unwrap();
    assert_eq!([read("app-id"), read("installation-id")], ["5", "2002"]);
    let key = read("private-key");
    assert!(key.starts_with("-----BEGIN RSA PRIVATE KEY-----"));
    for name in ["app-id", "installation-id", "private-key"] {
        let mode = std::fs::metadata(folder.join(name)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{name}");
    }
    let pid = running.0.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    assert!(running.0.wait().unwrap().success());
    let (_running, _) = start(&folder);
    assert_eq!(read("private-key"), key);
}

#[test]
fn a_key_that_is_none_is_refused_without_being_repeated() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("private-key"), "canary").unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_sim-github"))
        .args(["--listen", "127.0.0.1:0", "--credentials"])
        .arg(folder.path())
        .output()
        .unwrap();
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && error.contains("private-key"), "{error}");
    assert!(!error.contains("canary"), "{error}");
}
