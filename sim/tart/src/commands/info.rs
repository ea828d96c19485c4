//! Commands that only tell: list, get, ip, fqn.

use crate::agent;
use crate::arguments::{Parsed, Spec};
use crate::failure::Failure;
use crate::image::RemoteName;
use crate::lease;
use crate::locks;
use crate::print::{foundation_json, say};
use crate::pull::pause;
use crate::space;
use crate::store::Home;
use crate::vm::{GB, MIB, VmDir};
use serde_json::json;

/// What the lock and the saved state say; not what the processes say.
pub(super) fn state(dir: &VmDir) -> &'static str {
    if locks::runner(dir).is_some() {
        "running"
    } else if dir.saved_state().exists() {
        "suspended"
    } else {
        "stopped"
    }
}

struct Row {
    source: &'static str,
    name: String,
    disk: u64,
    size: u64,
    accessed: jiff::Timestamp,
    state: &'static str,
}

fn row(source: &'static str, name: String, dir: &VmDir) -> Result<Row, Failure> {
    Ok(Row {
        source,
        name,
        disk: dir.disk_bytes()? / GB,
        size: space::bytes(dir.origin()?.image.size_gb) / GB,
        accessed: jiff::Timestamp::try_from(dir.accessed()).unwrap_or_default(),
        state: if source == "local" { state(dir) } else { "stopped" },
    })
}

fn json_wanted(spec: &Spec, parsed: &Parsed) -> Result<bool, Failure> {
    Ok(spec.choice(parsed, "--format", &["text", "json"])? == Some("json"))
}

pub(super) fn list(home: &Home, spec: &Spec, parsed: &Parsed) -> Result<(), Failure> {
    let source = spec.choice(parsed, "--source", &["local", "oci"])?;
    let as_json = json_wanted(spec, parsed)?;
    let mut rows = Vec::new();
    if source != Some("oci") {
        for name in home.local_names()? {
            let dir = VmDir(home.vms().join(&name));
            // A folder that is just being deleted, or was never whole, is left out.
            if dir.check().is_ok() {
                rows.extend(row("local", name, &dir).ok());
            }
        }
    }
    if source != Some("local") {
        for name in home.cached_names()? {
            if let Some(dir) = home.cached(&name) {
                rows.extend(row("OCI", name.full(), &dir).ok());
            }
        }
    }
    if parsed.has("--quiet") {
        for row in &rows {
            say(&row.name);
        }
        return Ok(());
    }
    if as_json {
        let entries = rows.iter().map(|row| {
            json!({
                "State": row.state,
                "Size": row.size,
                "Running": row.state == "running",
                "Source": row.source,
                "Accessed": row.accessed.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
                "Name": row.name,
                "Disk": row.disk,
            })
        });
        say(&foundation_json(&entries.collect()));
        return Ok(());
    }
    if rows.is_empty() {
        say("");
        return Ok(());
    }
    let width = rows.iter().map(|row| row.name.len()).chain([4]).max().unwrap_or(4);
    say(&format!("Source {:width$} Disk Size Accessed       State", "Name"));
    for row in rows {
        let minutes = (jiff::Timestamp::now().as_second() - row.accessed.as_second()) / 60;
        say(&format!(
            "{:6} {:width$} {:<4} {:<4} {:14} {}",
            row.source,
            row.name,
            row.disk,
            row.size,
            format!("{minutes} minutes ago"),
            row.state
        ));
    }
    Ok(())
}

pub(super) fn get(home: &Home, spec: &Spec, parsed: &Parsed) -> Result<(), Failure> {
    let as_json = json_wanted(spec, parsed)?;
    let dir = home.local(parsed.at(0))?;
    let (config, state) = (dir.config()?, state(&dir));
    let display = format!(
        "{}x{}{}",
        config.display.width,
        config.display.height,
        config.display.unit.as_deref().unwrap_or_default()
    );
    let (cpu, memory, disk) = (config.cpu_count, config.memory_size / MIB, dir.disk_bytes()? / GB);
    // A string here, a number in `list`: the real one is like that.
    let size = format!("{:.3}", dir.origin()?.image.size_gb);
    if as_json {
        say(&foundation_json(&json!({
            "Size": size,
            "CPU": cpu,
            "OS": config.os,
            "State": state,
            "Memory": memory,
            "Display": display,
            "Running": state == "running",
            "DiskFormat": config.disk_format,
            "Disk": disk,
        })));
        return Ok(());
    }
    let os = format!("{:?}", config.os).to_lowercase();
    say("OS     CPU Memory Disk DiskFormat Size   Display  State");
    say(&format!(
        "{os:6} {cpu:<3} {memory:<6} {disk:<4} {:10} {size:6} {display:8} {state}",
        config.disk_format
    ));
    Ok(())
}

pub(super) fn ip(home: &Home, spec: &Spec, parsed: &Parsed) -> Result<(), Failure> {
    let name = parsed.at(0);
    let wait = spec.number::<u16>(parsed, "--wait")?.unwrap_or(0);
    let resolver = spec
        .choice(parsed, "--resolver", &["dhcp", "arp", "agent"])?
        .unwrap_or("dhcp");
    let dir = home.local(name)?;
    let mac = dir.config()?.mac_address;
    for second in 0..=wait {
        let found = match resolver {
            "agent" => agent::resolve(&dir),
            // The ARP table forgets a guest that is gone [guess].
            "arp" if locks::runner(&dir).is_none() => None,
            _ => lease::find(home, &mac)?,
        };
        if let Some(address) = found {
            say(&address.to_string());
            return Ok(());
        }
        // A failure takes a second even without --wait.
        pause(if second == 0 && wait == 0 {
            1000
        } else {
            1000.min(u64::from(wait) * 1000)
        });
    }
    let running = if locks::runner(&dir).is_none() {
        ", is your VM running?"
    } else {
        ""
    };
    let agent = if resolver == "agent" {
        " (also make sure that Guest agent for Tart is running inside of a VM)"
    } else {
        ""
    };
    Err(Failure::Own(format!("no IP address found{running}{agent}"), 1))
}

pub(super) fn fqn(home: &Home, name: &str) -> Result<(), Failure> {
    if !RemoteName::is_remote(name) {
        say(name);
        return Ok(());
    }
    let remote = RemoteName::parse(name)?;
    if remote.is_digest() {
        // Whether it is there or not.
        say(&remote.full());
        return Ok(());
    }
    let dir = home.cached(&remote).ok_or_else(|| {
        let text = format!("OCI storage error: {name} is not a digest and doesn't point to a digest");
        Failure::Own(text, 1)
    })?;
    let digest = std::fs::canonicalize(dir.0)?
        .file_name()
        .map(|name| name.to_string_lossy().into_owned());
    let digest = digest.unwrap_or_default();
    say(&RemoteName {
        reference: digest,
        ..remote
    }
    .full());
    Ok(())
}
