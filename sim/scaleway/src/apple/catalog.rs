//! What can be ordered: server types with stock and prices per zone, and the operating systems.

use crate::bill::MicroEuro;
use crate::dice::Dice;
use crate::ids::{Id, Zone};
use serde_json::{Value, json};
use std::collections::BTreeMap;

const BIT: u64 = 1_000_000_000;

/// A type of Mac mini in one zone.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Offer {
    /// Its name, for example `M2-L`.
    pub name: String,
    pub cpu: String,
    pub cores: u32,
    /// Memory in GB.
    pub memory_gb: u64,
    /// Disk in GB.
    pub disk_gb: u64,
    /// Price of an hour.
    pub hourly: MicroEuro,
    /// Price of a committed month.
    pub monthly: MicroEuro,
    /// How many can still be ordered.
    pub stock: u32,
    /// Hours it must be kept.
    pub minimum_hours: u64,
    /// Public bandwidths that can be chosen, in bits per second; the first is the default.
    pub bandwidths: Vec<u64>,
    /// What is installed when nothing is asked for.
    pub default_os: Id,
}

/// An operating system image.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Os {
    pub id: Id,
    /// For example `macos-tahoe-26.3`.
    pub name: String,
    /// For example `macOS Tahoe 26.3`.
    pub label: String,
    /// For example `Tahoe`: a name, although the documentation says a number.
    pub family: String,
    /// For example `26.3`.
    pub version: String,
    /// Whether it is one to avoid.
    pub is_beta: bool,
    /// The preinstalled Xcode.
    pub xcode_version: String,
    /// Types it runs on.
    pub server_types: Vec<String>,
    /// Retired images are gone from lists and cannot be installed; servers that run them still show them.
    pub retired: bool,
}

/// Everything on offer.
#[derive(Debug, Clone, serde::Serialize, serde::Deserialize)]
pub(crate) struct Catalog {
    pub(crate) offers: BTreeMap<Zone, BTreeMap<String, Offer>>,
    pub(crate) systems: BTreeMap<Id, Os>,
}

/// Types with a price: name, processor, cores, memory, disk, milli-euros per hour, euros per month, fast network.
type Row = (&'static str, &'static str, u32, u64, u64, u64, u64, bool);

const MINIS: [Row; 6] = [
    ("M1-M", "Apple M1", 8, 8, 256, 110, 75, false),
    ("M2-M", "Apple M2", 8, 16, 256, 170, 115, false),
    ("M2-L", "Apple M2 Pro", 10, 16, 512, 210, 139, false),
    ("M4-S", "Apple M4", 10, 16, 256, 220, 149, false),
    ("M4-M", "Apple M4", 10, 32, 1024, 290, 199, true),
    ("M4-XL", "Apple M4 Pro", 14, 64, 2048, 490, 335, true),
];

const IMAGES: [(&str, &str, &str, bool, &str); 6] = [
    ("macos-sonoma-14.4", "Sonoma", "14.4", false, "15"),
    ("macos-sequoia-15.6", "Sequoia", "15.6", false, "16"),
    ("macos-tahoe-26.0", "Tahoe", "26.0", false, "26"),
    ("macos-tahoe-26.3", "Tahoe", "26.3", false, "26"),
    ("macos-tahoe-26.10", "Tahoe", "26.10", false, "26"),
    ("macos-tahoe-26.11-beta", "Tahoe", "26.11-beta", true, "26"),
];

/// What a server of a type gets unless it asks.
const DEFAULT_IMAGE: &str = "macos-tahoe-26.3";

impl Catalog {
    /// The assortment of an ordinary day: prices of September 2026, ten of each type.
    pub(crate) fn ordinary(dice: &mut Dice) -> Self {
        let all_types: Vec<String> = MINIS.iter().map(|mini| mini.0.to_owned()).collect();
        let mut systems = BTreeMap::new();
        let mut default_os = dice.id();
        let mut add = |id: Id, name: &str, family: &str, version: &str, is_beta, xcode: &str, types: Vec<String>| {
            let os = Os {
                id: id.clone(),
                name: name.to_owned(),
                label: label(name, family, version),
                family: family.to_owned(),
                version: version.to_owned(),
                is_beta,
                xcode_version: xcode.to_owned(),
                server_types: types,
                retired: false,
            };
            systems.insert(id, os);
        };
        for (name, family, version, is_beta, xcode) in IMAGES {
            let id = dice.id();
            if name == DEFAULT_IMAGE {
                default_os = id.clone();
            }
            add(id, name, family, version, is_beta, xcode, all_types.clone());
        }
        let asahi_os = dice.id();
        let asahi_types = vec!["M2-L-ASAHI".to_owned()];
        add(
            asahi_os.clone(),
            "fedora-asahi-remix",
            "Linux",
            "42",
            true,
            "None",
            asahi_types,
        );
        add(dice.id(), "devos-tahoe-26.3", "Tahoe", "26.3", false, "26", all_types);

        let mut offers: BTreeMap<Zone, BTreeMap<String, Offer>> = BTreeMap::new();
        for mini in MINIS {
            let zone = if mini.0 == "M1-M" { "fr-par-3" } else { "fr-par-1" };
            let offer = offer(mini, 24, default_os.clone());
            offers
                .entry(Zone::new(zone))
                .or_default()
                .insert(offer.name.clone(), offer);
        }
        let asahi = offer(
            ("M2-L-ASAHI", "Apple M2 Pro for Asahi", 10, 16, 412, 210, 139, false),
            0,
            asahi_os,
        );
        offers
            .entry(Zone::new("fr-par-1"))
            .or_default()
            .insert(asahi.name.clone(), asahi);
        Self { offers, systems }
    }

