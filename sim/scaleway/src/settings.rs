//! How the emulated world behaves: delays, moods and limits. All of it can be changed while it runs.

use crate::cidr::Cidr;
use std::time::Duration;

/// Every switch. The defaults are what a customer meets on an ordinary day.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// How long things take, in emulated time.
    pub delays: Delays,
    /// Lists show the world as it was this many emulated seconds ago.
    #[serde(with = "seconds")]
    pub list_lag: Duration,
    /// No page of any list is longer than this, whatever the client asks for.
    pub page_cap: Option<u32>,
    /// Apple silicon servers an organisation may have.
    pub server_quota: Option<u32>,
    /// Requests per real second and API key before 429 is answered.
    pub rate_limit: Option<u32>,
    /// What a server that was deleted answers.
    pub vanished: Vanished,
    /// What `status` shows while the private-network feature is switched on or off.
    pub vpc_toggle: VpcToggle,
    /// Whether a network can be attached while the feature is still being switched on.
    pub attach_while_updating: Permission,
    /// Whether a project may register one SSH public key twice.
    pub duplicate_ssh_keys: Permission,
    /// How credentials of servers made from now on are shown.
    pub passwords: Passwords,
    /// Whether passwords contain characters that break shells and URLs.
    pub awkward_passwords: bool,
    /// Where Linux servers get their public addresses. The first two are left to the router.
    pub linux_public: Cidr,
    /// Where private networks get their blocks when they ask for none.
    pub private_networks: Cidr,
    /// Where SSH listens on Linux servers. The API has no such field: real ones use 22.
    pub linux_ssh_port: u16,
    /// What becomes of `dynamic_ip_required` when an Instance is created without it.
    pub dynamic_ip: DynamicIp,
    /// Whether an Instance lists its private NICs.
    pub private_nics: PrivateNics,
    /// The words in which the Instance API refuses.
    pub instance_errors: ErrorStyle,
    /// What a private network does that was attached to an Elastic Metal server before its option was enabled.
    pub early_attachment: EarlyAttachment,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            delays: Delays::default(),
            list_lag: Duration::ZERO,
            page_cap: None,
            server_quota: None,
            rate_limit: None,
            vanished: Vanished::PermissionsDenied,
            vpc_toggle: VpcToggle::Updating,
            attach_while_updating: Permission::Refuse,
            duplicate_ssh_keys: Permission::Refuse,
            passwords: Passwords::Shown,
            awkward_passwords: false,
            linux_public: Cidr::LOOPBACK,
            private_networks: Cidr::PRIVATE,
            linux_ssh_port: 22,
            dynamic_ip: DynamicIp::IfAsked,
            private_nics: PrivateNics::Omitted,
            instance_errors: ErrorStyle::Current,
            early_attachment: EarlyAttachment::StaysDark,
        }
    }
}

