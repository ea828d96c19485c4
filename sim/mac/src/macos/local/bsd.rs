//! Tools that Linux has, with the flags of a Mac: what GNU alone understands fails here as it does there. [facts 5]

use super::Said;
use crate::macos::inside::{self, Desk};
use crate::macos::system::LINUX;
use std::net::{TcpStream, ToSocketAddrs as _};
use std::process::{Command, Stdio};
use std::time::Duration;

/// Runs the Linux tool with other words.
pub(super) fn linux(tool: &str, words: &[String]) -> Said {
    let ran = Command::new(format!("{LINUX}/{tool}"))
        .args(words)
        .stdin(Stdio::inherit())
        .stderr(Stdio::inherit())
        .output();
    match ran {
        Ok(output) => Said {
            out: output.stdout,
            code: output.status.code().unwrap_or(1),
            ..Said::default()
        },
        Err(error) => Said::err(127, format!("{tool}: {error}\n")),
    }
}

fn illegal(tool: &str, flag: &str, usage: &str) -> Said {
    let flag = flag.trim_start_matches('-');
    Said::unknown(1, format!("{tool}: illegal option -- {flag}\n{usage}"))
}

/// `sed -i ''`: the suffix is a word of its own, and must be there.
pub(super) fn sed(desk: &Desk) -> Said {
    const USAGE: &str = "usage: sed script [-EHalnru] [-i extension] [-I extension] [file ...]\n";
    let mut words = Vec::new();
    let mut rest = desk.words().into_iter();
    while let Some(word) = rest.next() {
        match word {
            "-i" | "-I" => match rest.next() {
                Some("") => words.push("-i".to_owned()),
                Some(suffix) => words.push(format!("-i{suffix}")),
                None => return Said::err(1, format!("sed: option requires an argument -- i\n{USAGE}")),
            },
            "-e" | "-f" => {
                words.push(word.to_owned());
                words.extend(rest.next().map(str::to_owned));
            }
            "-s" | "-z" | "--posix" | "--in-place" | "--quiet" | "--regexp-extended" => {
                return illegal("sed", word, USAGE);
            }
            word => words.push(word.to_owned()),
        }
    }
    linux("sed", &words)
}

/// `stat -f FORMAT`: `%Su` owner, `%Lp` mode, `%z` size and their like.
pub(super) fn stat(desk: &Desk) -> Said {
    const USAGE: &str = "usage: stat [-FLnq] [-f format | -l | -r | -s | -x] [-t timefmt] [file|handle ...]\n";
    let mut words: Vec<String> = Vec::new();
    let mut rest = desk.words().into_iter();
    while let Some(word) = rest.next() {
        match word {
            "-f" | "-Lf" => {
                let Some(format) = rest.next() else {
                    return Said::err(1, format!("stat: option requires an argument -- f\n{USAGE}"));
                };
                let Some(translated) = translate(format) else {
                    return Said::unknown(1, format!("stat: {format}: bad format\n"));
                };
                if word == "-Lf" {
                    words.push("-L".to_owned());
                }
                words.extend(["-c".to_owned(), translated]);
            }
            "-L" | "--" => words.push(word.to_owned()),
            flag if flag.starts_with('-') => return illegal("stat", flag, USAGE),
            path => words.push(path.to_owned()),
        }
    }
    linux("stat", &words)
}

fn translate(format: &str) -> Option<String> {
    const PAIRS: &[(&str, &str)] = &[
        ("Su", "%U"),
        ("Sg", "%G"),
        ("OLp", "%a"),
        ("Lp", "%a"),
        ("Mp%Lp", "%a"),
        ("SHp", "%F"),
        ("Sp", "%A"),
        ("HT", "%F"),
        ("u", "%u"),
        ("g", "%g"),
        ("z", "%s"),
        ("m", "%Y"),
        ("a", "%X"),
        ("c", "%Z"),
        ("i", "%i"),
        ("l", "%h"),
        ("N", "%n"),
        ("d", "%d"),
        ("n", "\n"),
        ("t", "\t"),
        ("%", "%%"),
    ];
    let mut text = String::new();
    let mut rest = format;
    while let Some(at) = rest.find('%') {
        let (plain, after) = rest.split_at(at);
        text.push_str(plain);
        let after = after.get(1..)?;
        let (from, to) = PAIRS.iter().find(|(from, _)| after.starts_with(from))?;
        text.push_str(to);
        rest = after.get(from.len()..)?;
    }
    text.push_str(rest);
    Some(text)
}

pub(super) fn base64(desk: &Desk) -> Said {
    let mut words: Vec<String> = Vec::new();
    let mut wrap = "0".to_owned();
    let mut decode = false;
    let mut rest = desk.words().into_iter();
    while let Some(word) = rest.next() {
        match word {
            "-d" | "-D" | "--decode" => decode = true,
            "-i" | "--input" => words.extend(rest.next().map(str::to_owned)),
            "-b" | "--break" => rest.next().unwrap_or("0").clone_into(&mut wrap),
            flag if flag.starts_with('-') && flag != "-" => {
                return illegal(
                    "base64",
                    flag,
                    "Usage:\tbase64 [-Ddh] [-b num] [-i in_file] [-o out_file]\n",
                );
            }
            path => words.push(path.to_owned()),
        }
    }
    if decode {
        words.insert(0, "-d".to_owned());
    } else {
        words.insert(0, format!("-w{wrap}"));
        // Unlike GNU with width 0, a Mac ends its line.
        let mut said = linux("base64", &words);
        if wrap == "0" && !said.out.is_empty() {
            said.out.push(b'\n');
        }
        return said;
    }
    linux("base64", &words)
}

