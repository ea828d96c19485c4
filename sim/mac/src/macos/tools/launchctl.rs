//! `launchctl`. [facts 1.1 to 1.4]

use super::launchctl_legacy as legacy;
use crate::macos::call::{Call, Reply};
use crate::macos::image;
use crate::macos::launchd::domain::{self, Domain, Target, text};
use crate::macos::launchd::job::{Job, State};
use crate::macos::launchd::{Key, LOGINWINDOW, LOGINWINDOW_PID, SSHD, print, set_disabled};
use crate::macos::mac::Inner;
use std::sync::Arc;

pub(super) const USAGE: i32 = 64;
const NO_SERVICE: i32 = 113;
const SIP: i32 = 150;

pub(super) async fn answer(mac: &Arc<Inner>, call: &Call) -> Reply {
    match call.words().as_slice() {
        ["bootstrap", domain, paths @ ..] if !paths.is_empty() => bootstrap(mac, call, domain, paths),
        ["bootout", "--wait", target] => {
            let reply = bootout(mac, call, target, None);
            if let (0, Some(key)) = (reply.code, key_of(target)) {
                mac.wait_for(|launchd| !launchd.jobs.contains_key(&key)).await;
            }
            reply
        }
        ["bootout", target] => bootout(mac, call, target, None),
        ["bootout", domain, path] => bootout(mac, call, domain, Some(path)),
        ["kickstart", rest @ ..] if !rest.is_empty() => kickstart(mac, call, rest).await,
        ["print", target] => print_target(mac, target),
        ["print-disabled", target] => print_disabled(mac, target),
        [verb @ ("enable" | "disable"), target] => enable(mac, call, target, *verb == "disable"),
        ["kill", signal, target] => kill(mac, call, signal, target).await,
        ["list"] => Reply::out(print::list(&mac.state().launchd, callers(call))),
        ["list", label] => list(mac, call, label),
        ["load" | "unload", ..] => legacy::load_unload(mac, call),
        ["start" | "stop", label] => legacy::start_stop(mac, call, label),
        ["remove", label] => legacy::remove(mac, call, label),
        ["managername"] => Reply::out(if call.is_root() { "System\n" } else { "Background\n" }),
        ["manageruid"] => Reply::out(format!("{}\n", call.uid)),
        ["managerpid"] => Reply::out("1\n"),
        ["error", number] => match number.parse::<i32>() {
            Ok(number) => Reply::out(format!("{number}: {}\n", text(number))),
            Err(_) => Reply::err(USAGE, "Usage: launchctl error [posix|mach|bootstrap] <code>\n"),
        },
        ["version"] => {
            Reply::out("Darwin Bootstrapper Version 7.0.0: libxpc_executables-2894.0.1~1/launchd/RELEASE_ARM64E\n")
        }
        [] | ["help"] => Reply::err(
            i32::from(!call.args.is_empty()) * USAGE,
            "Usage: launchctl <subcommand> ... | help [subcommand]\nMany subcommands take a target specifier that refers to a domain or service within that domain.\n",
        ),
        [verb, ..] => Reply::unknown(
            USAGE,
            format!("Unrecognized subcommand: {verb}\nUsage: launchctl <subcommand> ... | help [subcommand]\n"),
        ),
    }
}

/// The domain that belongs to whoever calls: over SSH never the one of the screen.
pub(super) fn callers(call: &Call) -> Domain {
    if call.is_root() {
        Domain::System
    } else {
        Domain::User(call.uid)
    }
}

fn bad_target(verb: &str) -> Reply {
    Reply::err(
        USAGE,
        format!(
            "Unrecognized target specifier.\nUsage: launchctl {verb} <domain-target> | <service-target>\n\
             <service-target> takes a form of <domain-target>/<service-id>.\n"
        ),
    )
}

fn key_of(target: &str) -> Option<Key> {
    let target = Target::parse(target)?;
    Some((target.domain, target.label?))
}

fn may_change(call: &Call, domain: Domain) -> bool {
    call.is_root() || (domain != Domain::System && domain.owner() == call.uid)
}

/// Callers that are not root are told little.
fn failed(call: &Call, what: &str, code: i32) -> Reply {
    let rich = call.is_root() || !matches!(code, 37 | 108..=111 | 119 | 122 | 134);
    let code = if rich { code } else { 5 };
    let hint = if call.is_root() {
        ""
    } else {
        "Try re-running the command as root for richer errors.\n"
    };
    Reply::err(code, format!("{what} failed: {code}: {}\n{hint}", text(code)))
}

