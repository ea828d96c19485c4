//! `tailscale` and `tailscaled`, the open-source variant, as a strict stand-in. [facts 7]
//!
//! The daemon is whoever called `tailscaled` and has not ended; its login is in the file that `--state` names, so that it survives what
//! the file survives. Keys are not checked against anything but their form.

use crate::macos::call::{Answer, Call, Reply};
use crate::macos::desk::{self, Line};
use crate::macos::gear::Daemon;
use crate::macos::mac::Inner;
use serde::{Deserialize, Serialize};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

const SOCKET: &str = "/var/run/tailscaled.socket";
const STATE: &str = "/Library/Tailscale/tailscaled.state";
const VERSION: &str = "1.96.4";
const NO_DAEMON: &str = "failed to connect to local Tailscale service; is Tailscale running?\n";

/// What is in the state file.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Login {
    logged_in: bool,
    stopped: bool,
    hostname: String,
    tags: Vec<String>,
    accept_routes: bool,
    ssh: bool,
}

fn login(mac: &Inner, daemon: &Daemon) -> Login {
    mac.tree
        .read(&daemon.state)
        .ok()
        .and_then(|bytes| serde_json::from_slice(&bytes).ok())
        .unwrap_or_default()
}

fn save(mac: &Inner, daemon: &Daemon, login: &Login) {
    let bytes = serde_json::to_vec(login).unwrap_or_default();
    if let Err(error) = mac.tree.write(&daemon.state, &bytes, 0o600) {
        tracing::debug!(%error, "the state of an emulated tailscaled could not be written");
    }
}

/// The address in the tailnet, while there is one.
pub(super) fn address(mac: &Inner) -> Option<String> {
    let (daemon, down) = {
        let state = mac.state();
        (state.gear.tailscale.daemon.clone()?, state.faults.tailscale_down)
    };
    let login = login(mac, &daemon);
    (login.logged_in && !login.stopped && !down).then(|| mac.tailnet_address())
}

impl Inner {
    /// The same for the same Mac: the last two numbers of its own address.
    pub(in crate::macos) fn tailnet_address(&self) -> String {
        let [one, two] = self.kit.tailnet;
        let last = match self.host.address {
            IpAddr::V4(address) => {
                let [_, _, three, four] = address.octets();
                [three, four]
            }
            IpAddr::V6(_) => [0, 1],
        };
        let [three, four] = last;
        format!("{one}.{two}.{three}.{four}")
    }
}

/// The daemon: lives as long as its process.
pub(super) async fn daemon(mac: &Arc<Inner>, call: &Call, line: &mut Line) -> Answer {
    match begin(mac, call) {
        Ok(daemon) => {
            line.hung_up().await;
            let mut state = mac.state();
            if state
                .gear
                .tailscale
                .daemon
                .as_ref()
                .is_some_and(|now| now.serial == daemon.serial)
            {
                state.gear.tailscale.daemon = None;
            }
            drop(state);
            let _ = mac.tree.remove(&daemon.socket);
            Answer::Exit(0)
        }
        Err(reply) => desk::finish(mac, call, line, reply).await,
    }
}

