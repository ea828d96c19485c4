//! The SSH client against the server that hosts really run.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use russet_bootstrap::ssh::{Auth, Error, Exec, Exit, HostKeyPin, Limits, Target, connect};
use russet_telemetry::Secret;
use russh::keys::PrivateKey;
use russh::keys::ssh_key::LineEnding;

use crate::parts;
use crate::ssh_server::{ecdsa, ed25519};
use crate::waiting::{LONG, eventually, overrun};

struct Sshd {
    child: Child,
    address: SocketAddr,
}

impl Drop for Sshd {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn write_key(path: &Path, key: &PrivateKey) {
    fs::write(path, key.to_openssh(LineEnding::LF).unwrap().as_bytes()).unwrap();
    fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
}

/// A server of its own user list and its own /run, since a machine need have neither the user nor the folder it insists on.
async fn start(folder: &Path, host_keys: &[&PrivateKey], user_key: &PrivateKey) -> Sshd {
    let tree = parts::program("openssh-server").await;
    let libraries: Vec<_> = fs::read_dir(tree.join("usr/lib"))
        .unwrap()
        .map(|entry| entry.unwrap().path().display().to_string())
        .collect();
    // The server wants to be told its port. Of an address of its own, no other test takes it in between.
    let [.., high, low] = std::process::id().to_be_bytes();
    let address = std::net::TcpListener::bind(SocketAddr::from(([127, 81, high, low], 0)))
        .unwrap()
        .local_addr()
        .unwrap();
    let mut config = format!(
        "ListenAddress {address}\nUsePAM no\nStrictModes no\nPasswordAuthentication no\nPermitRootLogin yes\n\
         PidFile none\nAuthorizedKeysFile {}\n",
        folder.join("authorized").display()
    );
    for (number, key) in host_keys.iter().enumerate() {
        let path = folder.join(format!("host{number}"));
        write_key(&path, key);
        config.push_str(&["HostKey ", &path.display().to_string(), "\n"].concat());
    }
    fs::write(folder.join("config"), config).unwrap();
    fs::write(folder.join("authorized"), user_key.public_key().to_openssh().unwrap()).unwrap();
    fs::write(
        folder.join("passwd"),
        "root:x:0:0:root:/root:/bin/bash\nsshd:x:100:65534::/run/sshd:/usr/sbin/nologin\n",
    )
    .unwrap();
    let program = r#"
        mount -t tmpfs tmpfs /run && mkdir -m 0755 /run/sshd
        mount --bind "$1/passwd" /etc/passwd
        exec "$2" -D -e -f "$1/config"
    "#;
    let child = Command::new("unshare")
        .args(["--mount", "--propagation", "private", "bash", "-c", program, "sshd"])
        .arg(folder)
        .arg(tree.join("usr/sbin/sshd"))
        .env("LD_LIBRARY_PATH", libraries.join(":"))
        .stdin(Stdio::null())
        .stderr(fs::File::create(folder.join("log")).unwrap())
        .spawn()
        .unwrap();
    let server = Sshd { child, address };
    let deadline = Instant::now() + LONG;
    while std::net::TcpStream::connect(server.address).is_err() {
        assert!(
            Instant::now() < deadline,
            "{}",
            fs::read_to_string(folder.join("log")).unwrap()
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    server
}

#[tokio::test]
async fn a_real_sshd_is_spoken_to_pinned_and_its_commands_stopped() {
    if !russet_skip::needs_root(russet_skip::test_name!()) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (first, second, user) = (ed25519(), ecdsa(), ed25519());
    let server = start(folder.path(), &[&first, &second], &user).await;
    let old_pin: HostKeyPin = HostKeyPin::of(second.public_key()).fingerprint().parse().unwrap();
    let target = Target {
        address: server.address,
        user: "root".to_owned(),
        auth: Auth::Key(Secret::new(user.to_openssh(LineEnding::LF).unwrap().to_string())),
        pin: Some(old_pin),
    };
    let limits = Limits {
        dial: LONG,
        auth: LONG,
        keepalive: LONG,
        ..Limits::default()
    };
    let session = connect(&target, &limits).await.unwrap();
    assert_eq!(session.host_key(), &HostKeyPin::of(second.public_key()));

    let exec = |command, stdin: Option<&[u8]>| Exec {
        command,
        stdin: stdin.map(|s| Secret::new(s.to_vec())),
        deadline: LONG,
    };
    let output = session
        .run(exec("bash -s; exit 5", Some(b"echo out; echo err >&2")))
        .await
        .unwrap();
    assert_eq!(
        (output.status, output.stdout.as_str(), output.stderr.as_str()),
        (Exit::Code(5), "out\n", "err\n")
    );
    let output = session.run(exec("kill -KILL $$", None)).await.unwrap();
    assert_eq!(output.status, Exit::Signal("KILL".to_owned()));

    let (begun, stopped) = (folder.path().join("begun"), folder.path().join("stopped"));
    // OpenSSH passes no signal on to a session of root; there the closed stream has to do.
    let command = format!(
        "trap 'touch {}; exit 0' TERM PIPE; touch {}; while :; do echo tick; sleep 0.1; done",
        stopped.display(),
        begun.display()
    );
    let error = overrun(&session, &command, None, || begun.exists()).await;
    assert!(matches!(error, Error::Deadline { .. }), "{error:?}");
    eventually("the command ends", || stopped.exists()).await;

    let stranger = Target {
        auth: Auth::Key(Secret::new(ed25519().to_openssh(LineEnding::LF).unwrap().to_string())),
        ..target.clone()
    };
    let error = connect(&stranger, &limits).await.unwrap_err();
    assert!(matches!(error, Error::AuthRejected { .. }), "{error:?}");
    let reinstalled = Target {
        pin: Some(HostKeyPin::of(ed25519().public_key())),
        ..target
    };
    let error = connect(&reinstalled, &limits).await.unwrap_err();
    assert!(matches!(error, Error::HostKeyChanged { .. }), "{error:?}");
}
