//! How the emulated world behaves: delays, moods and limits. All of it can be changed while it runs.

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
        }
    }
}

/// How long things take, in emulated seconds.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Delays {
    /// Order to delivery with the default OS.
    #[serde(with = "seconds")]
    pub delivery: Duration,
    /// What another OS adds to the delivery.
    #[serde(with = "seconds")]
    pub other_os: Duration,
    /// A reinstallation.
    #[serde(with = "seconds")]
    pub reinstall: Duration,
    /// A reboot.
    #[serde(with = "seconds")]
    pub reboot: Duration,
    /// Switching the private-network feature on or off.
    #[serde(with = "seconds")]
    pub vpc_toggle: Duration,
    /// Attaching a private network, until the VLAN is known.
    #[serde(with = "seconds")]
    pub attach: Duration,
    /// Detaching it.
    #[serde(with = "seconds")]
    pub detach: Duration,
    /// From attached to visible in IPAM.
    #[serde(with = "seconds")]
    pub ipam: Duration,
    /// From deletion to being in stock again.
    #[serde(with = "seconds")]
    pub restock: Duration,
    /// How long a password is disclosed after an installation.
    #[serde(with = "seconds")]
    pub disclosure: Duration,
    /// A connectivity diagnostic.
    #[serde(with = "seconds")]
    pub diagnostic: Duration,
}

impl Default for Delays {
    fn default() -> Self {
        Self {
            delivery: Duration::from_mins(3),
            other_os: Duration::from_hours(1),
            reinstall: Duration::from_mins(10),
            reboot: Duration::from_secs(90),
            vpc_toggle: Duration::from_secs(40),
            attach: Duration::from_secs(15),
            detach: Duration::from_secs(10),
            ipam: Duration::from_secs(2),
            restock: Duration::from_mins(30),
            disclosure: Duration::from_hours(72),
            diagnostic: Duration::from_secs(5),
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
