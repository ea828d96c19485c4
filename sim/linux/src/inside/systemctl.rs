//! `systemctl` and `journalctl`, as far as scripts use them.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use super::reply::Reply;
use super::service::{JOURNAL, State};
use super::unit::{self, Unit, full_name};
use super::world::World;

/// Where enabled units are linked; the disk remembers them over a reboot.
const ENABLED: &str = "/etc/systemd/system";
/// What a boot starts.
const BOOT: &str = "multi-user.target";

/// `systemctl ARGS`.
pub(super) async fn systemctl(world: &World, args: &[String]) -> Reply {
    let mut flags = BTreeSet::new();
    let mut words = Vec::new();
    for arg in args {
        match arg.as_str() {
            "--now" | "--quiet" | "-q" | "--no-pager" | "--no-block" | "--full" | "-l" => {
                flags.insert(arg.trim_start_matches('-').to_owned());
            }
            flag if flag.starts_with('-') => return unknown(&format!("the flag {flag}")),
            other => words.push(other.to_owned()),
        }
    }
    let quiet = flags.contains("quiet") || flags.contains("q");
    let Some((verb, units)) = words.split_first() else {
        return unknown("no verb");
    };
    let units: Vec<String> = units.iter().map(|name| full_name(name)).collect();
    let wants_unit = !matches!(
        verb.as_str(),
        "daemon-reload" | "is-system-running" | "reboot" | "poweroff"
    );
    if wants_unit == units.is_empty() {
        return Reply::failure(1, format!("systemctl {verb}: wrong number of units"));
    }
    match verb.as_str() {
        // Unit files are read when they are used.
        "daemon-reload" => Reply::success(),
        "is-system-running" => Reply::printed("running\n"),
        "reboot" => super::world::power(super::protocol::Power::Reboot),
        "poweroff" => super::world::power(super::protocol::Power::Off),
        "start" | "restart" | "stop" | "enable" | "disable" => {
            for unit in &units {
                if let Err(why) = act(world, verb, unit, flags.contains("now")).await {
                    let status = if why.ends_with("could not be found.") { 5 } else { 1 };
                    return Reply::failure(status, why);
                }
            }
            Reply::success()
        }
        "is-active" => states(&units, quiet, |unit| {
            let state = world.services.state(unit);
            (state.word(), state == State::Active)
        }),
        "is-failed" => states(&units, quiet, |unit| {
            let state = world.services.state(unit);
            (state.word(), state == State::Failed)
        }),
        "is-enabled" => states(&units, quiet, |unit| {
            if enabled(BOOT).contains(unit) {
                ("enabled", true)
            } else {
                ("disabled", false)
            }
        }),
        "status" => status(world, &units),
        other => unknown(&format!("the verb {other}")),
    }
}

fn unknown(what: &str) -> Reply {
    Reply::failure(1, format!("systemctl: the emulated server does not know {what}"))
}

async fn act(world: &World, verb: &str, unit: &str, now: bool) -> Result<(), String> {
    if verb == "enable" {
        enable(unit)?;
    }
    if matches!(verb, "restart" | "stop") || (verb == "disable" && now) {
        world.services.stop(unit).await;
    }
    if matches!(verb, "restart" | "start") || (verb == "enable" && now) {
        world.services.start(unit).await?;
    }
    if verb == "disable" {
        disable(unit)?;
    }
    Ok(())
}

