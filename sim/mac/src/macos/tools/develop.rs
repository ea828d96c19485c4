//! Xcode and Homebrew. [facts 5]

use crate::macos::call::{Call, Reply};
use crate::macos::faults::Xcode;
use crate::macos::image::{STAFF, UID};
use crate::macos::mac::Inner;

const DEVELOPER: &str = "/Applications/Xcode.app/Contents/Developer";
const TOOLS: &str = "/Library/Developer/CommandLineTools";
const LICENCE: &str = "You have not agreed to the Xcode license agreements. Please run 'sudo xcodebuild -license' from within a Terminal window to review and agree to the Xcode and Apple SDKs license.\n";
const NO_TOOLS: &str = "xcode-select: error: unable to get active developer directory, use `sudo xcode-select --switch path/to/Xcode.app` to set one (or see `man xcode-select`)\n";

fn xcode(mac: &Inner) -> Xcode {
    mac.state().quirks.xcode
}

pub(super) fn xcode_select(mac: &Inner, call: &Call) -> Reply {
    match call.words().as_slice() {
        ["-p" | "--print-path"] => match xcode(mac) {
            Xcode::Ready | Xcode::Unlicensed => Reply::out(format!("{DEVELOPER}\n")),
            Xcode::CommandLineTools => Reply::out(format!("{TOOLS}\n")),
            Xcode::Missing => Reply::err(2, NO_TOOLS),
        },
        ["-s" | "--switch", _] if !call.is_root() => Reply::err(
            1,
            "xcode-select: error: --switch must be run as root (e.g. `sudo xcode-select --switch <xcode_folder_path>`).\n",
        ),
        ["-s" | "--switch", path] => match (xcode(mac), path.starts_with("/Applications/Xcode.app")) {
            (Xcode::Ready | Xcode::Unlicensed, true) => Reply::silent(),
            _ => Reply::err(
                1,
                format!("xcode-select: error: invalid developer directory '{path}'\n"),
            ),
        },
        ["--install"] => Reply::err(
            0,
            "xcode-select: note: install requested for command line developer tools\n",
        ),
        _ => Reply::unknown(64, "Usage: xcode-select [options]\n"),
    }
}

pub(super) fn xcodebuild(mac: &Inner, call: &Call) -> Reply {
    match (xcode(mac), call.words().as_slice()) {
        (Xcode::Missing, _) => Reply::err(2, NO_TOOLS),
        (Xcode::CommandLineTools, _) => Reply::err(
            1,
            format!(
                "xcode-select: error: tool 'xcodebuild' requires Xcode, but active developer directory '{TOOLS}' is a command line tools instance\n"
            ),
        ),
        (_, ["-license", "accept"]) if call.is_root() => {
            mac.state().quirks.xcode = Xcode::Ready;
            Reply::silent()
        }
        (Xcode::Unlicensed, _) => Reply::err(69, LICENCE),
        (Xcode::Ready, ["-version"]) => Reply::out("Xcode 26.3\nBuild version 17C529\n"),
        (Xcode::Ready, ["-license", "check"] | ["-checkFirstLaunchStatus" | "-runFirstLaunch"]) => Reply::silent(),
        _ => Reply::unknown(64, "xcodebuild: error: invalid option\n"),
    }
}

pub(super) fn xcrun(mac: &Inner, call: &Call) -> Reply {
    match (xcode(mac), call.words().as_slice()) {
        (Xcode::Unlicensed, _) => Reply::err(69, LICENCE),
        (Xcode::Missing, _) => Reply::err(1, "xcrun: error: invalid active developer path\n"),
        (_, ["--find", tool]) => Reply::out(format!("{DEVELOPER}/usr/bin/{tool}\n")),
        (_, ["--show-sdk-version"]) => Reply::out("26.2\n"),
        _ => Reply::unknown(72, "xcrun: error: unable to find utility\n"),
    }
}

/// Formulae that exist, the tap they are in, and their first version.
const FORMULAE: &[(&str, Option<&str>, &str)] = &[
    ("packer", Some("hashicorp/tap"), "1.14.2"),
    ("crane", None, "0.20.6"),
    ("oras", None, "1.3.0"),
    ("jq", None, "1.8.1"),
    ("tailscale", None, "1.96.4"),
];

