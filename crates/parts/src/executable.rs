//! Is this file a program, and one for this machine? Read from its first bytes, so that a Mac's binary in a Linux folder is named
//! as such instead of failing later with "Exec format error".

use std::{fs::File, io::Read, os::unix::fs::PermissionsExt, path::Path};

use crate::platform::Platform;

/// What the first bytes of a file say.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Format {
    Native(Platform),
    /// `#!`
    Script,
    /// Mach-O for several processors.
    Universal,
    Unknown,
}

pub(crate) fn format(head: &[u8]) -> Format {
    let byte = |at: usize| head.get(at).copied().unwrap_or_default();
    let native = |os: &str, arch: &str| {
        Format::Native(Platform {
            os: os.to_owned(),
            arch: arch.to_owned(),
        })
    };
    match head {
        [b'#', b'!', ..] => Format::Script,
        [0x7f, b'E', b'L', b'F', ..] => {
            let little = byte(5) != 2;
            let machine = if little {
                [byte(18), byte(19)]
            } else {
                [byte(19), byte(18)]
            };
            match u16::from_le_bytes(machine) {
                62 => native("linux", "amd64"),
                183 => native("linux", "arm64"),
                3 => native("linux", "386"),
                40 => native("linux", "arm"),
                243 => native("linux", "riscv64"),
                other => native("linux", &format!("machine {other}")),
            }
        }
        [0xcf, 0xfa, 0xed, 0xfe, cpu, ..] => match cpu {
            0x07 => native("darwin", "amd64"),
            0x0c => native("darwin", "arm64"),
            other => native("darwin", &format!("processor {other}")),
        },
        [0xca, 0xfe, 0xba, 0xbe, ..] => Format::Universal,
        _ => Format::Unknown,
    }
}

/// Why the file cannot be run here, if it cannot.
pub(crate) fn problem(path: &Path, platform: &Platform) -> Option<String> {
    let metadata = match path.metadata() {
        Ok(metadata) => metadata,
        Err(error) => return Some(error.to_string()),
    };
    if !metadata.is_file() {
        return Some("it is not a file".to_owned());
    }
    if metadata.permissions().mode() & 0o111 == 0 {
        return Some("it is not executable (chmod +x)".to_owned());
    }
    let mut head = Vec::new();
    if let Err(error) = File::open(path).and_then(|file| file.take(64).read_to_end(&mut head)) {
        return Some(error.to_string());
    }
    match format(&head) {
        Format::Native(found) if found != *platform => {
            Some(format!("it is a program for {found}, this machine is {platform}"))
        }
        Format::Universal if platform.os != "darwin" => {
            Some(format!("it is a program for darwin, this machine is {platform}"))
        }
        Format::Unknown => Some("it is not a program (neither ELF nor Mach-O nor a script)".to_owned()),
        Format::Native(_) | Format::Script | Format::Universal => None,
    }
}

pub(crate) fn may_execute(path: &Path) -> bool {
    path.metadata()
        .is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_bytes_tell_the_platform() {
        let mut elf = vec![0x7f, b'E', b'L', b'F', 2, 1, 1];
        elf.resize(20, 0);
        elf[18] = 183;
        assert_eq!(
            format(&elf),
            Format::Native(Platform {
                os: "linux".into(),
                arch: "arm64".into()
            })
        );
        let mac = [0xcf, 0xfa, 0xed, 0xfe, 0x0c, 0, 0, 1];
        assert_eq!(
            format(&mac),
            Format::Native(Platform {
                os: "darwin".into(),
                arch: "arm64".into()
            })
        );
        assert_eq!(format(b"#!/bin/sh"), Format::Script);
        assert_eq!(format(b"<html>"), Format::Unknown);
        assert_eq!(format(b""), Format::Unknown);
    }

    #[test]
    fn this_test_program_can_be_run_here() {
        assert_eq!(problem(&std::env::current_exe().unwrap(), &Platform::host()), None);
    }
}