fn bootstrap(mac: &Arc<Inner>, call: &Call, target: &str, paths: &[&str]) -> Reply {
    let Some(Target { domain, label: None }) = Target::parse(target) else {
        return bad_target("bootstrap");
    };
    if let Err(refused) = mac.state().launchd.check_domain(domain) {
        return domain_failed(call, "Bootstrap", domain, refused.0);
    }
    if !may_change(call, domain) {
        return failed(call, "Bootstrap", 5);
    }
    let mut said = String::new();
    let mut codes = Vec::new();
    for path in paths {
        let full = absolute(call, path);
        if let Err(code) = mac.bootstrap(domain, &full, true) {
            codes.push(code);
            if call.is_root() && code != 5 {
                let words = if code == 37 {
                    "service already bootstrapped"
                } else {
                    text(code)
                };
                said.push_str(&format!("{path}: {words}\n"));
            }
        }
    }
    match codes.as_slice() {
        [] => Reply::silent(),
        [code] => {
            let reply = failed(call, "Bootstrap", *code);
            let err = format!("{said}{}", reply.err);
            reply.with_err(err)
        }
        _ => failed(call, "Bootstrap", 133),
    }
}

fn domain_failed(call: &Call, what: &str, domain: Domain, code: i32) -> Reply {
    match code {
        112 => Reply::err(112, format!("Could not find domain for {}\n", domain.in_words())),
        code => failed(call, what, code),
    }
}

pub(super) fn absolute(call: &Call, path: &str) -> String {
    if path.starts_with('/') {
        path.to_owned()
    } else {
        format!("{}/{path}", call.folder)
    }
}

/// Apple's services are protected, sshd apart. [facts 1.2]
fn is_protected(label: &str) -> bool {
    label.starts_with("com.apple.")
}

fn bootout(mac: &Arc<Inner>, call: &Call, target: &str, path: Option<&str>) -> Reply {
    let Some(parsed) = Target::parse(target) else {
        return bad_target("bootout");
    };
    if let Err(refused) = mac.state().launchd.check_domain(parsed.domain) {
        return domain_failed(call, "Boot-out", parsed.domain, refused.0);
    }
    let label = match (parsed.label, path) {
        (Some(label), None) => label,
        (None, Some(path)) => match label_in(mac, &absolute(call, path)) {
            Some(label) => label,
            None => return failed(call, "Boot-out", 5),
        },
        // A whole domain: nobody here wants to find out.
        _ => return Reply::unknown(5, "Boot-out failed: 5: Input/output error\n"),
    };
    if !may_change(call, parsed.domain) {
        return Reply::err(1, "Boot-out failed: 1: Operation not permitted\n");
    }
    if is_protected(&label) {
        return Reply::err(SIP, format!("Boot-out failed: {SIP}: {}\n", text(SIP)));
    }
    let key = (parsed.domain, label);
    let was_running = mac.with_job(&key, |job, _| (job.pid().is_some(), job.bootout()));
    match was_running {
        None => Reply::err(3, "Boot-out failed: 3: No such process\n"),
        Some(true) if mac.state().quirks.bootout_says_36 => {
            Reply::err(36, format!("Boot-out failed: 36: {}\n", text(36)))
        }
        Some(_) => Reply::silent(),
    }
}

pub(super) fn label_in(mac: &Inner, path: &str) -> Option<String> {
    let bytes = mac.tree.read(path).ok()?;
    crate::macos::launchd::spec::parse(&bytes).ok().map(|spec| spec.label)
}

async fn kickstart(mac: &Arc<Inner>, call: &Call, words: &[&str]) -> Reply {
    let (mut kill, mut print_pid, mut target) = (false, false, None);
    for word in words {
        match word.strip_prefix('-') {
            Some(flags) if !flags.is_empty() && flags.chars().all(|flag| "kps".contains(flag)) => {
                kill |= flags.contains('k');
                print_pid |= flags.contains('p');
            }
            Some(_) => return Reply::unknown(USAGE, "Usage: launchctl kickstart [-k] [-p] <service-target>\n"),
            None => target = Some(*word),
        }
    }
    let Some((domain, label)) = target.and_then(key_of) else {
        return bad_target("kickstart");
    };
    if let Err(refused) = mac.state().launchd.check_domain(domain) {
        return domain_failed(call, "Kickstart", domain, refused.0);
    }
    let key = (domain, label);
    let Some((serial, before)) = mac.state().launchd.jobs.get(&key).map(|job| (job.serial, job.runs)) else {
        return no_service(&key, false);
    };
    if !may_change(call, domain) {
        return Reply::err(
            1,
            format!(
                "Could not kickstart service \"{}\": 1: Operation not permitted\n",
                key.1
            ),
        );
    }
    if key.1 == LOGINWINDOW {
        return loginwindow(mac, kill);
    }
    if kill && is_protected(&key.1) {
        return Reply::err(
            SIP,
            format!("Could not kickstart service \"{}\": {SIP}: {}\n", key.1, text(SIP)),
        );
    }
    if key.1 == SSHD || mac.state().faults.kickstart_does_nothing {
        return Reply::silent();
    }
    let started = mac.with_job(&key, |job, now| match job.kickstart(kill, now) {
        Ok(effects) => (true, effects),
        Err(_) => (false, Vec::new()),
    });
    if started == Some(false) {
        return Reply::silent().with_code(37);
    }
    // It waits for the start, which a job in the penalty box never has.
    mac.wait_for(|launchd| {
        let job = launchd.jobs.get(&key);
        job.is_none_or(|job| {
            job.serial != serial || (job.runs > before && !matches!(job.state, State::Terminating { .. }))
        })
    })
    .await;
    let pid = mac.state().launchd.jobs.get(&key).and_then(Job::pid);
    match (print_pid, pid) {
        (true, Some(pid)) => Reply::out(format!("{pid}\n")),
        _ => Reply::silent(),
    }
}