/// `shasum -a 256`, of files or of standard input; `-c` checks.
pub(super) fn shasum(desk: &Desk) -> Said {
    let words = desk.words();
    let (mut bits, mut paths, mut check) = ("1", Vec::new(), false);
    let mut rest = words.into_iter();
    while let Some(word) = rest.next() {
        match word {
            "-a" | "--algorithm" => bits = rest.next().unwrap_or_default(),
            "-c" | "--check" => check = true,
            "-b" | "-t" | "-s" | "--status" => {}
            "-a256" => bits = "256",
            flag if flag.starts_with('-') && flag != "-" => {
                return Said::unknown(1, format!("Unknown option: {flag}\n"));
            }
            path => paths.push(path.to_owned()),
        }
    }
    let tool = match bits {
        "1" => "sha1sum",
        "224" => "sha224sum",
        "256" => "sha256sum",
        "384" => "sha384sum",
        "512" => "sha512sum",
        _ => return Said::err(1, "shasum: Unrecognized algorithm\n"),
    };
    if check {
        paths.insert(0, "-c".to_owned());
    }
    linux(tool, &paths)
}

pub(super) fn md5(desk: &Desk) -> Said {
    match desk.words().as_slice() {
        ["-q", path] => {
            let mut said = linux("md5sum", &[(*path).to_owned()]);
            let text = String::from_utf8_lossy(&said.out).into_owned();
            said.out = format!("{}\n", text.split_whitespace().next().unwrap_or_default()).into_bytes();
            said
        }
        _ => Said::unknown(1, "usage: md5 [-pqrtx] [-c string] [-s string] [files ...]\n"),
    }
}

/// Whether `nc` is asked for SSH on this very Mac.
pub(super) fn is_own_sshd(desk: &Desk) -> bool {
    matches!(desk.words().as_slice(), [.., "127.0.0.1" | "localhost" | "::1", "22"])
}

/// `nc -z [-G seconds] [-w seconds] host port`: whether somebody listens.
pub(super) fn nc(desk: &Desk) -> Said {
    let (mut scan, mut places, mut limit) = (false, Vec::new(), 75_u64);
    let words = desk.words();
    let mut rest = words.into_iter();
    while let Some(word) = rest.next() {
        match word {
            "-G" | "-w" => limit = rest.next().and_then(|word| word.parse().ok()).unwrap_or(limit),
            flags if flags.starts_with('-') && flags.chars().skip(1).all(|flag| "znv4".contains(flag)) => {
                scan |= flags.contains('z');
            }
            flag if flag.starts_with('-') => {
                return illegal(
                    "nc",
                    flag,
                    "usage: nc [-46AacCDdEFhklMnOortUuvz] [hostname] [port[s]]\n",
                );
            }
            word => places.push(word),
        }
    }
    let (true, [host, port]) = (scan, places.as_slice()) else {
        return Said::unknown(1, "nc: only -z is emulated\n");
    };
    let target = port
        .parse()
        .ok()
        .and_then(|port: u16| (*host, port).to_socket_addrs().ok()?.next());
    let Some(target) = target else {
        return Said::err(
            1,
            format!("nc: getaddrinfo: nodename nor servname provided, or not known: {host}\n"),
        );
    };
    match TcpStream::connect_timeout(&target, Duration::from_secs(limit.max(1))) {
        Ok(_) => Said::err(0, format!("Connection to {host} port {port} [tcp/*] succeeded!\n")),
        Err(error) => Said::err(1, format!("nc: connectx to {host} port {port} (tcp) failed: {error}\n")),
    }
}

/// `xattr`: nothing that came over SSH or from tar is in quarantine. [facts 2]
pub(super) fn xattr(desk: &Desk) -> Said {
    match desk.words().as_slice() {
        ["-d", name, paths @ ..] if !paths.is_empty() => {
            let text: String = paths
                .iter()
                .map(|path| format!("xattr: {path}: No such xattr: {name}\n"))
                .collect();
            Said::err(1, text)
        }
        ["-dr" | "-rd", _, paths @ ..] if !paths.is_empty() => Said::silent(),
        ["-cr" | "-c" | "-rc", paths @ ..] if !paths.is_empty() => Said::silent(),
        [path] if !path.starts_with('-') => Said::silent(),
        ["-p", name, path] => Said::err(1, format!("xattr: {path}: No such xattr: {name}\n")),
        _ => Said::unknown(1, "usage: xattr [-r] [-s] [-l] [-v] [-x] file [file ...]\n"),
    }
}

/// Standard input as text, for tools that take `-`.
pub(super) fn input() -> Vec<u8> {
    inside::read_all().unwrap_or_default()
}
