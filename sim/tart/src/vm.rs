//! The folder of one VM: `config.json`, `disk.img`, `nvram.bin`, and what only the emulator keeps there.
//!
//! The disk image is a hole of the right length. What it would hold is in `guest/`, the guest's files, and in `sim.json`,
//! which says what image it came from and which blocks it shares with its relatives.

use crate::failure::Failure;
use crate::image::{Image, Os};
use rand::Rng as _;
use serde::{Deserialize, Serialize};
use std::fs::{File, FileTimes};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

pub(crate) const GB: u64 = 1_000_000_000;
pub(crate) const MIB: u64 = 1 << 20;

/// `config.json` (facts 6.2).
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct VmConfig {
    pub(crate) version: u32,
    pub(crate) os: Os,
    pub(crate) arch: String,
    pub(crate) ecid: String,
    pub(crate) hardware_model: String,
    pub(crate) cpu_count_min: u32,
    pub(crate) cpu_count: u32,
    pub(crate) memory_size_min: u64,
    pub(crate) memory_size: u64,
    pub(crate) mac_address: String,
    pub(crate) display: Display,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) display_refit: Option<bool>,
    pub(crate) disk_format: String,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Display {
    pub(crate) width: u32,
    pub(crate) height: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) unit: Option<String>,
}

/// What only the emulator keeps.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Origin {
    pub(crate) image: Image,
    /// Whoever has the same extent shares its blocks, as APFS clones do.
    pub(crate) extent: String,
}

/// The folder of a VM or of a cached image.
#[derive(Clone, Debug)]
pub(crate) struct VmDir(pub(crate) PathBuf);

impl VmDir {
    pub(crate) fn config_path(&self) -> PathBuf {
        self.0.join("config.json")
    }

    pub(crate) fn saved_state(&self) -> PathBuf {
        self.0.join("state.vzvmsave")
    }

    /// A VM that lacks one of its three files is no VM.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        let missing: Vec<_> = ["config.json", "disk.img", "nvram.bin"]
            .into_iter()
            .filter(|name| !self.0.join(name).exists())
            .collect();
        if missing.is_empty() {
            return Ok(());
        }
        Err(Failure::Own(
            format!("VM is missing some of its files ({})", missing.join(", ")),
            1,
        ))
    }

    pub(crate) fn config(&self) -> Result<VmConfig, Failure> {
        Ok(serde_json::from_slice(&std::fs::read(self.config_path())?)?)
    }

    /// In place, as Foundation writes it: the lock belongs to the inode.
    pub(crate) fn write_config(&self, config: &VmConfig) -> Result<(), Failure> {
        Ok(std::fs::write(self.config_path(), serde_json::to_vec(config)?)?)
    }

    pub(crate) fn origin(&self) -> Result<Origin, Failure> {
        Ok(serde_json::from_slice(&std::fs::read(self.0.join("sim.json"))?)?)
    }

    /// Makes the files of a fresh VM or image.
    pub(crate) fn create(&self, image: &Image, extent: &str) -> Result<(), Failure> {
        let _ = std::fs::remove_dir_all(&self.0);
        std::fs::create_dir_all(self.0.join("guest"))?;
        let config = VmConfig {
            version: 1,
            os: image.os,
            arch: "arm64".to_owned(),
            ecid: random_ecid(),
            hardware_model: "YnBsaXN0MDDTAQ==".to_owned(),
            cpu_count_min: image.cpu_min,
            cpu_count: image.cpu,
            memory_size_min: image.memory_mb_min * MIB,
            memory_size: image.memory_mb * MIB,
            mac_address: random_mac(),
            display: Display {
                width: 1024,
                height: 768,
                unit: None,
            },
            display_refit: None,
            disk_format: "raw".to_owned(),
        };
        self.write_config(&config)?;
        File::create(self.0.join("disk.img"))?.set_len(image.disk_gb * GB)?;
        std::fs::write(self.0.join("nvram.bin"), "nvram")?;
        let origin = Origin {
            image: image.clone(),
            extent: extent.to_owned(),
        };
        std::fs::write(self.0.join("sim.json"), serde_json::to_vec(&origin)?)?;
        Ok(())
    }

    /// Copies the VM as `clonefile` would: same length, same blocks, same serial.
    pub(crate) fn copy_to(&self, other: &Self) -> Result<(), Failure> {
        std::fs::create_dir_all(&other.0)?;
        for name in ["config.json", "nvram.bin", "sim.json"] {
            std::fs::copy(self.0.join(name), other.0.join(name))?;
        }
        let length = std::fs::metadata(self.0.join("disk.img"))?.len();
        File::create(other.0.join("disk.img"))?.set_len(length)?;
        copy_tree(&self.0.join("guest"), &other.0.join("guest"))?;
        Ok(())
    }

    pub(crate) fn disk_bytes(&self) -> Result<u64, Failure> {
        Ok(std::fs::metadata(self.0.join("disk.img"))?.len())
    }

    /// Each open sets the access date; auto-prune goes by it.
    pub(crate) fn touch(&self) {
        if let Ok(folder) = File::open(&self.0) {
            let _ = folder.set_times(FileTimes::new().set_accessed(SystemTime::now()));
        }
    }

    pub(crate) fn accessed(&self) -> SystemTime {
        std::fs::metadata(&self.0)
            .and_then(|meta| meta.accessed())
            .unwrap_or(SystemTime::UNIX_EPOCH)
    }
}

/// A locally administered MAC address, as Virtualization.framework draws them.
pub(crate) fn random_mac() -> String {
    let mut octets: [u8; 6] = rand::rng().random();
    if let Some(first) = octets.first_mut() {
        *first = (*first & 0xfc) | 0x02;
    }
    octets.map(|octet| format!("{octet:02x}")).join(":")
}

pub(crate) fn random_ecid() -> String {
    format!("sim-ecid-{:016x}", rand::rng().random::<u64>())
}

fn copy_tree(from: &Path, to: &Path) -> std::io::Result<()> {
    std::fs::create_dir_all(to)?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let (kind, target) = (entry.file_type()?, to.join(entry.file_name()));
        if kind.is_dir() {
            copy_tree(&entry.path(), &target)?;
        } else if kind.is_symlink() {
            std::os::unix::fs::symlink(std::fs::read_link(entry.path())?, target)?;
        } else if kind.is_file() {
            std::fs::copy(entry.path(), target)?;
        }
    }
    std::fs::set_permissions(to, std::fs::metadata(from)?.permissions())
}
