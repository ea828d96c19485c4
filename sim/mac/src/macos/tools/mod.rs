//! The tools that ask the system, one file each.

mod accounts;
mod launchctl;
mod sudo_run;

use super::call::{Answer, Call, Reply};
use super::desk::{self, Line};
use super::mac::Inner;
use std::sync::Arc;

/// Answers a call to its end.
pub(super) async fn answer(mac: &Arc<Inner>, call: &Call, line: &mut Line) -> Answer {
    let reply = match call.tool.as_str() {
        "sudo" => return sudo_run::answer(mac, call, line).await,
        "launchctl" => launchctl::answer(mac, call).await,
        "sfltool" => sfltool(mac, call),
        "id" => accounts::id(mac, call),
        "whoami" => Reply::out(format!("{}\n", mac.name_of(call.uid))),
        _ => Reply::unknown(1, format!("{}: not emulated\n", call.tool)),
    };
    desk::finish(mac, call, line, reply).await
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