    pub(crate) fn offer(&self, zone: &Zone, name: &str) -> Option<&Offer> {
        self.offers.get(zone)?.get(name)
    }

    pub(crate) fn offer_mut(&mut self, zone: &Zone, name: &str) -> Option<&mut Offer> {
        self.offers.get_mut(zone)?.get_mut(name)
    }

    /// An image by name, retired ones included.
    pub(crate) fn os_named(&self, name: &str) -> Option<&Os> {
        self.systems.values().find(|os| os.name == name)
    }
}

fn label(name: &str, family: &str, version: &str) -> String {
    if name.starts_with("macos-") {
        format!("macOS {family} {version}")
    } else {
        name.replace('-', " ")
    }
}

fn offer(row: Row, minimum_hours: u64, default_os: Id) -> Offer {
    let (name, cpu, cores, memory_gb, disk_gb, milli_per_hour, euros_per_month, fast) = row;
    Offer {
        name: name.to_owned(),
        cpu: cpu.to_owned(),
        cores,
        memory_gb,
        disk_gb,
        hourly: MicroEuro::from_milli(milli_per_hour),
        monthly: MicroEuro::from_milli(euros_per_month * 1000),
        stock: 10,
        minimum_hours,
        bandwidths: if fast {
            (1..=10).map(|n| n * BIT).collect()
        } else {
            vec![BIT]
        },
        default_os,
    }
}

impl Offer {
    fn stock_word(&self) -> &'static str {
        match self.stock {
            0 => "no_stock",
            1..=3 => "low_stock",
            _ => "high_stock",
        }
    }

    /// As the API shows it.
    pub(crate) fn wire(&self, zone: &Zone, default_os: Option<&Os>) -> Value {
        json!({
            "name": self.name,
            "cpu": {
                "name": self.cpu,
                "core_count": self.cores,
                "frequency": 3_500_000_000_u64,
                "sockets": 1,
                "threads_per_core": 1,
            },
            "disk": {"capacity": self.disk_gb * 1_000_000_000, "type": "SSD"},
            "memory": {"capacity": self.memory_gb * 1_000_000_000, "type": "LPDDR5"},
            "stock": self.stock_word(),
            "minimum_lease_duration": format!("{}s", self.minimum_hours * 3600),
            "default_os": default_os.map(|os| os.wire(zone)),
            "gpu": {"count": 10},
            "npu": {"count": 16},
            "network": {
                "public_bandwidth_bps": self.bandwidths.iter().max(),
                "supported_bandwidth": self.bandwidths,
                "default_public_bandwidth": self.bandwidths.first(),
            },
            "zone": zone,
        })
    }
}

impl Os {
    /// As the API shows it.
    pub(crate) fn wire(&self, zone: &Zone) -> Value {
        json!({
            "id": self.id,
            "name": self.name,
            "label": self.label,
            "image_url": "",
            "family": self.family,
            "is_beta": self.is_beta,
            "version": self.version,
            "xcode_version": self.xcode_version,
            "release_notes_url": "",
            "description": "",
            "tags": [],
            "compatible_server_types": self.server_types,
            "supported_server_types": self.server_types.iter().map(|name| json!({
                "server_type": name,
                "fast_delivery_available": false,
            })).collect::<Vec<_>>(),
            "zone": zone,
        })
    }

    /// Whether it can be installed on a type today.
    pub(crate) fn installs_on(&self, server_type: &str) -> bool {
        !self.retired && self.server_types.iter().any(|name| name == server_type)
    }

    /// Whether a server that runs `other` may get this one: Linux and macOS do not mix.
    pub(crate) fn replaces(&self, other: &Os) -> bool {
        (self.family == "Linux") == (other.family == "Linux")
    }
}
