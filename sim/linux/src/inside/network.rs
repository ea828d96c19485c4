//! The cards of the machine: `ip` where the kernel cannot, and `dhclient`.
//!
//! A card here is one end of a virtual cable, which `ip` shows as `ens5@if7`; a server has `ens5`. And not every kernel
//! has VLANs: the one of an Elastic Metal server is a cable of its own that waits under another name until somebody adds
//! the VLAN. Both are made to look like a server's; everything else is the real `ip`.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::process::Stdio;

use tokio::process::Command;

use super::protocol::{Boot, ORDERS, PRIVATE_CARD, PUBLIC_CARD, Private, VLAN_CABLE};
use super::reply::Reply;
use super::service::PATH;

/// The host's own program.
const REAL_IP: &str = "/usr/lib/russet-box/real/ip";
/// The name of the VLAN's card, while there is one.
const VLAN_NAME: &str = "/run/russet-box/vlan";

async fn run(args: &[&str]) -> Result<(), String> {
    let args: Vec<String> = args.iter().map(|&arg| arg.to_owned()).collect();
    let reply = real(&args).await;
    if reply.status == 0 {
        Ok(())
    } else {
        Err(format!("ip {}: {}", args.join(" "), reply.stderr.trim()))
    }
}

async fn real(args: &[String]) -> Reply {
    let output = Command::new(REAL_IP).args(args).stdin(Stdio::null()).output().await;
    match output {
        Ok(output) => Reply {
            status: output.status.code().unwrap_or(1),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        },
        Err(error) => Reply::failure(1, format!("ip: {error}")),
    }
}

/// What a call of `ip` is about.
#[derive(Debug, PartialEq, Eq)]
enum Call {
    AddVlan { parent: String, name: String, id: u32 },
    Delete { name: String },
    Unknown(&'static str),
    Other,
}

impl Call {
    fn of(args: &[String]) -> Self {
        if args.iter().any(|arg| arg.starts_with("-b") && !arg.starts_with("-br"))
            || args.iter().any(|arg| arg == "monitor")
        {
            return Self::Unknown("batches and monitoring");
        }
        let words: Vec<&str> = args
            .iter()
            .map(String::as_str)
            .filter(|arg| !arg.starts_with('-'))
            .collect();
        match words.as_slice() {
            ["link", "add", "link", parent, "name", name, "type", "vlan", "id", id] => match id.parse() {
                Ok(id) => Self::AddVlan {
                    parent: (*parent).to_owned(),
                    name: (*name).to_owned(),
                    id,
                },
                Err(_) => Self::Unknown("a VLAN id that is no number"),
            },
            ["link", "add", ..] if words.contains(&"vlan") => Self::Unknown("this way to add a VLAN"),
            ["link", "delete" | "del", "dev", name] | ["link", "delete" | "del", name] => Self::Delete {
                name: (*name).to_owned(),
            },
            _ => Self::Other,
        }
    }
}

/// The Private Network as it is now.
fn private() -> Option<Private> {
    let orders = std::fs::read(ORDERS).ok()?;
    serde_json::from_slice::<Boot>(&orders).ok()?.private
}

/// `ip ARGS`.
pub(super) async fn ip(args: &[String]) -> Reply {
    let vlan = std::fs::read_to_string(VLAN_NAME).ok();
    let id = private().and_then(|private| private.vlan);
    match Call::of(args) {
        Call::Unknown(what) => Reply::failure(255, format!("ip: the emulated server does not know {what}")),
        Call::AddVlan {
            parent,
            name,
            id: wanted,
        } => {
            if vlan.is_some() {
                return Reply::failure(2, "RTNETLINK answers: File exists".to_owned());
            }
            if parent != PUBLIC_CARD {
                return Reply::failure(1, format!("Cannot find device \"{parent}\""));
            }
            if Some(wanted) != id {
                // A real switch would take the frames and drop them.
                return Reply::failure(
                    1,
                    format!("ip: the emulated network has no VLAN {wanted} for this server"),
                );
            }
            rename(VLAN_CABLE, &name).await.unwrap_or_else(|| {
                let _ = std::fs::write(VLAN_NAME, &name);
                Reply::success()
            })
        }
        Call::Delete { name } if vlan.as_deref() == Some(name.as_str()) => {
            let _ = run(&["link", "set", "dev", &name, "down"]).await;
            let _ = run(&["address", "flush", "dev", &name]).await;
            rename(&name, VLAN_CABLE).await.unwrap_or_else(|| {
                let _ = std::fs::remove_file(VLAN_NAME);
                Reply::success()
            })
        }
        Call::Delete { .. } | Call::Other => {
            let mut reply = real(args).await;
            reply.stdout = as_on_a_server(&reply.stdout, vlan.as_deref().zip(id), args);
            reply
        }
    }
}

/// None if that worked.
async fn rename(from: &str, to: &str) -> Option<Reply> {
    let reply = real(&["link", "set", "dev", from, "name", to].map(str::to_owned)).await;
    (reply.status != 0).then_some(reply)
}

/// Cables look like cards, the waiting one is not there, and a VLAN says its number.
fn as_on_a_server(text: &str, vlan: Option<(&str, u32)>, args: &[String]) -> String {
    let details = args.iter().any(|arg| arg == "-d" || arg == "-details");
    let mut out = String::new();
    for line in text.lines().filter(|line| !line.contains(&format!("{VLAN_CABLE}@"))) {
        let mut line = line.to_owned();
        for card in [PUBLIC_CARD, PRIVATE_CARD] {
            line = without_peer(&line, card, "");
        }
        if let Some((name, id)) = vlan {
            let before = line.len();
            line = without_peer(&line, name, &format!("@{PUBLIC_CARD}"));
            if details && (before != line.len() || line.contains(&format!("{name}@{PUBLIC_CARD}"))) {
                let _ = write!(line, " vlan protocol 802.1Q id {id} <REORDER_HDR>");
            }
        }
        out.push_str(&line);
        out.push('\n');
    }
    out
}

/// `ens5@if7` becomes `ens5` and what shall follow.
fn without_peer(line: &str, card: &str, instead: &str) -> String {
    let Some((before, after)) = line.split_once(&format!("{card}@if")) else {
        return line.to_owned();
    };
    let rest = after.trim_start_matches(|c: char| c.is_ascii_digit());
    // Columns stay where they were.
    let width = "@if".len() + after.len() - rest.len();
    let pad = if rest.starts_with(' ') {
        width.saturating_sub(instead.len())
    } else {
        0
    };
    format!("{before}{card}{instead}{}{rest}", " ".repeat(pad))
}

/// `dhclient`: asks once and tells a script what it got, as the real one does.
pub(super) async fn dhclient(args: &[String]) -> Reply {
    let (mut script, mut card) = (None, None);
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "-4" | "-1" | "-v" | "-nw" => {}
            "-pf" | "-lf" => drop(args.next()),
            "-sf" => script = args.next().cloned(),
            flag if flag.starts_with('-') => {
                return Reply::failure(1, format!("dhclient: the emulated server does not know {flag}"));
            }
            name => card = Some(name.to_owned()),
        }
    }
    let (Some(card), Some(private)) = (card, private()) else {
        return Reply::failure(2, "No DHCPOFFERS received.".to_owned());
    };
    let expected = match private.vlan {
        Some(_) => std::fs::read_to_string(VLAN_NAME).unwrap_or_default(),
        None => PRIVATE_CARD.to_owned(),
    };
    if card != expected {
        return Reply::failure(2, format!("No DHCPOFFERS received on {card}."));
    }
    let Some((address, bits)) = private.address.split_once('/') else {
        return Reply::failure(2, "No DHCPOFFERS received.".to_owned());
    };
    let Some(script) = script else {
        let _ = run(&["link", "set", "dev", &card, "up"]).await;
        return match run(&["address", "replace", &private.address, "dev", &card]).await {
            Ok(()) => Reply::success(),
            Err(why) => Reply::failure(2, why),
        };
    };
    let lease = BTreeMap::from([
        ("interface", card.clone()),
        ("new_ip_address", address.to_owned()),
        ("new_subnet_mask", mask(bits.parse().unwrap_or(32))),
    ]);
    for reason in ["PREINIT", "BOUND"] {
        let ran = Command::new(Path::new(&script))
            .env_clear()
            .env("PATH", PATH)
            .env("reason", reason)
            .envs(&lease)
            .stdin(Stdio::null())
            .output()
            .await;
        match ran {
            Ok(output) if output.status.success() => {}
            Ok(output) => return Reply::failure(2, String::from_utf8_lossy(&output.stderr).into_owned()),
            Err(error) => return Reply::failure(2, format!("{script}: {error}")),
        }
    }
    Reply::success()
}

