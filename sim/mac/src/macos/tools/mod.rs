//! The tools that ask the system, one file each.

mod about;
mod accounts;
mod develop;
mod disk;
mod launchctl;
mod launchctl_legacy;
mod network;
mod pfctl;
mod sudo_run;
mod tailscale;

use super::call::{Answer, Call, Reply};
use super::desk::{self, Line};
use super::mac::Inner;
use std::sync::Arc;

/// Answers a call to its end.
pub(super) async fn answer(mac: &Arc<Inner>, call: &Call, line: &mut Line) -> Answer {
    let reply = match call.tool.as_str() {
        "sudo" => return sudo_run::answer(mac, call, line).await,
        "tailscaled" => return tailscale::daemon(mac, call, line).await,
        "shutdown" | "reboot" => {
            let Some(reply) = about::shutdown(mac, call) else {
                let _ = line.send(&Answer::Err("Shutdown NOW!\n".to_owned())).await;
                // The power goes off under the session.
                return std::future::pending().await;
            };
            reply
        }
        "tailscale" => tailscale::client(mac, call, line).await,
        "launchctl" => launchctl::answer(mac, call).await,
        "killall" => about::killall(mac, call).await,
        _ => at_once(mac, call),
    };
    desk::finish(mac, call, line, reply).await
}

/// Tools whose answer needs no waiting.
fn at_once(mac: &Inner, call: &Call) -> Reply {
    match call.tool.as_str() {
        "brew" => develop::brew(mac, call),
        "csrutil" => about::csrutil(call),
        "date" => about::date(call),
        "diskutil" => disk::diskutil(mac, call),
        "dscl" => accounts::dscl(mac, call),
        "dseditgroup" => accounts::dseditgroup(mac, call),
        "hostname" => about::hostname(mac, call),
        "id" => accounts::id(mac, call),
        "ifconfig" => network::ifconfig(mac, call),
        "ipconfig" => network::ipconfig(mac, call),
        "nc" => nc(mac),
        "networksetup" => network::networksetup(mac, call),
        "pfctl" => pfctl::answer(mac, call),
        "pmset" => about::pmset(mac, call),
        "route" => network::route(mac, call),
        "scutil" => about::scutil(mac, call),
        "security" => accounts::security(mac, call),
        "sfltool" => sfltool(mac, call),
        "softwareupdate" => about::softwareupdate(call),
        "spctl" => about::spctl(call),
        "sshd" => sshd(call),
        "sw_vers" => about::sw_vers(mac, call),
        "sysadminctl" => accounts::sysadminctl(mac, call),
        "sysctl" => about::sysctl(mac, call),
        "system_profiler" => about::system_profiler(mac, call),
        "systemsetup" => about::systemsetup(mac, call),
        "uname" => about::uname(mac, call),
        "visudo" => accounts::visudo(mac, call),
        "whoami" => Reply::out(format!("{}\n", mac.name_of(call.uid))),
        "xcode-select" => develop::xcode_select(mac, call),
        "xcodebuild" => develop::xcodebuild(mac, call),
        "xcrun" => develop::xcrun(mac, call),
        _ => Reply::unknown(1, format!("{}: not emulated\n", call.tool)),
    }
}

/// `nc -z 127.0.0.1 22`: whether launchd listens for SSH.
fn nc(mac: &Inner) -> Reply {
    if *mac.door.borrow() {
        Reply::err(0, "Connection to 127.0.0.1 port 22 [tcp/ssh] succeeded!\n")
    } else {
        Reply::err(
            1,
            "nc: connectx to 127.0.0.1 port 22 (tcp) failed: Connection refused\n",
        )
    }
}

/// `sshd -t` and `-T`: every keyword is taken here, so every file is good.
fn sshd(call: &Call) -> Reply {
    match call.words().as_slice() {
        ["-t"] if call.is_root() => Reply::silent(),
        ["-t"] => Reply::err(1, "sshd: no hostkeys available -- exiting.\n"),
        _ => Reply::unknown(
            1,
            "usage: sshd [-46DdeGiqTtV] [-C connection_spec] [-c host_cert_file]\n",
        ),
    }
}

/// Sends a signal to the real processes of this name; false if there are none.
async fn signal_by_name(mac: &Arc<Inner>, name: &str, signal: i32) -> bool {
    let Ok(null) = std::fs::File::options().read(true).write(true).open("/dev/null") else {
        return false;
    };
    let files = (0..3)
        .filter_map(|_| null.try_clone().ok().map(std::os::fd::OwnedFd::from))
        .collect();
    let job = crate::macos::boot::Job {
        program: format!("{}/pkill", crate::macos::system::LINUX),
        argv: vec![
            "pkill".to_owned(),
            format!("-{signal}"),
            "-x".to_owned(),
            name.to_owned(),
        ],
        env: std::collections::BTreeMap::new(),
        folder: "/".to_owned(),
        run_as: mac.run_as(0),
        files,
    };
    match mac.run(job).await {
        Ok(process) => process.ended.await.is_ok_and(|ending| ending.as_code() == 0),
        Err(_) => false,
    }
}

/// What Background Task Management knows. [facts 1.5]
fn sfltool(mac: &Inner, call: &Call) -> Reply {
    match call.words().as_slice() {
        ["dumpbtm"] if call.is_root() => Reply::out(mac.state().launchd.btm.dump()),
        ["dumpbtm"] => Reply::err(1, "sfltool: this operation requires root\n"),
        _ => Reply::unknown(1, "Usage: sfltool dumpbtm | resetbtm\n"),
    }
}

/// A signal by number or name, with or without SIG.
fn signal_number(text: &str) -> Option<i32> {
    let name = text.to_ascii_uppercase();
    match name.strip_prefix("SIG").unwrap_or(&name) {
        "HUP" => Some(1),
        "INT" => Some(2),
        "QUIT" => Some(3),
        "KILL" => Some(9),
        "USR1" => Some(10),
        "USR2" => Some(12),
        "TERM" => Some(15),
        number => number.parse().ok().filter(|number| (1..32).contains(number)),
    }
}
