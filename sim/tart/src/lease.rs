//! The DHCP server of the host: addresses are leased to MAC addresses for a day, and outlive the VM (facts 4, 6.3).

use crate::failure::Failure;
use crate::locks;
use crate::store::Home;
use crate::switches::Switches;
use crate::vm::VmDir;
use std::fmt::Write as _;
use std::net::Ipv4Addr;
use std::path::PathBuf;

const DAY: i64 = 86_400;

#[derive(Clone, Debug, PartialEq, Eq)]
struct Lease {
    mac: String,
    address: Ipv4Addr,
    until: i64,
}

fn path(home: &Home) -> PathBuf {
    home.sim().join("dhcpd_leases")
}

/// The address that a guest will get: the one it had, or the next that is free.
pub(crate) fn choose(home: &Home, mac: &str) -> Result<Ipv4Addr, Failure> {
    let _guard = locks::exclusive(&home.sim().join("dhcpd.lock"))?;
    let leases = load(home)?;
    if let Some(lease) = leases.iter().rev().find(|lease| lease.mac == mac) {
        return Ok(lease.address);
    }
    let network = Network::parse(&Switches::load(home)?.addresses)?;
    let free = |leases: &[Lease]| {
        network
            .hosts()
            .find(|address| leases.iter().all(|lease| lease.address != *address))
    };
    let address = if let Some(address) = free(&leases) {
        address
    } else {
        forget_the_dead(home, &leases)?;
        free(&load(home)?).ok_or_else(|| Failure::Emulator(format!("every address of {network:?} is leased")))?
    };
    // Kept at once, expired, so that two guests that boot together do not get the same one.
    append(
        home,
        &Lease {
            mac: mac.to_owned(),
            address,
            until: 0,
        },
    )?;
    Ok(address)
}

/// Addresses that begin alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Network {
    base: u32,
    size: u32,
}

impl Network {
    fn parse(prefix: &str) -> Result<Self, Failure> {
        let wrong = || {
            Failure::Emulator(format!(
                "the switch \"addresses\" must be two or three octets such as 127.64, not {prefix}"
            ))
        };
        let (rest, size) = match prefix.split('.').count() {
            2 => (".0.0", 1 << 16),
            3 => (".0", 1 << 8),
            _ => return Err(wrong()),
        };
        let base: Ipv4Addr = format!("{prefix}{rest}").parse().map_err(|_| wrong())?;
        Ok(Self {
            base: u32::from(base),
            size,
        })
    }

    /// Without the first two, which are the network's and the host's, and the last, which is everybody's.
    fn hosts(self) -> impl Iterator<Item = Ipv4Addr> {
        (self.base + 2..self.base + self.size - 1).map(Ipv4Addr::from)
    }
}

/// Gives back what VMs have that do not exist any more. The real server does so once nothing is free. [guess]
fn forget_the_dead(home: &Home, leases: &[Lease]) -> Result<(), Failure> {
    let vms = home.local_names()?;
    let living: Vec<String> = vms
        .iter()
        .filter_map(|name| VmDir(home.vms().join(name)).config().ok())
        .map(|config| config.mac_address)
        .collect();
    let kept = leases.iter().filter(|lease| living.contains(&lease.mac));
    write(home, kept)
}

/// The guest asked and got its address.
pub(crate) fn grant(home: &Home, mac: &str, address: Ipv4Addr) -> Result<(), Failure> {
    let _guard = locks::exclusive(&home.sim().join("dhcpd.lock"))?;
    let until = jiff::Timestamp::now().as_second() + DAY;
    append(
        home,
        &Lease {
            mac: mac.to_owned(),
            address,
            until,
        },
    )
}

/// The newest lease of a MAC address that has not run out. Nobody asks whether the VM lives.
pub(crate) fn find(home: &Home, mac: &str) -> Result<Option<Ipv4Addr>, Failure> {
    if Switches::load(home)?.truncated_leases {
        return Err(Failure::Thrown("unexpected end of the DHCP leases file".to_owned()));
    }
    let now = jiff::Timestamp::now().as_second();
    let live = load(home)?
        .into_iter()
        .filter(|lease| lease.mac == mac && lease.until > now);
    Ok(live.max_by_key(|lease| lease.until).map(|lease| lease.address))
}