pub(super) fn brew(mac: &Inner, call: &Call) -> Reply {
    if call.is_root() {
        return Reply::err(
            1,
            "Error: Running Homebrew as root is extremely dangerous and no longer supported.\nAs Homebrew does not drop privileges on installation you would be giving all\nbuild scripts full access to your system.\n",
        );
    }
    let words: Vec<&str> = call
        .words()
        .into_iter()
        .filter(|word| !matches!(*word, "--quiet" | "-q" | "--formula" | "--formulae"))
        .collect();
    match words.as_slice() {
        ["--version"] => Reply::out("Homebrew 6.0.3\n"),
        ["--prefix"] => Reply::out("/opt/homebrew\n"),
        ["shellenv"] => Reply::out(
            "export HOMEBREW_PREFIX=\"/opt/homebrew\";\nexport PATH=\"/opt/homebrew/bin:/opt/homebrew/sbin${PATH+:$PATH}\";\n",
        ),
        ["update"] => Reply::out("Already up-to-date.\n"),
        ["tap"] => Reply::out(
            mac.state()
                .gear
                .brew
                .taps
                .iter()
                .map(|tap| format!("{tap}\n"))
                .collect::<String>(),
        ),
        ["tap", tap] => {
            mac.state().gear.brew.taps.insert((*tap).to_owned());
            Reply::silent()
        }
        ["trust", name] => {
            mac.state().gear.brew.trusted.insert((*name).to_owned());
            Reply::silent()
        }
        ["install", names @ ..] if !names.is_empty() => each(names, |name| install(mac, call, name)),
        ["upgrade"] => {
            let names: Vec<String> = mac.state().gear.brew.installed.keys().cloned().collect();
            each(&names.iter().map(String::as_str).collect::<Vec<_>>(), |name| {
                upgrade(mac, name, false)
            })
        }
        ["upgrade", names @ ..] => each(names, |name| upgrade(mac, short(name), true)),
        ["uninstall", name] => {
            let gone = mac.state().gear.brew.installed.remove(short(name)).is_some();
            if gone {
                let _ = mac.tree.remove(&format!("/opt/homebrew/bin/{}", short(name)));
                Reply::silent()
            } else {
                Reply::err(1, format!("Error: No such keg: /opt/homebrew/Cellar/{name}\n"))
            }
        }
        ["pin", name] => pin(mac, short(name), true),
        ["unpin", name] => pin(mac, short(name), false),
        ["list", flags @ ..] => list(mac, flags),
        _ => Reply::unknown(1, format!("Error: Unknown command: brew {}\n", call.args.join(" "))),
    }
}

fn each(names: &[&str], one: impl Fn(&str) -> Reply) -> Reply {
    let mut all = Reply::silent();
    for name in names {
        let reply = one(name);
        all.out.push_str(&reply.out);
        all.err.push_str(&reply.err);
        all.code = all.code.max(reply.code);
        all.unexpected |= reply.unexpected;
    }
    all
}

fn short(name: &str) -> &str {
    name.rsplit('/').next().unwrap_or(name)
}

fn install(mac: &Inner, call: &Call, name: &str) -> Reply {
    let Some((formula, tap, version)) = FORMULAE.iter().find(|(formula, ..)| *formula == short(name)).copied() else {
        return Reply::unknown(1, format!("Warning: No available formula with the name \"{name}\".\n"));
    };
    let mut state = mac.state();
    if let Some(tap) = tap {
        let full = format!("{tap}/{formula}");
        let is_full = name == full;
        if is_full {
            state.gear.brew.taps.insert(tap.to_owned());
            // Naming it in full is trusting it.
            state.gear.brew.trusted.insert(full.clone());
        }
        if !state.gear.brew.taps.contains(tap) {
            return Reply::err(1, format!("Warning: No available formula with the name \"{name}\".\n"));
        }
        let waived = call.env.contains_key("HOMEBREW_NO_REQUIRE_TAP_TRUST");
        // Taps that nobody trusted are ignored, as since Homebrew 6.0. [facts 5]
        if !waived && !state.gear.brew.trusted.contains(&full) {
            return Reply::err(
                1,
                format!(
                    "Error: Refusing to load formula {full} from untrusted tap {tap}.\nRun `brew trust --formula {full}` to trust it.\n"
                ),
            );
        }
    }
    if let Some(version) = state.gear.brew.installed.get(formula) {
        return Reply::err(
            0,
            format!("Warning: {formula} {version} is already installed and up-to-date.\n"),
        );
    }
    state.gear.brew.installed.insert(formula.to_owned(), version.to_owned());
    drop(state);
    pour(mac, formula, version)
}

