//! Interfaces, VLANs and routes. [facts 4]

use crate::macos::call::{Call, Reply};
use crate::macos::gear::Vlan;
use crate::macos::mac::Inner;

const BAD: &str = "** Error: The parameters were not valid.\n";

/// Errors go to standard output, and the status depends on the release.
fn complaint(mac: &Inner, text: &str) -> Reply {
    Reply::out(format!("{text}{BAD}")).with_code(mac.state().quirks.networksetup_fails_with)
}

fn services(mac: &Inner) -> Vec<String> {
    let state = mac.state();
    let vlans = state
        .gear
        .vlans
        .iter()
        .map(|vlan| format!("{} Configuration", vlan.name));
    ["Ethernet".to_owned(), "Wi-Fi".to_owned()]
        .into_iter()
        .chain(vlans)
        .collect()
}

pub(super) fn networksetup(mac: &Inner, call: &Call) -> Reply {
    let words = call.words();
    let changes = matches!(
        words.first(),
        Some(&("-createVLAN" | "-deleteVLAN" | "-setdhcp" | "-setdnsservers" | "-setv6off" | "-setmanual"))
    );
    if changes && !call.is_root() {
        return Reply::out("** Error: Command requires admin privileges.\n").with_code(14);
    }
    match words.as_slice() {
        ["-listVLANs"] => {
            let state = mac.state();
            if state.gear.vlans.is_empty() {
                return Reply::out("There are no VLANs currently configured on this system.\n");
            }
            Reply::out(
                state
                    .gear
                    .vlans
                    .iter()
                    .map(|vlan| {
                        format!(
                            "VLAN User Defined Name: {}\nParent Device: {}\nDevice (\"Hardware\" Port): {}\nTag: {}\n\n",
                            vlan.name, vlan.parent, vlan.device, vlan.tag
                        )
                    })
                    .collect::<String>(),
            )
        }
        ["-createVLAN", name, "en0", tag] => match tag.parse() {
            Ok(tag @ 1..=4094) => create_vlan(mac, name, tag),
            _ => complaint(mac, "The VLAN tag is not valid.\n"),
        },
        ["-deleteVLAN", name, "en0", tag] => {
            let mut state = mac.state();
            let before = state.gear.vlans.len();
            state
                .gear
                .vlans
                .retain(|vlan| !(vlan.name == *name && vlan.tag.to_string() == *tag));
            let gone = state.gear.vlans.len() < before;
            drop(state);
            if gone {
                Reply::silent()
            } else {
                complaint(mac, "The VLAN could not be found.\n")
            }
        }
        ["-listallnetworkservices"] => {
            let list: String = services(mac).iter().map(|name| format!("{name}\n")).collect();
            Reply::out(format!(
                "An asterisk (*) denotes that a network service is disabled.\n{list}"
            ))
        }
        ["-listallhardwareports"] => {
            let vlans: String = mac
                .state()
                .gear
                .vlans
                .iter()
                .map(|vlan| format!("\nVLAN Configurations\n===================\n{}\n", vlan.name))
                .collect();
            Reply::out(format!(
                "\nHardware Port: Ethernet\nDevice: en0\nEthernet Address: 02:00:00:00:00:01\n\nHardware Port: Wi-Fi\nDevice: en1\nEthernet Address: 02:00:00:00:00:02\n{vlans}"
            ))
        }
        [
            verb @ ("-setdhcp" | "-getinfo" | "-setv6off" | "-setdnsservers" | "-getdnsservers" | "-getmacaddress"),
            service,
            ..,
        ] => {
            if !services(mac).iter().any(|name| name == service) {
                return complaint(mac, &format!("{service} is not a recognized network service.\n"));
            }
            match *verb {
                "-getinfo" => Reply::out(format!("DHCP Configuration\nIP address: {}\n", mac.host.address)),
                "-getdnsservers" => Reply::out(format!("There aren't any DNS Servers set on {service}.\n")),
                _ => Reply::silent(),
            }
        }
        _ => {
            let mut reply = complaint(mac, "");
            reply.unexpected = true;
            reply
        }
    }
}

