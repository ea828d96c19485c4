//! What virtual machines reach, and who reaches the host.
//!
//! All rules live in sub-anchors of `com.apple`, which the stock `/etc/pf.conf` evaluates: they count at once, no other rule is
//! flushed for them, and the file stays Apple's. A job loads them at start and sees to it that they stay, because macOS flushes
//! them now and then.

use russet_telemetry::Secret;

use crate::mac::config::{Firewall, Fleet};
use crate::mac::resource::{Mode, Resource};
use crate::mac::step::Step;

use super::absent_job;
use super::reachability::timer;

/// Where virtual machines get their addresses.
const GUESTS: &str = "192.168.64.0/22";
/// Never for guests: private networks, and the cloud's metadata.
const CLOSED: [&str; 3] = ["10.0.0.0/8", "172.16.0.0/12", "169.254.0.0/16"];

const LOADER: &str = r#"#!/bin/bash
# Loads the rules in RULES as ANCHOR when they are not there, and switches pf on.
[ -s "$RULES" ] || exit 1
pfctl -s info 2>/dev/null | grep '^Status: Enabled' >/dev/null || pfctl -E
now=$(pfctl -a "$ANCHOR" -s rules 2>/dev/null; pfctl -a "$ANCHOR" -s nat 2>/dev/null)
sum=$(shasum -a 256 "$RULES" | cut -c1-64)
[ -n "$now" ] && [ "$(cat "$LOADED" 2>/dev/null)" = "$sum" ] && exit 0
pfctl -a "$ANCHOR" -f "$RULES" && printf '%s\n' "$sum" >"$LOADED.$$" && mv -f "$LOADED.$$" "$LOADED"
"#;

/// Its first line, then which rules it is about.
fn loader(anchor: &str, rules: &str, loaded: &str) -> String {
    let settings = format!("#!/bin/bash\nANCHOR=com.apple/{anchor}\nRULES={rules}\nLOADED={loaded}\n");
    LOADER.replacen("#!/bin/bash\n", &settings, 1)
}

fn guests(firewall: &Firewall) -> String {
    let mut rules = String::from("# What virtual machines reach. Written by Russet; changes are undone.\n");
    let mut rule = |text: String| {
        rules.push_str(&text);
        rules.push('\n');
    };
    if let Some(services) = &firewall.services {
        rule(format!("pass in quick proto tcp from {GUESTS} to {services} port 4000"));
        if let Some(dns) = firewall.dns {
            rule(format!(
                "pass in quick proto {{ tcp udp }} from {GUESTS} to {dns} port 53"
            ));
        }
    }
    if let Some(network) = &firewall.cache_network {
        rule(format!(
            "pass in quick proto tcp from {GUESTS} to {network} port 30000:32767"
        ));
    }
    for network in CLOSED {
        rule(format!("block drop in quick from {GUESTS} to {network}"));
    }
    rules
}

/// What virtual machines reach.
pub(in crate::mac) fn step(fleet: &Fleet) -> Step {
    let (rules, program) = ("/etc/pf.anchors/tuist.runners", "/usr/local/bin/tuist-pf-runners");
    let script = loader("tuist.runners", rules, "/usr/local/etc/tuist-runners.loaded");
    Step::new(
        "firewall",
        vec![
            Resource::Directory {
                path: "/usr/local/etc".to_owned(),
                mode: Mode::root("drwxr-xr-x"),
            },
            Resource::text(rules, Mode::TEXT, guests(&fleet.firewall)),
            Resource::text(program, Mode::PROGRAM, script),
            timer(
                "dev.tuist.pfctl-runners",
                program,
                "/var/log/tuist-pfctl-runners.log",
                &[rules],
            ),
            Resource::script(
                r#"[ "$(cat /usr/local/etc/tuist-runners.loaded 2>/dev/null)" = "$(sha /etc/pf.anchors/tuist.runners)" ] &&
  pfctl -a com.apple/tuist.runners -s rules 2>/dev/null | grep . >/dev/null"#,
                program,
            ),
        ],
    )
}

const NAT: &str = r#"#!/bin/bash
# Gives virtual machines a way out: the tailnet, the private network, then everything else. Interfaces come and go, so the rules
# are made anew each time, and loaded when they differ.
GUESTS=192.168.64.0/22
ANCHOR=com.apple/tuist.vmnat
LOADED=/usr/local/etc/tuist-vmnat.loaded
rules=$(mktemp /tmp/tuist-vmnat.XXXXXX) || exit 1
trap 'rm -f "$rules"' EXIT
tunnel=$(ifconfig -l | tr ' ' '\n' | while read -r name; do
  case $name in utun*) ifconfig "$name" | grep 'inet 100\.' >/dev/null && printf '%s\n' "$name" && break ;; esac
