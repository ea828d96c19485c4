//! What can be ordered: offers, operating systems and options.
//!
//! One machine is two offers of one name, by the hour and by the month; whoever looks an offer up by its name alone gets
//! the one or the other.

use crate::bill::{MicroEuro, Plan};
use crate::ids::{Id, Zone};
use crate::words::words;
use serde_json::{Value, json};
use std::collections::BTreeMap;

words! {
    /// How an offer is paid.
    pub enum Period {
        /// By the started hour.
        Hourly = "hourly",
        /// By the started month.
        Monthly = "monthly",
    }
}

impl Period {
    pub(crate) fn plan(self, price: MicroEuro) -> Plan {
        match self {
            Self::Hourly => Plan::Hourly {
                price,
                minimum_hours: 1,
            },
            Self::Monthly => Plan::Monthly { price },
        }
    }
}

/// A machine in one zone, as it can be ordered.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct MetalOffer {
    pub id: Id,
    /// Its name, for example `EM-B220E-NVME`; the other period has the same.
    pub name: String,
    /// How it is paid.
    pub period: Period,
    /// Price of an hour, or of a month.
    pub price: MicroEuro,
    pub cpu: String,
    pub cores: u32,
    /// Memory in GB.
    pub memory_gb: u64,
    /// Each of the two disks, in GB.
    pub disk_gb: u64,
    /// What the disks are.
    pub disk_type: String,
}

/// An operating system image.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct MetalOs {
    pub id: Id,
    /// For example `Ubuntu`.
    pub name: String,
    /// For example `24.04 LTS (Noble Numbat)`.
    pub version: String,
    /// What it is called elsewhere, for example `ubuntu_noble`. The API does not show it.
    pub label: String,
    pub user: String,
    /// Whether it reads user data.
    pub cloud_init: bool,
    /// Whether disks can be laid out otherwise.
    pub partitioning: bool,
}

/// Something that can be added to a server.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) struct Extra {
    pub(crate) id: Id,
    pub(crate) name: String,
    pub(crate) kind: ExtraKind,
    pub(crate) period: Period,
    pub(crate) price: MicroEuro,
}

/// What an option is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ExtraKind {
    PrivateNetwork,
    RemoteAccess,
}

/// Everything on offer. The same in every world, except for the stock.
#[derive(Debug, Clone, serde::Serialize, serde::Deserialize)]
pub(crate) struct Catalog {
    pub(crate) offers: BTreeMap<Zone, Vec<MetalOffer>>,
    pub(crate) systems: Vec<MetalOs>,
    pub(crate) extras: Vec<Extra>,
    /// Machines left, by zone and name: both periods take from one shelf.
    pub(crate) stock: BTreeMap<Zone, BTreeMap<String, u32>>,
}

/// Zones and the machines in them.
const ZONES: [&str; 4] = ["fr-par-1", "fr-par-2", "nl-ams-1", "pl-waw-2"];

