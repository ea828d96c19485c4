//! What is asked of the Elastic Metal API.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use russet_telemetry::Secret;
use serde_json::{Map, Value, json};

use crate::baremetal::partitions::Schema;
use crate::baremetal::types::Status;
use crate::ids::{OfferId, OptionId, OsId, ProjectId, SshKeyId};

/// A body, and the secrets in it.
pub(super) struct Sealed {
    pub(super) body: Value,
    pub(super) secrets: Vec<Secret<String>>,
}

/// A server to be ordered.
#[derive(Clone, Debug)]
pub struct OrderMetal {
    /// Hardware, and how it is paid for.
    pub offer: OfferId,
    /// Its name; not unique.
    pub name: String,
    /// For people.
    pub description: String,
    /// How it is found again if the answer is lost.
    pub tags: Vec<String>,
    /// What to install once it is delivered. Without it the server stays empty until [`crate::Client::install_metal`].
    pub install: Option<Install>,
    /// Options to order with it, such as that of Private Networks.
    pub options: Vec<OptionId>,
    /// What it boots with, for images that read it.
    pub user_data: Option<Secret<String>>,
}

/// An installation. It **wipes** the disks.
#[derive(Clone, Debug)]
pub struct Install {
    /// The image.
    pub os: OsId,
    /// The name the server has for itself.
    pub hostname: String,
    /// Who may log in.
    pub ssh_keys: Vec<SshKeyId>,
    /// A user and a password, for images that want them.
    pub login: Option<Login>,
    /// How to divide the disks; the default of the offer if nothing is said.
    pub partitions: Option<Schema>,
}

/// A user with a password.
#[derive(Clone, Debug)]
pub struct Login {
    /// Its name.
    pub user: String,
    /// Its password.
    pub password: Secret<String>,
}

/// What to change about a server; what is `None` stays as it is.
#[derive(Clone, Debug, Default)]
pub struct UpdateMetal {
    /// Its name.
    pub name: Option<String>,
    /// All its tags.
    pub tags: Option<Vec<String>>,
    /// What it boots with; an empty text removes it.
    pub user_data: Option<Secret<String>>,
}

/// Which servers. Everything named here must hold; an empty filter takes all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MetalFilter {
    /// Exactly this name.
    pub name: Option<String>,
    /// All of these tags.
    pub tags: Vec<String>,
    /// One of these.
    pub statuses: Vec<Status>,
}

impl Install {
    pub(super) fn sealed(&self) -> Sealed {
        let mut body = json!({ "os_id": self.os, "hostname": self.hostname, "ssh_key_ids": self.ssh_keys });
        let mut secrets = Vec::new();
        if let Some(body) = body.as_object_mut() {
            if let Some(login) = &self.login {
                body.insert("user".to_owned(), json!(login.user));
                body.insert("password".to_owned(), json!(login.password.expose()));
                secrets.push(login.password.clone());
            }
            if let Some(partitions) = &self.partitions {
                body.insert("partitioning_schema".to_owned(), json!(partitions));
            }
        }
        Sealed { body, secrets }
    }
}

/// Adds what a server boots with, in the form the API takes it. Both forms are secrets.
fn add_user_data(text: Option<&Secret<String>>, body: &mut Map<String, Value>, secrets: &mut Vec<Secret<String>>) {
    if let Some(text) = text {
        let encoded = text.map(|text| STANDARD.encode(text));
        body.insert("user_data".to_owned(), json!(encoded.expose()));
        secrets.extend([text.clone(), encoded]);
    }
}

impl OrderMetal {
    pub(super) fn sealed(&self, project: &ProjectId) -> Sealed {
        let mut body = json!({
            "offer_id": self.offer,
            "project_id": project,
            "name": self.name,
            "description": self.description,
            "tags": self.tags,
            "option_ids": self.options,
        });
        let mut secrets = Vec::new();
        if let Some(body) = body.as_object_mut() {
            if let Some(install) = &self.install {
                let install = install.sealed();
                body.insert("install".to_owned(), install.body);
                secrets.extend(install.secrets);
            }
            add_user_data(self.user_data.as_ref(), body, &mut secrets);
        }
        Sealed { body, secrets }
    }
}

impl UpdateMetal {
    pub(super) fn sealed(&self) -> Sealed {
        let mut body = Map::new();
        let mut secrets = Vec::new();
        if let Some(name) = &self.name {
            body.insert("name".to_owned(), json!(name));
        }
        if let Some(tags) = &self.tags {
            body.insert("tags".to_owned(), json!(tags));
        }
        add_user_data(self.user_data.as_ref(), &mut body, &mut secrets);
        Sealed {
            body: Value::Object(body),
            secrets,
        }
    }
}
