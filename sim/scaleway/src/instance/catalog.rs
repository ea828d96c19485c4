//! What can be ordered: commercial types with stock and prices per zone, and the images they boot from.

use crate::bill::MicroEuro;
use crate::ids::{Id, Zone};
use crate::words::words;
use serde_json::{Value, json};
use std::collections::BTreeMap;

const GIB: u64 = 1 << 30;

/// A commercial type in one zone.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct CommercialType {
    /// Its name, for example `PRO2-S`.
    pub name: String,
    pub arch: String,
    pub cpus: u32,
    /// Memory in GiB.
    pub memory_gib: u64,
    /// Local disk it comes with in GB; 0 means block volumes only.
    pub local_gb: u64,
    /// Price of an hour.
    pub hourly: MicroEuro,
    /// How many can still be started.
    pub stock: u32,
}

words! {
    /// What an image is booted from.
    pub(crate) enum ImageKind {
        InstanceLocal = "instance_local",
        InstanceSbs = "instance_sbs",
    }
}

impl ImageKind {
    /// The type of the volume it becomes.
    pub(crate) fn volume_type(self) -> &'static str {
        match self {
            Self::InstanceLocal => "l_ssd",
            Self::InstanceSbs => "sbs_volume",
        }
    }
}

/// An image in a zone.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) struct Image {
    pub(crate) id: Id,
    pub(crate) label: String,
    pub(crate) name: String,
    pub(crate) zone: Zone,
    pub(crate) arch: String,
    pub(crate) kind: ImageKind,
}

/// Everything on offer. The same in every world, so that a state from before there were Instances can still be read.
#[derive(Debug, Clone, serde::Serialize, serde::Deserialize)]
pub(crate) struct Catalog {
    pub(crate) types: BTreeMap<Zone, BTreeMap<String, CommercialType>>,
    pub(crate) images: Vec<Image>,
}

/// Name, architecture, processors, memory, local disk, micro-euros per hour.
type Row = (&'static str, &'static str, u32, u64, u64, u64);

const TYPES: [Row; 12] = [
    ("DEV1-S", "x86_64", 2, 2, 20, 8_980),
    ("DEV1-M", "x86_64", 3, 4, 40, 20_200),
    ("DEV1-L", "x86_64", 4, 8, 80, 42_500),
    ("GP1-XS", "x86_64", 4, 16, 150, 91_400),
    ("PLAY2-NANO", "x86_64", 2, 8, 0, 27_600),
    ("PRO2-XXS", "x86_64", 2, 8, 0, 55_000),
    ("PRO2-XS", "x86_64", 4, 16, 0, 110_000),
    ("PRO2-S", "x86_64", 8, 32, 0, 219_000),
    ("PRO2-M", "x86_64", 16, 64, 0, 438_000),
    ("PRO2-L", "x86_64", 32, 128, 0, 877_000),
    ("POP2-2C-8G", "x86_64", 2, 8, 0, 73_500),
    ("COPARM1-2C-8G", "arm64", 2, 8, 0, 42_600),
];

const LABELS: [(&str, &str); 4] = [
    ("ubuntu_noble", "Ubuntu 24.04 Noble Numbat"),
    ("ubuntu_jammy", "Ubuntu 22.04 Jammy Jellyfish"),
    ("debian_bookworm", "Debian Bookworm"),
    ("debian_trixie", "Debian Trixie"),
];

/// What an hour of a started gigabyte costs.
pub(crate) const LOCAL_GB: MicroEuro = MicroEuro(55);
pub(crate) const BLOCK_GB: MicroEuro = MicroEuro(118);
/// What an hour of a public IPv4 address costs.
pub(crate) const ADDRESS: MicroEuro = MicroEuro(4_000);

impl Default for Catalog {
    fn default() -> Self {
        let mut types: BTreeMap<Zone, BTreeMap<String, CommercialType>> = BTreeMap::new();
        let mut images = Vec::new();
        for zone in Zone::LINUX {
            for row in TYPES {
                types
                    .entry(Zone::new(zone))
                    .or_default()
                    .insert(row.0.to_owned(), commercial_type(row));
            }
            for (label, name) in LABELS {
                for (arch, kind) in [
                    ("x86_64", ImageKind::InstanceLocal),
                    ("arm64", ImageKind::InstanceSbs),
                    ("x86_64", ImageKind::InstanceSbs),
                ] {
                    images.push(Image {
                        id: Id::named(&format!("image/{zone}/{label}/{arch}/{}", kind.as_str())),
                        label: label.to_owned(),
                        name: name.to_owned(),
                        zone: Zone::new(zone),
                        arch: arch.to_owned(),
                        kind,
                    });
                }
            }
        }
        Self { types, images }
    }
}

fn commercial_type((name, arch, cpus, memory_gib, local_gb, micro_per_hour): Row) -> CommercialType {
    CommercialType {
        name: name.to_owned(),
        arch: arch.to_owned(),
        cpus,
        memory_gib,
        local_gb,
        hourly: MicroEuro(micro_per_hour),
        stock: 100,
    }
}

impl Catalog {
    pub(crate) fn commercial_type(&self, zone: &Zone, name: &str) -> Option<&CommercialType> {
        self.types.get(zone)?.get(name)
    }

    pub(crate) fn commercial_type_mut(&mut self, zone: &Zone, name: &str) -> Option<&mut CommercialType> {
        self.types.get_mut(zone)?.get_mut(name)
    }

    pub(crate) fn image(&self, id: &Id) -> Option<&Image> {
        self.images.iter().find(|image| image.id == *id)
    }

    /// The types that can boot from an image, in the zone it is in.
    pub(crate) fn compatible(&self, image: &Image) -> Vec<&str> {
        let types = self.types.get(&image.zone).into_iter().flat_map(BTreeMap::values);
        types
            .filter(|offered| offered.boots(image))
            .map(|offered| offered.name.as_str())
            .collect()
    }
}

impl CommercialType {
    pub(crate) fn boots(&self, image: &Image) -> bool {
        self.arch == image.arch && (image.kind == ImageKind::InstanceSbs || self.local_gb > 0)
    }

    pub(crate) fn availability(&self) -> &'static str {
        match self.stock {
            0 => "shortage",
            1..=3 => "scarce",
            _ => "available",
        }
    }

    /// As the API shows it. Prices here are euros as floats, for people.
    pub(crate) fn wire(&self) -> Value {
        #[expect(clippy::cast_precision_loss, reason = "prices are small numbers")]
        let hourly = self.hourly.0 as f64 / 1e6;
        let local = self.local_gb * 1_000_000_000;
        json!({
            "alt_names": [],
            "arch": self.arch,
            "ncpus": self.cpus,
            "ram": self.memory_gib * GIB,
            "gpu": 0,
            "hourly_price": hourly,
            "monthly_price": hourly * 730.0,
            "per_volume_constraint": {"l_ssd": {"min_size": 1_000_000_000_u64, "max_size": local}},
            "volumes_constraint": {"min_size": 0, "max_size": local},
            "network": {"ipv6_support": true, "sum_internal_bandwidth": null, "sum_internet_bandwidth": null, "interfaces": []},
            "capabilities": {"block_storage": true, "boot_types": ["local", "rescue"], "private_network": 8},
            "scratch_storage_max_size": 0,
            "scratch_storage_max_volumes_count": 0,
            "block_bandwidth": null,
            "end_of_service": false,
        })
    }
}
