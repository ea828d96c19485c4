//! One function per command, and the table of what each takes.

mod info;
mod manage;

use crate::arguments::{Spec, flag, value};
use crate::config::Config;
use crate::failure::Failure;
use crate::image::RemoteName;
use crate::print::{complain, say};
use crate::store::Home;
use crate::switches::Switches;
use crate::{credentials, exec, pull, run, run_arguments, space};
use std::process::ExitCode;

const fn spec(name: &'static str, usage: &'static str, positional: &'static [&'static str]) -> Spec {
    Spec {
        name,
        usage,
        positional,
        repeats: false,
        passes: false,
        options: &[],
    }
}

const FORMAT: crate::arguments::Opt = value(&["--format"], "format");

const LIST: Spec = Spec {
    options: &[value(&["--source"], "source"), FORMAT, flag(&["--quiet", "-q"])],
    ..spec(
        "list",
        "tart list [--source <source>] [--format <format>] [--quiet]",
        &[],
    )
};
const GET: Spec = Spec {
    options: &[FORMAT],
    ..spec("get", "tart get <name> [--format <format>]", &["name"])
};
const CLONE: Spec = Spec {
    options: &[
        flag(&["--insecure"]),
        value(&["--concurrency"], "concurrency"),
        value(&["--prune-limit"], "prune-limit"),
    ],
    ..spec(
        "clone",
        "tart clone <source-name> <new-name> [--insecure] [--concurrency <concurrency>] [--prune-limit <prune-limit>]",
        &["source-name", "new-name"],
    )
};
const SET: Spec = Spec {
    options: &[
        value(&["--cpu"], "cpu"),
        value(&["--memory"], "memory"),
        value(&["--display"], "display"),
        flag(&["--display-refit"]),
        flag(&["--no-display-refit"]),
        flag(&["--random-mac"]),
        flag(&["--random-serial"]),
        value(&["--disk"], "path"),
        value(&["--disk-size"], "disk-size"),
    ],
    ..spec(
        "set",
        "tart set <name> [--cpu <cpu>] [--memory <memory>] [<options>]",
        &["name"],
    )
};
const IP: Spec = Spec {
    options: &[value(&["--wait"], "wait"), value(&["--resolver"], "resolver")],
    ..spec(
        "ip",
        "tart ip <name> [--wait <wait>] [--resolver <resolver>]",
        &["name"],
    )
};
const STOP: Spec = Spec {
    options: &[value(&["--timeout", "-t"], "timeout")],
    ..spec("stop", "tart stop <name> [--timeout <timeout>]", &["name"])
};
const SUSPEND: Spec = spec("suspend", "tart suspend <name>", &["name"]);
const DELETE: Spec = Spec {
    repeats: true,
    ..spec("delete", "tart delete <name> ...", &["name"])
};
const RENAME: Spec = spec("rename", "tart rename <name> <new-name>", &["name", "new-name"]);
const FQN: Spec = spec("fqn", "tart fqn <name>", &["name"]);
const PULL: Spec = Spec {
    options: &[
        flag(&["--insecure"]),
        value(&["--concurrency"], "concurrency"),
        flag(&["--deduplicate"]),
    ],
    ..spec(
        "pull",
        "tart pull <remote-name> [--insecure] [--concurrency <concurrency>]",
        &["remote-name"],
    )
};
const LOGIN: Spec = Spec {
    options: &[
        value(&["--username"], "username"),
        flag(&["--password-stdin"]),
        flag(&["--insecure"]),
        flag(&["--no-validate"]),
    ],
    ..spec(
        "login",
        "tart login <host> [--username <username>] [--password-stdin] [<options>]",
        &["host"],
    )
};
const EXEC: Spec = Spec {
    options: &[flag(&["--interactive", "-i"]), flag(&["--tty", "-t"])],
    passes: true,
    ..spec(
        "exec",
        "tart exec [--interactive] [--tty] <name> <command> ...",
        &["name", "command"],
    )
};