fn begin(mac: &Inner, call: &Call) -> Result<Daemon, Reply> {
    let (mut state, mut socket) = (STATE.to_owned(), SOCKET.to_owned());
    let mut rest = call.args.iter();
    while let Some(word) = rest.next() {
        let word = word.trim_start_matches('-');
        let (name, value) = word.split_once('=').unwrap_or((word, ""));
        let mut value = || {
            if value.is_empty() {
                rest.next().cloned().unwrap_or_default()
            } else {
                value.to_owned()
            }
        };
        match name {
            "state" => state = value(),
            "statedir" => state = format!("{}/tailscaled.state", value()),
            "socket" => socket = value(),
            "port" | "tun" | "verbose" => drop(value()),
            "no-logs-no-support" => {}
            "version" => return Err(Reply::out(format!("{VERSION}\n  tailscale commit: emulated\n"))),
            "install-system-daemon" | "uninstall-system-daemon" => {
                return Err(Reply::unknown(
                    1,
                    format!("tailscaled: {name} is not emulated: it knows no KeepAlive, write your own\n"),
                ));
            }
            _ => return Err(Reply::unknown(2, format!("flag provided but not defined: -{name}\n"))),
        }
    }
    if !call.is_root() {
        return Err(Reply::err(
            1,
            "tailscaled requires root; use sudo tailscaled (or use --tun=userspace-networking)\n",
        ));
    }
    for path in [&state, &socket] {
        let folder = path.rsplit_once('/').map_or("/", |(folder, _)| folder);
        if path != STATE && mac.tree.meta(folder).is_none() {
            return Err(Reply::err(1, format!("open {path}: no such file or directory\n")));
        }
    }
    if state == STATE {
        // The default folder is its own to make.
        let _ = mac.tree.make_folders("/Library/Tailscale", 0o700);
    }
    let daemon = {
        let mut now = mac.state();
        let tailscale = &mut now.gear.tailscale;
        if tailscale.daemon.is_some() {
            return Err(Reply::err(
                1,
                "getLocalBackend error: createEngine: tstun.New(\"utun\"): resource busy\n",
            ));
        }
        tailscale.serial += 1;
        let daemon = Daemon {
            serial: tailscale.serial,
            socket,
            state,
        };
        tailscale.daemon = Some(daemon.clone());
        daemon
    };
    let _ = mac.tree.write(&daemon.socket, b"", 0o666);
    if mac.tree.meta(&daemon.state).is_none() {
        save(mac, &daemon, &Login::default());
    }
    Ok(daemon)
}

/// The command line.
pub(super) async fn client(mac: &Arc<Inner>, call: &Call, line: &mut Line) -> Reply {
    let words = call.words();
    let (socket, words) = match words.as_slice() {
        [flag, rest @ ..] if flag.starts_with("--socket=") => {
            (flag.trim_start_matches("--socket=").to_owned(), rest.to_vec())
        }
        _ => (SOCKET.to_owned(), words),
    };
    if matches!(words.as_slice(), ["version" | "--version", ..]) {
        return Reply::out(format!("{VERSION}\n  tailscale commit: emulated\n"));
    }
    let Some(daemon) = mac
        .state()
        .gear
        .tailscale
        .daemon
        .clone()
        .filter(|daemon| daemon.socket == socket)
    else {
        return Reply::err(1, NO_DAEMON);
    };
    match words.as_slice() {
        ["ip", flags @ ..] => ip(mac, &daemon, flags),
        ["status"] => status(mac, &daemon),
        ["status", "--json" | "-json"] => json(mac, &daemon),
        ["up", flags @ ..] => up(mac, call, &daemon, flags, line).await,
        ["down"] | ["down", "--accept-risk=lose-ssh"] => {
            let mut login = login(mac, &daemon);
            login.stopped = true;
            save(mac, &daemon, &login);
            Reply::silent()
        }
        ["logout"] => {
            save(mac, &daemon, &Login::default());
            Reply::silent()
        }
        ["set", flags @ ..] => set(mac, &daemon, flags),
        _ => Reply::unknown(
            1,
            "The easiest, most secure way to use WireGuard.\n\nUSAGE\n  tailscale [flags] <subcommand> [command flags]\n",
        ),
    }
}

fn backend(mac: &Inner, daemon: &Daemon) -> &'static str {
    let login = login(mac, daemon);
    match (login.logged_in, login.stopped) {
        (false, _) => "NeedsLogin",
        (true, true) => "Stopped",
        (true, false) if mac.state().faults.tailscale_down => "Starting",
        (true, false) => "Running",
    }
}