fn loginwindow(mac: &Arc<Inner>, kill: bool) -> Reply {
    if mac.state().faults.loginwindow_is_protected {
        return Reply::err(
            SIP,
            format!("Could not kickstart service \"{LOGINWINDOW}\": {SIP}: {}\n", text(SIP)),
        );
    }
    if !kill {
        return Reply::silent().with_code(37);
    }
    mac.log_out();
    mac.with_job(&(Domain::System, LOGINWINDOW.to_owned()), |job, _| {
        job.runs += 1;
        job.state = State::Running { pid: LOGINWINDOW_PID };
        ((), Vec::new())
    });
    mac.loginwindow_starts();
    Reply::silent()
}

fn no_service(key: &Key, bad_request: bool) -> Reply {
    let first = if bad_request { "Bad request.\n" } else { "" };
    Reply::err(
        NO_SERVICE,
        format!(
            "{first}Could not find service \"{}\" in domain for {}\n",
            key.1,
            key.0.in_words()
        ),
    )
}

fn print_target(mac: &Inner, target: &str) -> Reply {
    let Some(mut target) = Target::parse(target) else {
        return bad_target("print");
    };
    // Without root everybody is user 0 for the kernel, the owner of the screen too, and who asks for their own session asks for that.
    if !mac.tree.has_owners() && target.domain == Domain::Gui(0) {
        target.domain = Domain::Gui(image::UID);
    }
    let state = mac.state();
    if let Err(refused) = state.launchd.check_domain(target.domain) {
        let words = match refused.0 {
            112 => format!("Could not find domain for {}\n", target.domain.in_words()),
            code => format!("Could not print domain: {code}: {}\n", text(code)),
        };
        return Reply::err(refused.0, words);
    }
    let Some(label) = target.label else {
        return Reply::out(print::domain(&state.launchd, &mac.tree, target.domain));
    };
    let key = (target.domain, label);
    match state.launchd.jobs.get(&key) {
        Some(job) => Reply::out(print::service(&state.launchd, key.0, job, &mac.host.username)),
        // [facts 1.3]
        None => no_service(&key, true),
    }
}

fn print_disabled(mac: &Inner, target: &str) -> Reply {
    let Some(Target { domain, label: None }) = Target::parse(target) else {
        return bad_target("print-disabled");
    };
    match mac.state().launchd.check_domain(domain) {
        Err(refused) if refused.0 == 112 => {
            Reply::err(112, format!("Could not find domain for {}\n", domain.in_words()))
        }
        _ => Reply::out(print::disabled(&mac.tree, domain)),
    }
}

fn enable(mac: &Inner, call: &Call, target: &str, disabled: bool) -> Reply {
    let Some((domain, label)) = key_of(target) else {
        return bad_target(if disabled { "disable" } else { "enable" });
    };
    if !domain::exists(domain.owner()) {
        return Reply::err(112, format!("Could not find domain for {}\n", domain.in_words()));
    }
    if !may_change(call, domain) {
        return Reply::err(1, "Could not enable service: 1: Operation not permitted\n");
    }
    match set_disabled(&mac.tree, domain, &label, disabled) {
        Ok(()) => Reply::silent(),
        Err(error) => Reply::err(5, format!("Could not enable service: 5: {error}\n")),
    }
}

async fn kill(mac: &Arc<Inner>, call: &Call, signal: &str, target: &str) -> Reply {
    let Some(key) = key_of(target) else {
        return bad_target("kill");
    };
    let Some(number) = super::signal_number(signal) else {
        return Reply::err(
            USAGE,
            "Usage: launchctl kill <signal-number|signal-name> <service-target>\n",
        );
    };
    if !may_change(call, key.0) {
        return Reply::err(1, "Could not kill service: 1: Operation not permitted\n");
    }
    let pid = match mac.state().launchd.jobs.get(&key) {
        None => return no_service(&key, false),
        Some(job) => job.pid(),
    };
    match (pid, mac.boot().await) {
        (Some(pid), Ok(boot)) => {
            boot.signal(pid, false, number);
            Reply::silent()
        }
        _ => Reply::err(3, "Could not kill service: 3: No such process\n"),
    }
}

fn list(mac: &Inner, call: &Call, label: &str) -> Reply {
    let key = (callers(call), label.to_owned());
    match mac.state().launchd.jobs.get(&key) {
        Some(job) => Reply::out(print::listed(job)),
        None => Reply::err(
            NO_SERVICE,
            format!("Could not find service \"{label}\" in domain for port\n"),
        ),
    }
}
