//! The way to a port of a Pod: to the address of its VM, or else to what listens on nothing but the loopback of its guest.
//!
//! A stock node enters the network of the Pod. Nobody can enter that of a guest but its own programs, so one of them carries the
//! bytes there: `nc`, which macOS has.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::num::NonZeroU16;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::Container;
use russet_kubelet_api::{Duplex, Refusal};
use russet_pod::spec;
use russet_vm::{Error, Exec, ExecRequest, VmName};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, ReadBuf};
use tokio::time::timeout;

use super::failed;
use crate::forward;
use crate::pods::directory::{Handle, Instance, Shown};

/// A guest that does not accept a connection within this does not.
const DIAL: Duration = Duration::from_secs(10);
/// What a shell ends with that does not find a program.
const NO_PROGRAM: i32 = 127;

/// Connects to a port in a guest and becomes the connection. One byte says that there is one: `nc` itself is silent about that, so it
/// is asked beforehand.
const CARRY: &str = r#"command -v nc >/dev/null 2>&1 || exit 127
for address in 127.0.0.1 ::1; do
  if nc -z "$address" "$1" </dev/null >/dev/null 2>&1; then
    echo
    exec nc "$address" "$1"
  fi
done
exit 1
"#;

/// Connects to a port of a Pod.
pub(super) async fn dial(handle: &Handle, shown: &Shown, port: NonZeroU16) -> Result<Box<dyn Duplex>, Refusal> {
    let (instance, address) =
        target(shown, port).ok_or_else(|| failed("no virtual machine of the Pod has an address"))?;
    let target = SocketAddr::new(IpAddr::V4(address), port.get());
    let late = || failed(format!("dial tcp {target}: i/o timeout"));
    match timeout(DIAL, forward::dial::dial(target)).await.map_err(|_| late())? {
        Ok(stream) => Ok(Box::new(stream)),
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            let inside = timeout(DIAL, inside(handle, instance, port))
                .await
                .map_err(|_| late())?;
            match inside {
                Ok(carried) => Ok(Box::new(carried)),
                Err(why) => Err(failed(format!("dial tcp {target}: {error}; {why}"))),
            }
        }
        Err(error) => Err(failed(format!("dial tcp {target}: {error}"))),
    }
}

/// The VM that has a port: that of the container which declares it, or else that of the first main one.
fn target(shown: &Shown, port: NonZeroU16) -> Option<(&Instance, Ipv4Addr)> {
    let declares = |container: &Container| {
        let mut ports = container.ports.iter().flatten();
        ports.any(|named| named.container_port == i32::from(port.get()))
    };
    let candidates = spec::containers(&shown.pod).filter(|(_, container)| declares(container));
    let mains = spec::containers(&shown.pod).filter(|(kind, _)| *kind == spec::Kind::Main);
    candidates.chain(mains).find_map(|(_, container)| {
        let instance = shown.instances.get(&container.name)?;
        Some((instance, instance.address()?))
    })
}

fn words(port: NonZeroU16) -> Vec<String> {
    let port = port.to_string();
    ["/bin/sh", "-c", CARRY, "port-forward", port.as_str()]
        .map(str::to_owned)
        .to_vec()
}

async fn inside(handle: &Handle, instance: &Instance, port: NonZeroU16) -> Result<Carried, String> {
    let request = ExecRequest {
        words: words(port),
        stdin: true,
        terminal: None,
    };
    let name = VmName::from(instance.vm.clone());
    let begun = handle.runtime.exec(&name, request).await;
    Carried::connected(begun.map_err(|error| error.to_string())?).await
}

/// A connection that a program in the guest carries. It ends with this.
struct Carried {
    from: Box<dyn AsyncRead + Send + Unpin>,
    /// None once everything was said.
    to: Option<Box<dyn AsyncWrite + Send + Unpin>>,
    _exit: BoxFuture<'static, Result<i32, Error>>,
}

impl Carried {
    /// Waits until the program has its connection. An error is why it has none.
    async fn connected(exec: Exec) -> Result<Self, String> {
        let Exec {
            stdin,
            mut stdout,
            mut exit,
            ..
        } = exec;
        let mut sign = [0];
        let ended = tokio::select! {
            biased;
            read = stdout.read(&mut sign) => match read {
                Ok(1..) => {
                    return Ok(Self { from: stdout, to: stdin, _exit: exit });
                }
                _ => exit.await,
            },
            ended = &mut exit => ended,
        };
        Err(match ended {
            Ok(NO_PROGRAM) => "its guest has no nc, which would reach what listens on 127.0.0.1 there".to_owned(),
            Ok(_) => "nor does anything listen on 127.0.0.1 of its guest".to_owned(),
            Err(error) => error.to_string(),
        })
    }
}

