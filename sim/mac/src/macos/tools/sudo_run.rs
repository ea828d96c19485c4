//! `sudo`: asks, then has process 1 run the command with the files of whoever called. Nothing here is setuid: where the emulator is
//! not root there is nobody to become.

use crate::macos::boot::Job;
use crate::macos::call::{Answer, Call, Reply};
use crate::macos::desk::{self, Line};
use crate::macos::mac::Inner;
use crate::macos::orders::{Ending, RunAs};
use crate::macos::sudo::{self, Ask as _, Policy, Request};
use std::sync::Arc;

const TRIES: u32 = 3;
const TERM: i32 = 15;

pub(super) async fn answer(mac: &Arc<Inner>, call: &Call, line: &mut Line) -> Answer {
    let request = match allowed(mac, call, line).await {
        Ok(request) => request,
        Err(reply) => return desk::finish(mac, call, line, reply).await,
    };
    if request.command.is_empty() && !request.shell && !request.login {
        return Answer::Exit(0);
    }
    match run(mac, call, &request, line).await {
        Ok(Ending::Code(code)) => Answer::Exit(code),
        Ok(Ending::Signal(signal)) => Answer::Die(signal),
        Err(reply) => desk::finish(mac, call, line, reply).await,
    }
}

/// The request, once the caller may; else what sudo says.
async fn allowed(mac: &Inner, call: &Call, line: &mut Line) -> Result<Request, Reply> {
    let request = sudo::parse(&call.args)?;
    let caller = mac.name_of(call.uid);
    let policy = if call.is_root() {
        Policy::Free
    } else {
        sudo::policy(&mac.tree, caller)?
    };
    match policy {
        Policy::Free => return Ok(request),
        Policy::Refused => {
            return Err(Reply::err(1, format!("{caller} is not in the sudoers file.\n")));
        }
        Policy::Password => {}
    }
    if request.forget && request.command.is_empty() {
        return Ok(request);
    }
    if request.never_ask {
        return Err(Reply::err(1, "sudo: a password is required\n"));
    }
    if !request.from_stdin {
        return Err(Reply::err(
            1,
            "sudo: a terminal is required to read the password; either use the -S option to read from standard input or \
             configure an askpass helper\nsudo: a password is required\n",
        ));
    }
    let prompt = request.prompt.clone().unwrap_or_else(|| "Password:".to_owned());
    let mut wrong = 0;
    while wrong < TRIES {
        match line.ask(&prompt).await.flatten() {
            Some(password) => {
                if is_right(mac, &password) {
                    return Ok(request);
                }
                wrong += 1;
                if wrong < TRIES {
                    line.complain("Sorry, try again.\n").await;
                }
            }
            None if wrong == 0 => {
                return Err(Reply::err(
                    1,
                    "\nsudo: no password was provided\nsudo: a password is required\n",
                ));
            }
            None => {
                line.complain("\nsudo: no password was provided\n").await;
                break;
            }
        }
    }
    let plural = if wrong == 1 { "" } else { "s" };
    Err(Reply::err(
        1,
        format!("sudo: {wrong} incorrect password attempt{plural}\n"),
    ))
}

/// Compares, and counts what is wrong. A locked account has no right password.
fn is_right(mac: &Inner, password: &str) -> bool {
    let mut state = mac.state();
    let locked = state.sudo_failures >= state.quirks.sudo_lockout;
    if password == state.password && !locked {
        state.sudo_failures = 0;
        return true;
    }
    state.sudo_failures += 1;
    false
}

async fn run(mac: &Arc<Inner>, call: &Call, request: &Request, line: &mut Line) -> Result<Ending, Reply> {
    let target = request.user.as_deref().unwrap_or("root");
    let Some((uid, gid, groups, home)) = sudo::account(target, &mac.host.username) else {
        return Err(Reply::err(
            1,
            format!("sudo: unknown user {target}\nsudo: error initializing audit plugin sudoers_audit\n"),
        ));
    };
    let env = sudo::environment(call, request, target, &home, mac.name_of(call.uid));
    let argv = if request.shell || request.login {
        let shell = if uid == 0 { "/bin/sh" } else { "/bin/zsh" };
        let mut argv = vec![shell.to_owned()];
        if !request.command.is_empty() {
            argv.extend(["-c".to_owned(), request.command.join(" ")]);
        }
        argv
    } else {
        request.command.clone()
    };
    let name = argv.first().cloned().unwrap_or_default();
    let path = env.get("PATH").map_or("", String::as_str);
    let Some(program) = sudo::find(&mac.tree, &name, path, &call.folder) else {
        return Err(Reply::err(1, format!("sudo: {name}: command not found\n")));
    };
    let folder = if request.login { home } else { call.folder.clone() };
    let job = Job {
        program,
        argv,
        env,
        folder,
        run_as: RunAs {
            uid,
            gid,
            groups,
            switch: mac.kit.as_root,
        },
        files: std::mem::take(&mut line.files),
    };
    let started = mac.run(job).await;
    let mut process = started.map_err(|error| Reply::err(1, format!("sudo: unable to execute {name}: {error}\n")))?;
    tokio::select! {
        ending = &mut process.ended => return Ok(ending.unwrap_or(Ending::Signal(9))),
        // Whoever ended sudo meant the command.
        () = line.hung_up() => mac.boot().await.map_or((), |boot| boot.signal(process.pid, true, TERM)),
    }
    Ok(process.ended.await.unwrap_or(Ending::Signal(9)))
}
