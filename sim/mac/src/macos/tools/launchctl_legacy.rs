//! The verbs of `launchctl` from before 10.11. [facts 1.2]

use super::launchctl::{USAGE, absolute, callers, label_in};
use crate::macos::call::{Call, Reply};
use crate::macos::launchd::domain::Domain;
use crate::macos::launchd::set_disabled;
use crate::macos::mac::Inner;
use std::sync::Arc;

/// `load` and `unload` as they were before 10.11: over SSH they cannot reach the session at the screen. [facts 1.2]
pub(super) fn load_unload(mac: &Arc<Inner>, call: &Call) -> Reply {
    let words = call.words();
    let loads = words.first() == Some(&"load");
    let what = if loads { "Load" } else { "Unload" };
    let persists = words.iter().any(|word| *word == "-w" || *word == "-wF");
    let paths: Vec<&&str> = words.iter().skip(1).filter(|word| !word.starts_with('-')).collect();
    if paths.is_empty() {
        return Reply::err(
            USAGE,
            format!("Usage: launchctl {} <service-path, ...>\n", what.to_lowercase()),
        );
    }
    let mut said = String::new();
    let mut fails = false;
    for path in paths {
        let full = absolute(call, path);
        let failed = if call.is_root() {
            if full.contains("LaunchAgents") {
                said.push_str("Warning: Expecting a LaunchDaemons path since the command was ran as root. Got LaunchAgents instead.\n`launchctl bootstrap` is a recommended alternative.\n");
            }
            let label = label_in(mac, &full);
            if let (true, Some(label)) = (persists, &label) {
                let _ = set_disabled(&mac.tree, Domain::System, label, !loads);
            }
            match (loads, label) {
                (true, _) if full.contains("LaunchAgents") => true,
                (true, _) => mac.bootstrap(Domain::System, &full, true).is_err(),
                (false, Some(label)) => mac
                    .with_job(&(Domain::System, label), |job, _| ((), job.bootout()))
                    .is_none(),
                (false, None) => true,
            }
        } else {
            true
        };
        if failed {
            fails = true;
            said.push_str(&format!(
                "{what} failed: 5: Input/output error\nTry running `launchctl {}` as root for richer errors.\n",
                if loads { "bootstrap" } else { "bootout" }
            ));
        }
    }
    let code = if fails && mac.state().quirks.legacy_load_fails {
        5
    } else {
        0
    };
    Reply::err(code, said)
}

pub(super) fn start_stop(mac: &Arc<Inner>, call: &Call, label: &str) -> Reply {
    let starts = call.args.first().is_some_and(|verb| verb == "start");
    let key = (callers(call), label.to_owned());
    let found = mac.with_job(&key, |job, now| {
        let effects = if starts {
            job.kickstart(false, now).unwrap_or_default()
        } else {
            job.terminate()
        };
        ((), effects)
    });
    if found.is_some() {
        Reply::silent()
    } else {
        Reply::silent().with_code(3)
    }
}

pub(super) fn remove(mac: &Arc<Inner>, call: &Call, label: &str) -> Reply {
    let key = (callers(call), label.to_owned());
    match mac.with_job(&key, |job, _| ((), job.bootout())) {
        Some(()) => Reply::silent(),
        None => Reply::silent().with_code(3),
    }
}