fn states(units: &[String], quiet: bool, judge: impl Fn(&str) -> (&'static str, bool)) -> Reply {
    let mut reply = Reply::success();
    for unit in units {
        let (word, good) = judge(unit);
        if !quiet {
            let _ = writeln!(reply.stdout, "{word}");
        }
        if !good {
            reply.status = 3;
        }
    }
    reply
}

fn status(world: &World, units: &[String]) -> Reply {
    let mut reply = Reply::success();
    for name in units {
        let unit = match unit::load(Path::new("/"), name) {
            Ok(unit) => unit,
            Err(error) => return Reply::failure(4, error.to_string()),
        };
        let state = world.services.state(name);
        let pid = world
            .services
            .pid(name)
            .map_or_else(String::new, |pid| format!("\n   Main PID: {pid}"));
        let _ = writeln!(
            reply.stdout,
            "{name} - {}\n     Active: {}{pid}\n",
            unit.description,
            state.word()
        );
        let _ = write!(reply.stdout, "{}", lines(name, 10));
        if state != State::Active {
            reply.status = 3;
        }
    }
    reply
}

fn enable(name: &str) -> Result<(), String> {
    let unit = unit::load(Path::new("/"), name).map_err(|error| error.to_string())?;
    if unit.wanted_by.is_empty() {
        return Err(format!(
            "The unit files have no installation config ({name}: WantedBy)."
        ));
    }
    let source = unit::FOLDERS
        .iter()
        .map(|folder| Path::new("/").join(folder).join(name))
        .find(|path| path.exists())
        .unwrap_or_default();
    for target in &unit.wanted_by {
        let folder = wants(target);
        let link = folder.join(name);
        let made = std::fs::create_dir_all(&folder).and_then(|()| match std::os::unix::fs::symlink(&source, &link) {
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Ok(()),
            other => other,
        });
        made.map_err(|error| format!("Failed to enable unit {name}: {error}"))?;
    }
    Ok(())
}

fn disable(name: &str) -> Result<(), String> {
    let unit = unit::load(Path::new("/"), name).map_err(|error| error.to_string())?;
    for target in &unit.wanted_by {
        let _ = std::fs::remove_file(wants(target).join(name));
    }
    Ok(())
}

fn wants(target: &str) -> PathBuf {
    Path::new(ENABLED).join(format!("{target}.wants"))
}

fn enabled(target: &str) -> BTreeSet<String> {
    let entries = std::fs::read_dir(wants(target)).into_iter().flatten().flatten();
    entries
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .filter(|name| name.ends_with(".service"))
        .collect()
}

/// What a boot starts, in the order the units ask for.
pub(super) fn boot_order() -> Vec<String> {
    let units: Vec<Unit> = enabled(BOOT)
        .iter()
        .filter_map(|name| unit::load(Path::new("/"), name).ok())
        .collect();
    sorted(units)
}

fn sorted(mut units: Vec<Unit>) -> Vec<String> {
    let mut order: Vec<String> = Vec::new();
    while !units.is_empty() {
        let names: BTreeSet<String> = units.iter().map(|unit| unit.name.clone()).collect();
        let free = units.iter().position(|unit| {
            !unit
                .after
                .iter()
                .any(|before| names.contains(before) && *before != unit.name)
        });
        // A circle is broken at its first unit.
        order.push(units.remove(free.unwrap_or(0)).name);
    }
    order
}

/// `journalctl ARGS`: the journal of one unit.
pub(super) fn journalctl(args: &[String]) -> Reply {
    let (mut unit, mut count) = (None, usize::MAX);
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        let (flag, inline) = match arg.split_once('=') {
            Some((flag, value)) => (flag, Some(value.to_owned())),
            None => (arg.as_str(), None),
        };
        let mut value = || inline.clone().or_else(|| args.next().cloned()).unwrap_or_default();
        match flag {
            "-u" | "--unit" => unit = Some(full_name(&value())),
            "-n" | "--lines" => count = value().parse().unwrap_or(10),
            "-o" | "--output" => drop(value()),
            "--no-pager" | "-q" | "--quiet" | "-b" | "--boot" => {}
            other => {
                return Reply::failure(1, format!("journalctl: the emulated server does not know {other}"));
            }
        }
    }
    match unit {
        Some(unit) => Reply::printed(lines(&unit, count)),
        None => Reply::failure(
            1,
            "journalctl: the emulated server has a journal per unit; say -u UNIT".to_owned(),
        ),
    }
}

fn lines(unit: &str, count: usize) -> String {
    let text = std::fs::read(Path::new(JOURNAL).join(format!("{unit}.log"))).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let all: Vec<_> = text.lines().collect();
    let last = all.get(all.len().saturating_sub(count)..).unwrap_or_default();
    last.iter().flat_map(|line| [line, "\n"]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_boot_starts_units_after_those_they_come_after() {
        let unit = |name: &str, after: &str| {
            let text = format!("[Unit]\nAfter={after}\n[Service]\nExecStart=/x\n");
            unit::parse(name, &[text]).unwrap()
        };
        let units = vec![
            unit("a.service", "b.service network.target"),
            unit("b.service", "c.service"),
            unit("c.service", "z.service"),
        ];
        assert_eq!(sorted(units), ["c.service", "b.service", "a.service"]);
        let circle = vec![unit("a.service", "b.service"), unit("b.service", "a.service")];
        assert_eq!(sorted(circle), ["a.service", "b.service"]);
    }
}