done)
private=$(networksetup -listVLANs | awk '/User Defined Name: pn$/ { mine = 1 } mine && /Device/ && !/Parent/ { print $NF; exit }')
default=$(route -n get default 2>/dev/null | awk '$1 == "interface:" { print $2 }')
{
  [ -z "$tunnel" ] || printf 'scrub on %s from %s to any max-mss 1200\n' "$tunnel" "$GUESTS"
  [ -z "$tunnel" ] || printf 'nat on %s from %s to any -> (%s)\n' "$tunnel" "$GUESTS" "$tunnel"
  [ -z "$private" ] || printf 'nat on %s from %s to any -> (%s)\n' "$private" "$GUESTS" "$private"
  [ -z "$default" ] || printf 'nat on %s from %s to %s -> (%s)\n' "$default" "$GUESTS" "$OUTSIDE" "$default"
} >"$rules"
pfctl -s info 2>/dev/null | grep '^Status: Enabled' >/dev/null || pfctl -E
if cmp -s "$rules" "$LOADED" && pfctl -a "$ANCHOR" -s nat 2>/dev/null | grep . >/dev/null; then exit 0; fi
pfctl -a "$ANCHOR" -f "$rules" && cp "$rules" "$LOADED.$$" && mv -f "$LOADED.$$" "$LOADED"
"#;

/// Their way out.
pub(in crate::mac) fn nat(fleet: &Fleet) -> Step {
    let program = "/usr/local/bin/tuist-pf-vmnat";
    let outside = match &fleet.firewall.cache_network {
        Some(network) => format!("OUTSIDE='! {network}'\n"),
        None => "OUTSIDE=any\n".to_owned(),
    };
    let script = NAT.replacen("ANCHOR=", &format!("{outside}ANCHOR="), 1);
    Step::new(
        "vm-nat",
        vec![
            Resource::text(program, Mode::PROGRAM, script),
            timer("dev.tuist.pfctl-vmnat", program, "/var/log/tuist-pfctl-vmnat.log", &[]),
            // The job has only just been started.
            Resource::script(
                "pfctl -a com.apple/tuist.vmnat -s nat 2>/dev/null | grep . >/dev/null",
                program,
            ),
        ],
    )
}

/// Rules that leave out whoever sets the host up would be the last thing it was ever told.
const OPEN_CHECK: &str = r#"
number() { # a.b.c.d
  local a b c d
  IFS=. read -r a b c d <<<"$1"
  printf '%s' $(((a << 24) + (b << 16) + (c << 8) + d))
}
within() { # address network
  local bits=$((32 - ${2#*/}))
  [ $(($(number "$1") >> bits)) = $(($(number "${2%/*}") >> bits)) ]
}
case $SOURCE in '' | *:*) exit 1 ;; esac
for network in 127.0.0.0/8 100.64.0.0/10 $ALLOWED; do
  ! within "$SOURCE" "$network" || exit 0
done
exit 1
"#;
const OPEN_CHANGE: &str = r#"
say "the rules would lock out ${SOURCE:-an unknown address}, from where the host is set up; allow it to log in, or come by the tailnet" >&2
exit 1
"#;

/// Who may log in. Only where there is a tailnet to log in from: nobody locks themselves out. Virtual machines reach SSH servers out
/// in the world, and neither the host nor each other.
pub(in crate::mac) fn guard(fleet: &Fleet) -> Step {
    let (rules, program, label) = (
        "/etc/pf.anchors/tuist.sshguard",
        "/usr/local/bin/tuist-pf-sshguard",
        "dev.tuist.pfctl-sshguard",
    );
    let (Some(allowed), Some(_)) = (&fleet.login_from, &fleet.tailnet) else {
        let absent = |path: &str| Resource::Absent { path: path.to_owned() };
        return Step::new(
            "ssh-guard",
            vec![
                absent_job(label),
                absent(rules),
                absent(program),
                absent("/usr/local/etc/tuist-sshguard.loaded"),
                Resource::script(
                    "! pfctl -a com.apple/tuist.sshguard -s rules 2>/dev/null | grep . >/dev/null",
                    "pfctl -a com.apple/tuist.sshguard -F all",
                ),
            ],
        );
    };
    let mut text = String::from("# Who may log in. Written by Russet; changes are undone.\n");
    text.push_str("pass in quick on lo0 proto tcp to any port 22\n");
    text.push_str(&format!(
        "block drop in quick proto tcp from {GUESTS} to self port 22\n"
    ));
    text.push_str(&format!(
        "block drop in quick proto tcp from {GUESTS} to {GUESTS} port 22\n"
    ));
    text.push_str(&format!("pass in quick proto tcp from {GUESTS} to any port 22\n"));
    text.push_str("pass in quick proto tcp from 100.64.0.0/10 to any port 22\n");
    for network in allowed {
        text.push_str(&format!("pass in quick proto tcp from {network} to any port 22\n"));
    }
    text.push_str("block drop in quick proto tcp to any port 22\n");
    let script = loader("tuist.sshguard", rules, "/usr/local/etc/tuist-sshguard.loaded");
    Step::new(
        "ssh-guard",
        vec![
            Resource::Script {
                upload: None,
                variables: vec![("ALLOWED", Secret::new(allowed.join(" ")))],
                check: OPEN_CHECK,
                change: OPEN_CHANGE,
            },
            Resource::text(rules, Mode::TEXT, text),
            Resource::text(program, Mode::PROGRAM, script),
            timer(label, program, "/var/log/tuist-pf-sshguard.log", &[rules]),
            Resource::script(
                r#"[ "$(cat /usr/local/etc/tuist-sshguard.loaded 2>/dev/null)" = "$(sha /etc/pf.anchors/tuist.sshguard)" ] &&
  pfctl -a com.apple/tuist.sshguard -s rules 2>/dev/null | grep . >/dev/null"#,
                program,
            ),
        ],
    )
}