const USAGE: &str = "tart <subcommand>";
/// Commands of the real one that nothing here needs.
const LEFT_OUT: &[&str] = &["create", "push", "import", "export", "prune", "logout"];

pub(crate) fn main(words: &[String]) -> ExitCode {
    match dispatch(words) {
        Ok(code) => ExitCode::from(code),
        Err(failure) => ExitCode::from(failure.report()),
    }
}

fn dispatch(words: &[String]) -> Result<u8, Failure> {
    let Some((name, rest)) = words.split_first() else {
        say(
            "USAGE: tart <subcommand>\n\nSUBCOMMANDS:\n  clone delete exec fqn get ip list login pull rename run set stop suspend",
        );
        return Ok(0);
    };
    if name == "--version" {
        say(crate::VERSION);
        return Ok(0);
    }
    let all = [
        &LIST,
        &GET,
        &CLONE,
        &SET,
        &run_arguments::SPEC,
        &IP,
        &STOP,
        &SUSPEND,
        &DELETE,
        &RENAME,
        &FQN,
        &PULL,
        &LOGIN,
        &EXEC,
    ];
    let Some(spec) = all.into_iter().find(|spec| spec.name == name) else {
        if LEFT_OUT.contains(&name.as_str()) {
            return Err(Failure::Emulator(format!(
                "`tart {name}` is real, but this emulator leaves it out"
            )));
        }
        let kind = if name.starts_with('-') {
            "Unknown option"
        } else {
            "Unexpected argument"
        };
        return Err(Failure::Usage {
            text: format!("{kind} '{name}'"),
            command: None,
            usage: USAGE,
        });
    };
    if rest.first().is_some_and(|word| word == "--help" || word == "-h") {
        say(&format!("USAGE: {}", spec.usage));
        return Ok(0);
    }
    let parsed = spec.parse(rest)?;
    let config = Config::from_env();
    let home = Home::open(config.home.clone())?;
    let switches = Switches::load(&home)?;
    if let Some(delay) = switches.delay_ms.get(name) {
        pull::pause(*delay);
    }
    if let Some(forced) = Switches::take_failure(&home, name)? {
        complain(&forced.text);
        return Ok(forced.code);
    }
    if !["pull", "clone"].contains(&name.as_str()) {
        manage::collect_garbage(&home, &switches);
    }
    match name.as_str() {
        "list" => info::list(&home, &LIST, &parsed)?,
        "get" => info::get(&home, &GET, &parsed)?,
        "ip" => info::ip(&home, &IP, &parsed)?,
        "fqn" => info::fqn(&home, parsed.at(0))?,
        "clone" => manage::clone(&home, &config, &CLONE, &parsed)?,
        "set" => manage::set(&home, &SET, &parsed)?,
        "stop" => manage::stop(&home, &STOP, &parsed)?,
        "suspend" => manage::suspend(&home, parsed.at(0))?,
        "delete" => manage::delete(&home, &parsed.positional)?,
        "rename" => manage::rename(&home, &RENAME, &parsed)?,
        "pull" => {
            if RemoteName::is_remote(parsed.at(0)) {
                pull::pull(&home, &config, &RemoteName::parse(parsed.at(0))?)?;
            } else {
                say(&format!("\"{}\" is a local image, nothing to pull here!", parsed.at(0)));
            }
        }
        "login" => {
            let username = parsed.get("--username");
            if username.is_some() != parsed.has("--password-stdin") {
                return Err(LOGIN.wrong("both --username and --password-stdin are required")); // text: guess
            }
            let Some(username) = username else {
                return Err(Failure::Emulator(
                    "an interactive login needs a person; use --username and --password-stdin".into(),
                ));
            };
            credentials::login(&home, parsed.at(0), username, !parsed.has("--no-validate"))?;
        }
        "run" => return run::run(&home, &config, &parsed),
        _ => return exec::exec(&home, &parsed),
    }
    if ["clone", "delete", "pull"].contains(&name.as_str()) {
        space::report(&home)?;
    }
    Ok(0)
}
