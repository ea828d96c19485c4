//! Programs for Macs: one that only stays, and the real agent.

use std::path::PathBuf;

use anyhow::Result;
use russet_testkit::program::program;

/// A program that waits until it is ended, whatever its arguments are. It is a real one, since the kernel of a Mac asks nobody for the
/// signature of a script; and a small one, since a story sends it a hundred times. The version makes one differ from another.
pub(super) fn stays(version: &str) -> Vec<u8> {
    const HEADERS: u64 = 64 + 56;
    const BASE: u64 = 0x40_0000;
    let (machine, code): (u16, &[u8]) = if cfg!(target_arch = "aarch64") {
        // ppoll(nothing), again and again.
        let code = &[
            0x00, 0x00, 0x80, 0xd2, 0x01, 0x00, 0x80, 0xd2, 0x02, 0x00, 0x80, 0xd2, 0x03, 0x00, 0x80, 0xd2, 0x28, 0x09,
            0x80, 0xd2, 0x01, 0x00, 0x00, 0xd4, 0xfa, 0xff, 0xff, 0x17,
        ];
        (183, code)
    } else {
        // pause(), again and again.
        (62, &[0xb8, 0x22, 0x00, 0x00, 0x00, 0x0f, 0x05, 0xeb, 0xf7])
    };
    let size = HEADERS + code.len() as u64;
    let mut elf = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0".to_vec();
    let mut short = |number: u16| elf.extend(number.to_le_bytes());
    // An executable for this processor.
    short(2);
    short(machine);
    elf.extend(1_u32.to_le_bytes());
    // Entry, program headers, no sections.
    for number in [BASE + HEADERS, 64, 0] {
        elf.extend(number.to_le_bytes());
    }
    elf.extend(0_u32.to_le_bytes());
    for number in [64_u16, 56, 1, 64, 0, 0] {
        elf.extend(number.to_le_bytes());
    }
    // One segment: all of it, to read and execute.
    elf.extend(1_u32.to_le_bytes());
    elf.extend(5_u32.to_le_bytes());
    for number in [0, BASE, BASE, size, size, 0x1000] {
        elf.extend(number.to_le_bytes());
    }
    elf.extend(code);
    elf.extend(version.as_bytes());
    elf
}

/// The agent that ships.
pub(super) fn agent() -> Result<PathBuf> {
    program("tart-kubelet", "russet-tart-kubelet")
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;
    use std::process::Command;

    use super::*;

    #[test]
    fn the_program_that_stays_runs_until_it_is_ended() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("stays");
        std::fs::write(&path, stays("1")).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        let mut child = Command::new(&path).arg("--whatever").spawn().unwrap();
        let pid = rustix::process::Pid::from_child(&child);
        assert_eq!(child.try_wait().unwrap(), None);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        let status = child.wait().unwrap();
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(15));
        assert_ne!(stays("1"), stays("2"));
    }
}