fn ip(mac: &Inner, daemon: &Daemon, flags: &[&str]) -> Reply {
    let Some(address) = address(mac) else {
        return Reply::err(
            1,
            format!("no current Tailscale IPs; state: {}\n", backend(mac, daemon)),
        );
    };
    match flags {
        ["-4" | "--4" | "-1" | "--1"] => Reply::out(format!("{address}\n")),
        [] => Reply::out(format!("{address}\nfd7a:115c:a1e0::1\n")),
        ["-6" | "--6"] => Reply::out("fd7a:115c:a1e0::1\n"),
        _ => Reply::unknown(1, "tailscale ip -1, -4, and -6 are mutually exclusive\n"),
    }
}

fn status(mac: &Inner, daemon: &Daemon) -> Reply {
    match backend(mac, daemon) {
        "NeedsLogin" => Reply::out("Logged out.\n").with_code(1),
        "Stopped" => Reply::out("Tailscale is stopped.\n").with_code(1),
        "Running" => Reply::out(format!(
            "{}  {}  tagged-devices  macOS  -\n",
            mac.tailnet_address(),
            login(mac, daemon).hostname
        )),
        other => Reply::out(format!("unexpected state: {other}\n")).with_code(1),
    }
}

/// Exits 0 in every state.
fn json(mac: &Inner, daemon: &Daemon) -> Reply {
    let login = login(mac, daemon);
    let addresses = address(mac).map(|address| vec![address]);
    let value = serde_json::json!({
        "Version": VERSION,
        "TUN": true,
        "BackendState": backend(mac, daemon),
        "HaveNodeKey": login.logged_in,
        "AuthURL": "",
        "TailscaleIPs": addresses,
        "Self": {
            "ID": format!("n{}", mac.host.server_id), "PublicKey": "nodekey:0", "HostName": login.hostname,
            "DNSName": format!("{}.tail0.ts.net.", login.hostname), "OS": "macOS", "UserID": 1,
            "TailscaleIPs": addresses, "Tags": login.tags, "Addrs": [], "CurAddr": "", "Relay": "par",
            "RxBytes": 0, "TxBytes": 0, "Created": "2026-01-01T00:00:00Z", "LastSeen": "0001-01-01T00:00:00Z",
            "LastHandshake": "0001-01-01T00:00:00Z", "Online": addresses.is_some(), "ExitNode": false,
            "ExitNodeOption": false, "Active": false, "InNetworkMap": true, "InMagicSock": false, "InEngine": false,
        },
        "Health": [],
        "MagicDNSSuffix": "tail0.ts.net",
        "CurrentTailnet": addresses.as_ref().map(|_| serde_json::json!({"Name": "example.com", "MagicDNSSuffix": "tail0.ts.net", "MagicDNSEnabled": true})),
        "CertDomains": null,
        "Peer": null,
        "User": {},
        "ClientVersion": null,
    });
    Reply::out(format!("{value:#}\n"))
}

#[derive(Debug, Default)]
struct Up {
    key: Option<String>,
    hostname: Option<String>,
    tags: Vec<String>,
    accept_routes: bool,
    ssh: bool,
    reset: bool,
    timeout: Option<Duration>,
}

fn read_flags(mac: &Inner, flags: &[&str]) -> Result<Up, Reply> {
    let mut up = Up::default();
    let mut rest = flags.iter();
    while let Some(word) = rest.next() {
        let name = word.trim_start_matches('-');
        let (name, given) = name
            .split_once('=')
            .map_or((name, None), |(name, value)| (name, Some(value)));
        let on = given.is_none_or(|value| value == "true");
        let mut value = || given.or_else(|| rest.next().copied()).unwrap_or_default().to_owned();
        match name {
            "auth-key" | "authkey" => {
                let key = value();
                up.key = Some(match key.strip_prefix("file:") {
                    Some(path) => match mac.tree.read_text(path) {
                        Some(text) => text.trim().to_owned(),
                        None => return Err(Reply::err(1, format!("open {path}: no such file or directory\n"))),
                    },
                    None => key,
                });
            }
            "hostname" => up.hostname = Some(value()),
            "login-server" => drop(value()),
            "advertise-tags" => {
                up.tags = value()
                    .split(',')
                    .filter(|tag| !tag.is_empty())
                    .map(str::to_owned)
                    .collect();
            }
            "accept-routes" => up.accept_routes = on,
            "accept-dns" | "force-reauth" | "json" => {}
            "ssh" => up.ssh = on,
            "reset" => up.reset = on,
            "timeout" => up.timeout = value().trim_end_matches('s').parse().ok().map(Duration::from_secs),
            "accept-risk" => drop(value()),
            _ => return Err(Reply::unknown(1, format!("flag provided but not defined: -{name}\n"))),
        }
    }
    Ok(up)
}