fn create_vlan(mac: &Inner, name: &str, tag: u16) -> Reply {
    let mut state = mac.state();
    let vlans = &mut state.gear.vlans;
    if vlans.iter().any(|vlan| vlan.name == name || vlan.tag == tag) {
        drop(state);
        return complaint(mac, "The VLAN name or tag is already in use.\n");
    }
    let free = |device: &String| vlans.iter().all(|vlan| vlan.device != *device);
    let device = (0..4096).map(|number| format!("vlan{number}")).find(free);
    vlans.push(Vlan {
        name: name.to_owned(),
        parent: "en0".to_owned(),
        device: device.unwrap_or_default(),
        tag,
    });
    Reply::silent()
}

/// The address of a VLAN, made from the tag and the Mac's own.
fn vlan_address(mac: &Inner, device: &str) -> Option<String> {
    let state = mac.state();
    let vlan = state.gear.vlans.iter().find(|vlan| vlan.device == device)?;
    let last: Vec<String> = mac
        .host
        .address
        .to_string()
        .rsplit('.')
        .take(2)
        .map(str::to_owned)
        .collect();
    Some(format!("172.16.{}.{}", vlan.tag % 250, last.first()?))
}

pub(super) fn ipconfig(mac: &Inner, call: &Call) -> Reply {
    match call.words().as_slice() {
        ["getifaddr", "en0"] => Reply::out(format!("{}\n", mac.host.address)),
        ["getifaddr", device] => match vlan_address(mac, device) {
            Some(address) => Reply::out(format!("{address}\n")),
            None => Reply::silent().with_code(1),
        },
        ["set", device, "DHCP"] if call.is_root() => {
            if mac.state().gear.vlans.iter().any(|vlan| vlan.device == *device) || *device == "en0" {
                Reply::silent()
            } else {
                Reply::err(1, format!("ipconfig_set {device} DHCP failed: no such interface\n"))
            }
        }
        ["set", ..] => Reply::err(1, "Must be run as root\n"),
        _ => Reply::unknown(1, "usage: ipconfig <command> <args>\n"),
    }
}

pub(super) fn ifconfig(mac: &Inner, call: &Call) -> Reply {
    let one = |device: &str| -> Option<String> {
        let address = match device {
            "lo0" => "127.0.0.1".to_owned(),
            "en0" => mac.host.address.to_string(),
            device if mac.state().gear.vlans.iter().any(|vlan| vlan.device == device) => {
                let inet = vlan_address(mac, device)
                    .map(|address| format!("\tinet {address} netmask 0xfffffc00\n"))
                    .unwrap_or_default();
                return Some(format!(
                    "{device}: flags=8843<UP,BROADCAST,RUNNING,SIMPLEX,MULTICAST> mtu 1500\n{inet}\tstatus: active\n"
                ));
            }
            "utun4" => super::tailscale::address(mac)?,
            _ => return None,
        };
        Some(format!(
            "{device}: flags=8863<UP,BROADCAST,RUNNING,SIMPLEX,MULTICAST> mtu 1500\n\tinet {address} netmask 0xffffff00\n\tstatus: active\n"
        ))
    };
    let devices: Vec<String> = {
        let vlans: Vec<String> = mac.state().gear.vlans.iter().map(|vlan| vlan.device.clone()).collect();
        ["lo0".to_owned(), "en0".to_owned(), "utun4".to_owned()]
            .into_iter()
            .chain(vlans)
            .collect()
    };
    match call.words().as_slice() {
        [] | ["-a"] => Reply::out(devices.iter().filter_map(|device| one(device)).collect::<String>()),
        ["-l"] => Reply::out(format!("{}\n", devices.join(" "))),
        [device] => match one(device) {
            Some(text) => Reply::out(text),
            None => Reply::err(1, format!("ifconfig: interface {device} does not exist\n")),
        },
        _ => Reply::unknown(1, "usage: ifconfig interface address_family [address [dest_address]]\n"),
    }
}

/// The base address of a private network answers en0, not its VLAN. [facts 4]
pub(super) fn route(mac: &Inner, call: &Call) -> Reply {
    match call.words().as_slice() {
        ["-n", "get", target] | ["get", target] => Reply::out(format!(
            "   route to: {target}\ndestination: default\n    gateway: {}\n  interface: en0\n",
            mac.host.address
        )),
        _ => Reply::unknown(64, "usage: route [-dnqtv] command [[modifiers] args]\n"),
    }
}
