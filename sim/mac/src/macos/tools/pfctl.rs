//! `pfctl`. Everything it says goes to standard error, what `-s` shows apart. [facts 4]

use crate::macos::call::{Call, Reply};
use crate::macos::mac::Inner;
use crate::macos::pf::{Pf, Ruleset};

const ALTQ: &str = "No ALTQ support in kernel\nALTQ related functions disabled\n";
const FLUSHING: &str = "pfctl: Use of -f option, could result in flushing of rules\npresent in the main ruleset added by the system at startup.\nSee /etc/pf.conf for further details.\n\n";

#[derive(Debug, Default)]
struct Request {
    anchor: Option<String>,
    file: Option<String>,
    show: Option<String>,
    flush: Option<String>,
    enable: bool,
    enable_counted: bool,
    disable: bool,
    release: Option<u64>,
    dry_run: bool,
}

pub(super) fn answer(mac: &Inner, call: &Call) -> Reply {
    let Some(request) = parse(&call.words()) else {
        return Reply::unknown(
            1,
            "usage: pfctl [-AdeghmNnOPqRrvz] [-a anchor] [-D macro=value] [-F modifier] [-f file] [-i interface] [-K host | network] [-k host | network] [-o level] [-p device] [-s modifier] [-t table -T command [address ...]] [-x level]\n",
        );
    };
    if !call.is_root() {
        return Reply::err(1, "pfctl: /dev/pf: Permission denied\n");
    }
    let mut reply = Reply::silent().with_err(ALTQ);
    let mut state = mac.state();
    let pf = &mut state.gear.pf;
    if let Some(file) = &request.file {
        reply.err.push_str(FLUSHING);
        let text = if file == "-" {
            call.input.clone()
        } else {
            mac.tree.read_text(file)
        };
        let Some(text) = text else {
            reply
                .err
                .push_str(&format!("pfctl: {file}: No such file or directory\n"));
            return reply.with_code(1);
        };
        let name = if file == "-" { "stdin" } else { file.as_str() };
        let mut next = pf.clone();
        if let Err(bad) = next.load(request.anchor.as_deref(), name, &text, |path| mac.tree.read_text(path)) {
            reply.err.push_str(&bad.0);
            return reply.with_code(1);
        }
        if !request.dry_run {
            *pf = next;
        }
    }
    if let Some(what) = &request.flush {
        flush(pf, request.anchor.as_deref(), what, &mut reply);
    }
    switch(pf, &request, &mut reply);
    if let Some(what) = &request.show {
        show(pf, request.anchor.as_deref(), what, &mut reply);
    }
    reply
}

fn parse(words: &[&str]) -> Option<Request> {
    let mut request = Request::default();
    let mut rest = words.iter();
    while let Some(word) = rest.next() {
        let flag = word.strip_prefix('-')?;
        let (letter, attached) = flag.split_at_checked(1)?;
        let mut value = || {
            if attached.is_empty() {
                rest.next().map(|&word| word.to_owned())
            } else {
                Some(attached.to_owned())
            }
        };
        match letter {
            "a" => request.anchor = Some(value()?),
            "f" => request.file = Some(value()?),
            "s" => request.show = Some(value()?),
            "F" => request.flush = Some(value()?),
            "X" => request.release = Some(value()?.parse().ok()?),
            _ => {
                for letter in flag.chars() {
                    match letter {
                        'e' => request.enable = true,
                        'E' => request.enable_counted = true,
                        'd' => request.disable = true,
                        'n' => request.dry_run = true,
                        'q' | 'v' | 'N' | 'R' => {}
                        _ => return None,
                    }
                }
            }
        }
    }
    Some(request)
}

fn switch(pf: &mut Pf, request: &Request, reply: &mut Reply) {
    if request.enable {
        if pf.enabled {
            reply.err.push_str("pfctl: pf already enabled\n");
            reply.code = 1;
        } else {
            pf.enabled = true;
            reply.err.push_str("pf enabled\n");
        }
    }
    if request.enable_counted {
        pf.enabled = true;
        pf.next_token += 1;
        let token = 17_000_000_000_000_000_000 + pf.next_token;
        pf.tokens.insert(token);
        reply.err.push_str(&format!("pf enabled\nToken : {token}\n"));
    }
    if let Some(token) = request.release {
        if pf.tokens.remove(&token) {
            pf.enabled = !pf.tokens.is_empty();
            let left = if pf.enabled {
                "pf still enabled\n"
            } else {
                "pf disabled\n"
            };
            reply.err.push_str(&format!(
                "disable request successful. {} more pf enable reference(s) remaining, {left}",
                pf.tokens.len()
            ));
        } else {
            reply.err.push_str("pfctl: pf token not found\n");
            reply.code = 1;
        }
    }
    if request.disable {
        pf.enabled = false;
        pf.tokens.clear();
        reply.err.push_str("pf disabled\n");
    }
}

fn flush(pf: &mut Pf, anchor: Option<&str>, what: &str, reply: &mut Reply) {
    let rules = match anchor {
        None => Some(&mut pf.main),
        Some(anchor) => pf.anchors.get_mut(anchor),
    };
    match (what, rules) {
        ("all", Some(rules)) => *rules = Ruleset::default(),
        ("rules" | "r", Some(rules)) => rules.filter.clear(),
        ("nat" | "n", Some(rules)) => rules.translation.clear(),
        ("states" | "s" | "Tables" | "T", _) | (_, None) => {}
        _ => {
            reply.err.push_str(&format!("pfctl: Unknown flush modifier '{what}'\n"));
            reply.code = 1;
        }
    }
    if reply.code == 0 {
        reply.err.push_str("rules cleared\n");
    }
}

fn show(pf: &Pf, anchor: Option<&str>, what: &str, reply: &mut Reply) {
    let empty = Ruleset::default();
    let rules = match anchor {
        None => &pf.main,
        Some(anchor) => pf.anchors.get(anchor).unwrap_or(&empty),
    };
    let lines = |lines: &[String]| lines.iter().map(|line| format!("{line}\n")).collect::<String>();
    match what {
        "rules" | "r" => reply.out = lines(&rules.filter),
        "nat" | "n" => reply.out = lines(&rules.translation),
        "Tables" | "T" => reply.out = rules.tables.iter().map(|table| format!("{table}\n")).collect(),
        "Anchors" | "A" => {
            let prefix = anchor.map(|anchor| format!("{anchor}/")).unwrap_or_default();
            reply.out = pf
                .anchors
                .keys()
                .filter(|name| name.starts_with(&prefix))
                .map(|name| format!("  {name}\n"))
                .collect();
        }
        "info" | "i" => {
            reply.out = if pf.enabled {
                "Status: Enabled for 0 days 00:00:00           Debug: Urgent\n\n".to_owned()
            } else {
                "Status: Disabled for 0 days 00:00:00          Debug: Urgent\n\n".to_owned()
            };
        }
        "References" => {
            reply.out = pf.tokens.iter().map(|token| format!("{token}\n")).collect();
        }
        _ => {
            reply.err.push_str(&format!("pfctl: Unknown show modifier '{what}'\n"));
            reply.code = 1;
            reply.unexpected = true;
        }
    }
}
