//! Process numbers in other pid namespaces: an emulated Mac counts its own, and who stages faults stands outside.

use rustix::process::Pid;
use std::path::Path;

/// Where a process is counted, as the kernel names it.
fn namespace(process: &Path) -> Option<String> {
    let link = std::fs::read_link(process.join("ns/pid")).ok()?;
    Some(link.to_string_lossy().into_owned())
}

/// Where this process is counted.
pub(crate) fn here() -> String {
    namespace(Path::new("/proc/self")).unwrap_or_default()
}

/// The number here of a process that has this number there; none if it is gone.
pub(crate) fn from_here(pid: u32, there: &str) -> Option<Pid> {
    let number = |text: &str| text.parse().ok().and_then(Pid::from_raw);
    if there == here() {
        return number(&pid.to_string());
    }
    let processes = std::fs::read_dir("/proc").ok()?.flatten();
    processes
        .filter(|entry| namespace(&entry.path()).is_some_and(|counted| counted == there))
        .find(|entry| innermost(&entry.path()) == Some(pid))
        .and_then(|entry| number(entry.file_name().to_str()?))
}

/// The number that a process has where it is counted.
fn innermost(process: &Path) -> Option<u32> {
    let status = std::fs::read_to_string(process.join("status")).ok()?;
    let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
    numbers.split_whitespace().last()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn a_process_of_this_namespace_has_its_number_here() {
        let own = std::process::id();
        assert_eq!(from_here(own, &here()), Pid::from_raw(own.try_into().unwrap()));
        assert_eq!(innermost(Path::new("/proc/self")), Some(own));
        assert_eq!(from_here(own, "pid:[1]"), None);
    }

    #[test]
    fn the_first_process_of_another_namespace_is_found_from_here() {
        let mut holder = Command::new("unshare")
            .args([
                "--user",
                "--map-root-user",
                "--pid",
                "--fork",
                "--kill-child=KILL",
                "--",
            ])
            .args(["sh", "-c", "echo up; read line"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = [0; 3];
        std::io::Read::read_exact(holder.stdout.as_mut().unwrap(), &mut said).unwrap();
        let children = format!("/proc/{0}/task/{0}/children", holder.id());
        let child: i32 = std::fs::read_to_string(children).unwrap().trim().parse().unwrap();
        let there = namespace(&Path::new("/proc").join(child.to_string())).unwrap();
        assert_ne!(there, here());
        assert_eq!(from_here(1, &there), Pid::from_raw(child));
        holder.kill().unwrap();
        holder.wait().unwrap();
    }
}