/// A struct of durations that are written as seconds, each with its default.
macro_rules! delays {
    ($($(#[$doc:meta])+ $name:ident = $default:expr,)+) => {
        /// How long things take, in emulated seconds.
        #[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
        #[serde(default, deny_unknown_fields)]
        pub struct Delays {
            $($(#[$doc])+ #[serde(with = "seconds")] pub $name: Duration,)+
        }

        impl Default for Delays {
            fn default() -> Self {
                Self { $($name: $default),+ }
            }
        }
    };
}

delays! {
    /// Order to delivery with the default OS.
    delivery = Duration::from_mins(3),
    /// What another OS adds to the delivery.
    other_os = Duration::from_hours(1),
    /// A reinstallation.
    reinstall = Duration::from_mins(10),
    /// A reboot.
    reboot = Duration::from_secs(90),
    /// Switching the private-network feature on or off.
    vpc_toggle = Duration::from_secs(40),
    /// Attaching a private network, until the VLAN is known.
    attach = Duration::from_secs(15),
    /// Detaching it.
    detach = Duration::from_secs(10),
    /// From attached to visible in IPAM.
    ipam = Duration::from_secs(2),
    /// From deletion to being in stock again.
    restock = Duration::from_mins(30),
    /// How long a password is disclosed after an installation.
    disclosure = Duration::from_hours(72),
    /// A connectivity diagnostic.
    diagnostic = Duration::from_secs(5),
    /// An Instance, from poweron to running.
    instance_boot = Duration::from_secs(25),
    /// An Instance, from poweroff to stopped.
    instance_stop = Duration::from_secs(20),
    /// A private NIC, from created to available.
    nic = Duration::from_secs(5),
    /// How long a private NIC and its addresses outlive their deletion.
    nic_release = Duration::from_secs(5),
    /// A block volume, until it can be used, and until it is gone.
    volume = Duration::from_secs(2),
    /// An Elastic Metal order, until a machine is picked for it.
    metal_order = Duration::from_mins(1),
    /// Elastic Metal, from picked to delivered.
    metal_delivery = Duration::from_mins(8),
    /// From the request to install until the API shows it.
    metal_install_begins = Duration::from_secs(3),
    /// The installation itself.
    metal_install = Duration::from_mins(40),
    /// Elastic Metal: reboot, start and stop.
    metal_power = Duration::from_mins(4),
    /// Switching an option on or off.
    metal_option = Duration::from_secs(90),
    /// From DELETE to gone.
    metal_deletion = Duration::from_mins(2),
}

impl Delays {
    /// Whatever is done with Linux servers takes this long, for those who cannot wait.
    pub fn linux(each: Duration) -> Self {
        Self {
            instance_boot: each,
            instance_stop: each,
            nic: each,
            nic_release: each,
            volume: each,
            ipam: each,
            attach: each,
            detach: each,
            metal_order: each,
            metal_delivery: each,
            metal_install_begins: each,
            metal_install: each,
            metal_power: each,
            metal_option: each,
            metal_deletion: each,
            ..Self::default()
        }
    }
}

/// What a deleted server answers. An id that never existed is `not_found` in both moods.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Vanished {
    /// 403, as recorded from the real API.
    PermissionsDenied,
    /// 404, as one would expect.
    NotFound,
}

/// What the status shows during a toggle of the private-network feature.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum VpcToggle {
    /// `updating`.
    Updating,
    /// `ready`, as in recorded answers; only `vpc_status` tells.
    Ready,
}

/// Whether something unusual is let through.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Permission {
    /// It is.
    Accept,
    /// It is an error.
    Refuse,
}

/// How the credentials of a server are shown by GET and by lists. The answer to an order always seals both.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Passwords {
    /// In both fields, until the disclosure ends.
    Shown,
    /// `sudo_password` is empty, `vnc_url` has it.
    OnlyInVncUrl,
    /// `sudo_password` is `<sealed>`, `vnc_url` has it.
    SealedButInVncUrl,
    /// Both are `<sealed>`.
    Sealed,
}

/// What an Instance gets that was created without `dynamic_ip_required`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DynamicIp {
    /// No public address, as operators met it.
    IfAsked,
    /// A public address, as in recorded answers.
    UnlessDeclined,
}

/// Whether `private_nics` is part of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PrivateNics {
    /// It is not; only `/private_nics` tells.
    Omitted,
    /// It is.
    Shown,
}

/// How the Instance API says no.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorStyle {
    /// Like all other products, as recorded in 2025.
    Current,
    /// `invalid_request_error` and `unknown_resource`, as for years before.
    Legacy,
}

/// What an attachment does that was made too early.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EarlyAttachment {
    /// The API shows it attached with a VLAN and addresses, and no packet ever passes until it is attached anew.
    StaysDark,
    /// Packets pass from the moment the option is enabled.
    LightsUp,
}

/// Durations as seconds, which people can type.
mod seconds {
    use serde::{Deserialize as _, Deserializer, Serializer};
    use std::time::Duration;

    pub(super) fn serialize<S: Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(duration.as_secs_f64())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
        Duration::try_from_secs_f64(f64::deserialize(deserializer)?).map_err(serde::de::Error::custom)
    }
}