/// Writes a program whose content, and so its code hash, depends on the version. What it does is nothing.
fn pour(mac: &Inner, formula: &str, version: &str) -> Reply {
    let bin = "/opt/homebrew/bin";
    let path = format!("{bin}/{formula}");
    let mut program = std::fs::read("/usr/bin/true").unwrap_or_default();
    program.extend(format!("{formula} {version}").into_bytes());
    let written = mac
        .tree
        .make_folders(bin, 0o755)
        .and_then(|()| mac.tree.remove(&path).or(Ok(())))
        .and_then(|()| mac.tree.write(&path, &program, 0o755))
        .and_then(|()| mac.tree.give(&path, UID, STAFF));
    match written {
        Ok(()) => Reply::out(format!(
            "==> Pouring {formula}--{version}.arm64_tahoe.bottle.tar.gz\n🍺  /opt/homebrew/Cellar/{formula}/{version}: 5 files, 20MB\n"
        )),
        Err(error) => Reply::err(1, format!("Error: {error}\n")),
    }
}

fn upgrade(mac: &Inner, name: &str, asked: bool) -> Reply {
    let next = {
        let mut state = mac.state();
        let brew = &mut state.gear.brew;
        let Some(version) = brew.installed.get(name).cloned() else {
            return Reply::err(1, format!("Error: {name} not installed\n"));
        };
        if brew.pinned.contains(name) {
            let code = i32::from(asked);
            return Reply::err(
                code,
                format!("Warning: Not upgrading 1 pinned package:\n{name} {version}\n"),
            );
        }
        let (front, last) = version.rsplit_once('.').unwrap_or(("1", "0"));
        let next = format!("{front}.{}", last.parse::<u32>().unwrap_or(0) + 1);
        brew.installed.insert(name.to_owned(), next.clone());
        next
    };
    pour(mac, name, &next)
}

fn pin(mac: &Inner, name: &str, pins: bool) -> Reply {
    let mut state = mac.state();
    let brew = &mut state.gear.brew;
    if !brew.installed.contains_key(name) {
        return Reply::err(1, format!("Error: {name} not installed\n"));
    }
    if pins && !brew.pinned.insert(name.to_owned()) {
        return Reply::err(0, format!("Warning: {name} already pinned\n"));
    }
    if !pins {
        brew.pinned.remove(name);
    }
    Reply::silent()
}

fn list(mac: &Inner, words: &[&str]) -> Reply {
    let (flags, names): (Vec<&str>, Vec<&str>) = words.iter().partition(|word| word.starts_with('-'));
    let state = mac.state();
    let brew = &state.gear.brew;
    let mut reply = Reply::silent();
    for (name, version) in &brew.installed {
        let wanted = names.is_empty() || names.iter().any(|wanted| short(wanted) == name);
        if wanted && (!flags.contains(&"--pinned") || brew.pinned.contains(name)) {
            let shown = if flags.contains(&"--versions") {
                format!("{name} {version}\n")
            } else {
                format!("{name}\n")
            };
            reply.out.push_str(&shown);
        }
    }
    reply.unexpected = flags
        .iter()
        .any(|flag| !matches!(*flag, "--pinned" | "--versions" | "-1"));
    if !names.is_empty() && reply.out.is_empty() {
        reply.code = 1;
        if !flags.contains(&"--versions") {
            reply.err = format!(
                "Error: No such keg: /opt/homebrew/Cellar/{}\n",
                names.first().unwrap_or(&"")
            );
        }
    }
    reply
}