/// Octets without leading zeros, as bootpd writes them.
fn short(mac: &str) -> String {
    mac.split(':')
        .map(|octet| match octet.trim_start_matches('0') {
            "" => "0",
            rest => rest,
        })
        .collect::<Vec<_>>()
        .join(":")
}

fn append(home: &Home, lease: &Lease) -> Result<(), Failure> {
    let mut leases = load(home)?;
    leases.retain(|other| other.mac != lease.mac || other.address != lease.address);
    leases.push(lease.clone());
    write(home, leases.iter())
}

fn write<'a>(home: &Home, leases: impl Iterator<Item = &'a Lease>) -> Result<(), Failure> {
    let mut text = String::new();
    for lease in leases {
        let mac = short(&lease.mac);
        let _ = writeln!(
            text,
            "{{\n\tname=guest\n\tip_address={}\n\thw_address=1,{mac}\n\tidentifier=1,{mac}\n\tlease=0x{:x}\n}}",
            lease.address, lease.until
        );
    }
    std::fs::write(path(home), text)?;
    Ok(())
}

fn load(home: &Home) -> Result<Vec<Lease>, Failure> {
    match std::fs::read_to_string(path(home)) {
        Ok(text) => Ok(parse(&text)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error.into()),
    }
}

fn parse(text: &str) -> Vec<Lease> {
    let field = |block: &str, key: &str| {
        let line = block
            .lines()
            .find_map(|line| line.trim().strip_prefix(key)?.strip_prefix('='))?;
        Some(line.to_owned())
    };
    text.split('}')
        .filter_map(|block| {
            let mac = field(block, "hw_address")?.strip_prefix("1,")?.to_owned();
            let long: Vec<_> = mac.split(':').map(|octet| format!("{octet:0>2}")).collect();
            Some(Lease {
                mac: long.join(":"),
                address: field(block, "ip_address")?.parse().ok()?,
                until: i64::from_str_radix(field(block, "lease")?.strip_prefix("0x")?, 16).ok()?,
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn octets_lose_their_leading_zeros_on_the_way_to_the_file_and_get_them_back() {
        assert_eq!(short("02:00:0a:ff:10:01"), "2:0:a:ff:10:1");
        let text = "{\n\tname=guest\n\tip_address=127.64.0.2\n\thw_address=1,2:0:a:ff:10:1\n\tidentifier=1,2\n\tlease=0x10\n}\n";
        let expected = Lease {
            mac: "02:00:0a:ff:10:01".into(),
            address: Ipv4Addr::new(127, 64, 0, 2),
            until: 16,
        };
        assert_eq!(parse(text), [expected]);
    }

    #[test]
    fn a_network_is_named_by_two_octets_or_three() {
        let wide = Network::parse("127.64").unwrap();
        assert_eq!(wide.hosts().next(), Some(Ipv4Addr::new(127, 64, 0, 2)));
        let narrow: Vec<Ipv4Addr> = Network::parse("127.130.7").unwrap().hosts().collect();
        assert_eq!(
            (narrow.len(), narrow.first(), narrow.last()),
            (
                253,
                Some(&Ipv4Addr::new(127, 130, 7, 2)),
                Some(&Ipv4Addr::new(127, 130, 7, 254))
            )
        );
        for wrong in ["127", "127.64.0.1", "127.x", "", "127.300"] {
            assert!(Network::parse(wrong).is_err(), "{wrong}");
        }
    }

    /// A Mac of `make up` has 253 addresses for its guests, and runs more of them than that in its life.
    #[test]
    fn addresses_of_vms_that_are_gone_are_given_out_again_when_none_is_left() {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::open(dir.path().to_owned()).unwrap();
        Switches::change(&home, |switches| "127.130.7".clone_into(&mut switches.addresses)).unwrap();
        for number in 0..253 {
            choose(&home, &format!("02:00:00:00:00:{number:02x}")).unwrap();
        }
        let again = choose(&home, "02:00:00:00:01:00").unwrap();
        assert_eq!(again, Ipv4Addr::new(127, 130, 7, 2));
        assert_eq!(choose(&home, "02:00:00:00:01:00").unwrap(), again);
        assert_ne!(choose(&home, "02:00:00:00:01:01").unwrap(), again);
    }
}