fn mask(bits: u32) -> String {
    let mask = u32::MAX.checked_shl(32 - bits.min(32)).unwrap_or(0);
    std::net::Ipv4Addr::from_bits(mask).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn cables_look_like_cards() {
        let text = "lo               UNKNOWN        00:00:00:00:00:00 <LOOPBACK>\n\
                    ens5@if7         DOWN           02:00:00:12:34:56 <BROADCAST>\n\
                    boxvlan@if9      DOWN           02:00:00:12:34:57 <BROADCAST>\n";
        let shown = as_on_a_server(text, None, &words("-br link show"));
        assert!(shown.contains("ens5             DOWN "), "{shown}");
        assert!(!shown.contains('@'), "{shown}");
    }

    #[test]
    fn a_vlan_says_its_number() {
        let text =
            "4: pn0@if9: <BROADCAST> mtu 1500 qdisc noop state DOWN \\    link/ether 02:00:00:00:00:01 brd ff \n";
        let shown = as_on_a_server(text, Some(("pn0", 1234)), &words("-d -o link show dev pn0"));
        assert!(shown.contains(" pn0@ens2: ") && shown.contains(" id 1234 "), "{shown}");
    }

    #[test]
    fn calls_are_told_apart() {
        assert_eq!(
            Call::of(&words("link add link ens2 name pn0 type vlan id 12")),
            Call::AddVlan {
                parent: "ens2".to_owned(),
                name: "pn0".to_owned(),
                id: 12
            }
        );
        let found = Call::of(&words("link delete dev pn0"));
        assert_eq!(found, Call::Delete { name: "pn0".to_owned() });
        assert_eq!(Call::of(&words("-br link show")), Call::Other);
        assert!(matches!(Call::of(&words("-batch -")), Call::Unknown(_)));
    }

    #[test]
    fn a_prefix_is_a_mask() {
        assert_eq!(
            (mask(22), mask(0), mask(32)),
            ("255.255.252.0".into(), "0.0.0.0".into(), "255.255.255.255".into())
        );
    }
}