impl AsyncRead for Carried {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.from).poll_read(cx, buf)
    }
}

impl AsyncWrite for Carried {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        match &mut self.to {
            Some(to) => Pin::new(to).poll_write(cx, buf),
            None => Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.to {
            Some(to) => Pin::new(to).poll_flush(cx),
            None => Poll::Ready(Ok(())),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if let Some(to) = &mut self.to {
            ready!(Pin::new(to).poll_shutdown(cx))?;
            // A pipe ends when nobody holds it.
            self.to = None;
        }
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pods::machine::Life;
    use jiff::Timestamp;
    use russet_vm::PodVm;
    use serde_json::json;
    use std::path::Path;
    use std::process::Stdio;
    use std::sync::Arc;
    use tokio::io::AsyncWriteExt as _;
    use tokio::process::Command;
    use tokio::sync::watch;

    const PORT: NonZeroU16 = NonZeroU16::new(8080).unwrap();

    /// What a guest runs, with these programs and no others.
    fn ran(words: &[String], programs: &Path) -> Exec {
        let mut child = Command::new(&words[0])
            .args(&words[1..])
            .env("PATH", programs)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        Exec {
            stdin: child.stdin.take().map(|stdin| Box::new(stdin) as _),
            stdout: Box::new(child.stdout.take().unwrap()),
            stderr: Box::new(child.stderr.take().unwrap()),
            resize: None,
            exit: Box::pin(async move { Ok(child.wait().await.unwrap().code().unwrap()) }),
        }
    }

    /// What comes out of a connection that a guest with such an `nc` carries, or why there is none.
    async fn carried(nc: Option<&str>) -> Result<String, String> {
        let dir = tempfile::tempdir().unwrap();
        if let Some(nc) = nc {
            std::os::unix::fs::symlink(nc, dir.path().join("nc")).unwrap();
        }
        let mut carried = Carried::connected(ran(&words(PORT), dir.path())).await?;
        let mut text = String::new();
        carried.read_to_string(&mut text).await.unwrap();
        Ok(text)
    }

    /// A program that listens on its own loopback, as most development servers do, could not be reached at all.
    #[tokio::test]
    async fn a_program_of_the_guest_carries_what_its_loopback_alone_hears() {
        // One that says what it was asked for.
        assert_eq!(carried(Some("/bin/echo")).await.unwrap(), "127.0.0.1 8080\n");
        let why = carried(Some("/usr/bin/false")).await.unwrap_err();
        assert!(why.contains("nor does anything listen"), "{why}");
        let why = carried(None).await.unwrap_err();
        assert!(why.contains("has no nc"), "{why}");
    }

    #[tokio::test]
    async fn what_is_carried_goes_both_ways_and_ends() {
        let words = ["/bin/sh", "-c", "echo; exec /bin/cat"].map(str::to_owned);
        let mut carried = Carried::connected(ran(&words, Path::new("/"))).await.unwrap();
        carried.write_all(b"there and back").await.unwrap();
        carried.shutdown().await.unwrap();
        let mut text = String::new();
        carried.read_to_string(&mut text).await.unwrap();
        assert_eq!(text, "there and back");
        assert!(carried.write_all(b"more").await.is_err());
    }

    #[test]
    fn a_port_is_that_of_the_container_which_declares_it() {
        let instance = |name: &str, last: u8| {
            let life = Life::Running {
                since: Timestamp::UNIX_EPOCH,
                address: Some(Ipv4Addr::new(192, 168, 64, last)),
            };
            let instance = Instance {
                vm: PodVm::new("ci", "job", name, "0b5d7f3c", 0).unwrap(),
                life: watch::channel(life).1,
            };
            (name.to_owned(), instance)
        };
        let pod = json!({"spec": {
            "initContainers": [{"name": "side", "restartPolicy": "Always", "ports": [{"containerPort": 9}]}],
            "containers": [{"name": "main"}, {"name": "web", "ports": [{"containerPort": 8080}]}],
        }});
        let shown = Shown {
            pod: Arc::new(serde_json::from_value(pod).unwrap()),
            instances: [instance("side", 1), instance("main", 2), instance("web", 3)].into(),
        };
        let at = |port| {
            let (_, address) = target(&shown, NonZeroU16::new(port).unwrap()).unwrap();
            address.octets()[3]
        };
        assert_eq!([at(8080), at(9), at(80)], [3, 1, 2]);
    }
}
