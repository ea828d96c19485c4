//! What all servers of a fleet are told from outside, and what synthetic ones remember.
//!
//! A real server has a disk. A synthetic one has only its Node's identity, and the user data it was made from is taken away
//! as soon as the Node is there: without a note of its own it could not come back after a restart.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use russet_cluster::files::{self, Access};
use russet_telemetry::Secret;
use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::row::{Row, tag};
use crate::synthetic::{Memory, Orders};

/// Shared by all servers of a fleet.
#[derive(Debug, Default)]
pub(crate) struct Habits {
    api_server: Mutex<Option<String>>,
    /// One note per synthetic server; none: they are forgotten.
    notes: Option<PathBuf>,
}

/// The identity of a synthetic server. Holds its key, so its owner alone may read the file.
#[derive(Serialize, Deserialize)]
struct Note {
    generation: u32,
    node_name: String,
    provider_id: String,
    labels: BTreeMap<String, String>,
    taints: Vec<(String, String, String)>,
    kubeconfig: String,
    key: String,
    certificate: String,
}

impl Habits {
    pub(crate) fn remembering(state: &Path) -> Result<Self, Error> {
        let notes = state.join("synthetic");
        files::create_private_dir(&notes).map_err(russet_cluster::node::Error::from)?;
        Ok(Self {
            notes: Some(notes),
            ..Self::default()
        })
    }

    pub(crate) fn follow(&self, server: &str) {
        *self.api_server.lock().unwrap_or_else(PoisonError::into_inner) = Some(server.to_owned());
    }

    pub(crate) fn api_server(&self) -> Option<String> {
        self.api_server.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn note(&self, row: &Row) -> Option<PathBuf> {
        Some(self.notes.as_ref()?.join(format!("{}.json", tag(row))))
    }

    /// Writes down who a server is, once it is somebody.
    pub(crate) fn keep(&self, row: &Row, memory: &Memory) -> Result<(), files::Error> {
        let (Some(path), Some(orders), Some((key, certificate))) = (self.note(row), &memory.orders, &memory.identity)
        else {
            return Ok(());
        };
        let note = Note {
            generation: row.generation,
            node_name: orders.node_name.clone(),
            provider_id: orders.provider_id.clone(),
            labels: orders.labels.clone(),
            taints: orders.taints.clone(),
            kubeconfig: orders.kubeconfig.expose().clone(),
            key: key.expose().clone(),
            certificate: certificate.clone(),
        };
        files::write(&path, &serde_json::to_vec(&note).unwrap_or_default(), Access::Private)
    }

    /// Who a server was. A note of another installation, or a torn one, says nothing.
    pub(crate) fn recall(&self, row: &Row) -> Option<Memory> {
        let note: Note = serde_json::from_slice(&std::fs::read(self.note(row)?).ok()?).ok()?;
        (note.generation == row.generation).then(|| Memory {
            identity: Some((Secret::new(note.key), note.certificate)),
            orders: Some(Orders {
                node_name: note.node_name,
                provider_id: note.provider_id,
                labels: note.labels,
                taints: note.taints,
                kubeconfig: Secret::new(note.kubeconfig),
            }),
        })
    }

    pub(crate) fn forget(&self, row: &Row) {
        if let Some(path) = self.note(row)
            && let Err(error) = std::fs::remove_file(&path)
            && error.kind() != std::io::ErrorKind::NotFound
        {
            tracing::warn!(server = row.name, %error, "the note of a synthetic server could not be removed");
        }
    }
}
