//! The address of a VM in what its container is started with. It is known only once the VM is up, and the files are made before
//! that, with everything else: Secrets need not be kept anywhere until then, and an agent that comes later can go on.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;

use super::{ENTER, START, TUIST_ENV};
use crate::file;

/// An address that nobody has, the same for every agent: the uid of the Pod, which is as random as an address is long.
pub(crate) fn stand_in(uid: &str) -> IpAddr {
    let digits: String = uid.chars().filter(|digit| *digit != '-').collect();
    let bits = u128::from_str_radix(&digits, 16).unwrap_or(0);
    // Where there is no such uid, an address of the discard-only network is nobody's either.
    let bits = if digits.len() == 32 { bits } else { 0x0100 << 112 | bits };
    IpAddr::V6(Ipv6Addr::from_bits(bits))
}

/// Puts the address where its stand-in is. A second time changes nothing.
pub(crate) fn fill_in(env: &Path, stand_in: IpAddr, address: Ipv4Addr) -> io::Result<()> {
    let (from, to) = (stand_in.to_string(), address.to_string());
    for name in [TUIST_ENV, ENTER, START] {
        let path = env.join(name);
        let text = std::fs::read_to_string(&path)?;
        if text.contains(&from) {
            file::write(&path, text.replace(&from, &to).as_bytes())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pods::guest::Program;

    #[test]
    fn an_address_that_comes_late_is_in_everything_a_container_is_started_with() {
        let dir = tempfile::tempdir().unwrap();
        let own = stand_in("0b5d7f3c-8a4e-4f0c-9d1a-2b3c4d5e6f70");
        assert_ne!(own, stand_in("0b5d7f3c-8a4e-4f0c-9d1a-2b3c4d5e6f71"));
        let program = Program {
            words: vec!["serve".to_owned(), format!("--listen={own}:80")],
            env: vec![("POD_IP".to_owned(), own.to_string())],
            ..Program::default()
        };
        for (name, text) in [
            (START, program.script()),
            (ENTER, program.entrance()),
            (TUIST_ENV, program.tuist_env()),
        ] {
            std::fs::write(dir.path().join(name), text).unwrap();
        }
        for _ in 0..2 {
            fill_in(dir.path(), own, Ipv4Addr::new(192, 168, 64, 7)).unwrap();
        }
        let read = |name: &str| std::fs::read_to_string(dir.path().join(name)).unwrap();
        assert!(read(START).contains("'--listen=192.168.64.7:80'"), "{}", read(START));
        assert!(read(ENTER).contains("POD_IP='192.168.64.7'"));
        assert_eq!(read(TUIST_ENV), "POD_IP=192.168.64.7\n");
    }
}
