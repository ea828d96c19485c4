//! What asks a Mac about itself, and what switches it off. [facts 2, 3, 5]

use crate::macos::call::{Call, Reply};
use crate::macos::launchd::LOGINWINDOW;
use crate::macos::launchd::domain::Domain;
use crate::macos::launchd::job::State;
use crate::macos::mac::Inner;
use std::sync::Arc;

/// `26.3` of `macos-tahoe-26.3`.
fn version(mac: &Inner) -> &str {
    mac.host.os.rsplit('-').next().unwrap_or("26.3")
}

/// macOS 26 is Darwin 25, 15 is 24.
fn darwin(mac: &Inner) -> String {
    let (major, minor) = version(mac).split_once('.').unwrap_or((version(mac), "0"));
    let major: u32 = major.parse().unwrap_or(26);
    let major = if major >= 26 { major - 1 } else { major + 9 };
    format!("{major}.{minor}.0")
}

const BUILD: &str = "25D2128";

pub(super) fn sw_vers(mac: &Inner, call: &Call) -> Reply {
    let version = version(mac);
    Reply::out(match call.words().as_slice() {
        [] => format!("ProductName:\t\tmacOS\nProductVersion:\t\t{version}\nBuildVersion:\t\t{BUILD}\n"),
        ["-productName" | "--productName"] => "macOS\n".to_owned(),
        ["-productVersion" | "--productVersion"] => format!("{version}\n"),
        ["-buildVersion" | "--buildVersion"] => format!("{BUILD}\n"),
        _ => {
            return Reply::unknown(
                1,
                "Usage: sw_vers [--help|--productName|--productVersion|--productVersionExtra|--buildVersion]\n",
            );
        }
    })
}

pub(super) fn uname(mac: &Inner, call: &Call) -> Reply {
    let darwin = darwin(mac);
    let name = host_name(mac);
    Reply::out(match call.words().as_slice() {
        [] | ["-s"] => "Darwin\n".to_owned(),
        ["-m"] => "arm64\n".to_owned(),
        ["-r"] => format!("{darwin}\n"),
        ["-n"] => format!("{name}\n"),
        ["-p"] => "arm\n".to_owned(),
        ["-sm"] => "Darwin arm64\n".to_owned(),
        ["-a"] => {
            format!("Darwin {name} {darwin} Darwin Kernel Version {darwin}: root:xnu/RELEASE_ARM64_T6020 arm64\n")
        }
        _ => return Reply::unknown(1, "usage: uname [-amnoprsv]\n"),
    })
}

fn host_name(mac: &Inner) -> String {
    let state = mac.state();
    let names = &state.gear.names;
    match (names.get("HostName"), names.get("LocalHostName")) {
        (Some(name), _) => name.clone(),
        (None, Some(local)) => format!("{local}.local"),
        (None, None) => "localhost".to_owned(),
    }
}

pub(super) fn hostname(mac: &Inner, call: &Call) -> Reply {
    let name = host_name(mac);
    match call.words().as_slice() {
        [] | ["-f"] => Reply::out(format!("{name}\n")),
        ["-s"] => Reply::out(format!("{}\n", name.split('.').next().unwrap_or_default())),
        _ => Reply::unknown(1, "usage: hostname [-f] [-s | -d] [name-of-host]\n"),
    }
}

pub(super) fn scutil(mac: &Inner, call: &Call) -> Reply {
    let is_name = |name: &str| matches!(name, "HostName" | "LocalHostName" | "ComputerName");
    match call.words().as_slice() {
        ["--set", name, value] if is_name(name) => {
            if !call.is_root() {
                return Reply::err(1, "set: Operation not permitted\n");
            }
            mac.state().gear.names.insert((*name).to_owned(), (*value).to_owned());
            Reply::silent()
        }
        ["--get", name] if is_name(name) => match mac.state().gear.names.get(*name) {
            Some(value) => Reply::out(format!("{value}\n")),
            None => Reply::err(1, format!("{name}: not set\n")),
        },
        ["--dns" | "--proxy" | "--nwi"] => Reply::out("DNS configuration\n"),
        _ => Reply::unknown(64, "usage: scutil --get|--set pref [newval]\n"),
    }
}

pub(super) fn pmset(mac: &Inner, call: &Call) -> Reply {
    let words = call.words();
    match words.as_slice() {
        ["-g"] | ["-g", "custom" | "live"] => {
            let state = mac.state();
            let lines: String = state
                .gear
                .power
                .iter()
                .map(|(name, value)| format!(" {name:<21}{value}\n"))
                .collect();
            Reply::out(format!("System-wide power settings:\nCurrently in use:\n{lines}"))
        }
        ["-a" | "-c", settings @ ..] if !settings.is_empty() && settings.len() % 2 == 0 => {
            if !call.is_root() {
                return Reply::err(77, "'pmset' must be run as root...\n");
            }
            for pair in settings.chunks(2) {
                let [name, value] = pair else { continue };
                if value.parse::<u32>().is_err() {
                    return Reply::unknown(64, "Usage:  pmset <options>\n");
                }
                mac.state().gear.power.insert((*name).to_owned(), (*value).to_owned());
            }
            Reply::silent()
        }
        _ => Reply::unknown(64, "Usage:  pmset <options>\nSee pmset(1) for details: 'man pmset'\n"),
    }
}