async fn up(mac: &Arc<Inner>, call: &Call, daemon: &Daemon, flags: &[&str], line: &mut Line) -> Reply {
    if !call.is_root() {
        return Reply::err(
            1,
            "Access denied: checkprefs access denied\n\nUse 'sudo tailscale up'.\n",
        );
    }
    let up = match read_flags(mac, flags) {
        Ok(up) => up,
        Err(reply) => return reply,
    };
    let before = login(mac, daemon);
    if before.logged_in && !up.reset {
        let forgot = (before.accept_routes && !up.accept_routes)
            || (before.ssh && !up.ssh)
            || (!before.tags.is_empty() && up.tags.is_empty())
            || (up.hostname.is_none() && before.hostname != mac.host.name);
        if forgot {
            return Reply::err(
                1,
                "Error: changing settings via 'tailscale up' requires mentioning all\nnon-default flags. To proceed, either re-run your command with --reset or\nuse the command below to explicitly mention the current value of\nall non-default settings:\n\n\ttailscale up\n",
            );
        }
    }
    match up.key.as_deref() {
        Some(key) if key.starts_with("tskey-client-") && up.tags.is_empty() => {
            return Reply::err(1, "oauth authkeys require --advertise-tags\n");
        }
        Some(key) if !key.starts_with("tskey-") => {
            return Reply::err(1, "backend error: invalid key: unable to validate API key\n");
        }
        None if !before.logged_in => {
            let _ = line
                .send(&Answer::Err(
                    "\nTo authenticate, visit:\n\n\thttps://login.tailscale.com/a/emulated\n\n".to_owned(),
                ))
                .await;
            match up.timeout {
                Some(timeout) if !timeout.is_zero() => tokio::time::sleep(timeout).await,
                _ => line.hung_up().await,
            }
            return timed_out();
        }
        _ => {}
    }
    let login = Login {
        logged_in: true,
        stopped: false,
        hostname: up.hostname.unwrap_or_else(|| mac.host.name.clone()),
        tags: up.tags,
        accept_routes: up.accept_routes,
        ssh: up.ssh,
    };
    save(mac, daemon, &login);
    if mac.state().faults.tailscale_down {
        match up.timeout {
            Some(timeout) if !timeout.is_zero() => tokio::time::sleep(timeout).await,
            _ => line.hung_up().await,
        }
        return timed_out();
    }
    Reply::silent()
}

fn timed_out() -> Reply {
    Reply::err(
        1,
        "timeout waiting for Tailscale service to enter a Running state; check health with \"tailscale status\"\n",
    )
}

fn set(mac: &Inner, daemon: &Daemon, flags: &[&str]) -> Reply {
    let up = match read_flags(mac, flags) {
        Ok(up) => up,
        Err(reply) => return reply,
    };
    let mut now = login(mac, daemon);
    if let Some(hostname) = up.hostname {
        now.hostname = hostname;
    }
    for flag in flags {
        let off = flag.ends_with("=false");
        if flag.contains("accept-routes") {
            now.accept_routes = !off;
        }
        if flag.contains("ssh") {
            now.ssh = !off;
        }
    }
    save(mac, daemon, &now);
    Reply::silent()
}
