//! Commands that change something: clone, set, stop, suspend, delete, rename.

use crate::arguments::{Parsed, Spec};
use crate::config::Config;
use crate::failure::Failure;
use crate::image::RemoteName;
use crate::locks;
use crate::print::complain;
use crate::pull::{self, pause};
use crate::space;
use crate::store::Home;
use crate::switches::Switches;
use crate::vm::{Display, GB, MIB, VmDir, random_ecid, random_mac};
use rustix::process::{Pid, Signal, kill_process};
use std::time::{Duration, Instant};

/// How many GB a clone makes room for at most.
const PRUNE_LIMIT: u32 = 100;

/// Every command but pull and clone first deletes what nobody locks in `tmp/`.
pub(super) fn collect_garbage(home: &Home, switches: &Switches) {
    if let Some(why) = &switches.gc_error {
        complain(&format!("Failed to perform garbage collection: {why}"));
        return;
    }
    for entry in std::fs::read_dir(home.tmp()).into_iter().flatten().flatten() {
        // A clone or pull under way is named after its process.
        let name = entry.file_name().to_string_lossy().into_owned();
        let owner = name
            .rsplit('-')
            .next()
            .and_then(|pid| pid.parse().ok())
            .and_then(Pid::from_raw);
        if owner.is_none_or(|pid| rustix::process::test_kill_process(pid).is_err()) {
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}

pub(super) fn clone(home: &Home, config: &Config, spec: &Spec, parsed: &Parsed) -> Result<(), Failure> {
    let (source, new) = (parsed.at(0), parsed.at(1));
    if new.contains('/') || new.is_empty() || new.starts_with('.') {
        return Err(spec.wrong("<new-name> should be a local name"));
    }
    spec.number::<u32>(parsed, "--concurrency")?;
    let prune_limit = spec.number::<u32>(parsed, "--prune-limit")?.unwrap_or(PRUNE_LIMIT);
    let from = if RemoteName::is_remote(source) {
        let remote = RemoteName::parse(source)?;
        // What is in the cache is not looked up again, so a tag that moved stays stale.
        if home.cached(&remote).is_none() {
            pull::pull(home, config, &remote)?;
        }
        home.cached(&remote).ok_or_else(|| Failure::missing(source))?
    } else {
        home.local(source)?
    };
    from.touch();
    let global = locks::exclusive(&home.sim().join("home.lock"))?;
    // Somebody else may have made room meanwhile.
    if !from.config_path().is_file() {
        return Err(Failure::missing(source));
    }
    let temporary = format!("clone-{}", std::process::id());
    if space::is_full(home)? {
        // Pruning comes after the copy and cannot help (tart #222).
        return Err(Failure::Thrown(format!(
            "“disk.img” couldn’t be copied to “{temporary}” because there isn’t enough space."
        )));
    }
    let fresh = VmDir(home.tmp().join(temporary));
    let _ = std::fs::remove_dir_all(&fresh.0);
    from.copy_to(&fresh)?;
    let mut settings = fresh.config()?;
    let taken = home
        .local_names()?
        .into_iter()
        .filter_map(|name| VmDir(home.vms().join(name)).config().ok())
        .any(|other| other.mac_address == settings.mac_address);
    if taken {
        settings.mac_address = random_mac();
        fresh.write_config(&settings)?;
    }
    let place = home.vms().join(new);
    // An existing VM of that name is overwritten without a word (tart #822).
    let _ = std::fs::remove_dir_all(&place);
    std::fs::rename(&fresh.0, &place)?;
    let place = VmDir(place);
    place.touch();
    drop(global);
    space::make_room_for(home, config, &place, prune_limit.into())
}

pub(super) fn set(home: &Home, spec: &Spec, parsed: &Parsed) -> Result<(), Failure> {
    let cpu = spec.number::<u32>(parsed, "--cpu")?;
    let memory = spec.number::<u64>(parsed, "--memory")?;
    let disk_size = spec.number::<u64>(parsed, "--disk-size")?;
    if parsed.has("--disk") {
        return Err(Failure::Emulator(
            "`tart set --disk` is real, but this emulator leaves it out".to_owned(),
        ));
    }
    let dir = home.local(parsed.at(0))?;
    let mut config = dir.config()?;
    let too_little = |what: &str, least: String, asked: String| {
        Failure::Thrown(format!(
            "LessThanMinimalResourcesError: VM should have {least} {what} at minimum (requested {asked})"
        ))
    };
    if let Some(cpu) = cpu {
        if cpu < config.cpu_count_min {
            return Err(too_little(
                "CPU cores",
                config.cpu_count_min.to_string(),
                cpu.to_string(),
            ));
        }
        config.cpu_count = cpu;
    }
    if let Some(memory) = memory {
        if memory * MIB < config.memory_size_min {
            let least = (config.memory_size_min / MIB).to_string();
            return Err(too_little("MB of memory", least, memory.to_string())); // text: guess
        }
        config.memory_size = memory * MIB;
    }
    if let Some(text) = parsed.get("--display") {
        config.display = display(text)
            .ok_or_else(|| spec.wrong(format!("The value '{text}' is invalid for '--display <display>'")))?;
    }
    // Every call resets it.
    config.display_refit = match (parsed.has("--display-refit"), parsed.has("--no-display-refit")) {
        (true, _) => Some(true),
        (_, true) => Some(false),
        _ => None,
    };
    if parsed.has("--random-mac") {
        config.mac_address = random_mac();
    }
    if parsed.has("--random-serial") {
        config.ecid = random_ecid();
    }
    dir.write_config(&config)?;
    if let Some(size) = disk_size {
        let current = dir.disk_bytes()? / GB;
        if size < current {
            return Err(Failure::Own(
                format!("new disk size of {size} GB should be larger than the current disk size of {current} GB"),
                1,
            ));
        }
        std::fs::OpenOptions::new()
            .write(true)
            .open(dir.0.join("disk.img"))?
            .set_len(size * GB)?;
    }
    Ok(())
}

fn display(text: &str) -> Option<Display> {
    let (size, unit) = match text
        .strip_suffix("pt")
        .map(|rest| (rest, "pt"))
        .or(text.strip_suffix("px").map(|rest| (rest, "px")))
    {
        Some((size, unit)) => (size, Some(unit.to_owned())),
        None => (text, None),
    };
    let (width, height) = size.split_once('x')?;
    Some(Display {
        width: width.parse().ok()?,
        height: height.parse().ok()?,
        unit,
    })
}

pub(super) fn stop(home: &Home, spec: &Spec, parsed: &Parsed) -> Result<(), Failure> {
    let name = parsed.at(0);
    let timeout = spec.number::<u64>(parsed, "--timeout")?.unwrap_or(30);
    let dir = home.local(name)?;
    if super::info::state(&dir) == "suspended" {
        return Ok(std::fs::remove_file(dir.saved_state())?);
    }
    let pid = locks::runner(&dir).ok_or_else(|| Failure::not_running(name))?;
    let _ = kill_process(pid, Signal::INT);
    let deadline = Instant::now() + Duration::from_secs(timeout);
    while Instant::now() < deadline {
        if locks::runner(&dir).is_none() {
            return Ok(());
        }
        pause(100);
    }
    let _ = kill_process(pid, Signal::KILL);
    Ok(())
}

pub(super) fn suspend(home: &Home, name: &str) -> Result<(), Failure> {
    let dir = home.local(name)?;
    match locks::runner(&dir) {
        Some(pid) => Ok(kill_process(pid, Signal::USR1)?),
        // Doubled in the real one, too.
        None => Err(Failure::Own(
            format!("VM \"VM \"{name}\" is not running\" is not running"),
            2,
        )),
    }
}

pub(super) fn delete(home: &Home, names: &[String]) -> Result<(), Failure> {
    for name in names {
        if RemoteName::is_remote(name) {
            let remote = RemoteName::parse(name)?;
            home.cached(&remote).ok_or_else(|| Failure::missing(name))?;
            home.unlink(&remote)?;
            continue;
        }
        // All it opens is the file with the lock, and without that it knows of no VM.
        let dir = VmDir(home.vms().join(name));
        if name.starts_with('.') || !dir.config_path().is_file() {
            return Err(Failure::missing(name));
        }
        if locks::runner(&dir).is_some() {
            return Err(Failure::Own(format!("VM \"{name}\" is running"), 1));
        }
        std::fs::remove_dir_all(&dir.0)?;
    }
    Ok(())
}

pub(super) fn rename(home: &Home, spec: &Spec, parsed: &Parsed) -> Result<(), Failure> {
    let (name, new) = (parsed.at(0), parsed.at(1));
    if new.contains('/') || new.is_empty() {
        return Err(spec.wrong("<new-name> should be a local name"));
    }
    let dir = home.local(name)?;
    if home.vms().join(new).exists() {
        return Err(spec.wrong(format!("failed to rename a VM: VM \"{new}\" already exists"))); // text: guess
    }
    Ok(std::fs::rename(dir.0, home.vms().join(new))?)
}