pub(super) fn systemsetup(mac: &Inner, call: &Call) -> Reply {
    if !call.is_root() {
        return Reply::err(1, "You need administrator access to run this tool... exiting!\n");
    }
    match call.words().as_slice() {
        ["-setsleep" | "-setcomputersleep", "Off" | "Never"] => {
            mac.state().gear.power.insert("sleep".to_owned(), "0".to_owned());
            Reply::out("setsleep: Never\n")
                .with_err("### Error:-99 File:/AppleInternal/Library/BuildRoots/InternetServices.m Line:379\n")
        }
        ["-getremotelogin"] => Reply::out("Remote Login: On\n"),
        ["-setremotelogin", "on"] => Reply::silent(),
        ["-gettimezone"] => Reply::out("Time Zone: Europe/Paris\n"),
        _ => Reply::unknown(1, "systemsetup Help Information\n"),
    }
}

/// Another one after each start.
fn boot_session(mac: &Inner) -> String {
    let (boots, generation) = (mac.state().boots, mac.host.generation);
    format!("{generation:08X}-0000-4000-8000-{boots:012X}")
}

pub(super) fn sysctl(mac: &Inner, call: &Call) -> Reply {
    let (cpus, gigabytes, brand) = hardware(mac);
    let value = |name: &str| {
        Some(match name {
            "hw.memsize" => (gigabytes << 30).to_string(),
            "hw.ncpu" | "hw.physicalcpu" | "hw.logicalcpu" | "hw.activecpu" => cpus.to_string(),
            "machdep.cpu.brand_string" => brand.to_owned(),
            "kern.osproductversion" => version(mac).to_owned(),
            "kern.osversion" => BUILD.to_owned(),
            "hw.model" => "Mac14,12".to_owned(),
            // 1 is normal, 2 a warning, 4 critical.
            "kern.memorystatus_vm_pressure_level" => "1".to_owned(),
            "kern.maxproc" => "4000".to_owned(),
            "kern.bootsessionuuid" => boot_session(mac),
            "kern.boottime" => "{ sec = 1767225600, usec = 0 } Thu Jan  1 00:00:00 2026".to_owned(),
            _ => return None,
        })
    };
    match call.words().as_slice() {
        ["-n", names @ ..] | names if !names.is_empty() && names.iter().all(|name| !name.starts_with('-')) => {
            let bare = call.args.first().is_some_and(|word| word == "-n");
            let mut reply = Reply::silent();
            for name in names {
                match value(name) {
                    Some(value) if bare => reply.out.push_str(&format!("{value}\n")),
                    Some(value) => reply.out.push_str(&format!("{name}: {value}\n")),
                    None => {
                        reply.err.push_str(&format!("sysctl: unknown oid '{name}'\n"));
                        (reply.code, reply.unexpected) = (1, true);
                    }
                }
            }
            reply
        }
        _ => Reply::unknown(1, "usage: sysctl [-bdehiNnoqroxX] name ...\n"),
    }
}

/// Cores, memory and name of the chip of a type. [facts 9]
fn hardware(mac: &Inner) -> (u32, u64, &'static str) {
    match mac.host.server_type.as_str() {
        "M1-M" => (8, 8, "Apple M1"),
        "M2-M" => (8, 16, "Apple M2"),
        "M2-L" => (10, 16, "Apple M2 Pro"),
        "M4-M" => (10, 32, "Apple M4"),
        "M4-XL" => (14, 64, "Apple M4 Pro"),
        _ => (10, 16, "Apple M4"),
    }
}

pub(super) fn system_profiler(mac: &Inner, call: &Call) -> Reply {
    let (cpus, gigabytes, chip) = hardware(mac);
    match call.words().as_slice() {
        ["SPHardwareDataType", "-json"] | ["-json", "SPHardwareDataType"] => {
            let value = serde_json::json!({"SPHardwareDataType": [{
                "_name": "hardware_overview", "machine_name": "Mac mini", "machine_model": "Mac14,12", "chip_type": chip,
                "number_processors": format!("proc {cpus}:{cpus}:0"), "physical_memory": format!("{gigabytes} GB"),
                "serial_number": "C07EMULATED", "platform_UUID": mac.host.server_id.to_string().to_uppercase(),
                "boot_rom_version": "13822.81.10",
            }]});
            Reply::out(format!("{value:#}\n"))
        }
        _ => Reply::unknown(1, "Usage: system_profiler [-listDataTypes]\n"),
    }
}

pub(super) fn softwareupdate(call: &Call) -> Reply {
    match call.words().as_slice() {
        ["-l" | "--list"] => {
            Reply::out("Software Update Tool\n\nFinding available software\n").with_err("No new software available.\n")
        }
        ["--schedule" | "--schedule=off"] | ["--schedule", "off"] => {
            Reply::out("Automatic checking for updates is turned off\n")
        }
        _ => Reply::unknown(64, "Usage: softwareupdate <cmd> [<args> ...]\n"),
    }
}