/// Name, processor, cores, memory, disk, kind of disk, micro-euros per hour, milli-euros per month.
type Row = (&'static str, &'static str, u32, u64, u64, &'static str, u64, u64);

const MACHINES: [Row; 4] = [
    ("EM-A115X-SSD", "Intel Xeon E3 1220", 4, 32, 1000, "SSD", 85_000, 39_990),
    (
        "EM-A610R-NVME",
        "AMD Ryzen PRO 3600",
        6,
        16,
        1020,
        "NVMe",
        140_000,
        69_990,
    ),
    ("EM-B220E-NVME", "AMD EPYC 7232P", 8, 64, 1020, "NVMe", 263_000, 129_990),
    (
        "EM-I220E-NVME",
        "AMD EPYC 7313P",
        16,
        128,
        1920,
        "NVMe",
        465_000,
        229_990,
    ),
];

/// Name, version, label, account, cloud-init, partitioning.
const SYSTEMS: [(&str, &str, &str, &str, bool, bool); 5] = [
    (
        "Ubuntu",
        "24.04 LTS (Noble Numbat)",
        "ubuntu_noble",
        "ubuntu",
        true,
        true,
    ),
    (
        "Ubuntu",
        "22.04 LTS (Jammy Jellyfish)",
        "ubuntu_jammy",
        "ubuntu",
        true,
        true,
    ),
    (
        "Ubuntu",
        "20.04 LTS (Focal Fossa)",
        "ubuntu_focal",
        "ubuntu",
        false,
        true,
    ),
    ("Debian", "12 (Bookworm)", "debian_bookworm", "debian", true, true),
    ("Proxmox", "VE 8", "proxmox_8", "debian", false, false),
];

impl Default for Catalog {
    fn default() -> Self {
        let mut offers: BTreeMap<Zone, Vec<MetalOffer>> = BTreeMap::new();
        let mut stock: BTreeMap<Zone, BTreeMap<String, u32>> = BTreeMap::new();
        for zone in ZONES {
            for row in MACHINES {
                for period in [Period::Hourly, Period::Monthly] {
                    offers
                        .entry(Zone::new(zone))
                        .or_default()
                        .push(offer(zone, row, period));
                }
                stock.entry(Zone::new(zone)).or_default().insert(row.0.to_owned(), 10);
            }
        }
        let systems = SYSTEMS.map(|(name, version, label, user, cloud_init, partitioning)| MetalOs {
            id: Id::named(&format!("metal-os/{label}")),
            name: name.to_owned(),
            version: version.to_owned(),
            label: label.to_owned(),
            user: user.to_owned(),
            cloud_init,
            partitioning,
        });
        let extra = |name: &str, kind, period: Period, price| Extra {
            id: Id::named(&format!("metal-option/{name}/{}", period.as_str())),
            name: name.to_owned(),
            kind,
            period,
            price,
        };
        Self {
            offers,
            systems: systems.into(),
            extras: vec![
                extra(
                    "Private Network",
                    ExtraKind::PrivateNetwork,
                    Period::Hourly,
                    MicroEuro(14_000),
                ),
                extra(
                    "Private Network",
                    ExtraKind::PrivateNetwork,
                    Period::Monthly,
                    MicroEuro::from_milli(9_990),
                ),
                extra("Remote Access", ExtraKind::RemoteAccess, Period::Hourly, MicroEuro(0)),
                extra("Remote Access", ExtraKind::RemoteAccess, Period::Monthly, MicroEuro(0)),
            ],
            stock,
        }
    }
}

fn offer(zone: &str, row: Row, period: Period) -> MetalOffer {
    let (name, cpu, cores, memory_gb, disk_gb, disk_type, micro_per_hour, milli_per_month) = row;
    let price = match period {
        Period::Hourly => MicroEuro(micro_per_hour),
        Period::Monthly => MicroEuro::from_milli(milli_per_month),
    };
    MetalOffer {
        id: Id::named(&format!("metal-offer/{zone}/{name}/{}", period.as_str())),
        name: name.to_owned(),
        period,
        price,
        cpu: cpu.to_owned(),
        cores,
        memory_gb,
        disk_gb,
        disk_type: disk_type.to_owned(),
    }
}

/// An amount as the API writes it.
fn money(amount: MicroEuro) -> Value {
    json!({
        "currency_code": "EUR",
        "units": amount.0 / 1_000_000,
        "nanos": (amount.0 % 1_000_000) * 1000,
    })
}

impl Extra {
    /// What kind of option it is, as the API says it: by the name of a field.
    pub(crate) fn typed(&self, mut shown: Value) -> Value {
        if let Some(fields) = shown.as_object_mut() {
            match self.kind {
                ExtraKind::PrivateNetwork => {
                    fields.insert(
                        "private_network".to_owned(),
                        json!({"bandwidth_in_bps": 1_000_000_000_u64}),
                    );
                }
                ExtraKind::RemoteAccess => {
                    fields.insert("remote_access".to_owned(), json!({}));
                }
            }
        }
        shown
    }

    pub(crate) fn wire(&self) -> Value {
        self.typed(json!({"id": self.id, "name": self.name, "manageable": true}))
    }

    fn wire_offered(&self) -> Value {
        self.typed(json!({
            "id": self.id,
            "name": self.name,
            "enabled": false,
            "subscription_period": self.period,
            "price": money(self.price),
            "manageable": true,
            "os_id": null,
        }))
    }
}

impl MetalOs {
    /// As the API shows it.
    pub(crate) fn wire(&self, zone: &Zone) -> Value {
        let field = |editable: bool, required: bool, default: Option<&str>| json!({"editable": editable, "required": required, "default_value": default});
        json!({
            "id": self.id,
            "name": self.name,
            "version": self.version,
            "logo_url": "",
            "ssh": field(true, true, None),
            "user": field(true, false, Some(&self.user)),
            "password": field(true, false, None),
            "service_user": field(false, false, None),
            "service_password": field(false, false, None),
            "enabled": true,
            "license_required": false,
            "allowed": true,
            "custom_partitioning_supported": self.partitioning,
            "cloud_init_supported": self.cloud_init,
            "cloud_init_version": self.cloud_init.then_some("24.1"),
            "zone": zone,
        })
    }
}

impl MetalOffer {
    /// How it appears on the bill.
    pub(crate) fn plan(&self) -> Plan {
        self.period.plan(self.price)
    }
}

impl Catalog {
    pub(crate) fn offer(&self, zone: &Zone, id: &Id) -> Option<&MetalOffer> {
        self.offers.get(zone)?.iter().find(|offer| offer.id == *id)
    }

    pub(crate) fn offer_named(&self, zone: &Zone, name: &str, period: Period) -> Option<&MetalOffer> {
        let mut offers = self.offers.get(zone)?.iter();
        offers.find(|offer| offer.name == name && offer.period == period)
    }

    pub(crate) fn os(&self, id: &Id) -> Option<&MetalOs> {
        self.systems.iter().find(|os| os.id == *id)
    }

    pub(crate) fn extra(&self, id: &Id) -> Option<&Extra> {
        self.extras.iter().find(|extra| extra.id == *id)
    }

    pub(crate) fn left(&self, zone: &Zone, name: &str) -> Option<u32> {
        self.stock.get(zone)?.get(name).copied()
    }

    pub(crate) fn left_mut(&mut self, zone: &Zone, name: &str) -> Option<&mut u32> {
        self.stock.get_mut(zone)?.get_mut(name)
    }

    /// An offer as the API shows it.
    pub(crate) fn wire(&self, zone: &Zone, offer: &MetalOffer) -> Value {
        let stock = match self.left(zone, &offer.name).unwrap_or(0) {
            0 => "empty",
            1..=3 => "low",
            _ => "available",
        };
        let priced = |period| (offer.period == period).then(|| money(offer.price));
        let monthly = self.offer_named(zone, &offer.name, Period::Monthly);
        let disk = json!({"capacity": offer.disk_gb * 1_000_000_000, "type": offer.disk_type});
        let options = self.extras.iter().filter(|extra| extra.period == offer.period);
        json!({
            "id": offer.id,
            "name": offer.name,
            "stock": stock,
            "bandwidth": 1_000_000_000_u64,
            "max_bandwidth": 1_000_000_000_u64,
            "commercial_range": "beryllium",
            "price_per_hour": priced(Period::Hourly),
            "price_per_month": priced(Period::Monthly),
            "disks": [disk, disk],
            "enable": true,
            "cpus": [{
                "name": offer.cpu,
                "core_count": offer.cores,
                "thread_count": offer.cores * 2,
                "frequency": 3100,
                "benchmark": "",
            }],
            "memories": [{
                "capacity": offer.memory_gb * 1_000_000_000,
                "type": "DDR4",
                "frequency": 3200,
                "is_ecc": true,
                "ecc_type": "on_board",
            }],
            "quota_name": format!("baremetal_{}", offer.name.to_lowercase().replace('-', "_")),
            "persistent_memories": [],
            "raid_controllers": [],
            "incompatible_os_ids": [],
            "subscription_period": offer.period,
            "operation_path": "",
            "fee": null,
            "options": options.map(Extra::wire_offered).collect::<Vec<_>>(),
            "private_bandwidth": 1_000_000_000_u64,
            "shared_bandwidth": true,
            "tags": [],
            "gpus": [],
            "monthly_offer_id": monthly.filter(|_| offer.period == Period::Hourly).map(|offer| &offer.id),
            "zone": zone,
            "dual_attach": null,
        })
    }
}
