//! The manager of the machine: it boots it, and answers the stubbed commands.

use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Arc;

use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{UnixListener, UnixStream};

use super::protocol::{Boot, CloudInit, ORDERS, Power, SOCKET, Told};
use super::reply::Reply;
use super::service::Services;
use super::{cloud_init, data, kernel, moved, network, packages, systemctl};

/// What commands act on.
#[derive(Debug)]
pub(crate) struct World {
    pub(super) boot: Boot,
    pub(super) kubernetes: String,
    pub(super) services: Arc<Services>,
}

/// Boots the machine and manages it until standard input ends.
pub(crate) async fn manage() -> anyhow::Result<()> {
    let orders = std::fs::read(ORDERS)?;
    let boot: Boot = serde_json::from_slice(&orders)?;
    let world = Arc::new(World {
        kubernetes: boot.kubernetes.clone(),
        boot,
        services: Arc::default(),
    });
    let listener = UnixListener::bind(SOCKET)?;
    // Everybody may ask; who asks decides what is answered.
    std::fs::set_permissions(SOCKET, std::fs::Permissions::from_mode(0o666))?;
    tokio::spawn(answer(Arc::clone(&world), listener));
    tokio::spawn(async move {
        if let Err(why) = world.come_up().await {
            let _ = writeln!(std::io::stderr(), "the boot failed: {why}");
        }
    });
    // Nothing is said there; its end is ours.
    tokio::task::spawn_blocking(|| std::io::copy(&mut std::io::stdin(), &mut std::io::sink())).await??;
    Ok(())
}

impl World {
    async fn come_up(self: Arc<Self>) -> Result<(), String> {
        first_boot(self.boot.generation).map_err(|error| error.to_string())?;
        data::make(&self.boot.disks).await?;
        data::mount_all().await;
        self.services.start("ssh.service").await?;
        if let Some(server) = &self.boot.api_server {
            moved::follow(server)?;
        }
        for unit in systemctl::boot_order().iter().chain(&self.boot.services) {
            if let Err(why) = self.services.start(unit).await {
                let _ = writeln!(std::io::stderr(), "{unit}: {why}");
            }
        }
        tell(&Told::Booted);
        let outcome = cloud_init::run(self.boot.user_data).await;
        if let CloudInit::Failed(why) = &outcome {
            let _ = writeln!(std::io::stderr(), "cloud-init: {why}");
        }
        tell(&Told::CloudInit { outcome });
        Ok(())
    }

    async fn command(&self, words: &[String]) -> Reply {
        let Some((program, args)) = words.split_first() else {
            return Reply::failure(127, "nothing was called".to_owned());
        };
        match program.as_str() {
            "systemctl" => systemctl::systemctl(self, args).await,
            "journalctl" => systemctl::journalctl(args),
            "apt-get" => packages::apt_get(self, args).await,
            "apt-mark" => packages::apt_mark(args),
            "curl" => packages::curl(args),
            "modprobe" => kernel::modprobe(args),
            "sysctl" => kernel::sysctl(args),
            "swapoff" => kernel::swapoff(args),
            "ip" => network::ip(args).await,
            "dhclient" => network::dhclient(args).await,
            "mount" => data::mount(args).await,
            "findmnt" => data::findmnt(args).await,
            "xfs_quota" => data::xfs_quota(args),
            "reboot" => power(Power::Reboot),
            "poweroff" => power(Power::Off),
            "cloud-init" => match args.first().map(String::as_str) {
                Some("status") => Reply::printed(format!("status: {}\n", cloud_init::status())),
                _ => Reply::failure(2, "cloud-init: the emulated server knows only status".to_owned()),
            },
            other => Reply::failure(127, format!("{other}: the emulated server has no such stub")),
        }
    }
}

/// Asks whoever made the machine for another power state.
pub(super) fn power(power: Power) -> Reply {
    tell(&Told::Power { power });
    Reply::success()
}

/// The host's services and keys are not the server's.
fn first_boot(generation: u32) -> std::io::Result<()> {
    let mark = Path::new("/var/lib/russet-box/installed");
    if mark.exists() {
        return Ok(());
    }
    let units = Path::new("/etc/systemd/system");
    let own = std::fs::read_dir("/usr/lib/russet-box/units")
        .into_iter()
        .flatten()
        .flatten();
    let _ = std::fs::remove_dir_all(units);
    std::fs::create_dir_all(units)?;
    for unit in own {
        std::fs::copy(unit.path(), units.join(unit.file_name()))?;
    }
    std::fs::create_dir_all("/var/lib/russet-box")?;
    std::fs::write(mark, generation.to_string())
}

/// Whether a command changes nothing, so that anybody may call it.
fn only_looks(argv: &[String]) -> bool {
    let words: Vec<&str> = argv
        .iter()
        .map(String::as_str)
        .filter(|word| !word.starts_with('-'))
        .collect();
    match words.as_slice() {
        ["cloud-init" | "curl" | "findmnt" | "journalctl", ..] | ["ip", _] => true,
        ["systemctl", verb, ..] => matches!(*verb, "is-active" | "is-enabled" | "is-failed" | "status"),
        ["ip", _, verb, ..] => matches!(*verb, "show" | "list" | "get"),
        _ => false,
    }
}

fn tell(told: &Told) {
    if let Ok(line) = serde_json::to_string(told) {
        let mut out = std::io::stdout();
        let _ = writeln!(out, "{line}");
        let _ = out.flush();
    }
}

async fn answer(world: Arc<World>, listener: UnixListener) {
    while let Ok((stream, _)) = listener.accept().await {
        tokio::spawn(exchange(Arc::clone(&world), stream));
    }
}

async fn exchange(world: Arc<World>, mut stream: UnixStream) {
    let is_root = stream.peer_cred().is_ok_and(|who| who.uid() == 0);
    let (reading, mut writing) = stream.split();
    let mut line = String::new();
    if BufReader::new(reading).read_line(&mut line).await.is_err() {
        return;
    }
    let reply = match serde_json::from_str::<Vec<String>>(&line) {
        Ok(argv) if !is_root && !only_looks(&argv) => {
            let program = argv.first().map_or("", String::as_str);
            Reply::failure(1, format!("{program}: Operation not permitted"))
        }
        Ok(argv) => world.command(&argv).await,
        Err(_) => Reply::failure(127, "the question was no list of words".to_owned()),
    };
    if let Ok(mut text) = serde_json::to_vec(&reply) {
        text.push(b'\n');
        let _ = writing.write_all(&text).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_is_not_root_may_look_and_nothing_else() {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        for look in [
            "ip -br link show",
            "ip -4 route",
            "systemctl is-active --quiet kubelet",
            "journalctl -u x",
        ] {
            assert!(only_looks(&words(look)), "{look}");
        }
        for change in [
            "ip link set lo down",
            "systemctl start x",
            "apt-get update",
            "reboot",
            "systemctl",
        ] {
            assert!(!only_looks(&words(change)), "{change}");
        }
    }
}