pub(super) fn csrutil(call: &Call) -> Reply {
    match call.words().as_slice() {
        ["status"] => Reply::out("System Integrity Protection status: enabled.\n"),
        _ => Reply::unknown(1, "csrutil: This tool needs to be executed from Recovery OS.\n"),
    }
}

pub(super) fn spctl(call: &Call) -> Reply {
    match call.words().as_slice() {
        ["--status"] => Reply::out("assessments enabled\n"),
        ["--assess", "-v", path] | ["--assess", path] => Reply::err(3, format!("{path}: rejected\n")),
        _ => Reply::unknown(1, "System Policy Basic Usage:\n"),
    }
}

/// The clock, in the words of BSD's `date`.
pub(super) fn date(call: &Call) -> Reply {
    let mut words = call.words();
    let mut at = jiff::Timestamp::now().as_second();
    if let [first, rest @ ..] = words.as_slice()
        && *first == "-u"
    {
        words = rest.to_vec();
    }
    if let ["-r", seconds, rest @ ..] = words.as_slice() {
        let Ok(seconds) = seconds.parse() else {
            return Reply::err(1, format!("date: {seconds}: No such file or directory\n"));
        };
        at = seconds;
        words = rest.to_vec();
    }
    let Ok(time) = jiff::Timestamp::from_second(at) else {
        return Reply::err(1, "date: invalid time\n");
    };
    let zoned = time.to_zoned(jiff::tz::TimeZone::UTC);
    let format = match words.as_slice() {
        [] => "%a %b %e %H:%M:%S UTC %Y",
        [format] if format.starts_with('+') => format.trim_start_matches('+'),
        _ => {
            return Reply::unknown(
                1,
                "date: illegal option\nusage: date [-jnRu] [-I[date|hours|minutes|seconds|ns]] [-f input_fmt]\n",
            );
        }
    };
    match jiff::fmt::strtime::format(format, &zoned) {
        Ok(text) => Reply::out(format!("{text}\n")),
        Err(_) => Reply::unknown(1, format!("date: bad format {format}\n")),
    }
}

/// `shutdown -r now` and `reboot`: the session dies without a clean end. None is the power going off.
pub(super) fn shutdown(mac: &Arc<Inner>, call: &Call) -> Option<Reply> {
    if !call.is_root() {
        return Some(Reply::err(
            1,
            if call.tool == "reboot" {
                "reboot: Operation not permitted\n"
            } else {
                "shutdown: NOT super-user\n"
            },
        ));
    }
    match (call.tool.as_str(), call.words().as_slice()) {
        ("reboot", [] | ["-q" | "-n" | "-l"]) | ("shutdown", ["-r", "now", ..]) => {
            mac.reboot();
            None
        }
        ("shutdown", ["-h" | "-s", "now", ..]) => {
            let mac = Arc::clone(mac);
            tokio::spawn(async move { mac.switch_off().await });
            None
        }
        _ => Some(Reply::unknown(
            1,
            "usage: shutdown [-] [-h [-u] [-n] | -r [-n] | -s | -k] time [warning-message ...]\n",
        )),
    }
}

/// `killall`: of what the emulator plays itself; real processes are found by name. [facts 3]
pub(super) async fn killall(mac: &Arc<Inner>, call: &Call) -> Reply {
    let mut signal = 15;
    let mut names = Vec::new();
    for word in call.words() {
        match word.strip_prefix('-') {
            Some(flag) => match super::signal_number(flag) {
                Some(number) => signal = number,
                None => {
                    return Reply::unknown(
                        1,
                        "usage: killall [-delmsvqz] [-help] [-u user] [-t tty] [-c cmd] [-SIGNAL] [cmd]...\n",
                    );
                }
            },
            None => names.push(word.to_owned()),
        }
    }
    let mut nobody = names.is_empty();
    for name in names {
        nobody |= !match name.as_str() {
            "loginwindow" => end_loginwindow(mac, signal),
            "WindowServer" => {
                // TERM is ignored.
                if signal == 9 {
                    mac.log_out();
                }
                true
            }
            "mDNSResponder" | "mDNSResponderHelper" | "cfprefsd" | "Dock" | "Finder" | "SystemUIServer" | "bootpd" => {
                call.is_root()
            }
            name => super::signal_by_name(mac, name, signal).await,
        };
    }
    if nobody {
        Reply::err(1, "No matching processes were found\n")
    } else {
        Reply::silent()
    }
}

/// It ends, with the session, and launchd does not start it again after SIGHUP. False if it was gone.
fn end_loginwindow(mac: &Arc<Inner>, signal: i32) -> bool {
    let key = (Domain::System, LOGINWINDOW.to_owned());
    let there = mac.with_job(&key, |job, _| {
        let there = job.pid().is_some();
        if there && signal == 1 {
            job.state = State::Idle;
        }
        (there, Vec::new())
    });
    if there == Some(true) {
        mac.log_out();
        if signal != 1 {
            mac.loginwindow_starts();
        }
    }
    there == Some(true)
}
