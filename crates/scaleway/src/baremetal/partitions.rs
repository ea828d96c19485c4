//! How the disks of a server are divided.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::wire::null_is_default;

/// A division of the disks. Words are kept as they came, since it is sent back with little changed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Schema {
    /// The disks.
    #[serde(default, deserialize_with = "null_is_default")]
    pub disks: Vec<Disk>,
    /// Arrays made of partitions.
    #[serde(default, deserialize_with = "null_is_default")]
    pub raids: Vec<Raid>,
    /// What is mounted where.
    #[serde(default, deserialize_with = "null_is_default")]
    pub filesystems: Vec<Filesystem>,
    /// Pools of ZFS, if there are any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zfs: Option<Value>,
}

/// A disk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Disk {
    /// Such as `/dev/nvme0n1`.
    pub device: String,
    /// Its partitions.
    #[serde(default, deserialize_with = "null_is_default")]
    pub partitions: Vec<Partition>,
}

/// A partition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Partition {
    /// What it is for: `uefi`, `boot`, `root`, `raid`, `swap`, `data`…
    pub label: String,
    /// Its number on the disk, from 1.
    pub number: u32,
    /// In bytes.
    #[serde(default)]
    pub size: u64,
    /// It takes what is left of the disk.
    #[serde(default)]
    pub use_all_available_space: bool,
}

/// An array.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Raid {
    /// Such as `/dev/md0`.
    pub name: String,
    /// Such as `raid_level_1`.
    pub level: String,
    /// Its partitions.
    #[serde(default, deserialize_with = "null_is_default")]
    pub devices: Vec<String>,
}

/// A file system.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Filesystem {
    /// A partition or an array.
    pub device: String,
    /// Such as `ext4` or `xfs`.
    pub format: String,
    /// Such as `/data`.
    #[serde(default, deserialize_with = "null_is_default")]
    pub mountpoint: String,
}
