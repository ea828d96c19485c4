//! What is on a machine's disk, kept in a file: an emulated Mac that is started again goes on where it was.
//!
//! A file per machine, readable only by its owner, since it holds a key. It belongs to one installation: a wiped machine does not
//! read what an earlier one wrote.

use crate::join::{Join, Taint};
use crate::machine::Disk;
use russet_node::{KeptMemory, Memory};
use russet_sim_scaleway::Host;
use russet_telemetry::Secret;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

/// The file's content.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Image {
    generation: u32,
    orders: Option<Orders>,
    memory: KeptMemory,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Orders {
    node_name: String,
    provider_id: String,
    labels: BTreeMap<String, String>,
    taints: Vec<Taint>,
    kubeconfig: String,
    hash: String,
}

/// What a machine had on its disk before this process: orders, and what its agent remembers.
pub(crate) struct Kept {
    pub(crate) join: Option<Join>,
    pub(crate) memory: Memory,
}

fn path(dir: &Path, host: &Host) -> PathBuf {
    dir.join(format!("{}.json", host.server_id))
}

/// Reads what this installation wrote; none if there is nothing, or nothing that can be understood.
pub(crate) fn load(dir: &Path, host: &Host) -> Option<Kept> {
    let bytes = std::fs::read(path(dir, host)).ok()?;
    let image: Image = match serde_json::from_slice(&bytes) {
        Ok(image) => image,
        Err(error) => {
            // Not its content, which holds a key.
            tracing::warn!(server = %host.server_id, line = error.line(), "the disk of a machine is damaged; it starts empty");
            return None;
        }
    };
    (image.generation == host.generation).then(|| Kept {
        join: image.orders.map(|orders| Join {
            node_name: orders.node_name,
            provider_id: orders.provider_id,
            labels: orders.labels,
            taints: orders.taints,
            kubeconfig: Secret::new(orders.kubeconfig),
            hash: orders.hash,
        }),
        memory: image.memory.into(),
    })
}

/// Writes it down, whole or not at all.
pub(crate) fn save(dir: &Path, host: &Host, disk: &Disk) -> io::Result<()> {
    let image = Image {
        generation: host.generation,
        orders: disk.join.as_ref().map(|join| Orders {
            node_name: join.node_name.clone(),
            provider_id: join.provider_id.clone(),
            labels: join.labels.clone(),
            taints: join.taints.clone(),
            kubeconfig: join.kubeconfig.expose().clone(),
            hash: join.hash.clone(),
        }),
        memory: KeptMemory::from(&disk.memory),
    };
    let path = path(dir, host);
    let fresh = path.with_extension("json.new");
    let mut file = std::fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&fresh)?;
    file.write_all(&serde_json::to_vec(&image)?)?;
    std::fs::rename(fresh, path)
}

/// The disk was wiped, or the machine is gone.
pub(crate) fn erase(dir: &Path, host: &Host) {
    match std::fs::remove_file(path(dir, host)) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => tracing::warn!(server = %host.server_id, %error, "the disk of a machine could not be erased"),
    }
}
